"""The newest canaries and what the judge said of them: the evidence that calibration and alarms rest on.

Bounded, and part of the checkpoint: a judge that was found out stays found out after a restart.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codezero.evaluator.alarm import Rate
from codezero.evaluator.calibration import Calibration, calibrate
from codezero.evaluator.canaries import Kind
from codezero.evaluator.reading import Program
from codezero.skill import Interval, auroc_interval, wilson
from codezero.types import BELIEF, JudgeRates

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
    kind: Kind
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
        for kind in (Kind.TRANSPLANT, Kind.AUDITED):
            self._drop(sum(one.kind is kind for one in self._canaries) - int(MOST_OF_A_KIND * self._size), kind)
        self._drop(len(self._canaries) - self._size, None)

    def rescore(self, scores: Sequence[tuple[float | None, ...] | None]) -> None:
        """New scores of all of them, in order."""
        self._canaries = deque(one.scored(new) for one, new in zip(self._canaries, scores, strict=True))

    def calibrate(self, names: Sequence[str]) -> Calibration:
        """From those that were read."""
        read = [(one, one.scores) for one in self._canaries if one.scores is not None]
        return calibrate(
            names, [scores for _, scores in read], [one.right for one, _ in read], [one.problem for one, _ in read]
        )

    def believed(self, calibration: Calibration, *kinds: Kind, right: bool) -> Rate:
        """Share of the right (wrong) canaries of these kinds that the judge believes."""
        said = [
            belief
            for one in self._canaries
            if one.kind in kinds and one.right is right and (belief := one.believed(calibration)) is not None
        ]
        if not said:
            return Rate(None, Interval(0.0, 1.0), 0)
        share = sum(said) / len(said)
        return Rate(share, wilson(share, len(said)), len(said))

    def of_wrong(self, calibration: Calibration) -> Rate:
        """What was believed of those known to be wrong: false positives."""
        return self.believed(calibration, Kind.MUTANT, Kind.ATTACK, Kind.TRANSPLANT, right=False)

    def of_right(self, calibration: Calibration) -> Rate:
        """What was believed of references."""
        return self.believed(calibration, Kind.REFERENCE, right=True)

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
        read = [(one, one.scores) for one in self._canaries if one.scores is not None]
        return auroc_interval([calibration.probability(scores) for _, scores in read], [one.right for one, _ in read])

    def _drop(self, count: int, kind: Kind | None) -> None:
        """The `count` oldest of a kind."""
        kept: deque[JudgedCanary] = deque()
        for one in self._canaries:
            if count > 0 and (kind is None or one.kind is kind):
                count -= 1
            else:
                kept.append(one)
        self._canaries = kept
