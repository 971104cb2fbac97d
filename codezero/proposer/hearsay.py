"""What peers say of this node's problems, and when that is enough to call one broken. Advice, so the rule is narrow.

A problem on which every attempt fails may be merely hard. So it counts against it only when peers fail at it who have
shown that they can solve problems of its level or a higher one: WITNESSES of them, each in good standing and with at
least LEAST_ATTEMPTS attempts, and nobody in good standing, this node included, who gets it right at times. Ids are
cheap, so liars can bring that about all the same; they lose this node at most one in ONE_IN of the problems that as
many peers spoke of, and never one that it saw solved itself.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.types import Feedback, ScoredGroup

WITNESSES = 3
LEAST_TRUST = 0.5
"""`Feedback.trust` of a peer in good standing."""
LEAST_ATTEMPTS = 4
FAILING = 0.1
"""Mean correctness up to which a peer's attempts count as all wrong: a calibrated judge never quite says 0."""
ABLE = 0.5
"""Mean correctness from which on a peer has shown that it can solve a problem of that level."""
ONE_IN = 4
REMEMBERED = 256
"""Problems, and peers."""

_Level = Annotated[int, Meta(ge=0, le=5)]
_Id = Annotated[str, Meta(max_length=64)]
_Peer = Annotated[str, Meta(max_length=128)]


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of one problem."""

    level: _Level = 0
    failing: Annotated[list[_Peer], Meta(max_length=REMEMBERED)] = []
    """Peers in good standing whose attempts all failed."""
    heard: Annotated[int, Meta(ge=0)] = 0
    """Peers in good standing."""
    solved: bool = False
    told: bool = False
    """Was it called broken?"""


class HearsayState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint keeps."""

    cases: Annotated[dict[_Id, Case], Meta(max_length=REMEMBERED)] = {}
    able: Annotated[dict[_Peer, _Level], Meta(max_length=REMEMBERED)] = {}


class Hearsay:
    """The newest REMEMBERED problems that somebody spoke of."""

    def __init__(self, state: HearsayState | None = None) -> None:
        told = state or HearsayState()
        self._cases = OrderedDict(told.cases)
        self._able = OrderedDict(told.able)
        """By peer, the highest level of our problems at which it succeeded."""

    def state(self) -> HearsayState:
        return HearsayState(dict(self._cases), dict(self._able))

    def saw(self, scored: Sequence[ScoredGroup]) -> None:
        """Own attempts at own problems: one that is believed outweighs everybody's word."""
        for one in scored:
            if one.believed:
                self._case(one.group.problem.id).solved = True

    def hear(self, feedback: Sequence[Feedback]) -> list[str]:
        """Ids of the problems that this makes broken; each is told once."""
        for one in feedback:
            if one.trust >= LEAST_TRUST and one.attempts >= LEAST_ATTEMPTS:
                self._take(one)
        found: list[str] = []
        for problem_id, case in self._cases.items():
            if self._is_broken(case) and self._may_say_so():
                case.told = True
                found.append(problem_id)
        return found

    def _take(self, one: Feedback) -> None:
        case = self._case(one.problem_id)
        case.level = one.level or 0
        case.heard += 1
        if one.success <= FAILING:
            if one.peer_id not in case.failing and len(case.failing) < REMEMBERED:
                case.failing.append(one.peer_id)
            return
        case.solved = True
        if one.success >= ABLE:
            self._able[one.peer_id] = max(case.level, self._able.pop(one.peer_id, 0))
            while len(self._able) > REMEMBERED:
                self._able.popitem(last=False)

    def _is_broken(self, case: Case) -> bool:
        if case.told or case.solved or not case.level:
            return False
        return sum(self._able.get(peer, 0) >= case.level for peer in case.failing) >= WITNESSES

    def _may_say_so(self) -> bool:
        spoken = sum(case.heard >= WITNESSES for case in self._cases.values())
        return ONE_IN * sum(case.told for case in self._cases.values()) < spoken

    def _case(self, problem_id: str) -> Case:
        case = self._cases.pop(problem_id, None) or Case()
        self._cases[problem_id] = case
        while len(self._cases) > REMEMBERED:
            self._cases.popitem(last=False)
        return case
