"""How far a stranger's row may push: in its program alone, and nowhere that the own policy would hardly have gone.

Whoever sends right code can dress it in anything: words around it, comments, names, a style, length. What the judge did
not read has no weight (`Verdict.program`). What it did read has none where the own policy finds it next to impossible,
and a row with an unlikely stretch, by the measure of the own attempts, does not push at all: a mean over the row hides
a slogan in easy code (arXiv 2511.09780, "Hail to the Thief").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from transformers import PreTrainedTokenizerBase

from codezero.models.chat import ids_before
from codezero.types import Completion, ScoredGroup, Verdict

Weights = tuple[float, ...]
"""[T] factors of the advantage at each token."""
LEAST_MEAN_LOGPROB = -4.0
"""Nats per token. What the policy finds less likely is not its language, and a push would be a jolt."""
LEAST_LOGPROB = -5.0
"""Nats of a token that is pushed: what would be written less than once in 150 times is taken for a mark."""
WINDOW = 16
"""Tokens of the stretch in which a row is least likely."""
UNLIKELY, LONG = 0.05, 0.95
"""Quantiles of the own attempts."""


@dataclass(frozen=True, slots=True)
class OwnMeasure:
    """What the own attempts of an update are like."""

    least_window: float = LEAST_MEAN_LOGPROB
    """Nats per token: so unlikely is the least likely stretch of one own attempt in twenty."""
    longest: float = math.inf
    """Tokens: one own attempt in twenty is longer."""

    @classmethod
    def of(cls, local: Sequence[ScoredGroup]) -> "OwnMeasure":
        rows = [each.logprobs for scored in local for each in scored.group.completions if each.logprobs]
        if not rows:
            return cls()
        windows, lengths = sorted(map(least_window, rows)), sorted(map(len, rows))
        return cls(max(LEAST_MEAN_LOGPROB, windows[int(UNLIKELY * len(rows))]), lengths[int(LONG * (len(rows) - 1))])


def least_window(logprobs: Sequence[float]) -> float:
    """Least mean of WINDOW neighbours, nats per token; of all where there are fewer."""
    if len(logprobs) <= WINDOW:
        return math.fsum(logprobs) / len(logprobs)
    sums = list(accumulate(logprobs, initial=0.0))
    return min(end - start for start, end in zip(sums, sums[WINDOW:], strict=False)) / WINDOW


def program_weights(
    spans: Sequence[tuple[int, int]] | None, offsets: Sequence[tuple[int, int]], finished: bool
) -> Weights:
    """1 for the tokens that lie in the program, and for EOS behind one where the attempt is `finished`; else 0.

    spans: see `Verdict.program`; None: every token counts. offsets: [T] the characters of each token, [start, end).
    """
    if spans is None:
        inside = [1.0] * len(offsets)
    else:
        length = max((end for _, end in (*offsets, *spans)), default=0)
        program = bytearray(length)
        for start, end in spans:
            program[start:end] = b"\1" * (end - start)
        counts = list(accumulate(program, initial=0))
        inside = [float(start < end and counts[end] - counts[start] == end - start) for start, end in offsets]
    return (*inside, float(any(inside))) if finished else tuple(inside)


def limited_weights(weights: Weights, logprobs: Sequence[float], own: OwnMeasure) -> Weights:
    """`weights` without the tokens that are next to impossible, and less for a row longer than the own ones; empty
    for a row that does not push. logprobs: [T] nats under the own policy."""
    counted = [logprob for logprob, weight in zip(logprobs, weights, strict=True) if weight]
    if (
        not counted
        or math.fsum(counted) / len(counted) < LEAST_MEAN_LOGPROB
        or least_window(counted) < own.least_window
    ):
        return ()
    scale = min(1.0, own.longest / len(counted))
    return tuple(
        scale * weight if logprob >= LEAST_LOGPROB else 0.0 for logprob, weight in zip(logprobs, weights, strict=True)
    )


def weights_to_the_end(tokenizer: PreTrainedTokenizerBase, attempt: Completion, verdict: Verdict) -> Weights:
    """Of an own attempt: 0 for the words after its program, which did not earn its reward; what stands before it may
    have led to it. Empty where all tokens count."""
    end, ids = verdict.program[-1][1] if verdict.program else len(attempt.text), attempt.token_ids
    if not attempt.text[end:].strip():
        return ()
    count, eos = ids_before(tokenizer, ids, end), len(ids) - 1 if attempt.finished else -1
    return tuple(float(at < count or at == eos) for at in range(len(ids)))
