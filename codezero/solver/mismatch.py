"""How far sampler and learner are apart: the log-probabilities that both give the same tokens under the same weights.

Kernels, precision and shapes of batches differ, and weights may not have arrived in an engine. Liu et al. 2025, "When
Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from codezero.solver.batch import Pair, TrainingRow

USUAL = 0.05
"""Nats a token between the two, in the mean, that are no alarm: a bfloat16 engine was measured at 0.04."""
MOST = 3.0
"""Largest ratio of a whole row's probabilities, either way round: TRL's `vllm_importance_sampling_clip_max`."""
LARGEST = 20.0
"""Nats between the two at one token; more, and what is no number, count as this."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Over all tokens of `rows`; None where there is none. Its fields are metrics."""

    rows: int = 0
    masked: int = 0
    """Of these, `is_beyond`, where such rows are left out."""
    kl: float | None = None
    """Nats a token, from sampler to learner."""
    mean: float | None = None
    max: float | None = None
    """Of |log p of the learner - log p of the sampler|."""

    def alarm(self) -> str:
        """What is wrong, to be read after "the sampler"; empty: nothing."""
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
    masked = sum(map(is_beyond, pairs)) if masks else 0
    return Mismatch(len(rows), masked, kl, math.fsum(sizes) / len(gaps), max(sizes))


def is_beyond(pair: Pair) -> bool:
    """Is the whole row more than MOST times likelier to one than to the other? Such a row teaches a wrong lesson."""
    return abs(math.fsum(_gaps(pair))) > math.log(MOST)


def compared(rows: Sequence[TrainingRow], learned: Sequence[Sequence[float]]) -> dict[int, Pair]:
    """The fresh ones of `rows` with the learner's figures, by `id`."""
    both = zip(rows, learned, strict=True)
    return {id(row): (row.logprobs, tuple(line[: len(row.logprobs)])) for row, line in both if row.fresh}


def _gaps(pair: Pair) -> list[float]:
    return [max(-LARGEST, min(LARGEST, learned - sampled)) for sampled, learned in zip(*pair, strict=True)]
