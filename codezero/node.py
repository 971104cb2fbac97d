"""THE ROUND LOOP: problems -> rollout -> judge -> exchange -> learn -> difficulty -> propose -> measure -> save.

Read this file first. Everything it calls is a Protocol in `types.py`; `wiring.py` chooses the implementations.
A lost peer, a silent judge or an absent coordinator costs one step of one iteration and is counted; any other
error ends the node.
"""

import contextlib
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codezero.errors import ChainError, CodeZeroError, EvaluatorError, ProposalError, SwarmError
from codezero.types import (
    Checkpoints,
    Coordinator,
    Difficulty,
    Evaluator,
    Exam,
    Metrics,
    Monitor,
    Outbox,
    Persistent,
    Problem,
    ProblemStream,
    Proposer,
    RolloutGroup,
    ScoredGroup,
    Solver,
    Swarm,
)

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Node:
    """The parts of a node and the loop that drives them."""

    problems: ProblemStream
    solver: Solver
    evaluator: Evaluator
    swarm: Swarm
    difficulty: Difficulty
    proposer: Proposer
    coordinator: Coordinator
    outbox: Outbox
    exam: Exam
    monitor: Monitor
    checkpoints: Checkpoints
    proposals_per_iteration: int
    propose_every: int
    max_iterations: int = 0
    """Stop after this many in all; 0: no limit."""
    max_seconds: float = 0.0
    """Stop after this long in this process; 0: no limit."""
    checkpoint_seconds: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)
    tolerated: Counter[str] = field(default_factory=Counter[str])

    def run(self) -> None:
        """Iterate until a limit, SIGINT or SIGTERM; the iteration in flight is finished and saved."""
        iteration = self.checkpoints.restore(self.parts)
        self.monitor.started(iteration)
        reason = "stopped by an error"
        try:
            with self.signals_set_stopping():
                reason = self.loop(iteration)
        finally:
            self.swarm.close()
            self.monitor.close(reason)

    def loop(self, iteration: int) -> str:
        """Returns why it ended."""
        began = saved = time.monotonic()
        round_number = 0
        while True:
            if self.max_iterations and iteration >= self.max_iterations:
                reason = "max_iterations reached"
            elif self.max_seconds and time.monotonic() - began >= self.max_seconds:
                reason = "max_minutes reached"
            else:
                reason = "asked to stop" if self.stopping.is_set() else ""
            if reason:
                self.checkpoints.save(iteration, self.parts)
                return reason
            with self.tolerate(ChainError, "playing on in the last known round"):
                round_number = self.coordinator.current_round()
            iteration += 1
            metrics, scored = self.iterate(iteration, round_number)
            self.monitor.observe(iteration, metrics, scored)
            if time.monotonic() - saved >= self.checkpoint_seconds:
                self.checkpoints.save(iteration, self.parts)
                saved = time.monotonic()

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One pass of design step 1 to 9; returns what was measured and the node's own judged attempts."""
        began = time.monotonic()
        exam = self.exam.sit() if self.exam.due(iteration - 1) else {}

        proposals: list[Problem] = []
        with self.tolerate(SwarmError, "no proposals this iteration"):
            proposals = self.swarm.proposals(round_number)
        problems = self.problems.next_batch(proposals)
        groups = self.solver.rollout(problems, round_number)
        sampled = time.monotonic()

        scored: list[ScoredGroup] = []
        with self.tolerate(EvaluatorError, "the judge is unavailable: nothing learned this iteration"):
            scored = self.evaluator.score(groups)

        peer_groups: list[RolloutGroup] = []
        with self.tolerate(SwarmError, "training on local rollouts only"):
            self.swarm.publish(scored, round_number)
            peer_groups = self.swarm.gather(round_number)
        scored_peers: list[ScoredGroup] = []
        with self.tolerate(EvaluatorError, "the judge is unavailable: peers' groups dropped"):
            scored_peers = self.evaluator.score(peer_groups)

        learned = self.solver.step(scored, scored_peers)
        self.difficulty.observe(scored)
        if self.proposals_per_iteration and iteration % self.propose_every == 0:
            with self.tolerate((ProposalError, SwarmError), "nothing proposed this iteration"):
                written = self.proposer.propose(self.difficulty.draw(self.proposals_per_iteration))
                self.swarm.offer(written, round_number)

        reward = mean_reward(scored)
        if reward is not None:
            self.outbox.add(round_number, reward, best_proposer(scored))
        metrics: Metrics = {
            "iteration": iteration,
            "round": round_number,
            "seconds": time.monotonic() - began,
            "reward/mean": reward,
            "difficulty/level": self.difficulty.level,
            "tokens/sampled_per_second": count_tokens(groups) / max(sampled - began, 1e-9),
        }
        metrics |= learned | self.evaluator.metrics() | self.swarm.metrics() | self.proposer.metrics()
        return metrics | self.tolerated | exam, scored

    @property
    def parts(self) -> Mapping[str, Persistent]:
        """What a checkpoint holds."""
        return {
            "problems": self.problems,
            "solver": self.solver,
            "difficulty": self.difficulty,
            "proposer": self.proposer,
        }

    @contextlib.contextmanager
    def tolerate(
        self, errors: type[CodeZeroError] | tuple[type[CodeZeroError], ...], consequence: str
    ) -> Iterator[None]:
        """The only place an error is survived: log it, count it, go on."""
        try:
            yield
        except errors as error:
            self.tolerated[f"tolerated/{type(error).__name__}"] += 1
            logger.warning("%s: %s", consequence, error)

    @contextlib.contextmanager
    def signals_set_stopping(self) -> Iterator[None]:
        """SIGINT and SIGTERM only set a flag; the old handlers come back at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
        for which in old:
            signal.signal(which, lambda *_: self.stopping.set())
        try:
            yield
        finally:
            for which, handler in old.items():
                signal.signal(which, handler)


def mean_reward(scored: Sequence[ScoredGroup]) -> float | None:
    """Mean over every verdict that could be reached; None when there is none."""
    rewards = [verdict.reward for group in scored for verdict in group.verdicts if verdict.trainable]
    return sum(rewards) / len(rewards) if rewards else None


def best_proposer(scored: Sequence[ScoredGroup]) -> str | None:
    """The proposer whose problem taught most this iteration: judged success nearest to one half."""
    taught = [
        (abs(success - 0.5), group.group.problem.proposer)
        for group in scored
        if group.group.problem.proposer and (success := group.success) is not None
    ]
    return min(taught)[1] if taught else None


def count_tokens(groups: Sequence[RolloutGroup]) -> int:
    return sum(len(completion.token_ids) for group in groups for completion in group.completions)
