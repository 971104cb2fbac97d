"""Config -> models and what trains them: whence each is loaded, how much of the policy learns, by how many ranks."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.config import NodeConfig, SolverConfig
from codezero.errors import ConfigError
from codezero.models.ranks import ANSWER_SECONDS, Crew
from codezero.nano import NANO
from codezero.wiring.evaluator import Say
from codezero.wiring.hardware import VISIBLE, find_cards, recomputes

if TYPE_CHECKING:
    import torch

    from codezero.models.group import Group
    from codezero.models.load import LoadedModel
    from codezero.models.sampler import Sampler
    from codezero.solver.learner import TrlLearner
    from codezero.solver.parallel import Others, ParallelLearner

logger = logging.getLogger(__name__)

BEGIN, JOIN = "begin", "join"


class Beginning(msgspec.Struct, frozen=True):
    """What a rank has to know to load what rank 0 loads."""

    config: NodeConfig
    rank: int
    size: int
    meeting: str


def load(config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False) -> "LoadedModel":
    """`nano`, a directory or a hub id. Raises ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import load_model
    from codezero.nano import weights_directory

    path = str(weights_directory(role)) if name == NANO else name
    loaded = load_model(
        path, device=config.model.device, precision=config.model.precision, role=role, for_training=for_training
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    return loaded


def load_policy(config: NodeConfig, say: Say, name: str = "", role: str = "solver") -> "LoadedModel":
    """A model that learns (`name` empty: the solver), with its adapter where only that does.

    Raises ModelError and ConfigError.
    """
    if config.model.backend == "vllm":
        from codezero.models.vllm_engine import require_vllm

        require_vllm()
    policy = load(config, name or config.model.solver, role, say, for_training=True)
    if config.model.train == "full":
        return policy
    from codezero.models.lora import add_adapter

    told = config.model
    policy = add_adapter(
        policy, rank=told.lora_rank, alpha=told.lora_alpha, targets=told.lora_targets, seed=config.seed
    )
    trained = sum(one.numel() for one in policy.model.parameters() if one.requires_grad)
    frozen = policy.model.num_parameters() - trained
    logger.info("%s: an adapter of %d numbers learns, beside %d frozen ones", role, trained, frozen)
    return policy


def hire(
    config: NodeConfig, overrides: Sequence[str], stack: contextlib.ExitStack
) -> tuple[NodeConfig, Sequence[str], Crew | None]:
    """Start the further ranks that `model.gpus` asks for, and leave the first card to this process.

    To be called before anything asks torch for cards. The config that is returned names their number, and so do the
    overrides. Raises ConfigError when there are too few.
    """
    if config.model.gpus == 1:
        return config, overrides, None
    cards = find_cards(config.model.device)
    size = config.model.gpus or max(1, len(cards))
    if config.model.device == "mps" or 0 < len(cards) < size:
        there = "mps is one device" if config.model.device == "mps" else f"{len(cards)} cards are visible"
        raise ConfigError(f"model.gpus={config.model.gpus}, but {there}; model.gpus=0 uses every visible card")
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, gpus=size))
    overrides = [*overrides, f"model.gpus={size}"]
    if cards:
        os.environ[VISIBLE] = cards[0]
    if size == 1:
        return config, overrides, None
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_of(size)))}
    seats = [threads | ({VISIBLE: cards[rank]} if cards else {}) for rank in range(1, size)]
    logger.info("%d ranks compute together, on %s", size, f"cards {', '.join(cards[:size])}" if cards else "the CPU")
    return config, overrides, stack.enter_context(Crew(seats))


def threads_of(size: int) -> int:
    """CPU threads for each of `size` ranks."""
    return max(1, (os.cpu_count() or 1) // size)


def use_share_of_threads(config: NodeConfig, policy: "LoadedModel", size: int) -> None:
    """As many CPU threads as configured; several ranks on a CPU would otherwise take all its cores each."""
    from codezero.models.load import TINY_PARAMETERS, use_threads

    large = policy.model.num_parameters() >= TINY_PARAMETERS
    alone = size == 1 or policy.device.type != "cpu" or not large
    use_threads(policy.model, config.model.threads if alone else config.model.threads or threads_of(size))


def tell_beginning(config: NodeConfig, crew: Crew | None) -> None:
    """Let the further ranks load their models; to be called before this process loads its own."""
    if crew is not None:
        beginnings = [Beginning(config, rank, crew.size, str(crew.meeting)) for rank in range(1, crew.size)]
        crew.tell(BEGIN, *beginnings)


def build_learner(
    config: NodeConfig, policy: "LoadedModel", training: SolverConfig | None = None, *, crew: Crew | None = None
) -> "TrlLearner":
    """`training`: how; None: as the solver. With a crew: waits until every rank has loaded its model, and makes them
    all the same. Raises RankError.
    """
    if crew is not None:
        crew.hear(type(None))
        beginning = Beginning(config, 0, crew.size, str(crew.meeting))

        def join() -> "Group":
            crew.tell(JOIN)
            try:
                group = join_group(beginning, policy.device)
            except RuntimeError as error:
                raise crew.failure(error) from error
            crew.leaving.append(group.close)
            crew.hear(type(None))
            return group

        return learner_of(config, policy, join, crew)
    from codezero.solver.learner import TrlLearner

    settings = training or config.solver
    return TrlLearner(policy, settings, activation_checkpointing=recomputes(config, policy.model.num_parameters()))


def learner_of(
    config: NodeConfig, policy: "LoadedModel", join: "Callable[[], Group]", others: "Others | None" = None
) -> "ParallelLearner":
    """Of one rank among several."""
    from codezero.solver.parallel import ParallelLearner

    again = recomputes(config, policy.model.num_parameters())
    return ParallelLearner(policy, config.solver, join, others, activation_checkpointing=again)


def join_group(told: Beginning, device: "torch.device") -> "Group":
    from codezero.models.group import Group

    return Group(told.rank, told.size, device, Path(told.meeting), seconds=ANSWER_SECONDS)


def build_sampler(
    config: NodeConfig, policy: "LoadedModel", say: Say, stack: contextlib.ExitStack, *, crew: Crew | None = None
) -> "Sampler":
    """Of the solver's attempts. `stack` closes the engine where there is one. Raises ConfigError."""
    from codezero.models.sampler import Sampler

    if config.model.backend == "vllm":
        from codezero.models.vllm_engine import VllmLoop

        say("starting vLLM")
        engine = VllmLoop(policy, memory_share=config.model.memory_share * config.model.backend_share)
        stack.callback(engine.close)
        return Sampler(policy, engine)
    if crew is None:
        return Sampler(policy)
    from codezero.models.dealt import DealtDecoder
    from codezero.models.generation import OwnLoop

    return Sampler(policy, DealtDecoder(OwnLoop(policy), crew))


def load_judge(config: NodeConfig, say: Say) -> "LoadedModel":
    """The judge that runs in this process. Raises ModelError."""
    return load(config, config.evaluator.model, "judge", say)
