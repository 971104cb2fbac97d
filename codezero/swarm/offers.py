"""The proposals on offer, own ones and others', and what of them goes into a checkpoint.

The problems on offer, which of them their authors took back, and who has said what became of this node's own.

What a node's handle on its swarm remembers in the checkpoint: proposals, and whose groups it has taken.

Only what the learning rests on. Trust and the way to others are kept by the network process in the run's folder, and
what was under way is lost with the process, as it may be on any network.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError
from codezero.types import Problem

PROPOSALS_KEPT = 256
WITHDRAWN_EACH, AUTHORS = 128, 128
"""Withdrawals remembered of one author, and authors whose withdrawals are remembered."""
OWN_KEPT = 256
HEARD_EACH = 64
"""Peers that are heard about one problem."""
WITHDRAWAL_COUNTS = ("withdrawn", "withdrawals_heard", "offers_withdrawn", "refused_withdrawn")
"""Own problems taken back; others' that their authors took back, those of them that were on offer here, and what came
of such problems afterwards and was left out."""


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

    def state(self) -> list[tuple[Problem, list[str]]]:
        """Oldest first, each with the peers that were heard about it."""
        return [(problem, sorted(peers)) for problem, peers in self._heard.values()]

    def become(self, state: Sequence[tuple[Problem, Sequence[str]]]) -> None:
        """What `state` told."""
        self._heard = OrderedDict((problem.id, (problem, set(peers))) for problem, peers in state)

    def heard(self, problem_id: str, peer: str) -> Problem | None:
        """The problem, the first time that `peer` speaks of it; None when it is not ours or enough was said."""
        problem, peers = self._heard.get(problem_id, (None, set[str]()))
        if problem is None or peer in peers or len(peers) >= HEARD_EACH:
            return None
        peers.add(peer)
        return problem


class Offers:
    """Everybody's proposals, the newest PROPOSALS_KEPT; `me`: this node, whose own withdrawals are never crowded out.

    A peer can take back what it proposed itself and nothing else: an offer is known by its author and its id together,
    so that who offers a copy of another's problem takes back no more than the copy.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._offers: OrderedDict[tuple[str | None, str], Problem] = OrderedDict()
        """By author and problem id, oldest first."""
        self._withdrawn: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By author, the one that was not heard for longest first."""

    def keep(self, problems: Iterable[Problem]) -> int:
        """The oldest are forgotten. Returns how many were left out because their author had taken them back."""
        refused = 0
        for problem in problems:
            if self.is_withdrawn(problem):
                refused += 1
            else:
                self._offers.setdefault((problem.proposer, problem.id), problem)
        while len(self._offers) > PROPOSALS_KEPT:
            self._offers.popitem(last=False)
        return refused

    def withdraw(self, author: str, problem_ids: Sequence[str]) -> tuple[int, int]:
        """What `author` says of its own problems; returns how many of them were news, and how many were on offer."""
        known = self._withdrawn.setdefault(author, OrderedDict())
        self._withdrawn.move_to_end(author)
        news = [one for one in dict.fromkeys(problem_ids) if one not in known]
        known.update(dict.fromkeys(news))
        while len(known) > WITHDRAWN_EACH:
            known.popitem(last=False)
        while len(self._withdrawn) > AUTHORS:
            del self._withdrawn[next(one for one in self._withdrawn if one != self._me)]
        dropped = [self._offers.pop((author, one), None) for one in problem_ids]
        return len(news), sum(one is not None for one in dropped)

    def is_withdrawn(self, problem: Problem) -> bool:
        """By its own author?"""
        return problem.id in self._withdrawn.get(problem.proposer or "", ())

    def still_good(self, mine: Sequence[Problem]) -> list[Problem]:
        """Own problems without those that this node took back."""
        withdrawn = self._withdrawn.get(self._me, ())
        return [problem for problem in mine if problem.id not in withdrawn]

    def withdrawn_by(self, author: str) -> list[str]:
        """Ids, oldest first."""
        return list(self._withdrawn.get(author, ()))

    def newest_first(self) -> list[Problem]:
        return list(reversed(self._offers.values()))

    def state(self) -> tuple[list[Problem], dict[str, list[str]]]:
        """Offers, and withdrawals by author; oldest first."""
        return list(self._offers.values()), {author: list(ids) for author, ids in self._withdrawn.items()}

    def become(self, offers: Sequence[Problem], withdrawn: Mapping[str, Sequence[str]]) -> None:
        """What `state` told."""
        self._offers = OrderedDict(((one.proposer, one.id), one) for one in offers)
        self._withdrawn = OrderedDict((author, OrderedDict.fromkeys(ids)) for author, ids in withdrawn.items())


_FILE = "swarm.json"
_MOST_OFFERS = 256
_MOST_SEEN = 8192
_MOST_PEERS = 100_000
_Id = Annotated[str, msgspec.Meta(max_length=64)]


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounded as what it is made of is."""

    offers: Annotated[list[Problem], msgspec.Meta(max_length=_MOST_OFFERS)] = []
    """Everybody's proposals, oldest first."""
    own: Annotated[list[tuple[Problem, list[str]]], msgspec.Meta(max_length=_MOST_OFFERS)] = []
    """Own ones, with the peers that were heard about them."""
    seen: Annotated[list[bytes], msgspec.Meta(max_length=_MOST_SEEN)] = []
    """Fingerprints of the groups that were handed on."""
    heard: Annotated[list[str], msgspec.Meta(max_length=_MOST_PEERS)] = []
    """Peers that a swarm in memory has heard."""
    withdrawn: Annotated[
        dict[str, Annotated[list[_Id], msgspec.Meta(max_length=WITHDRAWN_EACH)]],
        msgspec.Meta(max_length=AUTHORS),
    ] = {}
    """By author, the ids of the problems that it took back."""
    counts: dict[str, int] = {}


def write_kept(folder: Path, kept: Kept) -> None:
    (folder / _FILE).write_bytes(msgspec.json.encode(kept))


def read_kept(folder: Path) -> Kept:
    """Raises CheckpointError."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
