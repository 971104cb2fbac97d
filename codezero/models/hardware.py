"""The memory that a node needs and its device has, and what of the machine it uses.

Also which card each of several nodes on one machine gets, decided without loading torch."""

import contextlib
import importlib.util
import itertools
import logging
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from codezero.config import NodeConfig, SolverConfig
from codezero.config.learning import EVERY_LINEAR
from codezero.errors import ConfigError
from codezero.models import cpu_only
from codezero.models.digest import place_of, same_place
from codezero.nano import NANO, NANO_GYM, weights_directory
from codezero.system.child import python
from codezero.types import Metrics

if TYPE_CHECKING:
    import torch

    from codezero.models.device import DeviceMemory
    from codezero.models.memory import Need

logger = logging.getLogger(__name__)

AUTO = "auto"
LARGE_PARAMETERS = 200_000_000  # from here on memory is dearer than computing activations twice
VISIBLE = "CUDA_VISIBLE_DEVICES"
SPARE = "CODEZERO_SPARE_CARDS"  # those that were visible too, for rollout servers
# one of these is there where torch might find a card; else nobody is asked, which would take seconds
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
COUNT = "import torch; print(torch.cuda.device_count())"
# the place of the card with the most free memory
FREEST = """import torch
print(max(range(torch.cuda.device_count()), key=lambda card: torch.cuda.mem_get_info(card)[0]))"""


def find_cards(device: str) -> list[str]:
    """The cards that nodes with this `model.device` may use, as CUDA_VISIBLE_DEVICES names them."""
    if cpu_only() or device in ("cpu", "mps"):
        return []
    named = os.environ.get(VISIBLE)
    if named is not None:  # as for the driver, an empty name or a negative number ends the list
        names = (part.strip() for part in named.split(","))
        return list(itertools.takewhile(lambda name: name and not name.startswith("-"), names))
    if not any(Path(driver).exists() for driver in DRIVERS):
        return []
    return [str(card) for card in range(_answer(COUNT) or 0)]


def freest_card(cards: Sequence[str]) -> str:
    """The one of the visible cards with the most free memory; the first where none can be asked."""
    return dict(enumerate(cards)).get(_answer(FREEST) or 0, cards[0])


def _answer(script: str) -> int | None:
    """The number that a process of its own prints: this one has to choose a card before it looks at any."""
    done = subprocess.run(python("-c", script), capture_output=True, text=True, timeout=120, check=False)
    return int(done.stdout) if done.stdout.strip().isdecimal() else None


def assign_cards(cards: Sequence[str], count: int) -> list[str]:
    """The card of each of `count` nodes, dealt in turn; empty where there is none, and the machine is shared."""
    return list(itertools.islice(itertools.cycle(cards or [""]), count))


def threads_of(size: int) -> int:
    """CPU threads for each of `size` processes."""
    return max(1, (os.cpu_count() or 1) // size)


def describe_sharing(assigned: Sequence[str]) -> str:
    """One line about who shares what; empty where nobody shares a card."""
    nodes = Counter(filter(None, assigned))
    crowded = [f"{n} on card {card}, each with 1/{n} of its memory" for card, n in nodes.items() if n > 1]
    return f"{len(assigned)} nodes and {len(nodes)} cards: {'; '.join(crowded)}" if crowded else ""


def weigh(config: NodeConfig) -> "tuple[Need | None, DeviceMemory, torch.device]":
    """Estimate what the node needs, None where that is negligible; what its device has, and which device that is.

    A trainer's ranks are not weighed: docs/recipes.md has their arithmetic.

    Raises ModelError when a model's configuration cannot be read."""
    from codezero.models.device import choose_precision, computes_bfloat16

    has, where = memory_free(config)
    precision = config.model.precision
    half = precision == "auto" and where.type == "cpu" and computes_bfloat16()  # see `load.load_model`
    return estimate(config, where.type, 2 if half else choose_precision(precision, where).itemsize), has, where


def estimate(config: NodeConfig, device: str, number: int) -> "Need | None":
    """Estimate what a node needs on a device (cuda, mps, cpu), at `number` bytes a number. Raises ModelError."""
    model, solves, proposes = config.model, config.solver, config.proposer
    if is_embedded(config):
        return None
    judge, writer = _frozen(config)
    from codezero.models.memory import ADAM, ADAM_8BIT, Role, Texts, Training, adapter_numbers, node_need, shape_of

    # the frozen models in memory, as `models.build.FrozenModels` finds them
    adapted, frozen = model.train == "lora", set[str]()

    def role(name: str, source: str, texts: Texts, learns: SolverConfig | None = None) -> Role:
        source = source_of(source, name)
        nf4 = model.quantize == "nf4" and (adapted or learns is None)
        shape = shape_of(source, name)._replace(nf4=nf4)
        place = same_place(source)
        shared = learns is None and place in frozen
        if learns is None or adapted:
            frozen.add(place)
        if learns is None:
            return Role(name, shape, texts, shared=shared)
        targets = None if EVERY_LINEAR in model.lora_targets else model.lora_targets
        training = Training(
            adapter=adapter_numbers(shape, model.lora_rank, targets) if adapted else 0,
            kl_copy=learns.kl_beta > 0,
            checkpointing=recomputes(config, shape.parameters),
            rows=min(solves.micro_batch_rows, texts.group * learns.problems_per_iteration),
            moments=ADAM if solves.optimizer == "adamw" else ADAM_8BIT,
        )
        return Role(name, shape, texts, training)

    exam = math.ceil(config.evals.problems * config.evals.attempts / solves.group_size) if config.evals.every else 0
    problems = max(solves.problems_per_iteration, exam)
    prompt, completion = solves.max_prompt_tokens, solves.max_new_tokens
    learns = None if config.trainer.ranks else solves
    roles = [role("solver", model.solver, Texts(prompt, completion, solves.group_size, problems), learns)]
    if judge != "off":
        name = "judge" if config.evaluator.kind == "local" else "reward model"
        roles.append(role(name, judge, Texts(prompt, completion, config.evaluator.batch_rows, 1)))
    if writer != "off":
        texts = Texts(prompt, proposes.max_new_tokens, 1, proposes.problems_per_iteration)
        roles.append(role("proposer", writer, texts))
    return node_need(roles, device=device, number=number)


def is_embedded(config: NodeConfig) -> bool:
    """Are all models of the node embedded ones, which compute on the CPU and need next to no memory?"""
    return {config.model.solver, *_frozen(config)} <= {NANO, NANO_GYM, "off"}


def _frozen(config: NodeConfig) -> tuple[str, str]:
    """The local judge and proposer."""
    judge = config.evaluator.model if config.evaluator.in_process and config.reward.mode != "rlvr" else "off"
    return judge, config.proposer.model if config.proposer.kind == "local" else "off"


def source_of(name: str, role: str) -> str:
    """The directory or hub id of what a setting names."""
    embedded = {NANO: role, NANO_GYM: "gym"}
    return str(weights_directory(embedded[name])) if name in embedded else place_of(name)


def check_extras(config: NodeConfig) -> None:
    """Raise ConfigError for a setting whose library is missing."""
    model, optimizer, monitor = config.model, config.solver.optimizer, config.monitor
    for setting, wanted, library, extra in (
        ("model.quantize=nf4", model.quantize == "nf4", "bitsandbytes", "bnb"),
        ("solver.optimizer=adamw_8bit", optimizer == "adamw_8bit", "bitsandbytes", "bnb"),
        ("rollout.engine=vllm", config.rollout.start > 0 and config.rollout.engine == "vllm", "vllm", "vllm"),
        (f"monitor.wandb={monitor.wandb}", bool(monitor.wandb), "wandb", "wandb"),
    ):
        if wanted and importlib.util.find_spec(library) is None:
            remedy = f"run `uv sync --no-dev --extra {extra}`, or drop it"
            raise ConfigError(f"{setting}: {library} is not installed; {remedy}")


def recomputes(config: NodeConfig, parameters: int) -> bool:
    """Are activations of a model of this size computed twice instead of kept?"""
    wanted = config.model.activation_checkpointing
    return parameters > LARGE_PARAMETERS if wanted == AUTO else wanted == "on"


def memory_free(config: NodeConfig) -> "tuple[DeviceMemory, torch.device]":
    from codezero.models.device import choose_device, keep_to_share, memory_of

    where = choose_device(config.model.device, "solver")
    keep_to_share(where, config.model.memory_share)
    return memory_of(where, config.model.memory_share), where


class Usage:
    """Call it once an iteration. CPU is what was used since the last call, in cores."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._at, self._cpu = time.monotonic(), 0.0

    def __call__(self) -> Metrics:
        """`system/cpu` in cores (null at first), `system/memory_bytes` resident, `system/gpu_bytes` where CUDA is used.
        Memory that processes share counts for each of them; of the cards, that of all programs counts."""
        cpu, memory = 0.0, 0
        for process in [self._process, *self._process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
        now, before = time.monotonic(), self._cpu
        spent = max(0.0, cpu - before)  # a child that ended takes its own
        used = spent / max(now - self._at, 1e-3) if before else None
        self._at, self._cpu = now, cpu
        return {"system/cpu": used, "system/memory_bytes": memory, "system/gpu_bytes": _card_bytes()}


def _card_bytes() -> int | None:
    """Bytes on the cards of this process. torch is not loaded for it."""
    if "torch" not in sys.modules:
        return None
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    free = [torch.cuda.mem_get_info(card) for card in range(torch.cuda.device_count())]
    return sum(total - left for left, total in free)
