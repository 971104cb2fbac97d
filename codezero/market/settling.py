"""How a game ends: a pure function of what was anchored, shown and voted.

Ballots settle points, the same for all. What a reader executed settles its own records and prices, whatever they say.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction

import msgspec

from codezero.market.games import Game, GameKind
from codezero.market.jury import LEAST, Decision
from codezero.market.payout import Position, pay
from codezero.market.pricing import Score, gain

UNPROVEN = Fraction(1, 4)
"""Of the points where nobody can execute the truth."""


class VoidReason(StrEnum):
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


def settle(game: Game, positions: Sequence[Position], decision: Decision, executed: int | None) -> Settlement | Void:
    """positions: by the reports that the jury counts. executed: the answer where two own executions agree; it counts
    only where the truth can be executed."""
    proven = game.kind is not GameKind.VALUE or decision.proven
    executed = executed if proven else None
    scores, answer = scores_of(game, positions, executed), decision.answer
    if answer is None:
        reason = VoidReason.UNDECIDED if decision.ballots >= LEAST else VoidReason.FEW_BALLOTS
        return Void(game.id, reason, scores)
    wins = pay(positions, answer, Fraction(1) if proven else UNPROVEN)
    return Settlement(game.id, answer, wins, scores, executed not in (None, answer))


def scores_of(game: Game, positions: Iterable[Position], executed: int | None) -> dict[str, Score]:
    """Of everybody but the opener and the proposer, who could know the answer. executed: None: nobody has a score."""
    return {
        each.peer: Score(game.opener, gain(each.reports[0], executed), gain(each.standing(), executed))
        for each in positions
        if executed is not None and each.peer not in (game.opener, game.proposer)
    }
