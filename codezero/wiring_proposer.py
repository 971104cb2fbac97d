"""Config -> proposer: frozen in this process or behind an endpoint, or one that learns."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codezero.compose import proposal_places
from codezero.config import NodeConfig, SolverConfig
from codezero.errors import ModelError
from codezero.protocols import GroupSampler, Proposer
from codezero.types import Problem
from codezero.wiring_evaluator import Say
from codezero.wiring_models import build_learner, load, load_policy

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel
    from codezero.models.structured import Structure

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProposerParts:
    """The proposer, and its policy where that learns."""

    proposer: Proposer
    policy: "LoadedModel | None" = None


def build_proposer(
    config: NodeConfig, peer_id: str, fits: Callable[[Problem], bool], say: Say, stack: contextlib.ExitStack
) -> ProposerParts:
    """In this process, or behind an endpoint. `fits`: can the solver's context hold it? Raises ModelError and
    ConfigError.
    """
    from codezero.proposer.proposer import ModelProposer, NoProposer

    settings = config.proposer
    if settings.model == "off":
        return ProposerParts(NoProposer())
    if settings.train:
        return build_trained(config, peer_id, fits, say)
    return ProposerParts(
        ModelProposer(
            proposing_sampler(config, say, stack),
            peer_id=peer_id,
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            attempts=settings.attempts,
            seed=config.seed,
            taken=settings.taken,
        )
    )


def build_trained(config: NodeConfig, peer_id: str, fits: Callable[[Problem], bool], say: Say) -> ProposerParts:
    from codezero.models.sampler import Sampler
    from codezero.problems.screen import Screen
    from codezero.proposer.training import Groups, TrainedProposer, groups_per_round
    from codezero.solver.rewarded import RewardedLearner
    from codezero.swarm.schema import MAX_ITEMS

    settings = config.proposer
    policy = load_policy(config, say, settings.model, "proposer")
    most = groups_per_round(proposal_places(config), settings.every, settings.group_size, MAX_ITEMS)
    proposer = TrainedProposer(
        Sampler(policy),
        learner=RewardedLearner(build_learner(config, policy, proposer_training(config))),
        screen=Screen(fits),
        groups=Groups(settings.group_size, most, settings.wait),
        peer_id=peer_id,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=config.seed,
        taken=settings.taken,
    )
    return ProposerParts(proposer, policy)


def proposer_training(config: NodeConfig) -> SolverConfig:
    """The learner's settings: the solver's, but for what the proposer has of its own, and one step for an update."""
    settings = config.proposer
    return dataclasses.replace(
        config.solver,
        group_size=settings.group_size,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        kl_beta=settings.kl_beta,
        settle_steps=0,
        minibatches=1,
    )


def proposing_sampler(config: NodeConfig, say: Say, stack: contextlib.ExitStack) -> GroupSampler:
    settings = config.proposer
    if settings.kind == "openai":
        from codezero.proposer.endpoint import EndpointSampler

        return stack.enter_context(
            EndpointSampler(
                settings.url,
                settings.model,
                seconds=settings.seconds,
                requests=settings.requests,
                structured=settings.structured == "auto",
            )
        )
    from codezero.models.own import OwnLoop
    from codezero.models.sampler import Sampler

    loaded = load(config, settings.model, "proposer", say)
    return Sampler(loaded, OwnLoop(loaded, structure_for(loaded) if settings.structured == "auto" else None))


def structure_for(loaded: "LoadedModel") -> "Structure | None":
    """What holds a model to the form of a proposal; None, and said so, where its tokenizer cannot be."""
    from codezero.models.structured import Structure
    from codezero.proposer.structure import proposal_grammar

    try:
        return Structure(loaded, proposal_grammar)
    except ModelError as error:
        logger.info("proposer: %s; what it writes is parsed", error)
        return None
