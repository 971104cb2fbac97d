"""The frozen evaluator: rollout groups -> a verdict per completion. Never runs code, never learns.

Static pass in a guarded child (`code/report.py`) -> canonical code -> the judge's scores (`judge.py`), once for each
distinct program and question -> calibrated probability (`reliability.py` limits how far the judge is believed) ->
composite reward (`reward.py`).
"""

import logging
from collections.abc import Mapping, Sequence

from codezero.code.report import StaticReport
from codezero.errors import EvaluatorError
from codezero.evaluator.calibration import NO_OPINION, Calibration
from codezero.evaluator.evidence import JudgedAttempt
from codezero.evaluator.reliability import ReliabilityMonitor
from codezero.evaluator.reward import RULES, Attempt, Rules, StaticEvaluator, unavailable, verdict
from codezero.evaluator.types import Program, program
from codezero.types import JudgeRates, Metrics, Problem, ScoredGroup, Verdict

logger = logging.getLogger(__name__)


class FrozenEvaluator(StaticEvaluator):
    """Verdicts of the monitored judge; `gated`: as far as it can be believed."""

    def __init__(self, monitor: ReliabilityMonitor, rules: Rules = RULES, *, gated: bool = True) -> None:
        super().__init__(monitor.guard, rules)
        self.monitor, self._gated, self.nested = monitor, gated, (monitor,)

    def calibrate(self) -> Calibration:
        """Judge the canaries, unless that is done. Raises EvaluatorError."""
        return self.monitor.calibrated()

    def covered(self, problems: Sequence[Problem]) -> list[Problem]:
        """Those that are like the canaries': of others every verdict is unavailable. Raises EvaluatorError."""
        limits = self.monitor.limits(problems)
        return [problem for problem in problems if problem.id not in limits]

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        """Every verdict is unavailable while the judge cannot be asked, and where a problem is unlike the canaries'."""
        try:
            limits = self.monitor.limits(problem for problem, _ in attempts)
            programs = [
                None if problem.id in limits else program(problem, report)
                for (problem, _), report in zip(attempts, reports, strict=True)
            ]
            opinions = self._opinions(programs)
        except EvaluatorError as error:
            return [self._masked(error)] * len(attempts)
        return [
            unavailable(limits[problem.id])
            if problem.id in limits
            else verdict(report, opinions[code][0], completion.finished, opinions[code][1], weights=self._rules.weights)
            for (problem, completion), report, code in zip(attempts, reports, programs, strict=True)
        ]

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """Once an iteration: test the judge itself. Raises EvaluatorError, SandboxError and AlarmError."""
        rows = [
            (group.group, completion, judged)
            for group in scored
            for completion, judged in zip(group.group.completions, group.verdicts, strict=True)
            if judged.trainable
        ]
        reports = self.reports([(group.problem, completion) for group, completion, _ in rows])  # they are still cached
        attempts = [
            JudgedAttempt(group.problem, report.code, group.peer_id, judged.correctness, program(group.problem, report))
            for (group, _, judged), report in zip(rows, reports, strict=True)
            if report.code is not None
        ]
        self.monitor.review(iteration, attempts)

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        """Executed truth from beside the reward."""
        return self.monitor.witness(scored, passed)

    def examined(self) -> "FrozenEvaluator":
        """The judge alone, whatever it counts for."""
        return FrozenEvaluator(self.monitor, Rules(block=self._rules.block), gated=False)

    def rates(self) -> JudgeRates | None:
        """Return the judge's error rates on the newest canaries."""
        return self.monitor.rates()

    def metrics(self) -> Metrics:
        """`judge/...` and `audit/...`: skill on canaries, alarms, and shares of the verdicts since the last call."""
        return self.monitor.metrics() | super().metrics() | {"judge/outages": self.memory.outages}

    def _masked(self, error: EvaluatorError) -> Verdict:
        """For the whole group, certain failures too: alone they would be compared only with each other."""
        self.memory.outages += 1
        if self.memory.outages == 1 or self.memory.outages % 100 == 0:
            times = "" if self.memory.outages == 1 else f" ({self.memory.outages} times in all)"
            logger.warning("the judge cannot be asked, so nothing is learned%s: %s", times, error)
        return unavailable(f"the judge cannot be asked: {error}")

    def _opinions(self, programs: Sequence[Program | None]) -> Mapping[Program | None, tuple[float | None, str]]:
        """Probability of each distinct program, or why there is none; the pending canaries are read among them,
        unmarked. A judge without weight is not asked. Raises EvaluatorError."""
        calibration = self.monitor.calibrated()
        if calibration.fit is None or (self._gated and not self.monitor.weight):
            return {item: (item and NO_OPINION, "") for item in programs}
        programs_read = {item for item in programs if item is not None}
        if programs_read:
            programs_read |= self.monitor.pending()
        # by all of their text: the order of a set differs between processes, and decides what is read in one batch
        distinct = sorted(programs_read, key=lambda p: (p.question, p.code, p.entry_point, p.stdio, repr(p.examples)))
        judge = self.monitor.judge
        read = judge.read(distinct, calibration.wanted(judge.names)) if distinct else []
        readings = dict(zip(distinct, read, strict=True))
        self.monitor.absorb(readings)
        return {None: (None, "")} | {
            item: (calibration.opinion(reading.scores), reading.why_not or "the judge abstains")
            for item, reading in readings.items()
        }
