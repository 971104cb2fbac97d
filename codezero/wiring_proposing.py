"""Config -> a proposer's service, and the vetting of what a node proposes."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.known_round import KnownRound
from codezero.proposer.difficulty import BandTS
from codezero.proposing import ProposerNode
from codezero.protocols import Evaluator, GroupSampler, Monitor, Proposer, Swarm
from codezero.run_folder import RunFolder
from codezero.types import Problem
from codezero.wiring_chain import ChainParts
from codezero.wiring_proposer import build_proposer

if TYPE_CHECKING:
    from codezero.sandbox.execution import Sandbox

SHOWING_TESTS = {"per_test", "output_match"}
"""Questions of a judge that is shown tests."""


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

    written = build_proposer(config, swarm.peer_id, lambda _: True, monitor.busy, stack).proposer
    proposer = recalling(config, written, swarm.peer_id, None, None)
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


def shown_tests(config: NodeConfig) -> bool:
    """Is the judge asked anything that shows it the tests?"""
    return bool(SHOWING_TESTS & set(config.evaluator.questions))


def recalling(
    config: NodeConfig, proposer: Proposer, peer_id: str, evaluator: Evaluator | None, sandbox: "Sandbox | None"
) -> Proposer:
    """`proposer`, which takes back what turns out broken. Without an evaluator by its peers' word alone."""
    from codezero.problems.programs import render
    from codezero.problems.questions import parse_question
    from codezero.proposer.recall import RecallingProposer
    from codezero.proposer.refuting import ExecutedRefuting, JudgedRefuting, Refuting, Values

    def known(problem: Problem) -> str | None:
        """The program that a question of our own family describes."""
        parsed = parse_question(problem.question)
        return None if parsed is None else render(parsed[1], parsed[0])

    if config.proposer.model == "off":
        return proposer
    values = None if sandbox is None else Values(sandbox, known)
    refuting: list[Refuting] = [] if values is None else [ExecutedRefuting(values)]
    if evaluator is not None and config.reward.mode == "judge" and shown_tests(config):
        refuting.append(JudgedRefuting(evaluator))
    return RecallingProposer(proposer, peer_id=peer_id, refuting=refuting, values=values)


def vetted(
    config: NodeConfig,
    proposer: Proposer,
    sampler: GroupSampler,
    evaluator: Evaluator,
    peer_id: str,
    stack: contextlib.ExitStack,
) -> Proposer:
    """`proposer` as far as its problems stand up to the solver's attempts, before they are offered and after.

    Raises SandboxError.
    """
    from codezero.proposer.vetting import ExecutedVetting, JudgedVetting, VettedProposer
    from codezero.solver.solver import solver_prompt

    executed = config.reward.mode == "rlvr"
    sandbox: Sandbox | None = None
    if config.proposer.model != "off" and (executed or config.audit.share):
        from codezero.sandbox.tiers import open_sandbox

        sandbox = stack.enter_context(open_sandbox(config.audit.sandbox))
    proposer = recalling(config, proposer, peer_id, evaluator, sandbox)
    if not config.proposer.vetting or not (executed or shown_tests(config)):
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
