"""Replay of own rows, and the importance weights of tokens that an earlier policy sampled.

Legend for shapes: B rows, T tokens of a row. With r = p(token, now) / p(token, when it was sampled), a row is pushed as
if the present policy had written it (its ratio is 1 at first), each token's advantage times its weight.
"""

import math
import random
from collections.abc import Sequence
from itertools import chain

from codezero.solver.batch import TrainingRow, by_prompt
from codezero.system.state import StateFile

TRUNCATION = 2.0
"""Largest weight of truncated importance sampling."""
BUDGET = 0.04
"""Largest mean square of log r that M2PO lets harmful tokens have."""
LEAST_LOW, LEAST_HIGH = 0.3, 0.5
"""M2PO never clips nearer to 1 than 1 - 0.3 and 1 + 0.5."""
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
    now: Sequence[Tokens], then: Sequence[Tokens], advantages: Sequence[float], budget: float = BUDGET
) -> list[list[float]]:
    """M2PO: w = r, and 0 for harmful tokens beyond the clip, (B, T). Zheng et al. 2025, "Prosperity before Collapse".

    Harmful are tokens that are pushed on in the direction they have moved in: A > 0 and r > 1, or A < 0 and r < 1. The
    clip is [exp(-tau), exp(tau)], tau the largest with mean over harmful tokens of min(log(r)^2, tau^2) <= budget, but
    not tighter than [1 - 0.3, 1 + 0.5]. A clipped token has no gradient, which is what weight 0 says.
    """
    logs = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(now, then, strict=True)]
    harmful = [log * log for row, weight in zip(logs, advantages, strict=True) for log in row if log * weight > 0]
    tau = math.sqrt(_largest_square(harmful, budget))
    low, high = min(math.exp(-tau), 1 - LEAST_LOW), max(math.exp(min(tau, math.log(MOST))), 1 + LEAST_HIGH)

    def weight(log: float, advantage: float) -> float:
        ratio = math.exp(min(log, math.log(MOST)))
        clipped = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
        return 0.0 if clipped else ratio

    return [[weight(log, advantage) for log in row] for row, advantage in zip(logs, advantages, strict=True)]


def _largest_square(squares: Sequence[float], budget: float) -> float:
    """The largest t with mean(min(square, t)) <= budget; infinite when nothing has to be clipped."""
    if sum(squares) <= budget * len(squares):
        return math.inf
    left, total = len(squares), 0.0
    for square in sorted(squares):
        limit = (budget * len(squares) - total) / left  # with all that are left clipped at it
        if limit <= square:
            return limit
        total, left = total + square, left - 1
    return math.inf


MAX_ITERATIONS = 8
"""Kept; older rows are of a policy too far away."""


class Replay(StateFile[list[list[TrainingRow]]], file="replay.json", schema=list[list[TrainingRow]]):
    """Rows as they were sampled: the log-probabilities are those of the policy that wrote them."""

    def __init__(self) -> None:
        self.memory = []

    def add(self, rows: Sequence[TrainingRow]) -> None:
        """The rows of one iteration that push; the oldest iteration is forgotten."""
        pushing = [row for row in rows if row.advantage and row.completion_ids]
        self.memory = [*self.memory, pushing][-MAX_ITERATIONS:]

    def draw(self, count: int, chance: random.Random) -> list[TrainingRow]:
        """At most `count` of the kept rows, whole groups as far as they fit: each keeps its pushes up and down."""
        groups = by_prompt(list(chain(*self.memory)))
        drawn: list[TrainingRow] = []
        for group in chance.sample(groups, len(groups)):
            if len(drawn) + len(group) <= count:
                drawn += group
        return drawn
