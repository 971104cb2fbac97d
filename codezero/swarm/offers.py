"""The problems that this node proposed, and who has said what became of them."""

from collections import OrderedDict
from collections.abc import Iterable

from codezero.types import Problem

OWN_KEPT = 256
HEARD_EACH = 64
"""Peers that are heard about one problem."""


class OwnOffers:
    """The newest OWN_KEPT own proposals."""

    def __init__(self) -> None:
        self._heard: OrderedDict[str, tuple[Problem, set[str]]] = OrderedDict()
        """By problem id: the problem, and who was heard about it."""

    def add(self, problems: Iterable[Problem]) -> None:
        """The oldest are forgotten."""
        for problem in problems:
            self._heard.setdefault(problem.id, (problem, set()))
        while len(self._heard) > OWN_KEPT:
            self._heard.popitem(last=False)

    def heard(self, problem_id: str, peer: str) -> Problem | None:
        """The problem, the first time that `peer` speaks of it; None when it is not ours or enough was said."""
        problem, peers = self._heard.get(problem_id, (None, set[str]()))
        if problem is None or peer in peers or len(peers) >= HEARD_EACH:
            return None
        peers.add(peer)
        return problem
