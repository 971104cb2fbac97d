"""`role=proposer`: a node that writes problems for a swarm and attempts none; what it knows of them, it is told.

A strong machine so serves a swarm of laptops: propose -> rest -> hear what became of the problems -> difficulty.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from codezero.errors import ProposalError, SwarmError
from codezero.iterating import Iterating
from codezero.protocols import Difficulty, Persistent, Proposer
from codezero.types import Feedback, Metrics, Problem, ScoredGroup


@dataclass(kw_only=True)
class ProposerNode(Iterating):
    """The parts of a proposer's service, and its loop."""

    difficulty: Difficulty
    proposer: Proposer
    proposals_per_iteration: int
    rest_seconds: float
    """From one iteration's beginning to the next's."""

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One batch of proposals at the levels that peers' feedback calls for."""
        began = time.monotonic()
        told: list[Feedback] = []
        with self.tolerate(SwarmError, "no feedback this iteration"):
            told = self.swarm.feedback()
            self.difficulty.hear(told)
        with self.tolerate(SwarmError, "no problem was taken back this iteration"):
            self.swarm.withdraw(self.proposer.broken([], told), round_number)
        written: list[Problem] = []
        with self.tolerate(ProposalError, "nothing proposed this iteration", most=self.max_failures):
            written = self.proposer.propose(self.difficulty.draw(self.proposals_per_iteration))
        with self.tolerate(SwarmError, "nothing offered this iteration"):
            self.swarm.offer(written, round_number)
        metrics: Metrics = {
            "iteration": iteration,
            "round": round_number,
            "seconds": time.monotonic() - began,
            "proposer/feedback": len(told),
            "difficulty/level": self.difficulty.level,
        }
        self.stop.wait(max(0.0, began + self.rest_seconds - time.monotonic()))
        return metrics | self.swarm.metrics() | self.difficulty.metrics() | self.proposer.metrics(), []

    @property
    def parts(self) -> Mapping[str, Persistent]:
        return {
            "difficulty": self.difficulty,
            "proposer": self.proposer,
            "swarm": self.swarm,
            "round": self.known_round,
        }
