"""Config -> proposer: in this process, behind an endpoint or derived, and as far as attempts vet it."""

import functools
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.environment import Environment, ScoredEnvironment
from codezero.errors import ModelError
from codezero.evaluator.base import Evaluator
from codezero.models.base import GroupSampler
from codezero.models.build import FrozenModels
from codezero.problems.synthetic.tasks import parse_question, render
from codezero.proposer.base import Proposer
from codezero.sandbox.build import build_sandbox
from codezero.types import Problem

if TYPE_CHECKING:
    from codezero.models.grammar import Structure
    from codezero.models.load import LoadedModel

logger = logging.getLogger(__name__)


def build_proposer(
    config: NodeConfig, environment: Environment, peer_id: str, models: FrozenModels, stack: ExitStack
) -> Proposer:
    """An environment that derives its problems needs no model. Raises ModelError and ConfigError."""
    from codezero.proposer.proposer import DerivedProposer, ModelProposer, NoProposer

    settings = config.proposer
    if settings.model == "off":
        return NoProposer()
    if isinstance(environment, ScoredEnvironment):
        return DerivedProposer(environment, peer_id=peer_id, seed=config.seed)
    sampler: GroupSampler
    if settings.kind == "openai":
        from codezero.proposer.openai_sampler import OpenAISampler

        sampler = stack.enter_context(OpenAISampler(settings))
    else:
        from codezero.models.generation import OwnLoop, Sampler

        loaded = models.load(settings.model, "proposer")
        sampler = Sampler(loaded, OwnLoop(loaded, structure_for(loaded)))
    return ModelProposer(sampler, settings, peer_id=peer_id, seed=config.seed)


def structure_for(loaded: "LoadedModel") -> "Structure | None":
    """The grammar that holds a model to the form of a proposal; None, and said so, where its tokenizer has none."""
    from codezero.models.grammar import Structure
    from codezero.proposer.parsing import proposal_grammar

    try:
        return Structure(loaded, proposal_grammar)
    except ModelError as error:
        logger.info("proposer: %s; what it writes is parsed", error)
        return None


def vetted(
    config: NodeConfig,
    environment: Environment,
    proposer: Proposer,
    sampler: GroupSampler,
    evaluator: Evaluator,
    peer_id: str,
    stack: ExitStack,
) -> Proposer:
    """Wrap `proposer` so that attempts vet its problems and execution counts its wrong expected values. Derived
    problems need neither. Raises SandboxError."""
    if isinstance(environment, ScoredEnvironment):
        return proposer
    from codezero.proposer import vetting

    executed = config.reward.mode != "judge"
    tests_shown = not {"per_test", "output_match"}.isdisjoint(config.evaluator.questions)
    counts = config.proposer.model != "off" and (executed or config.audit.share > 0)
    sandbox = build_sandbox(config, stack) if counts else None
    vet: vetting.Vetting | None = None
    if config.proposer.vetting and executed and sandbox is not None:
        vet = functools.partial(vetting.executed, sandbox=sandbox, block=config.answer.block)
    elif config.proposer.vetting and (executed or tests_shown):
        vet = functools.partial(vetting.judged, evaluator=evaluator)

    def known_program(problem: Problem) -> str | None:
        """The program that a question of the embedded family describes."""
        parsed = parse_question(problem.question)
        return None if parsed is None else render(parsed[1], parsed[0])

    return vetting.VettedProposer(
        proposer, vet, sampler, config, prompt=environment.prompt, peer_id=peer_id, sandbox=sandbox, known=known_program
    )
