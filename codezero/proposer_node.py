"""`role=proposer`: it only writes problems, so that one strong machine serves a swarm of laptops.

It learns their difficulty from peers' feedback: propose -> rest -> feedback -> difficulty.
"""

import time
from dataclasses import dataclass

from codezero.errors import ProposalError, SwarmError
from codezero.runner import Iterating
from codezero.types import Feedback, Metrics, Problem, ScoredGroup


@dataclass(kw_only=True)
class ProposerNode(Iterating):
    """The parts of a proposer's service, and its loop."""

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One batch of proposals at the levels that peers' feedback calls for."""
        began, settings = time.monotonic(), self.config.proposer
        feedback: list[Feedback] = []
        with self.tolerate(SwarmError, "no feedback this iteration"):
            feedback = self.swarm.feedback()
            self.difficulty.hear(feedback)
        written: list[Problem] = []
        with self.tolerate(ProposalError, "nothing proposed this iteration", most=self.config.run.max_failures):
            written = self.proposer.propose(self.difficulty.draw(settings.problems_per_iteration))
        if feedback or written:
            self.barren = -1
        with self.tolerate(SwarmError, "nothing offered this iteration"):
            self.swarm.offer(written, round_number)
        row: Metrics = {
            "iteration": iteration,
            "round": round_number,
            "seconds": time.monotonic() - began,
            "proposer/feedback": len(feedback),
            "difficulty/level": self.difficulty.level,
        }
        self.stop.wait(max(0.0, began + settings.rest_seconds - time.monotonic()))
        return row | self.shared_metrics(), []
