"""The models that are chosen when nobody names one, and the shape of any model without its weights.

The pool is of one family, so that its members share a tokenizer: peers' rollouts then cost least to read.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

from codezero.errors import ModelError
from codezero.models.memory import GIB, Shape

AUTO = "auto"
SMALL, LARGE = "Qwen/Qwen2.5-Coder-0.5B-Instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct"
LARGE_FROM = 40 * GIB
"""Memory of the whole device from which the large one is taken."""
KNOWN: dict[str, dict[str, Any]] = {
    SMALL: {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    LARGE: {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""So that a profile can be weighed on a machine that has never seen the hub."""


def choose_solver(total: int) -> str:
    """Of the pool, by the device's bytes in all: what is free changes from start to start."""
    return LARGE if total >= LARGE_FROM else SMALL


@functools.lru_cache(16)
def shape_of(name: str, role: str) -> Shape:
    """Of a directory, a hub id, or a member of the pool (for which nothing is read). Raises ModelError."""
    try:
        return shape_of_config(_config(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")
        raise ModelError(
            f"{role}: cannot read the configuration of {name}: {said}; check the id and the network, or give a "
            "directory written by save_pretrained"
        ) from error


def _config(name: str) -> Any:
    if name in KNOWN:
        return Qwen2Config(
            vocab_size=151_936, num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None, **KNOWN[name]
        )
    path = Path(name).expanduser()
    return AutoConfig.from_pretrained(str(path) if path.is_dir() else name, trust_remote_code=False)


def shape_of_config(config: Any) -> Shape:
    """From a model of no substance: every tensor has a shape and no bytes."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    head = model.get_output_embeddings()
    return Shape(
        parameters=sum(one.numel() for one in model.parameters()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        attention=heads * size,
        keys=(getattr(text, "num_key_value_heads", None) or heads) * size,
        intermediate=text.intermediate_size,
        vocabulary=text.vocab_size,
        linear=tuple(
            (path.split(".")[-1], module.in_features, module.out_features)
            for path, module in model.named_modules()
            if isinstance(module, nn.Linear) and module is not head
        ),
    )
