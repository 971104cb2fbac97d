"""The frozen evaluator: rollout groups -> a verdict per completion. Never runs code, never learns.

Static pass in a guarded child -> canonical code -> the judge's scores, one row per distinct program and question ->
calibrated probability (`watch.py` says how far the judge is believed) -> composite reward with reasons (`reward.py`).
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from codezero.code.parsing import extract_code
from codezero.code.report import StaticReport
from codezero.config import RewardConfig
from codezero.errors import EvaluatorError
from codezero.evaluator.audit import AuditedAttempt
from codezero.evaluator.calibration import Calibration
from codezero.evaluator.evidence import Pair
from codezero.evaluator.memory import Counts
from codezero.evaluator.reliability import Reviewed, Watch
from codezero.evaluator.reward import DEFAULT, unavailable, verdict
from codezero.evaluator.types import Guard, Judge, Program, Reading, program, request
from codezero.system.state import StateFile
from codezero.types import JudgeRates, Metrics, RolloutGroup, ScoredGroup, Status, Verdict

__all__ = ["FrozenEvaluator", "Judge", "Program", "Reading"]

logger = logging.getLogger(__name__)


class FrozenEvaluator(StateFile[Counts], file="counts.json", schema=Counts):
    """Implements `protocols.Evaluator` with one judge, as far as its watch lets it be believed."""

    def __init__(self, judge: Judge, guard: Guard, watch: Watch, *, weights: RewardConfig = DEFAULT) -> None:
        self._judge = judge
        self._guard = guard
        self._watch, self.nested = watch, (watch,)
        self._weights = weights
        self._statuses: Counter[Status] = Counter()
        self._outages = 0

    def calibrate(self) -> Calibration:
        """Judge the canaries, unless that is done. Raises EvaluatorError."""
        return self._watch.calibrated()

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order; all of them unavailable while the judge cannot be asked.

        Raises EvaluatorError when the static pass cannot be started.
        """
        rows = [(group.problem, completion) for group in groups for completion in group.completions]
        reports = self._guard.check_many([request(problem, completion.text) for problem, completion in rows])
        programs = [program(problem, report) for (problem, _), report in zip(rows, reports, strict=True)]
        try:
            calibration = self._watch.calibrated()
            readings = self._read(programs, calibration)
        except EvaluatorError as error:
            verdicts = [self._masked(error)] * len(rows)
        else:
            verdicts = [
                self._verdict(report, code, readings, calibration, completion.finished)
                for (_, completion), report, code in zip(rows, reports, programs, strict=True)
            ]
        self._statuses.update(verdict.status for verdict in verdicts)
        rest = iter(verdicts)
        return [ScoredGroup(group, tuple(next(rest) for _ in group.completions)) for group in groups]

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """Once an iteration: look at the judge itself. Raises EvaluatorError, SandboxError and AlarmError."""
        self._watch.review(iteration, self._reviewed(scored))

    def witness(self, executed: Sequence[Pair]) -> None:
        """Executed truth from beside the reward, as (judged correctness, passed); it only raises alarms."""
        self._watch.witness(executed)

    def rates(self) -> JudgeRates | None:
        """How often the judge was mistaken about the newest canaries."""
        return self._watch.rates()

    def metrics(self) -> Metrics:
        """`judge/...` and `audit/...`: skill on canaries, alarms, and shares of the verdicts since the last call."""
        total = sum(self._statuses.values())

        def share(status: Status) -> float | None:
            return self._statuses[status] / total if total else None

        measured: Metrics = self._watch.metrics() | {
            "judge/certain_failure_share": share(Status.CERTAIN_FAILURE),
            "judge/quarantined_share": share(Status.QUARANTINED),
            "judge/unavailable_share": share(Status.UNAVAILABLE),
            "judge/outages": self._outages,
        }
        self._statuses.clear()
        return measured

    def state(self) -> Counts:
        return Counts(dict(self._statuses), self._outages)

    def restore(self, state: Counts) -> None:
        self._statuses, self._outages = Counter(state.statuses), state.outages

    def _masked(self, error: EvaluatorError) -> Verdict:
        """The whole group waits, certain failures too: alone they would be compared with each other only."""
        self._outages += 1
        if self._outages == 1 or self._outages % 100 == 0:
            times = "" if self._outages == 1 else f" ({self._outages} times in all)"
            logger.warning("the judge cannot be asked, so nothing is learned%s: %s", times, error)
        return unavailable(f"the judge cannot be asked: {error}")

    def _read(self, programs: Sequence[Program | None], calibration: Calibration) -> Mapping[Program, Reading]:
        """Each distinct program once, the watch's canaries unmarked among them. A judge without weight is not asked."""
        if calibration.fit is None:
            return {}
        wanted = calibration.wanted(self._judge.names)
        asked = {item for item in programs if item is not None}
        if asked:
            asked |= self._watch.pending()
        # by their text: their place says nothing of where they come from
        distinct = sorted(asked, key=_text)
        readings = dict(zip(distinct, self._judge.read(distinct, wanted), strict=True)) if distinct else {}
        self._watch.absorb(readings)
        return readings

    def _verdict(
        self,
        report: StaticReport,
        code: Program | None,
        readings: Mapping[Program, Reading],
        calibration: Calibration,
        finished: bool,
    ) -> Verdict:
        correctness, why_not = None, ""
        if code is not None and calibration.fit is None:
            correctness = calibration.probability(())
        elif code is not None:
            reading = readings[code]
            why_not = reading.why_not or "the judge abstains"
            if reading.scores is not None and calibration.told_by(reading.scores):
                correctness = calibration.probability(reading.scores)
        return verdict(report, correctness, finished, why_not, weights=self._weights)

    def _reviewed(self, scored: Sequence[ScoredGroup]) -> list[Reviewed]:
        """The scored completions that have code, with the static pass's report of it, which is still cached."""
        rows = [
            (group, completion, judged)
            for group in scored
            for completion, judged in zip(group.group.completions, group.verdicts, strict=True)
            if judged.trainable
        ]
        reports = self._guard.check_many(
            [request(group.group.problem, completion.text) for group, completion, _ in rows]
        )
        return [
            Reviewed(
                AuditedAttempt(group.group.problem, code, group.group.peer_id, judged.correctness),
                program(group.group.problem, report),
            )
            for (group, completion, judged), report in zip(rows, reports, strict=True)
            if (code := extract_code(completion.text).code) is not None
        ]


def _text(code: Program) -> tuple[object, ...]:
    """All of it: a set has another order in each process, and the order decides what is read beside what."""
    return code.question, code.code, code.entry_point, code.stdio, repr(code.examples)
