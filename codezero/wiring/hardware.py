"""Does a node fit its device? What is left to the hardware is chosen, once a run: its folder keeps the choice.

Also which card each of several nodes on one machine gets, decided without loading torch.
"""

import dataclasses
import itertools
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
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
    from codezero.models.memory import ModelShape, Need

logger = logging.getLogger(__name__)

AUTO = "auto"
LARGEST_FIRST = ("gpu-80g", "gpu-24g", "laptop", "solo")
FILE = "hardware.json"
"""In a run's folder: what was chosen for it."""
LARGE_PARAMETERS = 200_000_000
"""From here on memory is dearer than computing activations twice."""
OWN = ("seed", "run", "swarm", "chain", "login", "monitor")
"""Settings that have nothing to do with the hardware; they stay as they were when a profile is chosen."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""One of these is there where torch might find a card; else nobody is asked, which would take seconds."""
COUNT = "import torch; print(torch.cuda.device_count())"


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
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=120, check=False)
    return [str(i) for i in range(int(done.stdout))] if done.stdout.strip().isdecimal() else []


def assign_cards(cards: Sequence[str], count: int) -> list[str]:
    """The card of each of `count` nodes, dealt in turn; empty where there is none, and the machine is shared."""
    return list(itertools.islice(itertools.cycle(cards or [""]), count))


def describe_sharing(assigned: Sequence[str]) -> str:
    """One line about who shares what; empty where nobody shares a card."""
    nodes = Counter(filter(None, assigned))
    crowded = [f"{n} on card {card}, each with 1/{n} of its memory" for card, n in nodes.items() if n > 1]
    return f"{len(assigned)} nodes and {len(nodes)} cards: {'; '.join(crowded)}" if crowded else ""


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
        problem = f"this node does not fit {where}: it has {has.free / 2**30:.1f} GiB and needs about {need}"
        if config.model.preflight == "refuse":
            rest = [word for word in overrides if not word.startswith(("model", "evaluator.model=", "proposer.model="))]
            fitting = _largest_profile(config, rest)
            hint = f"; profile={fitting} with its own models fits" if fitting else ""
            raise ConfigError(f"{problem}{hint}; model.preflight=warn tries all the same")
        logger.warning(problem)
    return config


def settled(config: NodeConfig, overrides: Sequence[str], folder: Path) -> NodeConfig:
    """`config` with `auto` replaced by what this run was or is begun with."""
    if AUTO not in (config.model.profile, config.model.solver):
        return config
    from codezero.models.memory import choose_solver

    path, known = folder / FILE, None
    if path.exists():
        try:
            known = msgspec.json.decode(path.read_bytes(), type=_Choice)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read ({error}); remove it to choose anew") from error
    profile, solver = (known or config.model).profile, (known or config.model).solver
    if profile == AUTO:
        profile = _largest_profile(config, overrides) or LARGEST_FIRST[-1]
    if config.model.profile == AUTO:
        config = _with_profile(config, overrides, profile)
    if config.model.solver == AUTO:
        solver = choose_solver(_memory(config)[0].total) if solver == AUTO else solver
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, solver=solver))
    if known is None:
        solver = config.model.solver
        write_atomic(path, msgspec.json.format(msgspec.json.encode(_Choice(profile, solver))) + b"\n")
        print(f"codezero: chosen for this hardware: {profile or 'no'} profile, solver {solver}", flush=True)
    return config


def weigh(config: NodeConfig) -> "tuple[Need | None, DeviceMemory, torch.device]":
    """What the node needs, what its device has, and which that is. The need of embedded models is not worth a word.

    Of several ranks this is the first, which needs most; on a CPU it may count on its part of the memory.

    Raises ModelError when a model's configuration cannot be read.
    """
    from codezero.models.device import choose_precision
    from codezero.models.memory import Texts, Training, adapter_numbers, node_need, shape_of

    has, where = _memory(config)
    settings, solves, proposes = config.model, config.solver, config.proposer
    judge = config.evaluator.model if config.evaluator.kind == "local" and config.reward.mode == "judge" else "off"
    if {settings.solver, judge, proposes.model} <= {NANO, "off"}:
        return None, has, where

    def shape(name: str, role: str) -> "ModelShape":
        return shape_of(str(weights_directory(role)) if name == NANO else name, role)

    def training(shape: "ModelShape", kl_beta: float, rows: int) -> Training:
        """At most `rows` at once."""
        names = None if EVERY_LINEAR in settings.lora_targets else settings.lora_targets
        return Training(
            adapter=adapter_numbers(shape, settings.lora_rank, names) if settings.train == "lora" else 0,
            leash=kl_beta > 0,
            checkpointing=recomputes(config, shape.parameters),
            rows=min(solves.micro_batch_rows, rows),
        )

    policy = shape(settings.solver, "solver")
    proposer = None if proposes.model == "off" else shape(proposes.model, "proposer")
    group = proposes.group_size if proposes.train else 1
    exam = math.ceil(config.evals.problems * config.evals.samples / solves.group_size) if config.evals.every else 0
    problems = math.ceil(max(solves.problems_per_iteration, exam) / max(1, settings.gpus))
    asked, written = solves.max_prompt_tokens, proposes.problems_per_iteration
    learns = training(proposer, proposes.kl_beta, group * written) if proposer and proposes.train else None
    need = node_need(
        policy,
        training(policy, solves.kl_beta, solves.group_size * solves.problems_per_iteration),
        Texts(asked, solves.max_new_tokens, solves.group_size, problems),
        device=where.type,
        number=choose_precision(settings.precision, where).itemsize,
        judge=None if judge == "off" else shape(judge, "judge"),
        judge_rows=config.evaluator.batch_rows,
        proposer=proposer and (proposer, Texts(asked, proposes.max_new_tokens, group, written), learns),
    )
    if settings.backend == "vllm":
        engine = has.total * settings.memory_share * settings.backend_share
        need = dataclasses.replace(need, always=(*need.always, ("vLLM", engine)))
    return need, has, where


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


def _largest_profile(config: NodeConfig, overrides: Sequence[str]) -> str:
    """That fits this device; empty: the user's own settings rule all out."""
    for name in LARGEST_FIRST:
        try:
            need, has, _ = weigh(_with_profile(config, overrides, name))
        except CodeZeroError as error:  # no such device, or a model that cannot be had
            logger.info("profile %s is passed over: %s", name, error)
            continue
        if need is None or need.total <= has.free:
            return name
    return ""


def _with_profile(config: NodeConfig, overrides: Sequence[str], name: str) -> NodeConfig:
    """The same node as if `profile=name` had been typed, with what the user set himself as it was."""
    rest = [word for word in overrides if word.split("=")[0].lstrip("+") not in ("profile", "model.profile")]
    other = compose([*rest, f"profile={name}"])
    return dataclasses.replace(other, **{key: getattr(config, key) for key in OWN})
