"""The figures of an exam: pass@k, average@k and their intervals. Pure. Legend for shapes: P problems."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codezero.stats import Interval

RESAMPLES = 2_000
DRAWS_AT_ONCE = 1_000_000
"""Bounds the memory of a bootstrap (8 bytes a draw)."""


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased chance that at least one of k attempts passes, from `correct` of `samples` attempts at a problem.

    1 - C(n - c, k) / C(n, k): Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1.
    Raises ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {correct} of {samples} attempts")
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


def average_at_k(outcomes_k: Sequence[bool]) -> float:
    """Share of k attempts at one problem that pass; the same number as pass@1. Raises ValueError for none."""
    if len(outcomes_k) == 0:
        raise ValueError("average@k of no attempt")
    return sum(outcomes_k) / len(outcomes_k)


def bootstrap_interval(values_P: Sequence[float], *, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Percentile bootstrap of the mean over problems, not attempts. Raises ValueError for no problem."""
    if len(values_P) == 0:
        raise ValueError("an interval of no problem")
    return _bootstrap(np.asarray(values_P, dtype=np.float64), seed, resamples)[1]


def paired_bootstrap(
    a_P: Sequence[float], b_P: Sequence[float], *, seed: int, resamples: int = RESAMPLES
) -> tuple[Interval, float]:
    """The interval of the mean of b - a, and p: how often a difference as large would come about if there were none.

    Problems are drawn with both policies' figures, so what makes a problem hard for both falls out. p is two-sided: the
    same draws moved to mean 0, with one added to either count, so that it is never 0 (Efron and Tibshirani 1993, "An
    Introduction to the Bootstrap", chapter 16). Raises ValueError unless both have the same problems, at least one.
    """
    if len(a_P) != len(b_P) or len(a_P) == 0:
        raise ValueError(f"{len(a_P)} and {len(b_P)} problems cannot be paired")
    gains = np.asarray(b_P, dtype=np.float64) - np.asarray(a_P, dtype=np.float64)
    means, interval = _bootstrap(gains, seed, resamples)
    mean = gains.mean()
    # A rounding error must not make a difference out of none.
    as_large = int(np.count_nonzero(np.abs(means - mean) >= abs(mean) - 1e-12))
    return interval, (1 + as_large) / (1 + resamples)


def _bootstrap(values: Any, seed: int, resamples: int) -> tuple[Any, Interval]:
    """The mean of each resample, drawn in pieces of bounded memory, and the 95 % interval of the mean."""
    draw = np.random.default_rng(seed)
    step = max(1, DRAWS_AT_ONCE // len(values))
    sizes = [min(step, resamples - done) for done in range(0, resamples, step)]
    means = np.concatenate([values[draw.integers(0, len(values), (size, len(values)))].mean(axis=1) for size in sizes])
    low, high = np.percentile(means, [2.5, 97.5])
    mean = float(values.mean())
    return means, Interval(min(float(low), mean), max(float(high), mean))  # rounding may push a constant past its mean
