"""What prices are worth on `value` games, and what is confirmed by them, with peers that lie or turn.

The first third of the problems is settled before: records, powers and each peer's calibration come from it, figures
from the rest. `liars` are sure of the claim from the start, `turned` peers once their record is made. Intervals (95 %)
are by Wilson, those of differences by bootstrap over problems, since tests of one problem are alike.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from codezero.market.games import ONE
from codezero.market.payout import STAKE, Position, pay
from codezero.market.pricing import (
    Price,
    Record,
    Score,
    best_power,
    clip,
    confirmed,
    gain,
    price,
    record,
    robust,
    skilled,
)
from codezero.stats import Array, wilson
from market_parts.value_games import ATTEMPTS, Tried, names, played, points

Q = tuple[int, ...]
Reports = Sequence[Mapping[str, Q]]
"""[games] By peer."""
Row = TypeVar("Row")
SCENES = {"honest": (0, 0), "3 liars": (3, 0), "2 turned": (0, 2), "3 turned": (0, 3), "5 turned": (0, 5)}
"""How many lie from the start, and how many turn."""
RESAMPLES = 1000
ALONE = 4
"""Own attempts that agree, with which a node alone would confirm."""


@dataclass(frozen=True)
class Play:
    """The games of one seed as honest peers report on them."""

    games: list[Tried]
    known: list[bool]
    """[games] Settled before the rest."""
    steps: list[Reports]
    """[STEPS]"""
    peers: list[str]

    def rows(self, of: Sequence[Row], *, known: bool) -> list[Row]:
        """[games] -> the known ones, or the rest."""
        return [row for row, settled in zip(of, self.known, strict=True) if settled is known]


def play(games: list[Tried], peers: int, judges: int) -> Play:
    """The first `judges` peers have one."""
    problems = sorted({each.problem for each in games})
    settled = set(problems[: len(problems) // 3])
    known = [each.problem in settled for each in games]
    by_step: list[Reports] = []
    for step in range(len(ATTEMPTS)):
        rows = [played(games, known, peer, step, peer < judges) for peer in range(peers)]
        by_step.append([dict(zip(names(peers), map(points, row), strict=True)) for row in zip(*rows, strict=True)])
    return Play(games, known, by_step, names(peers))


def sure(answers: int, of: int = 0) -> Q:
    """By default of the claim, which is the first answer."""
    return points(clip(np.eye(answers)[of], 0.003))


def brier(probabilities: Array, truth: int) -> float:
    return float(((probabilities - np.eye(len(probabilities))[truth]) ** 2).sum())


def scored(each: Tried, first: Q, last: Q) -> Score:
    return Score(each.game.opener, gain(first, each.truth), gain(last, each.truth))


def scores_of(games: Sequence[Tried], first: Reports, last: Reports, peer: str) -> list[Score]:
    """Of one peer, its own games left out."""
    rows = zip(games, first, last, strict=True)
    return [scored(each, one[peer], two[peer]) for each, one, two in rows if each.game.opener != peer]


def fitted(
    games: Sequence[Tried], first: Reports, last: Reports, peers: Sequence[str]
) -> tuple[dict[str, Record], tuple[float, float]]:
    """Records, and the powers of both prices, from settled games. first, last: reports."""
    records = {peer: record(scores_of(games, first, last, peer)) for peer in peers}
    voters = [peer for peer in peers if records[peer].vote]
    if not voters:
        return records, (1.0, 1.0)
    rows = [np.array([given[peer] for peer in voters]) / ONE for given in last]
    gains = [records[peer].gain for peer in voters]
    pools = [skilled(row, gains) for row in rows], [robust(row) for row in rows]
    one, two = (best_power([(pool, each.truth) for pool, each in zip(side, games, strict=True)]) for side in pools)
    return records, (one, two)


@dataclass(frozen=True)
class Outcome:
    """One measured game in one scene."""

    problem: str
    truth: int
    price: Price
    losses: dict[str, float]
    """Brier score by rule, and by peer."""
    confirmed: dict[str, list[bool]]
    """By rule, of the honest readers that confirm a value: is it right?"""
    readers: int


def scene(of: Play, liars: int, turned: int) -> list[Outcome]:
    """Peers at the end of the list lie or turn."""
    bad = of.peers[len(of.peers) - liars - turned :]
    honest = of.steps[0], of.steps[-1]
    lies = [dict.fromkeys(bad, sure(len(each.game.answers))) for each in of.games]
    lying = [[{**given, **lie} for given, lie in zip(step, lies, strict=True)] for step in honest]
    first, last = (of.rows(step, known=True) for step in (lying if liars else honest))
    records, powers = fitted(of.rows(of.games, known=True), first, last, of.peers)
    rest = zip(of.rows(of.games, known=False), of.rows(lying[1], known=False), strict=True)
    return [outcome(each, given, records, powers, len(of.peers) - len(bad)) for each, given in rest]


def outcome(
    each: Tried, given: Mapping[str, Q], records: Mapping[str, Record], powers: tuple[float, float], readers: int
) -> Outcome:
    """The first `readers` peers are honest and read the price."""
    found = price(each.game, given, records, powers)
    rows = {peer: np.array(q) / ONE for peer, q in given.items()}
    claim = np.array(sure(len(each.game.answers))) / ONE
    rules = {"skilled": found.skilled, "robust": found.robust, "equal": np.mean(list(rows.values()), axis=0)}
    losses = {name: brier(q, each.truth) for name, q in (rules | {"claim": claim} | rows).items()}
    own = each.values[:readers]
    top = each.game.answers[int(found.skilled.argmax())]
    by_rule = {
        "rule": [confirmed(each.game, found, values) for values in own],
        "rule, different programs": [confirmed(each.game, found, each.different(at)) for at in range(readers)],
        "without veto": [confirmed(each.game, found, [top, top])] * readers,
        "one node alone": [leading(values) for values in own],
    }
    right = {rule: [value == each.true for value in made if value is not None] for rule, made in by_rule.items()}
    return Outcome(each.problem, each.truth, found, losses, right, readers)


def leading(values: Sequence[str | None]) -> str | None:
    """What a node without a market would confirm."""
    known = [value for value in values if value is not None]
    lead = max(set(known), key=lambda value: (known.count(value), value), default=None)
    return lead if lead is not None and known.count(lead) >= ALONE else None


def shares(outcomes: Sequence[Outcome], rule: str) -> dict[str, Any]:
    """How much is confirmed, and how much of that is right. Readers of one game are not independent: the interval is
    that of so many games."""
    pairs = sum(each.readers for each in outcomes)
    seen = [right for each in outcomes for right in each.confirmed[rule]]
    right = fmean(seen) if seen else None
    games = len(seen) * len(outcomes) / pairs
    return {
        "confirmed": round(len(seen) / pairs, 4),
        "right": None if right is None else round(right, 4),
        "right_interval": None if right is None else [round(end, 4) for end in wilson(right, games)],
        "wrong_of_all": round((len(seen) - sum(seen)) / pairs, 4),
    }


def difference(
    outcomes: Sequence[Outcome], first: Callable[[Outcome], float], second: Callable[[Outcome], float]
) -> list[float]:
    """Mean of first less second, and its interval."""
    by_problem: defaultdict[str, list[float]] = defaultdict(list)
    for each in outcomes:
        by_problem[each.problem].append(first(each) - second(each))
    sums = np.array([[fsum(each), len(each)] for each in by_problem.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[drawn].sum(1)
    low, high = np.quantile(means[:, 0] / means[:, 1], [0.025, 0.975])
    return [round(float(end), 4) for end in (sums[:, 0].sum() / sums[:, 1].sum(), low, high)]


def summary(outcomes: Sequence[Outcome], peers: Sequence[str]) -> dict[str, Any]:
    """Of one scene, over any number of seeds. The best peer is the one that turns out to be."""
    means = {name: fmean(each.losses[name] for each in outcomes) for name in outcomes[0].losses}
    best = min(peers, key=lambda peer: means[peer])
    others: dict[str, Callable[[Outcome], float]] = {
        "best_peer": lambda o: o.losses[best],
        "mean_peer": lambda o: fmean(o.losses[peer] for peer in peers),
        "equal": lambda o: o.losses["equal"],
    }
    tops = [(float(each.price.skilled.max()), int(each.price.skilled.argmax()) == each.truth) for each in outcomes]
    return {
        "games": len(outcomes),
        "brier": {name: round(means[name], 4) for name in ("skilled", "robust", "equal", "claim")}
        | {name: round(fmean(map(of, outcomes)), 4) for name, of in others.items()},
        "skilled_less": {name: difference(outcomes, lambda o: o.losses["skilled"], of) for name, of in others.items()},
        "confirmed": {rule: shares(outcomes, rule) for rule in outcomes[0].confirmed},
        "reliability": reliability(tops),
    }


def reliability(tops: Sequence[tuple[float, bool]]) -> list[dict[str, float]]:
    """Of the likeliest answer, in ten bins: what the price says, how often it is right, games."""
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for stated, right in tops:
        bins[min(9, int(10 * stated))].append((stated, right))
    return [
        {"price": round(fmean(p for p, _ in rows), 3), "right": round(fmean(r for _, r in rows), 3), "games": len(rows)}
        for _, rows in sorted(bins.items())
    ]


def by_step(of: Play) -> list[float]:
    """Brier score of the skilled price, nobody dishonest."""
    means: list[float] = []
    for step in of.steps:
        first, last = (of.rows(reports, known=True) for reports in (of.steps[0], step))
        records, powers = fitted(of.rows(of.games, known=True), first, last, of.peers)
        rest = zip(of.rows(of.games, known=False), of.rows(step, known=False), strict=True)
        means.append(fmean(brier(price(e.game, given, records, powers).skilled, e.truth) for e, given in rest))
    return means


def returns(of: Play) -> list[float]:
    """[peers] Won for a stake and game."""
    won: defaultdict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(of.games):
        stakes = {peer: 0 if peer == each.game.opener else STAKE for peer in of.peers}
        rows = [Position(peer, stakes[peer], tuple(step[at][peer] for step in of.steps)) for peer in of.peers]
        for peer, win in pay(rows, each.truth).items():
            won[peer].append(win)
    return [round(fmean(won[peer]) / STAKE, 4) for peer in of.peers]
