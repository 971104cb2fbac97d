"""The proposals on offer, own ones and others', and what of them goes into a checkpoint.

The problems on offer, and who has said what became of this node's own.

What a node's handle on its swarm remembers in the checkpoint: proposals, and whose groups it has taken.

Only what the learning rests on. Trust and the way to others are kept by the network process in the run's folder, and
what was under way is lost with the process, as it may be on any network.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError
from codezero.types import Problem

PROPOSALS_KEPT = 256
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
    """Everybody's proposals, the newest PROPOSALS_KEPT."""

    def __init__(self) -> None:
        self._offers: OrderedDict[tuple[str | None, str], Problem] = OrderedDict()
        """By author and problem id, oldest first."""

    def keep(self, problems: Iterable[Problem]) -> None:
        """The oldest are forgotten."""
        for problem in problems:
            self._offers.setdefault((problem.proposer, problem.id), problem)
        while len(self._offers) > PROPOSALS_KEPT:
            self._offers.popitem(last=False)

    def newest_first(self) -> list[Problem]:
        return list(reversed(self._offers.values()))

    def state(self) -> list[Problem]:
        """Oldest first."""
        return list(self._offers.values())

    def become(self, offers: Sequence[Problem]) -> None:
        """What `state` told."""
        self._offers = OrderedDict(((one.proposer, one.id), one) for one in offers)


_FILE = "swarm.json"
_MOST_OFFERS = 256
_MOST_SEEN = 8192
_MOST_PEERS = 100_000


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
    counts: dict[str, int] = {}
    withdrawn: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """In checkpoints of earlier versions; not read."""


def write_kept(folder: Path, kept: Kept) -> None:
    (folder / _FILE).write_bytes(msgspec.json.encode(kept))


def read_kept(folder: Path) -> Kept:
    """Raises CheckpointError."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
