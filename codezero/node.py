"""THE ROUND LOOP: problems -> rollout -> judge -> exchange -> learn -> difficulty -> propose -> measure -> save.

Read this file first. Everything it calls is a Protocol in `protocols.py`; `wiring.py` chooses the implementations.
A lost peer, a silent judge or an absent coordinator costs one step of one iteration and is counted; a judge that fails
again and again, and any other error, ends the node.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from codezero.errors import EvaluatorError, ProposalError, SandboxError, SwarmError
from codezero.iterating import LIMITS, Iterating
from codezero.protocols import (
    Difficulty,
    Evaluator,
    Exam,
    Outbox,
    Persistent,
    ProblemStream,
    Proposer,
    Solver,
)
from codezero.tally import best_proposer, count_tokens, mean_reward, success_at_proposals
from codezero.types import Feedback, Metrics, Problem, RolloutGroup, ScoredGroup


@dataclass(kw_only=True)
class Node(Iterating):
    """The parts of a node and the loop that drives them."""

    problems: ProblemStream
    solver: Solver
    evaluator: Evaluator
    difficulty: Difficulty
    proposer: Proposer
    outbox: Outbox
    exam: Exam
    proposals_per_iteration: int
    propose_every: int

    def look(self, iteration: int, reason: str) -> Metrics:
        due = self.exam.due(iteration) or (reason in LIMITS and self.exam.due(0))  # the end closes the curve
        return self.sit_exam() if due else {}

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
        groups: list[RolloutGroup] = []
        scored: list[ScoredGroup] = []
        sampled, problems = 0.0, self.problems.next_batch(proposals)
        judging = "not everything could be judged: less learned"
        with self.tolerate((EvaluatorError, SandboxError), judging, most=self.max_failures):
            while problems:
                sampling = time.monotonic()
                groups += self.solver.rollout(problems, round_number)
                sampled += time.monotonic() - sampling
                scored += self.evaluator.score(groups[-len(problems) :])
                problems = self.problems.next_batch([], self.solver.short_of(scored))  # for groups that teach nothing

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

        learned = self.solver.step(scored, scored_peers) | self.proposer.learn(scored)
        self.difficulty.observe(scored, self.evaluator.rates())
        told: list[Feedback] = []
        with self.tolerate(SwarmError, "no feedback this iteration"):
            told = self.swarm.feedback()
            self.difficulty.hear(told)
        with self.tolerate((EvaluatorError, SandboxError, SwarmError), "no problem was taken back this iteration"):
            self.swarm.withdraw(self.proposer.broken(scored, told), round_number)
        if self.proposals_per_iteration and iteration % self.propose_every == 0:
            with self.tolerate((ProposalError, EvaluatorError, SandboxError, SwarmError), "nothing proposed this time"):
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
            "difficulty/success": success_at_proposals(scored),
            "tokens/sampled_per_second": count_tokens(groups) / max(sampled, 1e-9),
        }
        metrics |= learned | self.evaluator.metrics() | self.swarm.metrics()
        metrics |= self.difficulty.metrics() | self.proposer.metrics() | self.problems.metrics()
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
            "swarm": self.swarm,
            "round": self.known_round,
        }
