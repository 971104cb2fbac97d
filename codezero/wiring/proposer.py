"""Config -> proposer (in this process or behind an endpoint), its node, and its vetting."""

import functools
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codezero.chain.upkeep import ChainParts
from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.tasks import DerivedProposer, TaskEnvironment
from codezero.errors import ModelError
from codezero.monitor.monitor import RunMonitor
from codezero.proposer.difficulty import BandTS
from codezero.proposer_node import ProposerNode
from codezero.protocols import Evaluator, GroupSampler, Proposer, Swarm
from codezero.runs import RunFolder
from codezero.types import Problem
from codezero.wiring.evaluator import build_sandbox
from codezero.wiring.models import FrozenModels

if TYPE_CHECKING:
    from codezero.models.grammar import Structure
    from codezero.models.load import LoadedModel
    from codezero.sandbox.base import Sandbox

logger = logging.getLogger(__name__)

PartsLater = Callable[[], ChainParts]
"""Waits for the chain."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the parts of one node are put together from. `stack` closes what holds a process or a file."""

    config: NodeConfig
    environment: Environment
    folder: RunFolder
    swarm: Swarm
    monitor: RunMonitor
    chain: PartsLater
    stack: ExitStack


def build_proposer(site: Assembly, models: FrozenModels) -> Proposer:
    """An environment that derives its problems needs no model. Raises ModelError and ConfigError."""
    from codezero.proposer.proposer import ModelProposer, NoProposer

    config, environment, peer_id = site.config, site.environment, site.swarm.peer_id
    settings = config.proposer
    if settings.model == "off":
        return NoProposer()
    if isinstance(environment, TaskEnvironment):
        return DerivedProposer(environment, peer_id=peer_id, seed=config.seed)
    sampler: GroupSampler
    if settings.kind == "openai":
        from codezero.proposer.openai_sampler import OpenAISampler

        sampler = site.stack.enter_context(OpenAISampler(settings))
    else:
        from codezero.models.generation import OwnLoop, Sampler

        loaded = models.load(settings.model, "proposer")
        sampler = Sampler(loaded, OwnLoop(loaded, structure_for(loaded)))
    return ModelProposer(sampler, settings, peer_id=peer_id, seed=config.seed)


def structure_for(loaded: "LoadedModel") -> "Structure | None":
    """What holds a model to the form of a proposal; None, and said so, where its tokenizer cannot be."""
    from codezero.models.grammar import Structure
    from codezero.proposer.parsing import proposal_grammar

    try:
        return Structure(loaded, proposal_grammar)
    except ModelError as error:
        logger.info("proposer: %s; what it writes is parsed", error)
        return None


def build_proposer_node(site: Assembly) -> ProposerNode:
    """`role=proposer`. Points it earns come from others' votes; it submits none itself."""
    from codezero.solver.checkpoint import CheckpointStore

    config, monitor, run = site.config, site.monitor, site.config.run
    monitor.busy("waiting for the chain")
    coordinator = site.chain().coordinator  # before models
    return ProposerNode(
        config=config,
        swarm=site.swarm,
        difficulty=BandTS(seed=config.seed, told_only=True),
        proposer=build_proposer(site, FrozenModels(config, monitor.busy)),
        coordinator=coordinator,
        monitor=monitor,
        checkpoints=CheckpointStore(site.folder.checkpoints, run.keep_checkpoints, run.resume),
    )


def vetted(site: Assembly, proposer: Proposer, sampler: GroupSampler, evaluator: Evaluator) -> Proposer:
    """Let attempts test what `proposer` writes, and execution count its wrong values; what is derived needs neither.

    Raises SandboxError.
    """
    config, environment, peer_id = site.config, site.environment, site.swarm.peer_id
    if isinstance(environment, TaskEnvironment):
        return proposer
    from codezero.problems.synthetic.programs import parse_question, render
    from codezero.proposer import vetting

    executed = config.reward.mode != "judge"
    tests_shown = not {"per_test", "output_match"}.isdisjoint(config.evaluator.questions)
    sandbox: Sandbox | None = None
    if config.proposer.model != "off" and (executed or config.audit.share):
        sandbox = build_sandbox(config, site.stack)

        def known_program(problem: Problem) -> str | None:
            """That a question of the embedded family describes."""
            parsed = parse_question(problem.question)
            return None if parsed is None else render(parsed[1], parsed[0])

        proposer = vetting.CountedProposer(proposer, sandbox, known_program, peer_id=peer_id, block=config.answer.block)
    if not config.proposer.vetting or not (executed or tests_shown):
        return proposer
    if executed and sandbox is not None:
        vet = functools.partial(vetting.executed, sandbox=sandbox, block=config.answer.block)
    else:
        vet = functools.partial(vetting.judged, evaluator=evaluator)
    return vetting.VettedProposer(proposer, vet, sampler, config, prompt=environment.prompt, peer_id=peer_id)
