"""The knobs of models and of the hardware they run on. Imports nothing heavy; `config.py` has all the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

EVERY_LINEAR = "all-linear"
"""As a target of LoRA: every linear layer but the output head."""


def bounded(default: Any, *, one_of: Sequence[str] = (), **bounds: float) -> Any:
    """A field that `compose.check` holds to `bounds` (keys of BOUNDS there) or to a choice."""
    return field(default=default, metadata={"one_of": tuple(one_of), **bounds})


@dataclass(kw_only=True)
class ModelConfig:
    """The policy that learns, how much of it does, and where models run."""

    solver: str = "nano"
    """`nano` (embedded), a directory, a Hugging Face id, or `auto`: by the memory of the device, once for each run."""
    profile: str = ""
    """Which of `configs/profile/` describes this hardware; each of them says so here. `auto`: the largest that fits,
    once for each run."""
    device: str = bounded("auto", one_of=("auto", "cpu", "cuda", "mps"))
    """auto: CUDA, then MPS, then the CPU. CPU_ONLY=1 in the environment comes before it."""
    gpus: int = bounded(1, ge=0, le=64)
    """Cards of this machine that compute together, each with a process of its own; 0: every visible one. Without a
    card: so many processes on the CPU."""
    precision: str = bounded("auto", one_of=("auto", "float32", "bfloat16", "float16"))
    """auto: bfloat16 on CUDA cards that compute in it, float32 elsewhere."""
    threads: int = bounded(0, ge=0)
    """CPU threads of torch; 0: one for a tiny solver, else torch's own choice."""
    backend: str = bounded("own", one_of=("own", "vllm"))
    """Who decodes the solver's attempts. vllm: an engine in this process, for larger models; needs the extra `vllm`."""
    backend_share: float = bounded(0.3, gt=0, le=0.95)
    """Of the device's memory, what vLLM takes for its own copy of the weights and for keys and values."""
    train: str = bounded("full", one_of=("full", "lora"))
    """full: every weight. lora: an adapter of low rank beside frozen weights, for a fraction of the memory."""
    lora_rank: int = bounded(16, ge=1, le=1024)
    lora_alpha: float = bounded(32.0, gt=0, le=4096)
    """The adapter's output is multiplied by alpha / rank."""
    lora_targets: list[str] = field(default_factory=lambda: [EVERY_LINEAR])
    """Names of the linear layers that get one, for example [q_proj,v_proj]; `all-linear`: all but the output head."""
    activation_checkpointing: str = bounded("auto", one_of=("auto", "on", "off"))
    """Compute activations twice instead of keeping them; auto: from 200 million parameters on."""
    memory_share: float = bounded(1.0, gt=0, le=1)
    """Of the device's memory, what this node may count on: several nodes on one device share it."""
    preflight: str = bounded("refuse", one_of=("refuse", "warn"))
    """What is done when the estimated memory is more than there is."""
