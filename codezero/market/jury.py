"""How a game ends: a pure function of what was anchored, shown and voted.

Seats of the jury are drawn by hash, and two thirds of the ballots decide. What counts of the reports it decides too:
what more than half of its jurors saw opened in time, so that all who settle count the same ones. Ballots settle points,
the same for all. What a reader executed settles its own records and prices, whatever they say.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from codezero.market.games import STEPS, Digest, Game, GameKind, Opening, PeerId
from codezero.market.payout import Place, Position, pay
from codezero.market.pricing import Score, gain

SEATS, LEAST = 7, 3
"""Of a jury, and ballots without which it decides nothing."""
PROVEN, VOID = 8, 255
"""In a ballot: added to an answer that a solution shows which the game commits to; in the place of an answer."""
SENTINELS = 4
"""One in so many `value` games of an opener and round has to be a sentinel."""
PLACES = 256 // STEPS
"""Roots of a round that count: a bit for each in a ballot."""


class Ballot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    game: Digest
    peer: PeerId
    answer: Annotated[int, Meta(ge=0, lt=2 * PROVEN)] | None
    """None: the game should be void."""
    shown: Digest = bytes(32)
    """Which roots the juror saw opened in time: bits as `places` numbers them."""


class Decision(NamedTuple):
    answer: int | None
    """None: none was reached, or that the game is void."""
    proven: bool
    ballots: int
    """That count: of each juror the first."""
    shown: frozenset[Place]
    """Roots whose reports count."""


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


def places(game: Game, anchored: Mapping[int, Mapping[str, bytes]]) -> dict[Place, int]:
    """The bit of each root of the game's rounds of reports; of more than PLACES in a round those that a hash draws.

    anchored: by round and peer.
    """
    bits: dict[Place, int] = {}
    for step, number in enumerate(game.reporting):
        of = anchored.get(number, {})
        seed = hashlib.sha256(b"".join(sorted(of.values()))).digest()
        drawn = sorted(of, key=lambda peer: hashlib.sha256(seed + peer.encode()).digest())
        bits |= {(peer, number): PLACES * step + at for at, peer in enumerate(drawn[:PLACES])}
    return bits


def as_bits(shown: Iterable[Place], bits: Mapping[Place, int]) -> bytes:
    """[32] For a ballot."""
    return sum(1 << bits[place] for place in {*shown} & bits.keys()).to_bytes(32, "big")


def answer_of(game: Game, openings: Mapping[bytes, Opening], executed: int | None, values: Sequence[str]) -> int | None:
    """What a juror puts in its ballot; VOID: the game is not to be settled; None: the juror cannot tell.

    openings: by game, of this opener and round. executed: which answer the own execution is. values: what own attempts
    return, for a `value` game.
    """
    if game.kind is not GameKind.VALUE:
        return executed
    opening = openings.get(game.id)
    if opening is None or SENTINELS * sum(each.reference != "" for each in openings.values()) < len(openings):
        return VOID
    if opening.reference:
        return None if executed is None else PROVEN + executed
    counts = Counter(values).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return VOID if counts else None
    return game.index_of(counts[0][0])


def decide(game: Game, seated: Sequence[str], ballots: Iterable[Ballot], bits: Mapping[Place, int]) -> Decision:
    """What two thirds (5 of 7) agree on, and which reports count. Of each juror the first ballot counts.

    ballots: in the order of the chain. bits: see `places`.
    """
    given, name = dict[str, Ballot](), game.id
    for ballot in ballots:
        if ballot.game == name and ballot.peer in seated and (ballot.answer or 0) % PROVEN < len(game.answers):
            given.setdefault(ballot.peer, ballot)
    votes, count = Counter(ballot.answer for ballot in given.values()), len(given)
    agreed = (vote for vote, number in votes.items() if count >= LEAST and 3 * number >= 2 * count)
    answer, seen = next(agreed, None), [int.from_bytes(ballot.shown, "big") for ballot in given.values()]
    shown = frozenset(place for place, bit in bits.items() if 2 * sum(each >> bit & 1 for each in seen) > count)
    return Decision(None if answer is None else answer % PROVEN, (answer or 0) >= PROVEN, count, shown)


UNPROVEN = Fraction(1, 4)
"""Of the points where nobody can execute the truth."""


FEW_BALLOTS, UNDECIDED = "too few jurors voted", "the jury does not agree, or found it void"


class Settlement(msgspec.Struct, frozen=True):
    answer: int | None
    """By the ballots; None: the game is void, and stakes go back."""
    scores: dict[str, Score]
    """By peer, for this reader's records, of a void game too; empty where it executed nothing."""
    void: str = ""
    """Why it is void."""
    wins: dict[str, int] = {}
    """By peer, milli-points."""
    contested: bool = False
    """The reader executed something else."""


def settle(game: Game, positions: Sequence[Position], decision: Decision, executed: int | None) -> Settlement:
    """positions: by the reports that the jury counts. executed: the answer where two own executions agree; it counts
    only where the truth can be executed."""
    proven = game.kind is not GameKind.VALUE or decision.proven
    executed = executed if proven else None
    scores, answer = scores_of(game, positions, executed), decision.answer
    if answer is None:
        return Settlement(None, scores, UNDECIDED if decision.ballots >= LEAST else FEW_BALLOTS)
    wins = pay(positions, answer, Fraction(1) if proven else UNPROVEN)
    return Settlement(answer, scores, "", wins, executed not in (None, answer))


def scores_of(game: Game, positions: Iterable[Position], executed: int | None) -> dict[str, Score]:
    """Of everybody but the opener and the proposer, who could know the answer. executed: None: nobody has a score."""
    return {
        each.peer: Score(game.opener, gain(each.reports[0], executed), gain(each.standing(), executed))
        for each in positions
        if executed is not None and each.peer not in (game.opener, game.proposer)
    }
