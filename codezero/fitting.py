"""The settings of a node, as they are before its first part is made: nothing changes them afterwards."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from codezero.chain.build import LoginChain, is_ephemeral
from codezero.config import LOGIN_TOKEN, NodeConfig
from codezero.environment import Environment
from codezero.errors import CodeZeroError, ConfigError, translated
from codezero.login.vault import Folder, Vault
from codezero.models.hardware import AUTO, check_extras, memory_free, recomputes, source_of, weigh
from codezero.monitor.text import duration, print_flushed
from codezero.nano import NANO
from codezero.settings import compose
from codezero.system.files import write_atomic

logger = logging.getLogger(__name__)

Profile = Literal["gpu-80g", "gpu-48g", "gpu-24g", "gpu-16g", "gpu-12g", "gpu-8g", "laptop", "solo"]
LARGEST_FIRST: tuple[Profile, ...] = get_args(Profile)
FILE = "hardware.json"  # in a run's folder: what was chosen for it
# settings that have nothing to do with the hardware; they stay as they were when a profile is chosen
OWN = ("seed", "run", "swarm", "chain", "login", "monitor")
# A token costs two operations a parameter; these shares of the machine's were measured with 0.5 billion on two cores.
EXAM_SECONDS, ITERATION_SECONDS = 300.0, 180.0  # what takes longer is said
DECODED, READ, LEARNED = 0.3, 0.5, 0.5  # shares of F: in steps of some 64 rows, in reading, and in an update
WRITTEN = 0.45  # tokens of an attempt, as a share of the most
ASKED = 150  # tokens of a problem
JUDGED = 110  # tokens that the judge reads for an attempt, shared beginnings counted once


class _Choice(msgspec.Struct, frozen=True):
    profile: Profile


def fit(composed: NodeConfig, environment: Environment, overrides: Sequence[str], folder: Path) -> NodeConfig:
    """The settings that the node runs with: the owner's account, and what fits the environment and the hardware. Prints
    what will take long. folder: of the run, which keeps what was chosen. Raises ConfigError and ModelError."""
    config = with_solver(with_login(composed), environment)
    if config.role == "proposer":
        check_extras(config)
        return config
    config = fit_hardware(config, overrides, folder)
    for line in start_advice(config):
        print_flushed(f"codezero: {line}")
    return config


def with_solver(config: NodeConfig, environment: Environment) -> NodeConfig:
    """Take the solver that an environment names, where the settings name the embedded one."""
    if config.model.solver != NANO or not environment.solver:
        return config
    return replace(config, model=replace(config.model, solver=environment.solver))


def with_login(config: NodeConfig) -> NodeConfig:
    """The login's account, once the node has an owner; a keystore of one's own goes first. Raises LoginError."""
    chain = config.chain
    if chain.kind == "clock" or not is_ephemeral(chain) or not Path(config.login.directory).is_dir():
        return config
    folder = Folder(Path(config.login.directory))
    owner = Vault(folder, config.login.days, time.time).owner()
    if owner is None:
        return config
    signer = f"http://localhost:{config.login.port}"
    remote = LoginChain(**vars(chain), signer=signer, token=folder.path / LOGIN_TOKEN, account=owner.account)
    page = "on" if config.login.page == "auto" else config.login.page  # off: another process serves it
    return replace(config, chain=remote, login=replace(config.login, page=page))


def fit_hardware(config: NodeConfig, overrides: Sequence[str], folder: Path) -> NodeConfig:
    """`config` with everything chosen that was left to the hardware. `overrides` are what it was composed of. Raises
    ConfigError with the numbers, and a profile that fits, when memory will not suffice; ModelError."""
    config = settled(config, overrides, folder)
    check_extras(config)
    need, has, where = weigh(config)
    if need is None:
        return config
    if config.model.activation_checkpointing == AUTO and not config.trainer.ranks:
        kept = replace(config, model=replace(config.model, activation_checkpointing="off"))
        more, _, _ = weigh(kept)
        if more is not None and more.total <= has.free:
            config, need = kept, more
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
    """`config` with the profile that this run was or is begun with, where the choice is the hardware's."""
    if config.model.profile != AUTO:
        return config
    path = folder / FILE
    if path.exists():
        with translated(ConfigError, f"{path} cannot be read", OSError, ValueError, mend="remove it to choose anew"):
            known = msgspec.json.decode(path.read_bytes(), type=_Choice)
        return _with_profile(config, overrides, known.profile)
    profile = _largest_profile(config, overrides) or LARGEST_FIRST[-1]
    config, (has, where) = _with_profile(config, overrides, profile), memory_free(config)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(_Choice(profile))) + b"\n")
    small = where.type == "cuda" and not profile.startswith("gpu-")
    why = f" (no profile made for a card fits the {has.free / 2**30:.1f} GiB that are free)" if small else ""
    print(f"codezero: chosen for this hardware: {profile} profile, solver {config.model.solver}{why}", flush=True)
    return config


def _largest_profile(config: NodeConfig, overrides: Sequence[str]) -> Profile | None:
    """The first that fits this device; None: the user's own settings rule all out."""
    for name in LARGEST_FIRST:
        try:
            other = _with_profile(config, overrides, name)
            need, has, _ = weigh(other)
            if need is None or need.total <= has.free:
                check_extras(other)
                return name
        except ConfigError as error:  # a library that is missing
            print_flushed(f"codezero: profile {name} is passed over: {error}")
        except CodeZeroError as error:  # no such device, or a model that cannot be had
            logger.info("profile %s is passed over: %s", name, error)
    return None


def _with_profile(config: NodeConfig, overrides: Sequence[str], name: str) -> NodeConfig:
    """The same node as if `profile=name` had been typed, with what the user set himself as it was."""
    rest = [word for word in overrides if word.split("=")[0].lstrip("+") not in ("profile", "model.profile")]
    other = compose([*rest, f"profile={name}"])
    return replace(other, **{key: getattr(config, key) for key in OWN})


def start_advice(config: NodeConfig) -> list[str]:
    """Lines about what takes long on a CPU with an own real model; empty where nothing does. Raises ModelError."""
    solver = source_of(config.model.solver, "solver")
    if solver != config.model.solver or config.rollout.has_servers or config.trainer.ranks:
        return []
    import torch

    from codezero.models.device import choose_device, measured_flops
    from codezero.models.memory import shape_of

    if choose_device(config.model.device, "solver").type != "cpu":
        return []
    unused = ["Intel's GPU is not used: model.device knows cuda and mps"] * torch.xpu.is_available()
    shape = shape_of(solver, "solver")
    judges = config.evaluator.in_process and config.reward.mode != "rlvr"
    judge = shape_of(source_of(config.evaluator.model, "judge"), "judge").parameters if judges else 0
    flops = measured_flops(half=config.model.precision == "auto" and shape.half)
    exam, iteration = foreseen(config, shape.parameters, judge, flops)
    first = f"the first exam figure comes after about {duration(exam)}; a smaller evals.problems"
    each = f"an iteration takes about {duration(iteration)}; a smaller solver.problems_per_iteration"
    return [
        *unused,
        *[f"{first} or evaluator.canaries shortens it"] * (exam > EXAM_SECONDS),
        *[f"{each} or solver.group_size shortens it"] * (iteration > ITERATION_SECONDS),
    ]


def foreseen(config: NodeConfig, solver: int, judge: int, flops: float) -> tuple[float, float]:
    """Seconds until the first exam figure, the judge's calibration included, and of an iteration.

    solver, judge: parameters, 0 for no judge. flops: operations a second in the computing precision."""
    solves, evals = config.solver, config.evals
    tokens = WRITTEN * solves.max_new_tokens
    prompt = 2 * solver * ASKED / (READ * flops)
    attempt = 2 * solver * tokens / (DECODED * flops) + 2 * judge * JUDGED / (READ * flops)
    calibration = config.evaluator.canaries * 2 * judge * JUDGED / (READ * flops)
    exam = (evals.problems + evals.controls) * (prompt + evals.attempts * attempt) if evals.every else 0.0
    groups = solves.problems_per_iteration * (1 + solves.refill) / 2  # about half of the groups teach nothing at first
    passes = (2 if config.model.train == "lora" else 3) + recomputes(config, solver)
    learned = solves.problems_per_iteration * (ASKED + solves.group_size * tokens)
    update = 2 * solver * passes * learned / (LEARNED * flops)
    return calibration + exam, groups * (prompt + solves.group_size * attempt) + update
