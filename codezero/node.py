"""THE NODE, as a script: make its parts, then problems -> attempts -> verdicts -> exchange -> learning -> ... -> save.

Read this file first. `run_node` makes each part with the builder of its own package; `train` is the loop, in which
every paragraph of an iteration stands under one line. A lost peer, a silent judge or an absent coordinator costs one
step of one iteration and is counted (`Run.tolerate`); a judge that fails again and again, and any other error, ends the
node. `role=proposer` has a script of its own, in `propose.py`."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from codezero.attempts import Attempts, build_attempts
from codezero.chain.base import Outbox
from codezero.chain.build import start_chain
from codezero.config import NodeConfig, ProposerConfig
from codezero.environments.build import build_environment
from codezero.errors import EvaluatorError, MarketError, ProposalError, RolloutError, SandboxError, SwarmError
from codezero.evals.build import build_exam, build_exam_tasks
from codezero.evaluator.base import Evaluator
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.fitting import fit
from codezero.login.page_process import announce, start_page
from codezero.market.build import build_market
from codezero.models.build import FrozenModels, fits_context
from codezero.monitor.build import models_of, record_settings
from codezero.monitor.hub import HubPushes
from codezero.monitor.terminal import Screen
from codezero.problems.build import build_stream
from codezero.problems.filters import Novelty
from codezero.problems.sources import MAX_HELD_BACK
from codezero.problems.stream import MixedStream
from codezero.proposer.base import Proposer
from codezero.proposer.build import build_proposer, vetted
from codezero.proposer.difficulty import BandTS
from codezero.run import Laps, Run, Step, starting
from codezero.runs import RunFolder
from codezero.solver.build import VERSIONS, build_checkpoints, build_policy, build_solver, deal_cards
from codezero.swarm.base import Swarm
from codezero.swarm.build import build_swarm, start_network, visit_through
from codezero.system.state import Persistent
from codezero.types import BELIEF, Metrics, Problem, RolloutGroup, ScoredGroup, mean

if TYPE_CHECKING:
    from codezero.evals.exam import HeldOutExam
    from codezero.market.play import Player
    from codezero.solver.solver import GrpoSolver

UNEXAMINED = (EvaluatorError, SandboxError, RolloutError)


@dataclass(frozen=True, kw_only=True)
class Node:
    """The parts of an iteration."""

    proposing: ProposerConfig
    most_failures: int  # of judging, in a row
    problems: MixedStream
    attempts: Attempts
    evaluator: Evaluator
    swarm: Swarm
    market: "Player | None"
    solver: "GrpoSolver"
    difficulty: BandTS
    proposer: Proposer
    outbox: Outbox
    exam: "HeldOutExam"

    @property
    def saved(self) -> Mapping[str, Persistent]:
        """The parts whose state a checkpoint holds."""
        own = {"problems": self.attempts, "solver": self.solver, "evaluator": self.evaluator}
        return own | {"difficulty": self.difficulty, "proposer": self.proposer, "swarm": self.swarm}


def run_node(
    composed: NodeConfig, folder: RunFolder, overrides: Sequence[str] = (), view: Screen | None = None
) -> bool:
    """Make a node and train until a limit or a signal. True when SIGINT ended it.

    overrides: what `composed` was composed of. view: what is seen until the node trains; None: lines."""
    with starting(composed, folder.path, view) as (monitor, stack, peer_id):
        # Settings: fitted to the owner's account and to the hardware, and never changed afterwards
        environment = build_environment(composed)
        ranks = deal_cards(composed)  # before this process uses a card
        config = fit(composed, environment, overrides, folder.path)
        monitor.add_facts(**models_of(config))
        monitor.busy("preparing the parts")

        # Page, network and chain: each starts beside what follows
        page = start_page(config, overrides, stack)
        network = start_network(config, peer_id, folder.path, stack)
        serve = network.serve if network else None
        chain_started = start_chain(config, peer_id, folder.path, stack, visit_through(network), serve)

        # Problems, before models: that a run is a rehearsal is said before anything that takes long
        withheld = Novelty(most=MAX_HELD_BACK)
        fits = fits_context(config, environment.prompt)
        problems = build_stream(config, environment, peer_id, withheld, monitor.busy, fits)
        exam_tasks = build_exam_tasks(config, environment, withheld, monitor.busy)
        canaries = build_canaries(config, withheld, stack, monitor.busy, environment)
        monitor.add_facts(problems=problems.name, stand_ins=problems.stand_ins)
        monitor.add_facts(exam=exam_tasks.name, canaries=canaries.name, **environment.facts)

        # Chain, before models: a wallet, outbox or contract that is wrong ends the start now
        monitor.busy("waiting for the chain")
        chain = chain_started()
        if network is not None:
            network.follow(chain.coordinator.current_round)

        # Models: the policy, then the judge and the proposer, which may share its frozen base
        read = partial(monitor.part, "learning", "rows are read")
        ended = partial(monitor.part, "sampling", "attempts have ended")
        learner, sampler = build_policy(config, ranks, folder.path / VERSIONS, monitor.busy, stack, read, ended)
        models = FrozenModels(config, monitor.busy, learner.policy, partial(monitor.part, "judging", "texts are read"))
        evaluator = build_evaluator(config, canaries, stack, monitor.busy, models, environment, peer_id)
        proposer = build_proposer(config, environment, peer_id, models, stack)

        # The loop's parts
        swarm = build_swarm(network, environment, peer_id, folder.path, learner.policy.tokenizer_digest)
        solver = build_solver(config, environment, learner, sampler, peer_id, evaluator.begin)
        node = Node(
            proposing=config.proposer,
            most_failures=config.run.max_failures,
            problems=problems,
            attempts=build_attempts(config, problems, solver, evaluator, learner, sampler, stack),
            evaluator=evaluator,
            swarm=swarm,
            market=build_market(config, swarm, evaluator, folder.path, stack),
            solver=solver,
            difficulty=BandTS(seed=config.seed),
            proposer=vetted(config, environment, proposer, sampler, evaluator, peer_id, stack),
            outbox=chain.outbox,
            exam=build_exam(config, exam_tasks, sampler, evaluator, stack),
        )
        checkpoints = build_checkpoints(config, folder.checkpoints, environment, learner.policy)
        pushes = HubPushes(config, folder.path) if config.hub.repository else None
        stack.callback(pushes.close if pushes else lambda: None)
        run = Run(config.run, monitor, checkpoints, chain.coordinator, node.saved, pushes=pushes)
        record_settings(folder.path, composed, config, overrides)
        folder.record_start()
        announce(page)
        train(run, node)
    return run.stop.received is signal.SIGINT


def train(run: Run, node: Node) -> None:
    """Iterate until a limit or a signal."""
    with run:
        if not run.measured:  # figures of the policy as it begins
            begun = Step(run.kept, run.open_round())
            if figures := examine(run, node.exam, begun, whole=True):
                run.show(begun, {"iteration": begun.iteration, "round": begun.round} | figures)
        for step in run.steps():
            with run.repeatable(step):
                laps = Laps()

                # Problems: a share of what peers and this node propose; the stream fills up the batch
                proposals: list[Problem] = []
                with run.tolerate(SwarmError, then="no proposals this iteration"):
                    proposals = node.swarm.proposals(step.round)

                # Attempts and verdicts, until enough groups teach
                scored: list[ScoredGroup] = []
                less = "not everything could be judged: less learned"
                with run.tolerate((EvaluatorError, SandboxError, RolloutError), then=less, most=node.most_failures):
                    for judged in node.attempts.take(proposals, step.round):
                        scored += judged
                laps.end("attempts")

                # Exchange: own groups go out, peers' come in and are judged here, in the round that is open by now
                step = step._replace(round=run.open_round())
                peers = exchange(run, node, scored, step.round)
                laps.end("exchange")

                # Judge and market look at all of them
                with run.tolerate((EvaluatorError, SandboxError), then="the judge was not looked at this iteration"):
                    node.evaluator.review(step.iteration, [*scored, *peers])
                bets: Metrics = {}
                bet_errors = (MarketError, SwarmError, EvaluatorError, SandboxError)
                with run.tolerate(bet_errors, then="no bets this iteration"):
                    bets = node.market.play(step.round, [*scored, *peers]) if node.market else bets

                # Learning
                learned = node.solver.step(scored, peers)
                with run.tolerate(SandboxError, then="the proposer's expected values were not checked this iteration"):
                    node.proposer.check(scored)
                laps.end("learning")

                # Difficulty and proposals
                node.difficulty.observe(scored, node.evaluator.rates())
                with run.tolerate(SwarmError, then="no feedback this iteration"):
                    node.difficulty.hear(node.swarm.feedback())
                propose(run, node, step)
                laps.end("proposals")

                # Points: the mean over every verdict that could be reached
                reward = mean(verdict.reward for group in scored for verdict in group.trainable)
                if reward is not None:
                    node.outbox.add(step.iteration, step.round, reward, best_proposer(scored))

                # Exam, row, checkpoint: a crash before the checkpoint leaves a row too many, which a restart drops
                row: Metrics = {"iteration": step.iteration, "round": step.round, "reward/mean": reward}
                row |= {"seconds": sum(laps.seconds.values())} | laps.seconds | node.attempts.metrics() | learned
                row |= measured(node, scored) | bets | examine(run, node.exam, step, whole=run.is_last(step))
                run.record(step, row, [*scored, *peers], useful=reward is not None)
                run.save(step)


def exchange(run: Run, node: Node, scored: Sequence[ScoredGroup], round_number: int) -> list[ScoredGroup]:
    """Publish own groups; peers' groups that may be learned from, as the own judge scores them."""
    gathered: list[RolloutGroup] = []
    with run.tolerate(SwarmError, then="training on local rollouts only"):
        node.swarm.publish(scored, round_number)
        gathered = node.swarm.gather(round_number)
    with run.tolerate((EvaluatorError, SandboxError), then="nothing could be judged: peers' groups dropped"):
        return node.evaluator.score([group for group in gathered if node.problems.admits(group.problem)])
    return []


def propose(run: Run, node: Node, step: Step) -> None:
    """Offer new problems of the levels that teach, every few iterations."""
    settings = node.proposing
    if settings.problems_per_iteration == 0 or step.iteration % settings.every:
        return
    errors = (ProposalError, EvaluatorError, SandboxError, RolloutError, SwarmError)
    with run.tolerate(errors, then="nothing proposed this time"):
        written = node.proposer.propose(node.difficulty.draw(settings.problems_per_iteration))
        node.swarm.offer(written, run.open_round())


def examine(run: Run, exam: "HeldOutExam", step: Step, *, whole: bool) -> Metrics:
    """Figures of the exam that has ended, and begin the next when it is due.

    whole: of a run's first and last exam, which is waited for."""
    figures: Metrics = {}
    with run.tolerate(UNEXAMINED, then="no exam this time"):
        figures = exam.results(wait=whole)
    if not (exam.due(step.iteration) or (whole and exam.due(0))):
        return figures
    if figures and whole:  # of an exam that began before: a row of its own
        run.show(step, {"iteration": step.iteration} | figures)
        figures = {}
    run.monitor.busy("attempting and executing the held-out problems")
    with run.tolerate(UNEXAMINED, then="no exam this time"):
        if exam.begin(step.iteration):
            run.examined = step.iteration
        figures = figures or exam.results(wait=whole)
    return figures


def measured(node: Node, scored: Sequence[ScoredGroup]) -> Metrics:
    """The parts' own figures of an iteration."""
    level: Metrics = {"difficulty/level": node.difficulty.level, "difficulty/success": success_at_proposals(scored)}
    parts = (node.evaluator, node.problems, node.swarm, node.difficulty, node.proposer)
    for part in parts:
        level |= part.metrics()
    return level


def success_at_proposals(scored: Sequence[ScoredGroup]) -> float | None:
    """Share of the attempts at proposals that the judge believes; None where there was no such attempt."""
    attempts = [verdict for group in scored if group.group.problem.proposer for verdict in group.trainable]
    return mean(verdict.correctness >= BELIEF for verdict in attempts)


def best_proposer(scored: Sequence[ScoredGroup]) -> str | None:
    """The proposer whose problem taught most: judged success nearest to one half."""
    taught = [
        (abs(success - 0.5), proposer)
        for group in scored
        if (proposer := group.group.problem.proposer) and (success := group.success) is not None
    ]
    return min(taught)[1] if taught else None
