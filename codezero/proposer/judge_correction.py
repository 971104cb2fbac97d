"""What a mistaken judge's word says of the truth. Pure.

Of attempts of which a share p is right, a judge believes q = fpr + p (1 - fpr - fnr), so p = (q - fpr) / (1 - fpr -
fnr): Rogan & Gladen, "Estimating prevalence from the results of a screening test", 1978. Levels are corrected, not
single groups, because cutting off what falls outside [0, 1] one by one is biased.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from scipy.optimize import isotonic_regression
from scipy.special import betainc, betaincinv

from codezero.types import JudgeRates

MIN_INFORMEDNESS = 0.1
"""Of 1 - fpr - fnr, what right attempts are believed more than wrong ones; a judge below it tells nothing."""
TAILS = (0.025, 0.975)
"""Ends of the interval that is reported, as quantiles of the posterior."""
_SPREAD = (1 / 6, 1 / 2, 5 / 6)
"""Quantiles of a rate's posterior that stand for it, each for a third."""


@dataclass(frozen=True, slots=True)
class Rates:
    """One pair of error rates that the judge may have."""

    false_positive: float = 0.0
    false_negative: float = 0.0

    @property
    def informedness(self) -> float:
        """Youden's J: how much more a right attempt is believed than a wrong one; at least MIN_INFORMEDNESS."""
        return max(MIN_INFORMEDNESS, 1 - self.false_positive - self.false_negative)

    def judged(self, truth: float) -> float:
        """The share believed where the share `truth` is right."""
        return min(1.0, self.false_positive + truth * self.informedness)

    def truth(self, judged: float) -> float:
        """The inverse, cut to [0, 1]."""
        return min(1.0, max(0.0, (judged - self.false_positive) / self.informedness))


def tells(rates: JudgeRates) -> bool:
    """Does a judge with these rates say anything of the truth?"""
    return 1 - rates.false_positive - rates.false_negative >= MIN_INFORMEDNESS


def possible(rates: JudgeRates | None) -> tuple[Rates, ...]:
    """Pairs of rates, equally probable, that stand for what is known of the judge; None: it makes no mistakes."""
    if rates is None:
        return (Rates(),)
    positives = _quantiles(_SPREAD, rates.false_positive, rates.wrong)
    negatives = _quantiles(_SPREAD, rates.false_negative, rates.right)
    return tuple(itertools.starmap(Rates, itertools.product(positives, negatives)))


def interval(successes: float, failures: float, rates: JudgeRates | None, around: Rates) -> tuple[float, float, float]:
    """(mean, low, high) of the true success behind a Beta(successes, failures) of the judged one. `around`: the rates
    to correct with.

    The parts of the uncertainty add up squared (Lang & Reiczigel, "Confidence limits for prevalence of disease
    adjusted for estimated sensitivity and specificity", 2014; there with other intervals for the parts).
    """
    mean = successes / (successes + failures)
    truth = around.truth(mean)
    own = [(beta_quantile(share, successes, failures) - mean) / around.informedness for share in TAILS]
    wrong = right = [0.0, 0.0]
    if rates is not None:
        wrong, right = (
            [(quantile - rate) / around.informedness for quantile in _quantiles(TAILS, rate, count)]
            for rate, count in ((rates.false_positive, rates.wrong), (rates.false_negative, rates.right))
        )
    low = math.hypot(own[0], (1 - truth) * wrong[1], truth * right[0])
    high = math.hypot(own[1], (1 - truth) * wrong[0], truth * right[1])
    return truth, max(0.0, truth - low), min(1.0, truth + high)


def beta_cdf(x: float, a: float, b: float) -> float:
    return float(cast(float, betainc(a, b, x)))


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(cast(float, betaincinv(a, b, share)))


def never_rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest sequence that never rises, by weighted least squares."""
    nearest: Any = isotonic_regression(values, weights=weights, increasing=False)
    return nearest.x.tolist()


def _quantiles(shares: Sequence[float], rate: float, count: int) -> list[float]:
    """Of the posterior of a rate seen in `count` trials, from Jeffreys' prior."""
    return [beta_quantile(share, 0.5 + rate * count, 0.5 + (1 - rate) * count) for share in shares]
