"""Evaluators of code: rollout groups -> a verdict per completion. The frozen one never runs code, and none learns.

Static pass in a guarded child (`code/report.py`) -> canonical code -> the judge's scores (`judge.py`), once for each
distinct program and question -> calibrated probability (`reliability.py` limits how far the judge is believed) ->
composite reward (`reward.py`). Opt-in: the tests decide, executed in a sandbox, everywhere (rlvr) or with the judge
behind it (hybrid). Static pass, quarantine, caps and reward are the same; what stays undecided is unavailable, never
wrong."""

import hashlib
import logging
from collections.abc import Mapping, Sequence

from codezero.code.report import StaticReport
from codezero.code.worker import StaticGuard
from codezero.errors import EvaluatorError
from codezero.evaluator.base import quarantined, unavailable
from codezero.evaluator.calibration import NO_OPINION
from codezero.evaluator.evidence import JudgedAttempt
from codezero.evaluator.reliability import ReliabilityMonitor
from codezero.evaluator.reward import RULES, Attempt, Rules, StaticEvaluator, verdict
from codezero.evaluator.types import Program, program
from codezero.sandbox.base import TRUTH, Execution, Job, Outcome, Sandbox
from codezero.types import BELIEF, JudgeRates, Metrics, Problem, ScoredGroup, Standing, Status, Style, Verdict, mean

logger = logging.getLogger(__name__)

CLAIMS = Execution(Outcome.UNKNOWN, "the expected values are a proposer's claims")


class FrozenEvaluator(StaticEvaluator):
    """Verdicts of the monitored judge; `gated`: as far as it can be believed."""

    def __init__(self, monitor: ReliabilityMonitor, rules: Rules = RULES, *, gated: bool = True) -> None:
        super().__init__(monitor.guard, rules)
        self.monitor, self._gated, self.nested = monitor, gated, (monitor,)

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        """Every verdict is unavailable while the judge cannot be asked, and where a problem is unlike the canaries'."""
        try:
            limits = self.monitor.limits(problem for problem, _ in attempts)
            pairs = zip(attempts, reports, strict=True)
            programs = [None if asked.id in limits else program(asked, report) for (asked, _), report in pairs]
            opinions = self._opinions(programs)
        except EvaluatorError as error:  # certain failures too: alone they would be compared only with each other
            self.memory.outages += 1
            if self.memory.outages == 1 or self.memory.outages % 100 == 0:
                times = "" if self.memory.outages == 1 else f" ({self.memory.outages} times in all)"
                logger.warning("the judge cannot be asked, so nothing is learned%s: %s", times, error)
            return [unavailable(f"the judge cannot be asked: {error}")] * len(attempts)
        return [
            unavailable(limits[problem.id])
            if problem.id in limits
            else verdict(report, opinions[code][0], completion.finished, opinions[code][1], weights=self._rules.weights)
            for (problem, completion), report, code in zip(attempts, reports, programs, strict=True)
        ]

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """Once an iteration: test the judge itself. Raises EvaluatorError, SandboxError and AlarmError."""
        pairs = (
            (each.group, *pair) for each in scored for pair in zip(each.group.completions, each.verdicts, strict=True)
        )
        rows = [(group, completion, judged) for group, completion, judged in pairs if judged.trainable]
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


class ExecutedEvaluator(StaticEvaluator):
    """Verdicts by execution; `weights.executed` of the attempts, chosen by `seed`."""

    def __init__(self, guard: StaticGuard, sandbox: Sandbox, rules: Rules = RULES, *, seed: int = 0) -> None:
        super().__init__(guard, rules)
        self._sandbox, self._seed, share = sandbox, seed, rules.weights.executed
        which = "every attempt is" if share == 1 else f"{share:.0%} of the attempts are"
        logger.warning("reward.mode: %s EXECUTED in a sandbox, and the outcome is the reward", which)
        self._known: dict[Job, Execution] = {}  # until they are judged

    def prepare(self, attempts: Sequence[Attempt]) -> None:
        jobs = map(self._job, (problem for problem, _ in attempts), self.reports(attempts))
        self._known |= self._sandbox.run_distinct(job for job in jobs if job is not None and job not in self._known)

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        jobs = [self._job(problem, report) for (problem, _), report in zip(attempts, reports, strict=True)]
        executed = self._known | self._sandbox.run_distinct(
            job for job in jobs if job is not None and job not in self._known
        )
        self._known = {}
        return [
            self._verdict(report, CLAIMS if job is None else executed[job], completion.finished)
            for (_, completion), report, job in zip(attempts, reports, jobs, strict=True)
        ]

    def metrics(self) -> Metrics:
        return super().metrics() | {"judge/identity": "rlvr"}

    def _job(self, problem: Problem, report: StaticReport) -> Job | None:
        """The code to execute; None where the static pass decides, the tests show nothing, or it is never drawn."""
        if report.code is None or program(problem, report) is None or problem.standing is Standing.CLAIMED:
            return None
        named = f"{self._seed} {problem.id} {report.code}".encode(errors="replace")
        if int.from_bytes(hashlib.sha256(named).digest()[:6]) >= self._rules.weights.executed * (1 << 48):
            return None
        return Job(report.code, problem.tests, problem.style is Style.STDIO)

    def _verdict(self, report: StaticReport, execution: Execution, finished: bool) -> Verdict:
        if execution.cheats:
            return quarantined(execution.reason)
        passed = TRUTH[execution.outcome]
        source = f"executed: {execution.reason or 'passes every test'};"
        correctness = None if passed is None else float(passed)
        return verdict(report, correctness, finished, execution.reason, source=source, weights=self._rules.weights)


class HybridEvaluator(FrozenEvaluator):
    """Verdicts by execution where a sandbox decides, and by the judge elsewhere. Some of the executed attempts join the
    judge's canaries as what they turned out to be: what the judge says of the others is calibrated on the policy's own
    programs (hybrid rewards: SWE-RM, arXiv 2512.21919). Each verdict's reasons say which of the two it is of."""

    def __init__(self, monitor: ReliabilityMonitor, sandbox: Sandbox, rules: Rules = RULES, *, seed: int = 0) -> None:
        super().__init__(monitor, rules)
        self._executed = ExecutedEvaluator(monitor.guard, sandbox, rules, seed=seed)
        self._decided: list[bool] = []

    def prepare(self, attempts: Sequence[Attempt]) -> None:
        self._executed.prepare(attempts)

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        executed = self._executed.judge(attempts, reports)
        programs = [program(problem, report) for (problem, _), report in zip(attempts, reports, strict=True)]
        self.monitor.join(
            (problem, read, first.correctness >= BELIEF)
            for (problem, _), read, first in zip(attempts, programs, executed, strict=True)
            if read is not None and first.status is Status.JUDGED
        )
        self._decided += [first.status is not Status.UNAVAILABLE for first in executed]
        pairs = zip(executed, super().judge(attempts, reports), strict=True)  # which reads the joined canaries too
        return [second if first.status is Status.UNAVAILABLE else first for first, second in pairs]

    def metrics(self) -> Metrics:
        """Also `judge/executed_share`: of the verdicts since the last call, those that need no judge."""
        decided, self._decided = self._decided, []
        return super().metrics() | {"judge/executed_share": mean(decided)}
