"""`reward.mode=rlvr`: correctness is what running the tests in a sandbox shows. Opt-in; the judge is not asked.

Reinforcement learning from verifiable rewards. Everything else is as with the judge: the static pass, quarantine, caps
and the composite. What the sandbox cannot decide is unavailable, never wrong.
"""

import logging
from collections import Counter
from collections.abc import Sequence

from codezero.code.parsing import extract_code
from codezero.code.report import StaticReport
from codezero.config import RewardConfig
from codezero.evaluator.memory import Counts
from codezero.evaluator.reward import DEFAULT, verdict
from codezero.evaluator.types import Guard, program, request
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.system.state import StateFile
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Standing, Status, Style, Verdict

logger = logging.getLogger(__name__)

CLAIMS = Execution(Outcome.UNKNOWN, "the expected values are a proposer's claims")
CORRECTNESS: dict[Outcome, float | None] = {Outcome.PASS: 1.0, Outcome.FAIL: 0.0, Outcome.UNKNOWN: None}


class ExecutedEvaluator(StateFile[Counts], file="counts.json", schema=Counts):
    """Implements `protocols.Evaluator` by execution."""

    def __init__(self, guard: Guard, sandbox: Sandbox, *, weights: RewardConfig = DEFAULT) -> None:
        self._guard = guard
        self._sandbox = sandbox
        self._weights = weights
        self._statuses: Counter[Status] = Counter()
        logger.warning("reward.mode=rlvr: every attempt is EXECUTED in a sandbox, and the outcome is the reward")

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError and SandboxError."""
        rows = [(group.problem, completion) for group in groups for completion in group.completions]
        reports = self._guard.check_many([request(problem, completion.text) for problem, completion in rows])
        jobs = [_job(problem, completion, report) for (problem, completion), report in zip(rows, reports, strict=True)]
        distinct = list(dict.fromkeys(job for job in jobs if job is not None))
        executed = dict(zip(distinct, self._sandbox.run_many(distinct), strict=True))
        verdicts = [
            self._verdict(report, CLAIMS if job is None else executed[job], completion.finished)
            for (_, completion), report, job in zip(rows, reports, jobs, strict=True)
        ]
        self._statuses.update(verdict.status for verdict in verdicts)
        rest = iter(verdicts)
        return [ScoredGroup(group, tuple(next(rest) for _ in group.completions)) for group in groups]

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """Nothing to look at: there is no judge."""

    def witness(self, executed: Sequence[tuple[float, bool]]) -> None:
        """Nothing to compare: the reward is the truth."""

    def rates(self) -> None:
        """Nobody is mistaken."""

    def metrics(self) -> Metrics:
        """`judge/...`: shares of the verdicts since the last call."""
        total = sum(self._statuses.values())
        shares: Metrics = {
            f"judge/{status.value}_share": self._statuses[status] / total if total else None
            for status in (Status.CERTAIN_FAILURE, Status.QUARANTINED, Status.UNAVAILABLE)
        }
        self._statuses.clear()
        return shares | {"judge/identity": "rlvr"}

    def state(self) -> Counts:
        return Counts(dict(self._statuses), 0)

    def restore(self, state: Counts) -> None:
        self._statuses = Counter(state.statuses)

    def _verdict(self, report: StaticReport, shown: Execution, finished: bool) -> Verdict:
        correctness = CORRECTNESS[shown.outcome]
        how = f"executed: {shown.reason or 'passes every test'};"
        return verdict(report, correctness, finished, shown.reason, source=how, weights=self._weights)


def _job(problem: Problem, completion: Completion, report: StaticReport) -> Job | None:
    """What there is to execute; None where the static pass has decided, or where the tests show nothing."""
    if program(problem, report) is None or problem.standing is Standing.CLAIMED:
        return None
    code = extract_code(completion.text).code
    return None if code is None else Job(code, problem.tests, problem.style is Style.STDIO)
