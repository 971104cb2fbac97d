"""THE ROUND LOOP: problems -> rollout -> judge -> exchange -> learn -> difficulty -> propose -> measure -> save.

Read this file first. Everything it calls is a Protocol in `protocols.py`; `wiring.py` chooses the implementations.
A lost peer, a silent judge or an absent coordinator costs one step of one iteration and is counted; any other
error ends the node.
"""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from codezero.errors import ChainError, CodeZeroError, EvaluatorError, ProposalError, SandboxError, SwarmError
from codezero.protocols import (
    Checkpoints,
    Coordinator,
    Difficulty,
    Evaluator,
    Exam,
    Monitor,
    Outbox,
    Persistent,
    ProblemStream,
    Proposer,
    Solver,
    Swarm,
)
from codezero.stopping import FAILED, Stop
from codezero.tally import best_proposer, count_tokens, mean_reward
from codezero.types import Metrics, Problem, RolloutGroup, ScoredGroup

logger = logging.getLogger(__name__)

ASKED = "asked to stop"
LIMITS = ("max_iterations reached", "max_minutes reached")


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
    stop: Stop = field(default_factory=Stop)
    tolerated: Counter[str] = field(default_factory=Counter[str])

    def run(self) -> str:
        """Iterate until a limit, SIGINT or SIGTERM, finishing and saving the iteration in flight. Returns why."""
        iteration = self.checkpoints.restore(self.parts)
        self.monitor.started(iteration)
        reason = FAILED
        try:
            with self.stop.on_signals():
                reason = self.loop(iteration)
        finally:
            self.swarm.close()
            self.monitor.close(reason)
        return reason

    def loop(self, iteration: int) -> str:
        """From `iteration`, the number already done. Returns why it ended."""
        began = saved = time.monotonic()
        round_number = self.open_round(0)
        if iteration == 0 and self.exam.due(0):
            self.monitor.observe(0, {"iteration": 0, "round": round_number} | self.sit_exam(), [])
        reason = self.reason_to_stop(iteration, began)
        while not reason:
            round_number = self.open_round(round_number)
            iteration += 1
            metrics, judged = self.iterate(iteration, round_number)
            reason = self.reason_to_stop(iteration, began)
            if self.exam.due(iteration) or (reason in LIMITS and self.exam.due(0)):  # the end closes the curve
                metrics |= self.sit_exam()
            # Logged before saved: a crash between the two leaves a row too many, which a restart drops.
            self.monitor.observe(iteration, metrics | self.tolerated, judged)
            if reason or time.monotonic() - saved >= self.checkpoint_seconds:
                self.checkpoints.save(iteration, self.parts)
                saved = time.monotonic()
        return reason

    def reason_to_stop(self, iteration: int, began: float) -> str:
        """Empty while there is none."""
        if self.stop:
            return ASKED
        if self.max_iterations and iteration >= self.max_iterations:
            return LIMITS[0]
        if self.max_seconds and time.monotonic() - began >= self.max_seconds:
            return LIMITS[1]
        return ""

    def open_round(self, last: int) -> int:
        """The round that is open now; the last known one while the coordinator cannot be asked."""
        with self.tolerate(ChainError, "playing on in the last known round"):
            return self.coordinator.current_round()
        return last

    def sit_exam(self) -> Metrics:
        self.monitor.busy("attempting and executing the held-out problems")
        with self.tolerate((EvaluatorError, SandboxError), "no exam this time"):
            return self.exam.sit()
        return {}

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One pass; returns what was measured and the judged groups, own and peers'."""
        began = time.monotonic()
        proposals: list[Problem] = []
        with self.tolerate(SwarmError, "no proposals this iteration"):
            proposals = self.swarm.proposals(round_number)
        problems = self.problems.next_batch(proposals)
        sampling = time.monotonic()
        groups = self.solver.rollout(problems, round_number)
        sampled = time.monotonic() - sampling

        scored: list[ScoredGroup] = []
        with self.tolerate((EvaluatorError, SandboxError), "nothing could be judged: nothing learned this iteration"):
            scored = self.evaluator.score(groups)

        peer_groups: list[RolloutGroup] = []
        with self.tolerate(SwarmError, "training on local rollouts only"):
            self.swarm.publish(scored, round_number)
            gathered = self.swarm.gather(round_number)
            peer_groups = [group for group in gathered if self.problems.admits(group.problem)]
        scored_peers: list[ScoredGroup] = []
        with self.tolerate((EvaluatorError, SandboxError), "nothing could be judged: peers' groups dropped"):
            scored_peers = self.evaluator.score(peer_groups)

        judged = [*scored, *scored_peers]
        with self.tolerate((EvaluatorError, SandboxError), "the judge was not looked at this iteration"):
            self.evaluator.review(iteration, judged)

        learned = self.solver.step(scored, scored_peers)
        self.difficulty.observe(scored)
        with self.tolerate(SwarmError, "no feedback this iteration"):
            self.difficulty.hear(self.swarm.feedback())
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
            "tokens/sampled_per_second": count_tokens(groups) / max(sampled, 1e-9),
        }
        metrics |= learned | self.evaluator.metrics() | self.swarm.metrics()
        metrics |= self.difficulty.metrics() | self.proposer.metrics()
        return metrics, judged

    @property
    def parts(self) -> Mapping[str, Persistent]:
        """What a checkpoint holds."""
        return {
            "problems": self.problems,
            "solver": self.solver,
            "evaluator": self.evaluator,
            "difficulty": self.difficulty,
            "proposer": self.proposer,
        }

    @contextlib.contextmanager
    def tolerate(
        self, errors: type[CodeZeroError] | tuple[type[CodeZeroError], ...], consequence: str
    ) -> Generator[None]:
        """The only place an error is survived: log it, count it, go on."""
        try:
            yield
        except errors as error:
            self.tolerated[f"tolerated/{type(error).__name__}"] += 1
            logger.warning("%s: %s", consequence, error)
