"""From reports to a price, by what each peer was worth, and to a value that this node confirms: each reader its own.

Two pools that fail differently: the *skilled* price is a log pool (Genest & Zidek 1986) with weights by record, as the
wealth of Kelly bettors (Beygelzimer et al. 2012); the *robust* one is a median, one peer, one vote. Both are sharpened
(Satopaa et al. 2014) by the power that did best on settled games.
"""

# numpy's reductions are only partly typed
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from codezero.market.games import NONE, ONE, Game
from codezero.market.payout import opening
from codezero.stats import Array

FLOOR = -3.0
"""Nats: the most that one game takes from a record."""
NEWCOMER = 20
"""Games before a vote counts; and the newest ones, which alone can lose it too: a long record would hide a turn."""
FRIENDS = 0.2
"""Most of a record that may come from one opener, who knows its sentinels and may tell friends."""
RATE, SPREAD, CAP = 0.05, 8.0, 2.0
"""Weights of the skilled price: their exponent a nat, the most nats between two, and the most equal shares of one."""
POWERS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
LEAST_REPORT, LEAST_PRICE = 0.003, 0.001
"""Probabilities count for no less: one certain error must not outweigh everything."""


class Score(NamedTuple):
    """Of one peer in one settled game whose truth the reader executed; nats."""

    opener: str
    first: float
    """Gain of the report of step 0, which nobody could copy."""
    last: float
    """Gain of the last report, which prices are made of."""


@dataclass(frozen=True, slots=True)
class Record:
    """Of one peer, over its scores."""

    games: float = 0.0
    """Those of one opener count less than 1 where they would be more than FRIENDS."""
    gain: float = 0.0
    """Nats, of the first or of the last reports, whichever are worth less."""
    one_opener: float = 0.0
    """The most that came from one opener other than the reader: a friend may have told its answers."""
    lost: bool = False
    """Worse than a peer that knows nothing."""

    @property
    def vote(self) -> bool:
        return self.games >= NEWCOMER and self.gain > self.one_opener and not self.lost


def gain(report: Sequence[int] | None, answer: int) -> float:
    """Nats above the opening price: max(FLOOR, ln q_y - ln 1/K); None: 0. Against the price itself all honest peers
    would lose their vote, since a crowd beats each of them."""
    if report is None:
        return 0.0
    return max(FLOOR, math.log(report[answer] * len(report) / ONE)) if report[answer] else FLOOR


def record(scores: Sequence[Score], reader: str = "") -> Record:
    """scores: oldest first. reader: whose own games always count whole."""
    openers = Counter(score.opener for score in scores if score.opener != reader)
    most = ceiling(openers.values(), FRIENDS, len(scores) - openers.total())
    whole = {opener: min(1.0, most / count) for opener, count in openers.items()}
    weights = [whole.get(score.opener, 1.0) for score in scores]
    first = sum(weight * score.first for weight, score in zip(weights, scores, strict=True))
    single = [whole[opener] * sum(score.first for score in scores if score.opener == opener) for opener in openers]
    rows = [(weight, score.last) for weight, score in zip(weights, scores, strict=True)]
    lost = doubtful(rows) or doubtful(rows[-NEWCOMER:])
    last = sum(weight * gain for weight, gain in rows)
    return Record(sum(weights), min(first, last), max([0.0, *single]), lost)


def doubtful(rows: Sequence[tuple[float, float]]) -> bool:
    """Is the sum of (weight, gain) below -3 nats and two standard errors?"""
    squares = sum(weight * gain**2 for weight, gain in rows)
    return sum(weight * gain for weight, gain in rows) < min(-3, -2 * math.sqrt(squares + 1))


def ceiling(sizes: Iterable[float], share: float, beside: float = 0.0) -> float:
    """The c = share * (beside + sum(min(size, c))) that leaves none above its share; at least the largest: no cut."""
    most, left = 0.0, [*sorted(sizes, reverse=True), 0.0]
    for cut, size in enumerate(left):
        if share * cut > 1 - 1e-9:
            break
        most = share * (beside + sum(left[cut:])) / (1 - share * cut)
        if most >= size:
            break
    return most


class Price(NamedTuple):
    """Of one game: both [K], and how many peers they are made of. Without any both are the opening price."""

    skilled: Array
    robust: Array
    voters: int


def price(
    game: Game,
    reports: Mapping[str, Sequence[int]],
    records: Mapping[str, Record],
    powers: tuple[float, float] = (1, 1),
) -> Price:
    """Of standing reports, by those of their peers that have a vote. powers: of the skilled and the robust price."""
    voters = sorted(peer for peer in reports if peer in records and records[peer].vote)
    if not voters:
        flat = np.array(opening(len(game.answers))) / ONE
        return Price(flat, flat, 0)
    rows = np.array([reports[peer] for peer in voters]) / ONE
    pool = skilled(rows, [records[peer].gain for peer in voters])
    return Price(sharpen(pool, powers[0]), sharpen(robust(rows), powers[1]), len(voters))


def skilled(reports: Array, gains: Sequence[float] | Array) -> Array:
    """[K] Log pool of reports [N, K]."""
    nats = RATE * np.asarray(gains)
    weights = np.exp(np.maximum(nats - nats.max(), -SPREAD))
    weights = np.minimum(weights, ceiling(weights.tolist(), CAP / len(weights)))
    logs = (weights / weights.sum()) @ np.log(clip(reports, LEAST_REPORT))
    return clip(np.exp(logs - logs.max()), 0.0)


def robust(reports: Array) -> Array:
    """[K] Of each answer the median of the log-odds in reports [N, K]."""
    rows = clip(reports, LEAST_REPORT)
    return clip(1 / (1 + np.exp(-np.median(np.log(rows) - np.log1p(-rows), axis=0))), 0.0)


def clip(rows: Array, least: float) -> Array:
    """Probabilities that sum to 1, none of them far below `least`."""
    raised = np.maximum(rows, least)
    return raised / raised.sum(-1, keepdims=True)


def sharpen(pool: Array, power: float) -> Array:
    """[K] pool^power."""
    return clip(clip(pool**power, 0.0), LEAST_PRICE)


def best_power(settled: Sequence[tuple[Array, int]]) -> float:
    """Of POWERS, by log loss on the pools of settled games and their answers; 1 without any."""
    loss = {power: -sum(math.log(sharpen(pool, power)[answer]) for pool, answer in settled) for power in POWERS}
    return min(POWERS, key=lambda power: (loss[power], abs(power - 1)))


def confirmed(
    game: Game, found: Price, own: Iterable[str | None], threshold: float = 0.9, fewest: int = 5, agreeing: int = 2
) -> str | None:
    """The value that both prices and the reader's own attempts stand behind; None: it stays a claim.

    own: what the reader's attempts return in its own sandbox. At least `agreeing` have to return it, and no other value
    more often: without this veto a majority that turned could confirm anything. fewest: voters.
    """
    top, counts = int(found.skilled.argmax()), Counter(value for value in own if value is not None)
    value, least = game.answers[top], min(found.skilled[top], found.robust[top])
    agreed = top == int(found.robust.argmax()) and least >= threshold and found.voters >= fewest
    return value if agreed and value != NONE and counts[value] >= max([agreeing, *counts.values()]) else None
