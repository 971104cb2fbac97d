"""The frozen evaluator: rollout groups -> a verdict per completion. Never runs code, never learns.

Static pass in a guarded child -> canonical code -> the judge's scores, one row per distinct program and question ->
calibrated probability -> composite reward with reasons (`reward.py`).
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codezero.code.extract import fence
from codezero.code.static import StaticReport, StaticRequest
from codezero.code.tests import Example
from codezero.evaluator.calibration import Calibration, Canary, calibrate
from codezero.evaluator.reward import verdict
from codezero.types import Metrics, Problem, RolloutGroup, ScoredGroup, Status, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Program:
    """What a judge reads: nothing of a completion but its canonical code."""

    question: str
    code: str
    examples: tuple[Example, ...] = ()
    """Tests that can be believed, as data."""
    stdio: bool = False
    """The program reads stdin and writes stdout; else a function is called."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A judge's scores of one program, in the order of its `names`; higher speaks for correct."""

    scores: tuple[float | None, ...] | None
    """None: the judge could not read this program. A single None: it abstained in that score."""
    why_not: str = ""


class Judge(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """A reading per program; scores that are not `wanted` may be None. Raises EvaluatorError."""
        ...


class Guard(Protocol):
    def check_many(self, items: Sequence[StaticRequest]) -> list[StaticReport]: ...


class FrozenEvaluator:
    """Scores groups with one judge, as far as its canaries let it be believed."""

    def __init__(self, judge: Judge, guard: Guard, canaries: Sequence[Canary]) -> None:
        self._judge = judge
        self._guard = guard
        self._canaries = tuple(canaries)
        self._calibration: Calibration | None = None
        self._statuses: Counter[Status] = Counter()

    def calibrate(self) -> Calibration:
        """Judge the canaries, once; the result holds for the life of this evaluator. Raises EvaluatorError."""
        if self._calibration is None:
            self._calibration = self._calibrate()
            for reason in self._calibration.reasons:
                logger.info("judge: %s", reason)
            if self._calibration.fit is None:
                logger.warning(
                    "the judge has no proven skill and gets weight 0; rewards rest on the static pass alone (%s)",
                    "; ".join(self._calibration.reasons),
                )
        return self._calibration

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError when the judge as a whole cannot be asked."""
        calibration = self.calibrate()
        rows = [(group.problem, completion) for group in groups for completion in group.completions]
        reports = self._guard.check_many([_request(problem, completion.text) for problem, completion in rows])
        programs = [_program(problem, report) for (problem, _), report in zip(rows, reports, strict=True)]
        readings = self._read(programs, calibration)
        verdicts = iter(
            [
                _verdict(report, program, readings, calibration, completion.finished)
                for (_, completion), report, program in zip(rows, reports, programs, strict=True)
            ]
        )
        scored = [ScoredGroup(group, tuple(next(verdicts) for _ in group.completions)) for group in groups]
        self._statuses.update(v.status for group in scored for v in group.verdicts)
        return scored

    def metrics(self) -> Metrics:
        """`judge/...`: skill on canaries, and shares of the verdicts since the last call."""
        calibration = self._calibration
        total = sum(self._statuses.values())

        def share(status: Status) -> float | None:
            return self._statuses[status] / total if total else None

        measured: Metrics = {
            "judge/canary_auroc": calibration and calibration.auroc,
            "judge/canary_auroc_low": calibration and calibration.auroc_low,
            "judge/canary_brier": calibration and calibration.brier,
            "judge/canary_ece": calibration and calibration.ece,
            "judge/weight": calibration and float(calibration.fit is not None),
            "judge/threshold": calibration and calibration.threshold,
            "judge/certain_failure_share": share(Status.CERTAIN_FAILURE),
            "judge/quarantined_share": share(Status.QUARANTINED),
            "judge/unavailable_share": share(Status.UNAVAILABLE),
        }
        self._statuses.clear()
        return measured

    def _read(self, programs: Sequence[Program | None], calibration: Calibration) -> dict[Program, Reading]:
        """Each distinct program once: within a group many are the same. A judge without weight is not asked."""
        if calibration.fit is None:
            return {}
        wanted = frozenset(
            name for name, weight in zip(self._judge.names, calibration.fit.weights, strict=True) if weight > 0
        )
        distinct = list(dict.fromkeys(program for program in programs if program is not None))
        return dict(zip(distinct, self._judge.read(distinct, wanted), strict=True)) if distinct else {}

    def _calibrate(self) -> Calibration:
        """Canaries go the way of completions; those that the static pass decides teach nothing about the judge."""
        requests = [_request(canary.problem, fence(canary.code)) for canary in self._canaries]
        reports = self._guard.check_many(requests)
        judged = [
            (canary, program)
            for canary, report in zip(self._canaries, reports, strict=True)
            if (program := _program(canary.problem, report)) is not None
        ]
        readings = self._judge.read([program for _, program in judged], frozenset(self._judge.names))
        known = [
            (canary, reading.scores)
            for (canary, _), reading in zip(judged, readings, strict=True)
            if reading.scores is not None
        ]
        return calibrate(
            self._judge.names,
            [scores for _, scores in known],
            [canary.right for canary, _ in known],
            [canary.problem.id for canary, _ in known],
        )


def _request(problem: Problem, text: str) -> StaticRequest:
    return StaticRequest(text, problem.tests, problem.entry_point, problem.question)


def _program(problem: Problem, report: StaticReport) -> Program | None:
    """What there is to judge; None where the static pass has decided or could not tell."""
    if report.unavailable or report.quarantine or report.certain_failure or report.canonical is None:
        return None
    return Program(problem.question, report.canonical)


def _verdict(
    report: StaticReport,
    program: Program | None,
    readings: dict[Program, Reading],
    calibration: Calibration,
    finished: bool,
) -> Verdict:
    if program is None:
        return verdict(report, None, finished)
    if calibration.fit is None:
        return verdict(report, calibration.probability(()), finished)
    reading = readings[program]
    correctness = None if reading.scores is None else calibration.probability(reading.scores)
    return verdict(report, correctness, finished, reading.why_not)
