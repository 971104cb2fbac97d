"""Importance weights of tokens that an earlier policy sampled.

Legend for shapes: B rows, T tokens of a row. With r = p(token, now) / p(token, when it was sampled), a row is pushed as
if the present policy had written it (its ratio is 1 at first), each token's advantage times its weight.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

TRUNCATION = 2.0
"""Largest weight of truncated importance sampling."""
BUDGET = 0.01
"""Of M2PO: largest mean of log(r)^2 over tokens that were pushed further the way they had moved."""
WIDEST = (0.05, 21.0)
"""M2PO never clips further from 1."""
MOST = 20.0
"""Largest weight of all."""

Tokens = Sequence[float]


def truncated_weights(now: Sequence[Tokens], then: Sequence[Tokens]) -> list[list[float]]:
    """w = min(r, TRUNCATION), (B, T); `now`, `then`: log-probs in nats. Espeholt et al. 2018, IMPALA, section 4.1."""
    return [
        [min(math.exp(min(a - b, math.log(MOST))), TRUNCATION) for a, b in zip(*rows, strict=True)]
        for rows in zip(now, then, strict=True)
    ]


def second_moment_weights(
    now: Sequence[Tokens], then: Sequence[Tokens], advantages: Sequence[float]
) -> list[list[float]]:
    """M2PO: w = r, and 0 for harmful tokens beyond the clip, (B, T). Zheng et al. 2025, "Prosperity before Collapse".

    Harmful are tokens that are pushed on in the direction they have moved in: A > 0 and r > 1, or A < 0 and r < 1. A
    clipped token has no gradient, which is what weight 0 says. The clip is AstraFlow's reading: the largest squares of
    harmful tokens are dropped until the mean of the rest is below BUDGET, and tau^2 is the largest that is left.
    """
    logs = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(now, then, strict=True)]
    harmful = [log * log for row, weight in zip(logs, advantages, strict=True) for log in row if log * weight > 0]
    tau = math.sqrt(_largest_left(harmful))
    low, high = max(math.exp(-tau), WIDEST[0]), math.exp(min(tau, math.log(WIDEST[1])))

    def weight(log: float, advantage: float) -> float:
        ratio = math.exp(min(log, math.log(MOST)))
        clipped = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
        return 0.0 if clipped else ratio

    return [[weight(log, advantage) for log in row] for row, advantage in zip(logs, advantages, strict=True)]


def _largest_left(squares: Sequence[float]) -> float:
    if sum(squares) <= BUDGET * len(squares):
        return math.inf
    ordered = sorted(squares)
    means = (total / count for count, total in enumerate(accumulate(ordered), 1))
    left = sum(mean < BUDGET for mean in means)  # of ascending squares the means ascend
    return ordered[max(0, left - 1)]
