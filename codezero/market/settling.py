"""How a game ends: a pure function of what was anchored, shown and voted.

Ballots settle points, the same for all. What a reader executed settles its own records and prices, whatever they say.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction

import msgspec

from codezero.market.games import Game, GameKind, Opening
from codezero.market.jury import LEAST, Ballot, decide
from codezero.market.payout import Position, pay
from codezero.market.pricing import Score, gain

UNPROVEN = Fraction(1, 4)
"""Of the points where nobody can execute the truth."""
SENTINELS = 4
"""One in so many `value` games of an opener and round has to be a sentinel."""


class VoidReason(StrEnum):
    UNOPENED = "its commitment was not opened"
    FORGED = "its commitment is of something else"
    FEW_SENTINELS = "its opener has too few games with a known answer"
    FEW_BALLOTS = "too few jurors voted"
    UNDECIDED = "the jury does not agree, or found it void"


class Void(msgspec.Struct, frozen=True):
    """Stakes go back."""

    game: bytes
    reason: VoidReason
    scores: dict[str, Score] = {}
    """As in a settlement: what was executed counts all the same."""


class Settlement(msgspec.Struct, frozen=True):
    game: bytes
    answer: int
    """By the ballots."""
    wins: dict[str, int]
    """By peer, milli-points."""
    scores: dict[str, Score]
    """By peer, for this reader's records; empty where it executed nothing."""
    contested: bool
    """The reader executed something else."""


def settle(
    game: Game,
    positions: Sequence[Position],
    seated: Sequence[str],
    ballots: Iterable[Ballot],
    openings: Mapping[bytes, Opening],
    executed: int | None,
) -> Settlement | Void:
    """openings: by game, all of this opener and round. executed: the answer where two own executions agree; it counts
    only where the truth can be executed."""
    name, share = game.id, Fraction(1)
    if game.kind is GameKind.VALUE:
        if (opening := openings.get(name)) is None:
            return Void(name, VoidReason.UNOPENED)
        if opening.game != name or opening.commitment != game.commitment:
            return Void(name, VoidReason.FORGED)
        if SENTINELS * sum(each.reference != "" for each in openings.values()) < len(openings):
            return Void(name, VoidReason.FEW_SENTINELS)
        if not opening.reference:
            share, executed = UNPROVEN, None
    scores = scores_of(game, positions, executed)
    answer, count, _ = decide(game, seated, ballots)
    if answer is None:
        return Void(name, VoidReason.UNDECIDED if count >= LEAST else VoidReason.FEW_BALLOTS, scores)
    return Settlement(name, answer, pay(positions, answer, share), scores, executed not in (None, answer))


def scores_of(game: Game, positions: Iterable[Position], executed: int | None) -> dict[str, Score]:
    """Of everybody but the opener and the proposer, who could know the answer. executed: None: nobody has a score."""
    return {
        each.peer: Score(game.opener, gain(each.reports[0], executed), gain(each.standing(), executed))
        for each in positions
        if executed is not None and each.peer not in (game.opener, game.proposer)
    }
