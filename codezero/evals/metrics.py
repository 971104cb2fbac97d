"""The figures of an exam: pass@k, average@k and their intervals. Pure; knows nothing of models or files.

Legend for shapes: P problems.
"""

import math
from collections.abc import Sequence

import numpy as np

from codezero.skill import Interval

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
    """Percentile bootstrap of the mean over problems, which are what varies from exam to exam (not attempts).

    Raises ValueError for no problem.
    """
    if len(values_P) == 0:
        raise ValueError("an interval of no problem")
    values = np.asarray(values_P, dtype=np.float64)
    draw = np.random.default_rng(seed)
    step = max(1, DRAWS_AT_ONCE // len(values))
    means = [
        values[draw.integers(0, len(values), size=(min(step, resamples - done), len(values)))].mean(axis=1)
        for done in range(0, resamples, step)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    mean = float(values.mean())
    return Interval(min(float(low), mean), max(float(high), mean))  # rounding may push a constant past its mean
