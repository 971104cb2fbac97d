"""Config -> models and what trains them: whence each is loaded, how much of the policy learns, in which processes."""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.nano import NANO
from codezero.wiring.hardware import VISIBLE, check_extras, find_cards, recomputes, source_of, threads_of

if TYPE_CHECKING:
    from torch import Tensor

    from codezero.models.generation import Sampler
    from codezero.models.load import LoadedModel
    from codezero.solver.learner import TrlLearner
    from codezero.solver.updater import Learner
    from codezero.weights.versions import PolicyVersion, Publisher

logger = logging.getLogger(__name__)

RANK = "codezero.wiring.trainer"
"""The module that a rank of the trainer runs."""
Say = Callable[[str], None]
"""Tells a person what takes its time."""


def load(config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False) -> "LoadedModel":
    """`nano`, a directory or a hub id; the solver decides about CPU threads. Raises ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import load_model, use_threads

    check_extras(config)
    model, path = config.model, source_of(name, role)
    nf4 = model.quantize == "nf4" and not for_training
    loaded = load_model(
        path,
        device=model.device,
        precision=model.precision,
        role=role,
        for_training=for_training,
        nf4=nf4,
        thinking=model.thinking if role == "solver" else "auto",
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    if role == "solver" or model.solver == NANO:  # a judge alone is as tiny as the solver that is not loaded
        use_threads(loaded.model, model.threads)
    return loaded


class FrozenModels:
    """Models that never learn, each loaded once for all roles that read it, one after another and never at once."""

    def __init__(
        self,
        config: NodeConfig,
        say: Say,
        policy: "LoadedModel | None" = None,
        read: Callable[[int, int], object] = lambda done, of: None,
    ) -> None:
        """`policy`: where it learns through an adapter, its base serves too, with the adapter switched off. `read`:
        called as the judge reads."""
        self._config, self.say, self.read = config, say, read
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


def load_policy(config: NodeConfig, say: Say) -> "LoadedModel":
    """The solver as it learns, or its adapter. Raises ModelError and ConfigError."""
    model = config.model
    policy = load(config, model.solver, "solver", say, for_training=model.train == "full")  # else the base is frozen
    if model.train == "full":
        return policy
    from codezero.models.lora import add_adapter

    policy = add_adapter(
        policy, rank=model.lora_rank, alpha=model.lora_alpha, targets=model.lora_targets, seed=config.seed
    )
    trained = sum(weight.numel() for weight in policy.model.parameters() if weight.requires_grad)
    frozen = policy.model.num_parameters() - trained
    logger.info("solver: an adapter of %d numbers learns, beside %d frozen ones", trained, frozen)
    return policy


def deal_cards(config: NodeConfig) -> list[dict[str, str]]:
    """The environment of each rank of the trainer; this process keeps the first visible card.

    To be called before this process uses a GPU. Raises ConfigError when there are too few.
    """
    size = config.trainer.ranks
    visible = find_cards(config.model.device) if size else []
    cards = (config.trainer.cards or visible)[-size:]
    if config.model.device == "mps" or 0 < len(cards) < size:
        there = "mps is one device" if config.model.device == "mps" else f"there are {len(cards)} cards"
        raise ConfigError(f"trainer.ranks={size}, but {there}; lower it, or set trainer.ranks=0")
    if visible:
        os.environ[VISIBLE] = visible[0]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_of(size or 1)))}
    return [threads | ({VISIBLE: cards[rank]} if cards else {}) for rank in range(size)]


def build_learner(config: NodeConfig, policy: "LoadedModel") -> "TrlLearner":
    from codezero.solver.learner import TrlLearner

    again = recomputes(config, policy.model.num_parameters())
    return TrlLearner(policy, config.solver, activation_checkpointing=again)


def build_publisher(config: NodeConfig, folder: Path) -> "Publisher":
    """Of the policy's versions."""
    from codezero.weights.versions import Publisher

    settings, deltas = config.weights, config.weights.transfer == "delta"
    return Publisher(folder, keep=settings.keep, check_every=settings.check_every, deltas=deltas)


def build_policy(
    config: NodeConfig,
    environments: Sequence[Mapping[str, str]],
    versions: Path,
    say: Say,
    stack: ExitStack,
    learned: Callable[[int, int], object] = lambda done, of: None,
) -> "tuple[Learner, Sampler]":
    """Who learns, and who samples from what it has learned.

    A trainer has a rank for each of `environments`; this process then holds a copy, and servers hold theirs. All these
    follow the versions in a folder. learned: called as an update goes on. Raises ModelError, RankError and
    RolloutError.
    """
    from codezero.models.generation import Sampler
    from codezero.solver.remote import Begin, Ranks, RemoteLearner
    from codezero.weights.state import layout_of
    from codezero.weights.transfer import FolderSource
    from codezero.weights.versions import HostCopy
    from codezero.wiring.rollout import build_servers

    policy = load(config, config.model.solver, "solver", say) if environments else load_policy(config, say)
    servers = build_servers(config, policy, versions, say, stack)
    parameters = dict(policy.model.named_parameters())
    own = HostCopy(FolderSource(versions), layout_of(parameters))

    def follow(version: "PolicyVersion") -> None:
        if servers:
            servers.follow(version)
        elif environments:
            own.reach(version.number, version.state).copy_to(parameters)

    if not environments:
        learner = build_learner(config, policy)
        learner.progress = learned
        if servers:
            publisher = build_publisher(config, versions)
            learner.changed = lambda: follow(publisher.publish(learner.updates, published(policy)))
            learner.changed()
        return learner, Sampler(policy, servers)
    say("starting the trainer")
    backend = "nccl" if VISIBLE in environments[0] else "gloo"
    begin = Begin(config, str(versions.resolve()), config.trainer.tokens_per_pass)
    start = partial(Ranks, RANK, environments, backend)
    remote = RemoteLearner(policy, start, begin, follow)
    stack.callback(remote.close)
    return remote, Sampler(policy, servers)


def build_sampler(config: NodeConfig, policy: "LoadedModel", say: Say, stack: ExitStack) -> "Sampler":
    """Of a policy that does not learn."""
    from codezero.models.generation import Sampler
    from codezero.wiring.rollout import build_servers

    versions = Path(stack.enter_context(TemporaryDirectory(prefix="codezero-weights-")))
    servers = build_servers(config, policy, versions, say, stack)
    if servers is not None:
        servers.follow(build_publisher(config, versions).publish(0, published(policy)))
    return Sampler(policy, servers)


def published(policy: "LoadedModel") -> "dict[str, Tensor]":
    """The weights by their names on disk, tied ones once."""
    from codezero.models.lora import plain_weights

    weights, order = plain_weights(policy.model), list(policy.model.state_dict())[::-1]
    # by the model's own order, in which an embedding comes before the head that it is tied to
    first = {
        weights[name].data_ptr(): name for name in sorted(weights, key=lambda name: name in order and order.index(name))
    }
    return {name: weights[name] for name in first.values()}
