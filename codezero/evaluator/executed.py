"""`reward.mode=rlvr`: executing the tests in a sandbox decides correctness. Opt-in; no judge is asked.

Static pass, quarantine, caps and composite reward are a judge's. What stays undecided is unavailable, never wrong.
"""

import logging
from collections.abc import Sequence

from codezero.code.parsing import extract_code
from codezero.code.report import StaticReport
from codezero.code.worker import StaticGuard
from codezero.config import RewardConfig
from codezero.evaluator.reward import DEFAULT, Attempt, StaticEvaluator, verdict
from codezero.evaluator.types import program
from codezero.sandbox.base import TRUTH, Execution, Job, Outcome, Sandbox
from codezero.types import Completion, Metrics, Problem, ScoredGroup, Standing, Style, Verdict

logger = logging.getLogger(__name__)

CLAIMS = Execution(Outcome.UNKNOWN, "the expected values are a proposer's claims")


class ExecutedEvaluator(StaticEvaluator):
    """Implements `protocols.Evaluator` by execution."""

    def __init__(self, guard: StaticGuard, sandbox: Sandbox, *, weights: RewardConfig = DEFAULT) -> None:
        super().__init__(guard, weights)
        self._sandbox = sandbox
        logger.warning("reward.mode=rlvr: every attempt is EXECUTED in a sandbox, and the outcome is the reward")

    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        jobs = [_job(*attempt, report) for attempt, report in zip(attempts, reports, strict=True)]
        executed = self._sandbox.run_distinct(job for job in jobs if job is not None)
        return [
            self._verdict(report, CLAIMS if job is None else executed[job], completion.finished)
            for (_, completion), report, job in zip(attempts, reports, jobs, strict=True)
        ]

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """There is no judge to test."""

    def witness(self, executed: Sequence[tuple[float, bool]]) -> None:
        """Does nothing: the reward is the truth."""

    def rates(self) -> None:
        """Without a judge there are no errors."""

    def metrics(self) -> Metrics:
        return super().metrics() | {"judge/identity": "rlvr"}

    def _verdict(self, report: StaticReport, execution: Execution, finished: bool) -> Verdict:
        passed = TRUTH[execution.outcome]
        source = f"executed: {execution.reason or 'passes every test'};"
        correctness = None if passed is None else float(passed)
        return verdict(report, correctness, finished, execution.reason, source=source, weights=self._weights)


def _job(problem: Problem, completion: Completion, report: StaticReport) -> Job | None:
    """The code to execute; None where the static pass has decided, or where the tests show nothing."""
    if program(problem, report) is None or problem.standing is Standing.CLAIMED:
        return None
    code = extract_code(completion.text).code
    return None if code is None else Job(code, problem.tests, problem.style is Style.STDIO)
