"""Does a node fit its device? Estimated before anything is loaded; and what was left to the hardware is chosen.

Also which card each of several nodes on one machine gets, decided without loading torch. The choice is made at the
first start of a run, printed, written to the run's folder and read from there ever after: what is free differs from
start to start, and a run that changed its model would begin anew.
"""

import dataclasses
import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from codezero.config import NodeConfig
from codezero.config_learning import EVERY_LINEAR
from codezero.errors import CodeZeroError, ConfigError
from codezero.models import cpu_only
from codezero.nano import NANO, weights_directory
from codezero.settings import compose
from codezero.system.files import write_atomic

if TYPE_CHECKING:
    import torch

    from codezero.models.device import DeviceMemory
    from codezero.models.memory import ModelShape, Need, Training

logger = logging.getLogger(__name__)

AUTO = "auto"
LARGEST_FIRST = ("gpu-80g", "gpu-24g", "laptop", "solo")
FILE = "hardware.json"
"""In a run's folder: what was chosen for it."""
LARGE_PARAMETERS = 200_000_000
"""From here on memory is dearer than computing activations twice."""
OWN = ("seed", "run", "swarm", "chain", "login", "monitor")
"""Settings that have nothing to do with the hardware; they stay as they were when a profile is chosen."""
MAX_FILE = 4096
VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""One of these is there where torch might find a card; else nobody is asked, which would take seconds."""
COUNT = "import torch; print(torch.cuda.device_count())"
SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """Where one node works."""

    card: str | None
    """As CUDA_VISIBLE_DEVICES names it; None: there is no card."""
    nodes: int
    """That share the card, or without one the machine, this one among them."""

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.card is None else {VISIBLE: self.card}

    @property
    def share(self) -> float:
        return 1 / self.nodes


def find_cards(device: str) -> list[str]:
    """The cards that nodes with this `model.device` may use, as CUDA_VISIBLE_DEVICES names them."""
    if cpu_only() or device in ("cpu", "mps"):
        return []
    named = os.environ.get(VISIBLE)
    if named is not None:
        return named_cards(named)
    if not any(Path(driver).exists() for driver in DRIVERS):
        return []
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=SECONDS, check=False)
    return [str(i) for i in range(int(done.stdout))] if done.stdout.strip().isdecimal() else []


def named_cards(value: str) -> list[str]:
    """Of a CUDA_VISIBLE_DEVICES; as for the driver, an empty name or a negative number ends the list."""
    names = (part.strip() for part in value.split(","))
    return list(itertools.takewhile(lambda name: name and not name.startswith("-"), names))


def assign_cards(cards: Sequence[str], count: int) -> list[GpuAssignment]:
    """One for each of `count` nodes, the cards in turn."""
    if not cards:
        return [GpuAssignment(None, count)] * count
    turns = [i % len(cards) for i in range(count)]
    return [GpuAssignment(cards[turn], turns.count(turn)) for turn in turns]


def describe_sharing(assignments: Sequence[GpuAssignment]) -> str:
    """One line about who shares what; empty where nobody shares a card."""
    crowded = {each.card: each.nodes for each in assignments if each.card is not None and each.nodes > 1}
    if not crowded:
        return ""
    parts = (f"{nodes} on card {card}, each with 1/{nodes} of its memory" for card, nodes in crowded.items())
    return f"{len(assignments)} nodes and {len({each.card for each in assignments})} cards: {'; '.join(parts)}"


class _Choice(msgspec.Struct, frozen=True):
    profile: Annotated[str, Meta(pattern=rf"^({'|'.join(LARGEST_FIRST)}|)\Z")]
    solver: Annotated[str, Meta(pattern=r"^(?!auto\Z).")]


def fit(config: NodeConfig, overrides: Sequence[str], folder: Path) -> NodeConfig:
    """`config` with everything chosen that was left to the hardware. `overrides` are what it was composed of.

    Raises ConfigError with the numbers, and a profile that fits, when memory will not suffice; ModelError.
    """
    config = settled(config, overrides, folder)
    need, has, where = weigh(config)
    if need is None:
        return config
    logger.info("estimated peak: %s; %s has %.1f GiB", need, where, has.free / 2**30)
    if need.total > has.free:
        fitting = "" if config.model.preflight == "warn" else _smaller(config, overrides)
        problem = f"this node does not fit {where}: it has {has.free / 2**30:.1f} GiB and needs about {need}{fitting}"
        if config.model.preflight == "refuse":
            raise ConfigError(f"{problem}; model.preflight=warn tries all the same")
        logger.warning(problem)
    return config


def settled(config: NodeConfig, overrides: Sequence[str], folder: Path) -> NodeConfig:
    """`config` with `auto` replaced by what this run was or is begun with."""
    if AUTO not in (config.model.profile, config.model.solver):
        return config
    from codezero.models.memory import choose_solver

    known = _read(folder / FILE)
    profile, solver = (known or config.model).profile, (known or config.model).solver
    if profile == AUTO:
        profile = _choose(config, overrides)
    if config.model.profile == AUTO:
        config = _with_profile(config, overrides, profile)
    if config.model.solver == AUTO:
        solver = choose_solver(_memory(config)[0].total) if solver == AUTO else solver
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, solver=solver))
    if known is None:
        choice = msgspec.json.encode(_Choice(profile, config.model.solver))
        write_atomic(folder / FILE, msgspec.json.format(choice) + b"\n")
        print(
            f"codezero: chosen for this hardware: {profile or 'no'} profile, solver {config.model.solver}", flush=True
        )
    return config


def weigh(config: NodeConfig) -> "tuple[Need | None, DeviceMemory, torch.device]":
    """What the node needs, what its device has, and which that is. The need of embedded models is not worth a word.

    Of several ranks this is the first, which needs most; on a CPU it may count on its part of the memory.

    Raises ModelError when a model's configuration cannot be read.
    """
    from codezero.models.device import choose_precision
    from codezero.models.memory import Texts, node_need, shape_of

    has, where = _memory(config)

    def shape(name: str, role: str) -> "ModelShape":
        return shape_of(str(weights_directory(role)) if name == NANO else name, role)

    local = config.evaluator.kind == "local" and config.reward.mode == "judge"
    proposes, judge = config.proposer, config.evaluator.model if local else "off"
    if {config.model.solver, judge, proposes.model} <= {NANO, "off"}:
        return None, has, where
    policy = shape(config.model.solver, "solver")
    proposer = None if proposes.model == "off" else shape(proposes.model, "proposer")
    group = proposes.group_size if proposes.train else 1
    ranks = max(1, config.model.gpus)
    exam = config.evals.problems * config.evals.samples if config.evals.every else 0
    need = node_need(
        policy,
        _training(
            config, policy, config.solver.kl_beta, config.solver.group_size * config.solver.problems_per_iteration
        ),
        Texts(
            config.solver.max_prompt_tokens,
            config.solver.max_new_tokens,
            config.solver.group_size,
            problems=-(-max(config.solver.problems_per_iteration, -(-exam // config.solver.group_size)) // ranks),
        ),
        device=where.type,
        number=choose_precision(config.model.precision, where).itemsize,
        judge=None if judge == "off" else shape(judge, "judge"),
        judge_rows=config.evaluator.batch_rows,
        proposer=proposer,
        proposals=Texts(
            config.solver.max_prompt_tokens, proposes.max_new_tokens, group, proposes.problems_per_iteration
        ),
        proposer_training=_training(config, proposer, proposes.kl_beta, group * proposes.problems_per_iteration)
        if proposer and proposes.train
        else None,
    )
    if config.model.backend == "vllm":
        engine = has.total * config.model.memory_share * config.model.backend_share
        need = dataclasses.replace(need, always=(*need.always, ("vLLM", engine)))
    return need, has, where


def _training(config: NodeConfig, shape: "ModelShape", kl_beta: float, rows: int) -> "Training":
    """How a model of this shape learns, at most `rows` at once."""
    from codezero.models.memory import Training, adapter_numbers

    targets = config.model.lora_targets
    names = None if EVERY_LINEAR in targets else targets
    return Training(
        adapter=adapter_numbers(shape, config.model.lora_rank, names) if config.model.train == "lora" else 0,
        leash=kl_beta > 0,
        checkpointing=recomputes(config, shape.parameters),
        rows=min(config.solver.micro_batch_rows, rows),
    )


def recomputes(config: NodeConfig, parameters: int) -> bool:
    """Are activations of a model of this size computed twice instead of kept?"""
    wanted = config.model.activation_checkpointing
    return parameters > LARGE_PARAMETERS if wanted == AUTO else wanted == "on"


def _memory(config: NodeConfig) -> "tuple[DeviceMemory, torch.device]":
    from codezero.models.device import choose_device, keep_to_share, memory_of

    where = choose_device(config.model.device, "solver")
    keep_to_share(where, config.model.memory_share)
    memory = memory_of(where, config.model.memory_share)
    if where.type == "cuda":  # where every rank has a card of its own
        return memory, where
    return dataclasses.replace(memory, free=memory.free // max(1, config.model.gpus)), where


def _choose(config: NodeConfig, overrides: Sequence[str]) -> str:
    """The largest profile for this kind of device that fits it."""
    *names, least = LARGEST_FIRST
    return next((name for name in names if _fits(_with_profile(config, overrides, name))), least)


def _smaller(config: NodeConfig, overrides: Sequence[str]) -> str:
    """Which profile to use instead, for the end of a sentence; empty when the user's own settings rule all out."""
    rest = [word for word in overrides if not word.startswith(("model", "evaluator.model=", "proposer.model="))]
    dropped = [word for word in overrides if word not in rest and not word.startswith("model.profile=")]
    for name in LARGEST_FIRST:
        other = _with_profile(config, rest, name)
        if name != config.model.profile and _fits(other):
            need = weigh(other)[0]
            without = f"without {' '.join(dropped)}, " if dropped else ""
            size = f" with {need.total / 2**30:.1f} GiB" if need else ""
            return f"; profile=auto chooses what fits: {without}profile={name} fits{size}"
    return ""


def _fits(config: NodeConfig) -> bool:
    try:
        need, has, _ = weigh(config)
    except CodeZeroError as error:  # no such device, or a model that cannot be had
        logger.info("profile %s is passed over: %s", config.model.profile, error)
        return False
    return need is None or need.total <= has.free


def _with_profile(config: NodeConfig, overrides: Sequence[str], name: str) -> NodeConfig:
    """The same node as if `profile=name` had been typed, with what the user set himself as it was."""
    rest = [word for word in overrides if word.split("=")[0].lstrip("+") not in ("profile", "model.profile")]
    other = compose([*rest, f"profile={name}"])
    return dataclasses.replace(other, **{key: getattr(config, key) for key in OWN})


def _read(path: Path) -> _Choice | None:
    """The choice of an earlier start. Raises ConfigError when the file is damaged."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes()[:MAX_FILE], type=_Choice)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); remove it to choose anew") from error
