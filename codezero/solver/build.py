"""Config -> what learns: how much of the policy, in which processes, and who samples from it."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.errors import ConfigError
from codezero.models.base import Progress
from codezero.models.build import Say, load
from codezero.models.hardware import SPARE, VISIBLE, find_cards, freest_card, is_embedded, recomputes, threads_of
from codezero.rollout.build import build_servers
from codezero.types import RolloutGroup

if TYPE_CHECKING:
    from torch import Tensor

    from codezero.models.generation import Sampler
    from codezero.models.load import LoadedModel
    from codezero.solver.checkpoint import CheckpointStore
    from codezero.solver.learner import TrlLearner
    from codezero.solver.solver import GrpoSolver
    from codezero.solver.updater import Learner
    from codezero.weights.versions import PolicyVersion

logger = logging.getLogger(__name__)

RANK = "codezero.solver.trainer"  # the module that a rank of the trainer runs
VERSIONS = "weights"  # the folder of a run that its trainer publishes the policy in


def load_policy(config: NodeConfig, say: Say) -> "LoadedModel":
    """The solver as it learns, or its adapter. Raises ModelError and ConfigError."""
    model = config.model
    policy = load(config, model.solver, "solver", say, for_training=model.train == "full")  # else the base is frozen
    if model.train == "full":
        return policy
    from codezero.models.load import add_adapter

    policy = add_adapter(
        policy, rank=model.lora_rank, alpha=model.lora_alpha, targets=model.lora_targets, seed=config.seed
    )
    if model.adapter:
        from codezero.solver.policy_files import begin_with

        begin_with(policy, Path(os.path.expanduser(model.adapter)))
    trained = sum(weight.numel() for weight in policy.model.parameters() if weight.requires_grad)
    frozen = policy.model.num_parameters() - trained
    logger.info("solver: an adapter of %d numbers learns, beside %d frozen ones", trained, frozen)
    return policy


def deal_cards(config: NodeConfig) -> list[dict[str, str]]:
    """The environment of each rank of the trainer; this process keeps the first visible card, without ranks the freest.
    To be called before this process uses a GPU. Raises ConfigError when there are too few."""
    size = config.trainer.ranks
    visible = [] if not size and is_embedded(config) else find_cards(config.model.device)
    if not size:
        if len(visible) > 1:
            os.environ[VISIBLE] = freest = freest_card(visible)
            os.environ[SPARE] = ",".join(card for card in visible if card != freest)
            print(f"codezero: card {freest} of {len(visible)}, the freest; trainer.ranks uses several", flush=True)
        return []
    cards = (config.trainer.cards or visible)[-size:]
    if config.model.device == "mps" or 0 < len(cards) < size:
        there = "mps is one device" if config.model.device == "mps" else f"there are {len(cards)} cards"
        raise ConfigError(f"trainer.ranks={size}, but {there}; lower it, or set trainer.ranks=0")
    if visible:
        os.environ[VISIBLE] = visible[0]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_of(size)))}
    return [threads | ({VISIBLE: cards[rank]} if cards else {}) for rank in range(size)]


def build_learner(config: NodeConfig, policy: "LoadedModel", **called: Callable[..., object]) -> "TrlLearner":
    """called: see `TrlLearner`."""
    from codezero.solver.learner import TrlLearner

    again = recomputes(config, policy.model.num_parameters())
    return TrlLearner(policy, config.solver, activation_checkpointing=again, **called)


def build_solver(
    config: NodeConfig,
    environment: Environment,
    learner: "Learner",
    sampler: "Sampler",
    peer_id: str,
    begin: Callable[[RolloutGroup], object] | None = None,
) -> "GrpoSolver":
    """begin: see `Evaluator.begin`."""
    from codezero.models.generation import TrailingSampler
    from codezero.solver.solver import GrpoSolver

    ahead = config.rollout.in_flight > 0  # whose attempts are judged when their time has come
    return GrpoSolver(
        config.solver,
        sampler=TrailingSampler(learner.policy) if ahead and not config.rollout.has_servers else sampler,
        learner=learner,
        prompt=environment.prompt,
        peer_id=peer_id,
        seed=config.seed,
        external=config.external,
        engine=config.trainer.ranks > 0 or config.rollout.has_servers or ahead,
        begin=None if ahead else begin,
    )


def build_policy(
    config: NodeConfig,
    environments: Sequence[Mapping[str, str]],
    versions: Path,
    say: Say,
    stack: ExitStack,
    learned: Progress = lambda done, of: None,
    sampled: Progress = lambda done, of: None,
) -> "tuple[Learner, Sampler]":
    """The learner, and the sampler of its newest policy.

    A trainer has a rank for each of `environments`; this process then holds a copy, and servers hold theirs. All these
    follow the versions in a folder. learned, sampled: called as an update and a draw go on. Raises
    ModelError, RankError and RolloutError."""
    from codezero.models.generation import Sampler
    from codezero.solver.remote import Begin, Ranks, RemoteLearner
    from codezero.weights.delta import layout_of
    from codezero.weights.versions import HostCopy, Publisher, VersionSource

    policy = load(config, config.model.solver, "solver", say) if environments else load_policy(config, say)
    servers = build_servers(config, policy, versions, say, stack)
    if not environments:
        if servers is None:
            return build_learner(config, policy, progress=learned), Sampler(policy, progress=sampled)
        publisher = Publisher(versions, deltas=config.weights.transfer == "delta")

        def publish(version: int) -> None:
            servers.follow(publisher.publish(version, published(policy)))

        learner = build_learner(config, policy, progress=learned, changed=publish)
        publish(learner.updates)
        return learner, Sampler(policy, servers)
    parameters = dict(policy.model.named_parameters())
    own = HostCopy(VersionSource(versions), layout_of(parameters))

    def follow(version: "PolicyVersion") -> None:
        if servers is None:
            own.reach(version.number, version.state).copy_to(parameters)
        else:
            servers.follow(version)

    say("starting the trainer")
    backend = "nccl" if VISIBLE in environments[0] else "gloo"
    begin = Begin(config, str(versions.resolve()), config.trainer.tokens_per_pass)
    start = partial(Ranks, RANK, environments, backend)
    remote = RemoteLearner(policy, start, begin, follow)
    stack.callback(remote.close)
    return remote, Sampler(policy, servers, progress=sampled)


def build_sampler(config: NodeConfig, policy: "LoadedModel", say: Say, stack: ExitStack) -> "Sampler":
    """The sampler of a policy that does not learn."""
    from codezero.models.generation import Sampler
    from codezero.weights.versions import Publisher

    versions = Path(stack.enter_context(TemporaryDirectory(prefix="codezero-weights-")))
    servers = build_servers(config, policy, versions, say, stack)
    if servers is not None:
        servers.follow(Publisher(versions).publish(0, published(policy)))
    return Sampler(policy, servers)


def published(policy: "LoadedModel") -> "dict[str, Tensor]":
    """The weights by their names on disk, tied ones once."""
    from codezero.models.load import plain_weights

    weights, order = plain_weights(policy.model), list(policy.model.state_dict())[::-1]
    # by the model's own order, in which an embedding comes before the head that it is tied to
    first = {
        weights[name].data_ptr(): name for name in sorted(weights, key=lambda name: name in order and order.index(name))
    }
    return {name: weights[name] for name in first.values()}


def build_checkpoints(
    config: NodeConfig, folder: Path, environment: Environment, policy: "LoadedModel | None" = None
) -> "CheckpointStore":
    """The checkpoints in `folder`, of this policy and environment; None: of a proposer, which has neither."""
    from codezero.solver.checkpoint import CheckpointStore, PolicyFingerprint

    run, fingerprint = config.run, PolicyFingerprint()
    if policy is not None:
        learned = f"{environment.name} {environment.digest}" if environment.digest else ""
        shapes = {name: tuple(parameter.shape) for name, parameter in policy.model.named_parameters()}
        fingerprint = PolicyFingerprint(policy.tokenizer_digest, shapes, learned)
    return CheckpointStore(folder, run.keep_checkpoints, run.resume, fingerprint=fingerprint)
