"""Config -> models and what trains them: whence each is loaded, how much of the policy learns, by how many ranks."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from codezero.config import NodeConfig, SolverConfig
from codezero.errors import ConfigError
from codezero.wiring.hardware import VISIBLE, check_extras, find_cards, recomputes, source_of

if TYPE_CHECKING:
    from codezero.models.distributed import RankGroup, Workers
    from codezero.models.generation import Sampler
    from codezero.models.load import LoadedModel
    from codezero.solver.learner import TrlLearner

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
"""Tells a person what takes its time."""


def load(config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False) -> "LoadedModel":
    """`nano`, a directory or a hub id; the solver's takes its CPU threads. Raises ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import TINY_PARAMETERS, load_model, use_threads

    check_extras(config)
    model, path = config.model, source_of(name, role)
    nf4 = model.quantize == "nf4" and not (for_training and model.train == "full")
    loaded = load_model(
        path, device=model.device, precision=model.precision, role=role, for_training=for_training, nf4=nf4
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    if role == "solver":  # several ranks on a CPU would otherwise take all its cores each
        shared = model.gpus > 1 and loaded.device.type == "cpu" and loaded.model.num_parameters() >= TINY_PARAMETERS
        use_threads(loaded.model, model.threads or (threads_of(model.gpus) if shared else 0))
    return loaded


class FrozenModels:
    """Models that never learn, each loaded once for all roles that read it, one after another and never at once."""

    def __init__(self, config: NodeConfig, say: Say, policy: "LoadedModel | None" = None) -> None:
        """`policy`: where it learns through an adapter, its base serves too, with the adapter switched off."""
        self._config, self.say = config, say
        self._loaded: list[LoadedModel] = []
        if policy is not None and policy.base is not None:
            policy.model.eval()
            self._loaded.append(dataclasses.replace(policy, adapter_off=True))

    def load(self, name: str, role: str) -> "LoadedModel":
        """Raises ModelError and ConfigError."""
        from codezero.models.digest import same_place

        place = same_place(source_of(name, role))
        for loaded in self._loaded:
            if same_place(loaded.name) == place:
                logger.info("%s: %s, which is in memory already", role, name)
                return loaded
        self._loaded.append(load(self._config, name, role, self.say))
        return self._loaded[-1]


def load_policy(config: NodeConfig, say: Say, name: str = "", role: str = "solver") -> "LoadedModel":
    """A model that learns (`name` empty: the solver), or its adapter. Raises ModelError and ConfigError."""
    model = config.model
    policy = load(config, name or model.solver, role, say, for_training=True)
    if model.train == "full":
        return policy
    from codezero.models.lora import add_adapter

    policy = add_adapter(
        policy, rank=model.lora_rank, alpha=model.lora_alpha, targets=model.lora_targets, seed=config.seed
    )
    trained = sum(weight.numel() for weight in policy.model.parameters() if weight.requires_grad)
    frozen = policy.model.num_parameters() - trained
    logger.info("%s: an adapter of %d numbers learns, beside %d frozen ones", role, trained, frozen)
    return policy


def start_workers(
    config: NodeConfig, overrides: Sequence[str], stack: ExitStack
) -> "tuple[NodeConfig, Sequence[str], Workers | None]":
    """Start the further ranks that `model.gpus` asks for, and leave the first GPU to this process, rank 0.

    To be called before this process uses a GPU. The config and the overrides that are returned name the number of
    ranks. Raises ConfigError when there are too few GPUs.
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
    from codezero.models.distributed import Workers

    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_of(size)))}
    environments = [threads | ({VISIBLE: cards[rank]} if cards else {}) for rank in range(1, size)]
    logger.info("%d ranks compute together, on %s", size, f"cards {', '.join(cards[:size])}" if cards else "the CPU")
    workers = stack.enter_context(contextlib.closing(Workers(environments, "nccl" if cards else "gloo")))
    return config, overrides, workers


def join_ranks(config: NodeConfig, workers: "Workers") -> "RankGroup":
    """Wait for every worker, and let it load the model; to be called before this process loads its own."""
    group = workers.join()
    group.send("start", config)
    return group


def threads_of(size: int) -> int:
    """CPU threads for each of `size` ranks."""
    return max(1, (os.cpu_count() or 1) // size)


def build_learner(
    config: NodeConfig, policy: "LoadedModel", training: SolverConfig | None = None, *, group: "RankGroup | None" = None
) -> "TrlLearner":
    """`training`: None: the solver's. Rank 0 of a group waits until every worker has its model. Raises RankError."""
    from codezero.solver.learner import TrlLearner

    again = recomputes(config, policy.model.num_parameters())
    return TrlLearner(policy, training or config.solver, activation_checkpointing=again, group=group)


def build_sampler(
    config: NodeConfig, policy: "LoadedModel", say: Say, stack: ExitStack, group: "RankGroup | None" = None
) -> "Sampler":
    """Of the solver's attempts. `stack` closes the engine where there is one. Raises ConfigError."""
    from codezero.models.generation import Sampler

    if config.model.backend == "vllm":
        from codezero.models.vllm_engine import VllmLoop

        say("starting vLLM")
        engine = VllmLoop(policy, memory_share=config.model.memory_share * config.model.backend_share)
        stack.callback(engine.close)
        return Sampler(policy, engine)
    if group is None:
        return Sampler(policy)
    from codezero.models.distributed import ParallelDecoder
    from codezero.models.generation import OwnLoop

    return Sampler(policy, ParallelDecoder(OwnLoop(policy), group))
