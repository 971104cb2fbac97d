"""THE ROUND LOOP: problems -> rollout -> judge -> exchange -> learn -> difficulty -> propose -> measure -> save.

Read this file first. Everything it calls is a Protocol in `protocols.py`; `wiring/` chooses the implementations.
A lost peer, a silent judge or an absent coordinator costs one step of one iteration and is counted; a judge that fails
again and again, and any other error, ends the node.
`role=proposer` has a loop of its own, in `proposer_node.py`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from codezero.errors import EvaluatorError, MarketError, ProposalError, RolloutError, SandboxError, SwarmError
from codezero.protocols import Evaluator, Exam, Harvest, Market, Outbox, ProblemStream, Solver
from codezero.runner import BEGUN, LIMITS, Iterating, Laps
from codezero.system.state import Persistent
from codezero.types import BELIEF, Metrics, Problem, RolloutGroup, ScoredGroup, mean


@dataclass(kw_only=True)
class Node(Iterating):
    """The parts of a node and the loop that drives them."""

    problems: ProblemStream
    solver: Solver
    evaluator: Evaluator
    outbox: Outbox
    exam: Exam
    harvest: Harvest
    market: Market | None = None

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One pass; returns what was measured and the judged groups, own and peers'."""
        laps = Laps()
        proposals: list[Problem] = []
        with self.tolerate((SwarmError, MarketError), "no proposals this iteration"):
            proposals = self.swarm.proposals(round_number)
            proposals = self.market.proposals(proposals) if self.market else proposals

        taken: list[ScoredGroup] = []
        judging = "not everything could be judged: less learned"
        with self.tolerate((EvaluatorError, SandboxError, RolloutError), judging, most=self.config.run.max_failures):
            for part in self.harvest.take(proposals, round_number):
                taken += part
        scored = [group.first for group in taken]
        laps.end("attempts")

        scored_peers = self.exchange(scored, round_number)
        judged = [*scored, *scored_peers]
        laps.end("exchange")
        with self.tolerate((EvaluatorError, SandboxError), "the judge was not looked at this iteration"):
            self.evaluator.review(iteration, judged)

        bets: Metrics = {}
        with self.tolerate((MarketError, SwarmError, EvaluatorError, SandboxError), "no bets this iteration"):
            bets = self.market.play(round_number, judged) if self.market else bets

        learned = self.solver.step(taken, scored_peers)
        with self.tolerate(SandboxError, "the proposer's expected values were not checked this iteration"):
            self.proposer.check(scored)
        laps.end("learning")

        self.difficulty.observe(scored, self.evaluator.rates())
        with self.tolerate(SwarmError, "no feedback this iteration"):
            self.difficulty.hear(self.swarm.feedback())
        settings = self.config.proposer
        if settings.problems_per_iteration and iteration % settings.every == 0:
            failures = (ProposalError, EvaluatorError, SandboxError, RolloutError, SwarmError)
            with self.tolerate(failures, "nothing proposed this time"):
                written = self.proposer.propose(self.difficulty.draw(settings.problems_per_iteration))
                self.swarm.offer(written, round_number)

        laps.end("proposals")
        reward = mean_reward(scored)
        if reward is not None:
            self.barren = -1
            self.outbox.add(iteration, round_number, reward, best_proposer(scored))
        row: Metrics = {
            "iteration": iteration,
            "round": round_number,
            "seconds": sum(laps.seconds.values()),
            "reward/mean": reward,
            "difficulty/level": self.difficulty.level,
            "difficulty/success": success_at_proposals(scored),
        }
        row |= laps.seconds | self.harvest.metrics() | learned | self.evaluator.metrics()
        row |= self.problems.metrics() | self.shared_metrics() | bets
        return row, judged

    def exchange(self, scored: Sequence[ScoredGroup], round_number: int) -> list[ScoredGroup]:
        """Publish own groups; peers' groups that may be learned from, as the own judge scores them."""
        gathered: list[RolloutGroup] = []
        with self.tolerate(SwarmError, "training on local rollouts only"):
            self.swarm.publish(scored, round_number)
            gathered = self.swarm.gather(round_number)
        with self.tolerate((EvaluatorError, SandboxError), "nothing could be judged: peers' groups dropped"):
            return self.evaluator.score([group for group in gathered if self.problems.admits(group.problem)])
        return []

    def measure(self, iteration: int, reason: str) -> Metrics:
        """Figures of the exam that has ended. One begins when it is due; training waits for the first and the last."""
        figures, whole, failures = Metrics(), reason in (BEGUN, *LIMITS), (EvaluatorError, SandboxError, RolloutError)
        with self.tolerate(failures, "no exam this time"):
            figures = self.exam.results(wait=whole)
        if not (self.exam.due(iteration) or (whole and self.exam.due(0))):
            return figures
        if figures and whole:  # of an exam that began before: a row of its own
            self.write(self.monitor.observe, iteration, {"iteration": iteration} | figures, [])
            figures = Metrics()
        self.monitor.busy("attempting and executing the held-out problems")
        with self.tolerate(failures, "no exam this time"):
            self.exam.begin(iteration)
            figures = figures or self.exam.results(wait=whole)
        return figures

    @property
    def parts(self) -> Mapping[str, Persistent]:
        return {"problems": self.harvest, "solver": self.solver, "evaluator": self.evaluator, **super().parts}


class InStep:
    """Attempts are sampled and judged while nobody learns, with the newest policy. See `protocols.Harvest`."""

    def __init__(
        self, problems: ProblemStream, solver: Solver, evaluator: Evaluator, servers: Callable[[], Metrics]
    ) -> None:
        """servers: metrics of those that decode."""
        self.problems, self.solver, self.evaluator, self._servers = problems, solver, evaluator, servers
        self.save, self.load = problems.save, problems.load
        self._tokens, self._seconds = 0, 0.0

    def take(self, proposals: Sequence[Problem], round_number: int) -> Iterator[list[ScoredGroup]]:
        """A batch, then further problems for the groups that teach nothing."""
        self._tokens, self._seconds = 0, 0.0
        scored: list[ScoredGroup] = []
        problems = self.problems.next_batch(proposals)
        while problems:
            began = time.monotonic()
            groups = self.solver.rollout(problems, round_number)
            self._seconds += time.monotonic() - began
            self._tokens += sum(len(completion.token_ids) for group in groups for completion in group.completions)
            scored += (judged := self.evaluator.score(groups))
            yield judged
            problems = self.problems.next_batch([], self.solver.short_of(scored))

    def metrics(self) -> Metrics:
        speed = self._tokens / max(self._seconds, 1e-9)
        spent: Metrics = {"tokens/sampled": self._tokens, "seconds/sampling": self._seconds}
        return self._servers() | {"tokens/sampled_per_second": speed} | spent


def mean_reward(scored: Sequence[ScoredGroup]) -> float | None:
    """Mean over every verdict that could be reached; None when there is none."""
    return mean(verdict.reward for group in scored for verdict in group.trainable)


def success_at_proposals(scored: Sequence[ScoredGroup]) -> float | None:
    """Of the attempts at proposals, the share that the judge believes; None where there was no such attempt."""
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
