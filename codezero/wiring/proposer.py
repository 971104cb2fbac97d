"""Config -> proposer (frozen in this process or behind an endpoint, or one that learns), its node, and its vetting."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from codezero.config import NodeConfig, SolverConfig, proposal_places
from codezero.errors import ModelError
from codezero.node import ProposerNode
from codezero.proposer.difficulty import BandTS
from codezero.protocols import Evaluator, GroupSampler, Monitor, Proposer, Swarm
from codezero.runs import RunFolder
from codezero.system.state import KnownRound
from codezero.types import Problem
from codezero.wiring.chain import ChainParts
from codezero.wiring.evaluator import Say
from codezero.wiring.models import build_learner, load, load_policy

if TYPE_CHECKING:
    from codezero.models.grammar import Structure
    from codezero.models.load import LoadedModel
    from codezero.sandbox.base import Sandbox

logger = logging.getLogger(__name__)


class ProposerParts(NamedTuple):
    """The proposer, and its policy where that learns."""

    proposer: Proposer
    policy: "LoadedModel | None" = None


def build_proposer(
    config: NodeConfig, peer_id: str, fits: Callable[[Problem], bool], say: Say, stack: contextlib.ExitStack
) -> ProposerParts:
    """`fits`: can the solver's context hold the problem? Raises ModelError and ConfigError."""
    from codezero.proposer.proposer import ModelProposer, NoProposer

    settings = config.proposer
    if settings.model == "off":
        return ProposerParts(NoProposer())
    if settings.train:
        return build_trained(config, peer_id, fits, say)
    return ProposerParts(
        ModelProposer(
            _sampler(config, say, stack),
            peer_id=peer_id,
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            attempts=settings.attempts,
            seed=config.seed,
            taken=settings.taken,
        )
    )


def build_trained(config: NodeConfig, peer_id: str, fits: Callable[[Problem], bool], say: Say) -> ProposerParts:
    from codezero.models.generation import Sampler
    from codezero.problems.filters import Screen
    from codezero.proposer.training import TrainedProposer, groups_per_round
    from codezero.solver.rewarded import RewardedLearner
    from codezero.swarm.schema import MAX_ITEMS

    settings = config.proposer
    policy = load_policy(config, say, settings.model, "proposer")
    most = groups_per_round(proposal_places(config), settings.every, settings.group_size, MAX_ITEMS)
    proposer = TrainedProposer(
        Sampler(policy),
        learner=RewardedLearner(build_learner(config, policy, _training(config))),
        screen=Screen(fits),
        group_size=settings.group_size,
        most_groups=most,
        wait=settings.wait,
        peer_id=peer_id,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=config.seed,
        taken=settings.taken,
    )
    return ProposerParts(proposer, policy)


def _training(config: NodeConfig) -> SolverConfig:
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


def _sampler(config: NodeConfig, say: Say, stack: contextlib.ExitStack) -> GroupSampler:
    settings = config.proposer
    if settings.kind == "openai":
        from codezero.proposer.openai_sampler import OpenAISampler

        return stack.enter_context(
            OpenAISampler(
                settings.url,
                settings.model,
                seconds=settings.seconds,
                requests=settings.requests,
                structured=settings.structured == "auto",
            )
        )
    from codezero.models.generation import OwnLoop, Sampler

    loaded = load(config, settings.model, "proposer", say)
    return Sampler(loaded, OwnLoop(loaded, structure_for(loaded) if settings.structured == "auto" else None))


def structure_for(loaded: "LoadedModel") -> "Structure | None":
    """What holds a model to the form of a proposal; None, and said so, where its tokenizer cannot be."""
    from codezero.models.grammar import Structure
    from codezero.proposer.parsing import proposal_grammar

    try:
        return Structure(loaded, proposal_grammar)
    except ModelError as error:
        logger.info("proposer: %s; what it writes is parsed", error)
        return None


def build_proposer_node(
    config: NodeConfig,
    folder: RunFolder,
    swarm: Swarm,
    monitor: Monitor,
    chain: Callable[[], ChainParts],
    known_round: KnownRound,
    stack: contextlib.ExitStack,
) -> ProposerNode:
    """`role=proposer`. Points it earns come from others' votes; it submits none itself."""
    from codezero.solver.checkpoint import CheckpointStore

    proposer = build_proposer(config, swarm.peer_id, lambda _: True, monitor.busy, stack).proposer
    monitor.busy("waiting for the chain")
    parts = chain()
    return ProposerNode(
        swarm=swarm,
        difficulty=BandTS(seed=config.seed, told_only=True),
        proposer=proposer,
        coordinator=parts.coordinator,
        monitor=monitor,
        checkpoints=CheckpointStore(folder.checkpoints, keep=config.run.keep_checkpoints, resume=config.run.resume),
        proposals_per_iteration=config.proposer.problems_per_iteration,
        rest_seconds=config.proposer.rest_seconds,
        max_iterations=config.run.max_iterations,
        max_seconds=60 * config.run.max_minutes,
        checkpoint_seconds=config.run.checkpoint_seconds,
        max_failures=config.run.max_failures,
        known_round=known_round,
    )


def _known_program(problem: Problem) -> str | None:
    """The program that a question of our own family describes."""
    from codezero.problems.synthetic.programs import parse_question, render

    parsed = parse_question(problem.question)
    return None if parsed is None else render(parsed[1], parsed[0])


def vetted(
    config: NodeConfig,
    proposer: Proposer,
    sampler: GroupSampler,
    evaluator: Evaluator,
    peer_id: str,
    stack: contextlib.ExitStack,
) -> Proposer:
    """`proposer` as far as its problems stand up to the solver's attempts; where anything is executed, wrong expected
    values are counted. Raises SandboxError."""
    from codezero.proposer.vetting import CountedProposer, ExecutedVetting, JudgedVetting, VettedProposer
    from codezero.solver.solver import solver_prompt

    executed = config.reward.mode == "rlvr"
    tests_shown = not {"per_test", "output_match"}.isdisjoint(config.evaluator.questions)
    sandbox: Sandbox | None = None
    if config.proposer.model != "off" and (executed or config.audit.share):
        from codezero.sandbox.bubblewrap import open_sandbox

        sandbox = stack.enter_context(open_sandbox(config.audit.sandbox))
        proposer = CountedProposer(proposer, sandbox, _known_program, peer_id=peer_id)
    if not config.proposer.vetting or not (executed or tests_shown):
        return proposer
    vetting = ExecutedVetting(sandbox) if executed and sandbox is not None else JudgedVetting(evaluator)
    return VettedProposer(
        proposer,
        vetting,
        sampler,
        prompt=solver_prompt,
        attempts=config.proposer.vetting,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.solver.temperature,
        seed=config.seed,
        peer_id=peer_id,
    )
