"""Executing the tests in a sandbox decides correctness: everywhere (rlvr), or with a judge behind it (hybrid). Opt-in.

Static pass, quarantine, caps and composite reward are a judge's. What stays undecided is unavailable, never wrong.
"""

import hashlib
import logging
from collections.abc import Sequence

from codezero.code.report import StaticReport
from codezero.code.worker import StaticGuard
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.reliability import ReliabilityMonitor
from codezero.evaluator.reward import RULES, Attempt, Rules, StaticEvaluator, quarantined, verdict
from codezero.evaluator.types import program
from codezero.sandbox.base import TRUTH, Execution, Job, Outcome, Sandbox
from codezero.types import BELIEF, Metrics, Problem, Standing, Status, Style, Verdict, mean

logger = logging.getLogger(__name__)

CLAIMS = Execution(Outcome.UNKNOWN, "the expected values are a proposer's claims")


class ExecutedEvaluator(StaticEvaluator):
    """Verdicts by execution; `weights.executed` of the attempts, chosen by `seed`."""

    def __init__(self, guard: StaticGuard, sandbox: Sandbox, rules: Rules = RULES, *, seed: int = 0) -> None:
        super().__init__(guard, rules)
        self._sandbox, self._seed, share = sandbox, seed, rules.weights.executed
        which = "every attempt is" if share == 1 else f"{share:.0%} of the attempts are"
        logger.warning("reward.mode: %s EXECUTED in a sandbox, and the outcome is the reward", which)

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        jobs = [self._job(problem, report) for (problem, _), report in zip(attempts, reports, strict=True)]
        executed = self._sandbox.run_distinct(job for job in jobs if job is not None)
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
    """Verdicts by execution where a sandbox decides, and by the judge elsewhere. Some of the
    executed attempts join the judge's canaries as what they turned out to be: what the judge says of the others is
    calibrated on the policy's own programs (hybrid rewards: SWE-RM, arXiv 2512.21919). Each verdict's reasons say which
    of the two it is of."""

    def __init__(self, monitor: ReliabilityMonitor, sandbox: Sandbox, rules: Rules = RULES, *, seed: int = 0) -> None:
        super().__init__(monitor, rules)
        self._executed = ExecutedEvaluator(monitor.guard, sandbox, rules, seed=seed)
        self._decided: list[bool] = []

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        executed = self._executed.judge(attempts, reports)
        programs = [program(problem, report) for (problem, _), report in zip(attempts, reports, strict=True)]
        self.monitor.join(
            (problem, read, first.correctness >= BELIEF)
            for (problem, _), read, first in zip(attempts, programs, executed, strict=True)
            if read is not None and first.status is Status.JUDGED
        )
        verdicts = [
            second if first.status is Status.UNAVAILABLE else first
            for first, second in zip(executed, super().judge(attempts, reports), strict=True)
        ]
        self._decided += [first.status is not Status.UNAVAILABLE for first in executed]
        return verdicts

    def metrics(self) -> Metrics:
        """Also `judge/executed_share`: of the verdicts since the last call, those that need no judge."""
        decided, self._decided = self._decided, []
        return super().metrics() | {"judge/executed_share": mean(decided)}
