"""Rows into an update, whichever version of the policy wrote them; and how far the sampler is from the learner.

Both give the same tokens log-probabilities under the same weights, which differ: kernels, precision and shapes of
batches do, and weights may not have arrived in an engine. Liu et al. 2025, "When Speed Kills Stability: Demystifying RL
Collapse from the Training-Inference Mismatch".

Importance weights: B rows, T tokens of a row. With r = p(token, now) / p(token, when it was sampled), an earlier
policy's row is pushed as if the present one had written it (its ratio is 1 at first), each token's advantage times its
weight."""

import dataclasses
import logging
import math
import operator
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from codezero.config import SolverConfig
from codezero.solver.batch import Pair, Rows, TrainingRow
from codezero.types import Metrics

if TYPE_CHECKING:
    from codezero.solver.learner import TrlLearner
    from codezero.solver.remote import RemoteLearner

logger = logging.getLogger(__name__)

USUAL = 0.05  # nats a token between the two, in the mean, that are no alarm: a bfloat16 engine was measured at 0.04
MOST = 3.0  # largest ratio of a whole row's probabilities, either way round: TRL's `vllm_importance_sampling_clip_max`
LARGEST = 20.0  # nats between the two at one token; more, and what is no number, count as this
TRUNCATION = 2.0  # largest weight of truncated importance sampling
BUDGET = 0.01  # of M2PO: largest mean of log(r)^2 over tokens that were pushed further the way they had moved
WIDEST = (0.05, 21.0)  # M2PO never clips further from 1
LARGEST_WEIGHT = 20.0  # of all
Lines = Sequence[Sequence[float]]
Learner: TypeAlias = "TrlLearner | RemoteLearner"  # in this process, or in processes of its own


class Mismatch(NamedTuple):
    """Over all tokens of `rows`; None where there is none. Its fields are metrics."""

    rows: int = 0
    masked: int = 0  # of these, `exceeds_mismatch_bound`, where such rows are left out
    kl: float | None = None  # nats a token, from sampler to learner
    mean: float | None = None
    max: float | None = None  # of |log p of the learner - log p of the sampler|

    def alarm(self) -> str:
        """The reason of an alarm, to be read after "the sampler"; empty: none."""
        if self.rows and self.masked == self.rows:
            return "and the learner disagree about every attempt, so nothing is learned of any"
        if self.mean is None or self.mean <= USUAL:
            return ""
        return f"gives tokens other probabilities than the learner, more than {USUAL:g} nats apart in the mean"


def measure(pairs: Sequence[Pair], masks: bool = False) -> Mismatch:
    """KL by mean(exp(d) - 1 - d), unbiased and never negative: Schulman 2020, "Approximating KL Divergence", k3."""
    rows = [gaps for pair in pairs if (gaps := _gaps(pair))]
    gaps = list(chain(*rows))
    if not gaps:
        return Mismatch()
    sizes = [abs(gap) for gap in gaps]
    kl = math.fsum(math.expm1(gap) - gap for gap in gaps) / len(gaps)
    masked = sum(map(exceeds_mismatch_bound, pairs)) if masks else 0
    return Mismatch(len(rows), masked, kl, math.fsum(sizes) / len(gaps), max(sizes))


def exceeds_mismatch_bound(pair: Pair) -> bool:
    """True where the whole row is more than MOST times likelier to one than to the other."""
    return abs(math.fsum(_gaps(pair))) > math.log(MOST)


def _gaps(pair: Pair) -> list[float]:
    return [max(-LARGEST, min(LARGEST, learned - sampled)) for sampled, learned in zip(*pair, strict=True)]


class Updater:
    """`engine`: another engine samples than the one that learns, so rows that they disagree about are masked."""

    def __init__(self, config: SolverConfig, learner: Learner, *, engine: bool) -> None:
        self.config, self.learner, self.engine, self._alarm = config, learner, engine, ""

    def split_by_mismatch(self, rows: list[TrainingRow]) -> tuple[list[TrainingRow], list[TrainingRow], list[Pair]]:
        """Fresh rows that engine and learner agree about, stale rows as if they were fresh, and the pairs of all fresh
        rows. No pairs without an engine: there the update compares what it computes anyway, and nothing is stale."""
        if not self.engine or not rows:
            return rows, [], []
        current = self.learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])
        pairs = [(row, (row.logprobs, now)) for row, now in zip(rows, current, strict=True)]
        fresh = [(row, pair) for row, pair in pairs if row.fresh]
        stale = [(row, now) for row, (_, now) in pairs if not row.fresh]
        agreed = [row for row, pair in fresh if not exceeds_mismatch_bound(pair)]
        weighted = importance_weighted([row for row, _ in stale], [now for _, now in stale], self.config.stale)
        return agreed, weighted, [pair for _, pair in fresh]

    def mismatch(self, pairs: Sequence[Pair]) -> Metrics:
        """Figures; None where the update had no row of the present policy. Logs when an alarm begins."""
        mismatch, before = measure(pairs, masks=self.engine), self._alarm
        self._alarm = mismatch.alarm() if mismatch.rows else before
        if self._alarm and self._alarm != before:
            logger.warning("ALARM: the sampler %s (%.2g)", self._alarm, mismatch.mean)
        elif before and not self._alarm:
            logger.warning("sampler and learner agree again")
        figures = mismatch._asdict() | {"alarm": self._alarm or None}
        return {f"mismatch_{name}": value for name, value in figures.items()}


def importance_weighted(rows: Rows, current_logprobs: Sequence[tuple[float, ...]], rule: str) -> list[TrainingRow]:
    """An earlier policy's rows as if the present one had written them: ratio 1, an importance weight per token."""
    sampled = [row.logprobs for row in rows]
    if rule == "m2po":
        weights = second_moment_weights(current_logprobs, sampled, [row.advantage for row in rows])
    else:
        weights = truncated_weights(current_logprobs, sampled)
    weighted: list[TrainingRow] = []
    for row, logprobs, ratios in zip(rows, current_logprobs, weights, strict=True):
        factors = tuple(map(operator.mul, row.weights, ratios)) if row.weights else tuple(ratios)
        weighted.append(dataclasses.replace(row, logprobs=logprobs, weights=factors, fresh=False))
    return weighted


def truncated_weights(current: Lines, sampled: Lines) -> list[list[float]]:
    """w = min(r, TRUNCATION), of log-probs in nats. Espeholt et al. 2018, IMPALA, section 4.1."""
    return [
        [min(math.exp(min(a - b, math.log(LARGEST_WEIGHT))), TRUNCATION) for a, b in zip(*rows, strict=True)]
        for rows in zip(current, sampled, strict=True)
    ]


def second_moment_weights(current: Lines, sampled: Lines, advantages: Sequence[float]) -> list[list[float]]:
    """M2PO: w = r, and 0 for harmful tokens beyond the clip, (B, T). Zheng et al. 2025, "Prosperity before Collapse".

    Harmful are tokens that are pushed on in the direction they have moved in: A > 0 and r > 1, or A < 0 and r < 1. A
    clipped token has no gradient, which is what weight 0 says. The clip is AstraFlow's reading: the largest squares of
    harmful tokens are dropped until the mean of the rest is below BUDGET, and tau^2 is the largest that is left."""
    logs = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(current, sampled, strict=True)]
    harmful = [log * log for row, weight in zip(logs, advantages, strict=True) for log in row if log * weight > 0]
    tau = math.inf
    if sum(harmful) > BUDGET * len(harmful):
        ordered = sorted(harmful)
        means = (total / count for count, total in enumerate(accumulate(ordered), 1))
        kept = sum(mean < BUDGET for mean in means)  # of ascending squares the means ascend
        tau = math.sqrt(ordered[max(0, kept - 1)])
    low, high = max(math.exp(-tau), WIDEST[0]), math.exp(min(tau, math.log(WIDEST[1])))

    def weight(log: float, advantage: float) -> float:
        ratio = math.exp(min(log, math.log(LARGEST_WEIGHT)))
        clipped = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
        return 0.0 if clipped else ratio

    return [[weight(log, advantage) for log in row] for row, advantage in zip(logs, advantages, strict=True)]
