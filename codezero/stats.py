"""Figures of scores and their certainty: AUROC, Brier, calibration error, shares and their intervals. Pure."""

# numpy's reductions are only partly typed
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = Sequence[float] | Array
Z = 1.959963984540054  # Standard errors on either side of a 95 % interval
RESAMPLES = 2_000
DRAWS_AT_ONCE = 1_000_000  # Bounds the memory of a resampling (8 bytes a draw)
PRIOR = 0.5  # Observations at either end before anything is seen: with two outcomes this is the Jeffreys prior


class Interval(NamedTuple):
    """A two-sided interval of 95 %."""

    low: float
    high: float


def wilson(share: float, count: float) -> Interval:
    """The interval of a share seen in `count` trials (a real number where the trials are weighted); (0, 1) with none.
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927."""
    if count < 1e-9:
        return Interval(0.0, 1.0)
    middle = share + Z * Z / (2 * count)
    reach = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    return Interval(max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale))


def resampled_means(values: Values, ends: tuple[float, float], seed: int, sizes: Values | None = None) -> Array:
    """[RESAMPLES] what the mean of `values`, which lie between `ends`, may be: the Bayesian bootstrap with a prior.

    sizes: how much each value counts for in the mean (default: all the same); a prior observation has the mean size.

    Rubin, "The Bayesian bootstrap", 1981; PRIOR observations at each end leave doubt where all values are the same
    (Jeffreys' interval in Brown, Cai & DasGupta, "Interval estimation for a binomial proportion", 2001, section 4)."""
    array, chance = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    size_of = np.ones(len(array)) if sizes is None else np.asarray(sizes, dtype=np.float64) / np.mean(sizes)
    pieces, step = list[Array](), max(1, DRAWS_AT_ONCE // max(1, len(array)))
    for done in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - done)
        weights, prior = chance.standard_exponential((size, len(array))), chance.standard_gamma(PRIOR, (size, 2))
        pieces.append((weights @ (size_of * array) + prior @ np.array(ends)) / (weights @ size_of + prior.sum(1)))
    return np.concatenate(pieces)


def bounded_interval(
    values: Values, *, ends: tuple[float, float] = (0.0, 1.0), seed: int = 0, sizes: Values | None = None
) -> Interval:
    """The interval of the mean of values between `ends`, by `resampled_means`. It holds the mean seen.

    values: one at least, and one for each independent draw: a problem, not an attempt."""
    low, high = np.percentile(resampled_means(values, ends, seed, sizes), [2.5, 97.5])
    mean = float(np.average(values, weights=sizes))
    return Interval(min(float(low), mean), max(float(high), mean))


def mean_interval(values: Values) -> tuple[float, float, float]:
    """(mean, low, high) by the normal approximation; NaN for fewer than two."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return math.nan, math.nan, math.nan
    mean, error = float(array.mean()), float(array.std(ddof=1)) / math.sqrt(len(array))
    return mean, mean - Z * error, mean + Z * error


def auroc(scores: Values, labels: Sequence[bool] | Array) -> float:
    """Probability that a right one scores above a wrong one, ties counting half. NaN without both kinds."""
    return auroc_interval(scores, labels)[0]


def auroc_interval(scores: Values, labels: Sequence[bool] | Array) -> tuple[float, float, float]:
    """(AUROC, low, high): the 95 % interval holds every A whose own standard error reaches the AUROC seen.

    Standard error of Hanley & McNeil 1982, interval by Newcombe 2006 (method 5); unlike AUROC +- 1.96 SE it stays
    honest near 1, where good judges are. NaN without both kinds."""
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64) > 0
    n_right, n_wrong = int(truth.sum()), int((~truth).sum())
    if not n_right or not n_wrong:
        return math.nan, math.nan, math.nan
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    area = float((ranks[truth].sum() - n_right * (n_right + 1) / 2) / (n_right * n_wrong))
    return area, _reach(area, 0.0, n_right, n_wrong), _reach(area, 1.0, n_right, n_wrong)


def _reach(area: float, end: float, n_right: int, n_wrong: int) -> float:
    """The value between `area` and `end` that is 1.96 of its own standard errors away from `area`; by bisection."""
    near, far = area, end
    for _ in range(60):
        middle = (near + far) / 2
        right_pairs, wrong_pairs = middle / (2 - middle), 2 * middle**2 / (1 + middle)
        within = (n_right - 1) * (right_pairs - middle**2) + (n_wrong - 1) * (wrong_pairs - middle**2)
        if abs(area - middle) > Z * math.sqrt(max(0.0, (middle * (1 - middle) + within) / (n_right * n_wrong))):
            far = middle
        else:
            near = middle
    return near


class GroupOrder(NamedTuple):
    """The order that scores give the members of one group."""

    area: float  # share of the pairs in which the right member scores higher than the wrong one, ties counting half
    pairs: int


class WithinGroups(NamedTuple):
    """The within-group AUROC with its 95 % interval."""

    area: float
    low: float
    high: float
    pairs: int
    groups: int  # That have a pair


def group_order(members: Sequence[tuple[float, bool]]) -> GroupOrder:
    """The order within groups of (score, right); area 0 where there is no pair."""
    right, wrong = ([score for score, passed in members if passed is kind] for kind in (True, False))
    if not right or not wrong:
        return GroupOrder(0.0, 0)
    signs = np.sign(np.subtract.outer(np.asarray(right, dtype=np.float64), np.asarray(wrong, dtype=np.float64)))
    return GroupOrder(float(0.5 + signs.mean() / 2), len(right) * len(wrong))


def within_groups(orders: Iterable[GroupOrder]) -> WithinGroups | None:
    """The chance that a right member scores above a wrong one of its own group: sum of n_g a_g over sum of n_g, where
    group g has n_g pairs and orders a share a_g of them. None without a pair.

    It is the within-cluster concordance of Van Oirbeek & Lesaffre, "An application of Harrell's C-index to PH frailty
    models", 2010: what tells groups apart, such as easy problems, adds nothing to it. Groups are resampled with all of
    their pairs (`resampled_means`), since pairs of one group are not independent."""
    mixed = [order for order in orders if order.pairs]
    if not mixed:
        return None
    areas, pairs = [order.area for order in mixed], [order.pairs for order in mixed]
    area = float(np.average(areas, weights=pairs))
    return WithinGroups(area, *bounded_interval(areas, sizes=pairs), sum(pairs), len(mixed))


def auroc_over_groups(rows: Sequence[tuple[int, float, bool]]) -> tuple[float, float, float] | None:
    """(AUROC, low, high) over all (number of the group, score, right), whole groups resampled by the Bayesian
    bootstrap: members of one group are not independent. None without both kinds."""
    if not rows:
        return None
    numbers, scores, right = (np.array(column) for column in zip(*rows, strict=True))
    if right.all() or not right.any():
        return None
    places, chance = np.unique(scores, return_inverse=True)[1], np.random.default_rng(0)
    areas = list[float]()
    for _ in range(RESAMPLES):
        weights = chance.standard_exponential(int(numbers.max()) + 1)[numbers]
        above, below = (np.bincount(places, weights * kind, places.max() + 1) for kind in (right, ~right))
        areas.append(float(above @ (np.cumsum(below) - below / 2) / (above.sum() * below.sum())))
    low, high = np.percentile(areas, [2.5, 97.5]).tolist()
    return auroc(scores, right), low, high


def brier(probabilities: Array, labels: Array) -> float:
    """Mean squared error of the probabilities."""
    return float(np.mean((probabilities - labels) ** 2))


def ece(probabilities: Array, labels: Array, bins: int = 10) -> float:
    """Expected calibration error over `bins` equal-width bins: mean |said - true| weighted by how often it is said."""
    which = np.minimum((probabilities * bins).astype(int), bins - 1)
    gaps = (abs((probabilities - labels)[which == b].sum()) for b in range(bins))
    return float(sum(gaps) / len(labels))
