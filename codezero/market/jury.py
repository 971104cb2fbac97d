"""The jury: seats are drawn by hash, and two thirds of the ballots decide."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from codezero.market.games import NONE, Digest, Game, GameKind, PeerId

SEATS, LEAST = 7, 3
"""Of a jury, and ballots without which it decides nothing."""
VOID = 255
"""In the place of an answer in a ballot."""


class Ballot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    game: Digest
    peer: PeerId
    answer: Annotated[int, Meta(ge=0, lt=8)] | None
    """None: the game should be void."""
    shown: Digest = bytes(32)
    """Of what the juror saw opened in time: `messages.shown_digest`."""


class Decision(NamedTuple):
    answer: int | None
    """None: none was reached, or that the game is void."""
    ballots: int
    """That count: of each juror the first."""
    shown: bytes = bytes(32)
    """By which ballots the reports that count are known to everybody."""


def seats(game: Game, root: bytes, accounts: Mapping[str, str]) -> tuple[str, ...]:
    """At most SEATS peers, by sha256(game, root, account): one for an account, so that more ids draw no more seats.

    accounts: of every peer that anchored in the round before the ballots. root: of that round's anchors. Those of the
    opener and the proposer are left out.
    """
    partial = {accounts.get(peer) for peer in (game.opener, game.proposer) if peer is not None}
    first = {account: peer for peer, account in sorted(accounts.items(), reverse=True) if account not in partial}
    seed = game.id + root
    drawn = sorted(first, key=lambda account: hashlib.sha256(seed + account.encode()).digest())
    return tuple(first[account] for account in drawn[:SEATS])


def answer_of(game: Game, executed: int | None, values: Sequence[str]) -> int | None:
    """A juror's answer; VOID: the own attempts agree on nothing; None: it cannot tell.

    executed: which answer the own execution is. values: what own attempts return, for a `value` game.
    """
    if executed is not None or game.kind is not GameKind.VALUE:
        return executed
    counts = Counter(values).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return VOID if counts else None
    return game.answers.index(counts[0][0] if counts[0][0] in game.answers else NONE)


def decide(game: Game, seated: Sequence[str], ballots: Iterable[Ballot]) -> Decision:
    """What two thirds (5 of 7) agree on: an answer, and what was shown in time. Of each juror the first ballot counts.

    ballots: in the order of the chain.
    """
    given, name = dict[str, tuple[int | None, bytes]](), game.id
    for ballot in ballots:
        if ballot.game == name and ballot.peer in seated and (ballot.answer or 0) < len(game.answers):
            given.setdefault(ballot.peer, (ballot.answer, ballot.shown))
    votes, count = Counter(given.values()), len(given)
    agreed = (vote for vote, number in votes.items() if count >= LEAST and 3 * number >= 2 * count)
    answer, shown = next(agreed, (None, bytes(32)))
    return Decision(answer, count, shown)
