"""From reports to a price, by what each peer was worth: each node has its own.

The price is a log pool (Genest & Zidek 1986) with weights by record, as the wealth of Kelly bettors (Beygelzimer et al.
2012).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from codezero.market.games import ONE, Game, Reports, players, standing

FLOOR = -3.0  # nats: the most that one game takes from a record
# games before a vote counts; and the newest ones, which alone can lose it: a long record would hide a turn
NEWCOMER = 20
FRIENDS = 0.2  # most of a record that may come from one opener, who may tell friends its answers
RATE, SPREAD, CAP = 0.05, 8.0, 2.0  # weights: their exponent a nat, most nats between two, most equal shares of one
LEAST = 0.003  # probabilities count for no less: one certain error must not outweigh everything


class Score(NamedTuple):
    """A peer's gains in one settled game, in nats."""

    opener: str
    first: float  # of the report of step 0
    last: float  # of the last report, which prices are made of


@dataclass(frozen=True, slots=True)
class Record:
    """A peer's worth in settled games."""

    games: float = 0.0  # those of one opener count less than 1 where they would be more than FRIENDS
    gain: float = 0.0  # nats, of the first or of the last reports, whichever are worth less
    one_opener: float = 0.0  # the most that came from one opener other than the reader
    lost: bool = False  # worse than a peer that knows nothing

    @property
    def vote(self) -> bool:
        """Does its report count in prices?"""
        return self.games >= NEWCOMER and self.gain > self.one_opener and not self.lost


def gain(q: int | None, right: bool) -> float:
    """Nats above an even guess: max(FLOOR, ln 2 q_y); None: 0. Against the price itself all honest peers would lose
    their vote, since a crowd beats each of them."""
    if q is None:
        return 0.0
    share = (q if right else ONE - q) / ONE
    return max(FLOOR, math.log(2 * share)) if share else FLOOR


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
    return Record(sum(weights), min(first, sum(weight * last for weight, last in rows)), max([0.0, *single]), lost)


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


class PriceRow(msgspec.Struct, frozen=True):
    """Probabilities that a game's attempt is right, after each step."""

    steps: list[float]
    voters: int  # peers with a vote in the newest


def price(reports: Mapping[str, int], records: Mapping[str, Record]) -> tuple[float, int]:
    """Pool the standing reports of the peers that have a vote: the probability, 1/2 without any, and their number."""
    voters = sorted(peer for peer in reports if peer in records and records[peer].vote)
    weights = shares([records[peer].gain for peer in voters]) if voters else []
    pooled = math.fsum(weight * odds(reports[peer] / ONE) for weight, peer in zip(weights, voters, strict=True))
    return probability(pooled), len(voters)


def price_row(game: Game, reports: Mapping[str, Reports], records: Mapping[str, Record], steps: int) -> PriceRow:
    """Prices after each of the first steps."""
    row, voters, inside = list[float](), 0, players(game, reports)
    for step in range(steps):
        held = {peer: q for peer, of in inside.items() if (q := standing(of, step)) is not None}
        pooled, voters = price(held, records)
        row.append(pooled)
    return PriceRow(row, voters)


def without(peer: str, reports: Mapping[str, Reports]) -> dict[str, Reports]:
    return {other: steps for other, steps in reports.items() if other != peer}


def brier_scores(reader: str, reports: Mapping[str, Reports], price: float, right: bool) -> dict[str, float]:
    """Scores, 0 best and 2 worst, of a game that the reader and others reported on."""
    own = standing(reports.get(reader, ()))
    others = [q for steps in without(reader, reports).values() if (q := standing(steps)) is not None]
    if own is None or not others:
        return {}
    probabilities = {"own": own / ONE, "mean": sum(others) / (ONE * len(others)), "price": price}
    return {name: 2 * (p - right) ** 2 for name, p in probabilities.items()}


def shares(gains: Sequence[float]) -> list[float]:
    """Weights of a price, which sum to 1: exponential in the record, none more than CAP equal shares."""
    weights = [math.exp(max(RATE * (each - max(gains)), -SPREAD)) for each in gains]
    most = ceiling(weights, CAP / len(weights))
    cut = [min(weight, most) for weight in weights]
    return [weight / sum(cut) for weight in cut]


def odds(p: float) -> float:
    """Log-odds of a probability, which counts for no less than LEAST."""
    p = min(1 - LEAST, max(LEAST, p))
    return math.log(p / (1 - p))


def probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
