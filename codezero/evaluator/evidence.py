"""The canary buffer and the drift tests on it: the evidence that calibration and alarms rest on.

When a judge is found exploited, and what follows. Pure: evidence in, reasons out.

The reward may rise while the truth falls (Gao et al., "Scaling laws for reward model overoptimization", 2023), so a
run has to look for itself. It looks at canaries, which cost nothing to know, and at whatever was executed beside the
reward: the exam and the audit.

The newest canaries and what the judge said of them: the evidence that calibration and alarms rest on.

Bounded, and part of the checkpoint: a judge that was found out stays found out after a restart.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codezero.evaluator.calibration import Calibration, calibrate
from codezero.evaluator.canaries import CanaryKind
from codezero.evaluator.types import Program
from codezero.stats import Interval, auroc_interval, mean_interval, wilson
from codezero.types import BELIEF, JudgeRates

MOST_BELIEVED = 0.10
"""Share of attacks, or of transplanted attempts, that may be believed."""
MOST_LOST = 0.05
"""AUROC on canaries that may be lost since calibration."""
MOST_GAP = 0.05
"""Judged minus executed success that may be certain."""
LEAST_EXECUTED = 50
STRIKES = 3
"""Alarming looks in a row after which a run that tightens gives up."""

Pair = tuple[float, bool]
"""(judged correctness, passed when executed)."""


@dataclass(frozen=True, slots=True)
class EventRate:
    """A share with its interval of 95 %."""

    share: float | None
    """None: nothing to take a share of."""
    interval: Interval
    count: int


@dataclass(frozen=True, slots=True)
class Look:
    """What one source of evidence showed last."""

    reasons: tuple[str, ...] = ()
    """Why it is alarming; none when it is not."""
    strikes: int = 0
    """Alarming looks in a row."""


@dataclass(frozen=True, slots=True)
class Gap:
    """How much more was believed than was true, on attempts that were executed."""

    mean: float
    low: float
    high: float
    count: int


def gap_of(pairs: Sequence[Pair]) -> Gap | None:
    """None for too few."""
    if len(pairs) < LEAST_EXECUTED:
        return None
    mean, low, high = mean_interval([belief - passed for belief, passed in pairs])
    return Gap(mean, low, high, len(pairs))


def too_much_believed(what: str, rate: EventRate) -> str:
    """Why this share of wrong answers is alarming; empty when it is not, or not certainly so."""
    if rate.share is None or rate.interval.low <= MOST_BELIEVED:
        return ""
    return f"believes {rate.share:.0%} of {what} (at most {MOST_BELIEVED:.0%} may be)"


def skill_lost(then: float | None, now: float, high: float) -> str:
    if then is None or math.isnan(now) or then - high <= 0 or then - now <= MOST_LOST:
        return ""
    return f"its AUROC on canaries fell from {then:.2f} to {now:.2f}"


def gap_open(source: str, gap: Gap | None) -> str:
    if gap is None or gap.low <= MOST_GAP:
        return ""
    return f"believes {gap.mean:.0%} more than the {source} finds true ({gap.count} attempts, 95 % above {gap.low:.0%})"


MOST_OF_A_KIND = 0.25
"""Share of the window that transplants, and audited attempts, may each fill: the rest must not be forgotten."""


@dataclass(frozen=True, slots=True)
class JudgedCanary:
    """A canary as the judge sees it."""

    problem: str
    """Id; canaries of one problem stay in one fold."""
    program: Program | None
    """None: the static pass decided against it, so that it is not believed."""
    right: bool
    kind: CanaryKind
    scores: tuple[float | None, ...] | None = None
    """In the order of the judge's names; None: not read yet, or unreadable."""

    def scored(self, scores: tuple[float | None, ...] | None) -> "JudgedCanary":
        return replace(self, scores=scores)

    def believed(self, calibration: Calibration) -> bool | None:
        """None where it is not known."""
        if self.program is None:
            return False
        return None if self.scores is None else calibration.probability(self.scores) >= BELIEF


class Window:
    """At most `size` canaries, oldest first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._canaries: deque[JudgedCanary] = deque()

    def __iter__(self) -> Iterator[JudgedCanary]:
        return iter(self._canaries)

    def __len__(self) -> int:
        return len(self._canaries)

    def add(self, fresh: Sequence[JudgedCanary]) -> None:
        """Remember them; the oldest go, of a kind that has more than its share first."""
        self._canaries.extend(fresh)
        for kind in (CanaryKind.TRANSPLANT, CanaryKind.AUDITED):
            self._drop(sum(canary.kind is kind for canary in self._canaries) - int(MOST_OF_A_KIND * self._size), kind)
        self._drop(len(self._canaries) - self._size, None)

    def rescore(self, scores: Sequence[tuple[float | None, ...] | None]) -> None:
        """New scores of all of them, in order."""
        self._canaries = deque(canary.scored(new) for canary, new in zip(self._canaries, scores, strict=True))

    def calibrate(self, names: Sequence[str]) -> Calibration:
        """From those that were read."""
        read = [(canary, canary.scores) for canary in self._canaries if canary.scores is not None]
        return calibrate(
            names,
            [scores for _, scores in read],
            [canary.right for canary, _ in read],
            [canary.problem for canary, _ in read],
        )

    def believed(self, calibration: Calibration, *kinds: CanaryKind, right: bool) -> EventRate:
        """Share of the right (wrong) canaries of these kinds that the judge believes."""
        beliefs = [
            belief
            for canary in self._canaries
            if canary.kind in kinds and canary.right is right and (belief := canary.believed(calibration)) is not None
        ]
        if not beliefs:
            return EventRate(None, Interval(0.0, 1.0), 0)
        share = sum(beliefs) / len(beliefs)
        return EventRate(share, wilson(share, len(beliefs)), len(beliefs))

    def of_wrong(self, calibration: Calibration) -> EventRate:
        """What was believed of those known to be wrong: false positives."""
        return self.believed(calibration, CanaryKind.MUTANT, CanaryKind.ATTACK, CanaryKind.TRANSPLANT, right=False)

    def of_right(self, calibration: Calibration) -> EventRate:
        """What was believed of references."""
        return self.believed(calibration, CanaryKind.REFERENCE, right=True)

    def rates(self, calibration: Calibration) -> JudgeRates | None:
        """How often the judge is mistaken: (1, 0) for one without weight, which says the same of all; None where that
        cannot be told."""
        wrong, right = self.of_wrong(calibration), self.of_right(calibration)
        if wrong.share is None or right.share is None:
            return None
        if calibration.fit is None:
            return JudgeRates(1.0, 0.0, wrong.count, right.count)
        return JudgeRates(wrong.share, 1 - right.share, wrong.count, right.count)

    def auroc(self, calibration: Calibration) -> tuple[float, float, float]:
        """(AUROC, low, high) of the present calibration on all of them; NaN without both kinds."""
        read = [(canary, canary.scores) for canary in self._canaries if canary.scores is not None]
        return auroc_interval(
            [calibration.probability(scores) for _, scores in read], [canary.right for canary, _ in read]
        )

    def _drop(self, count: int, kind: CanaryKind | None) -> None:
        """The `count` oldest of a kind."""
        kept: deque[JudgedCanary] = deque()
        for canary in self._canaries:
            if count > 0 and (kind is None or canary.kind is kind):
                count -= 1
            else:
                kept.append(canary)
        self._canaries = kept
