"""Who says whether an attempt passes: the sandbox, by running it ("executed"), or the judge, by reading ("judged").

What could not be decided is None, is shown, and never counts as wrong.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from codezero.code.assertions import MAX_CASE
from codezero.code.parsing import extract_code, fence
from codezero.evals.evaluation_log import SampledAttempt
from codezero.evals.task import EvalTask, jobs, program
from codezero.protocols import Evaluator
from codezero.sandbox.base import ALL_HOLD, TRUTH, Execution, Outcome, Sandbox, failed, unknown
from codezero.types import BELIEF, Completion, Problem, RolloutGroup, Source, Status, Verdict, problem_id

EXECUTED, JUDGED = "executed", "judged"
ATTEMPT_SECONDS = 120.0
"""For all the tests of one attempt, by the clock; what has not failed by then is undecided."""
JUDGED_TESTS, JUDGED_CHARACTERS = 64, 64 * 1024
"""Of a task, shown to the judge; the first that fit."""
EXAMINED = "exam"
"""Peer id of the rollout groups of an exam: they belong to no peer and are never published."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What became of one attempt."""

    passed: bool | None
    reason: str = ""
    """Why not True, in a phrase."""


class Grader(Protocol):
    """Grades attempts."""

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[SampledAttempt]]) -> list[list[Grade]]:
        """[tasks, samples] Raises SandboxError or EvaluatorError."""
        ...


class SandboxGrader:
    """By running it. An attempt passes when every test of its task holds."""

    def __init__(self, sandbox: Sandbox, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sandbox, self._clock = sandbox, clock

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[SampledAttempt]]) -> list[list[Grade]]:
        return [self._grade(task, tried) for task, tried in zip(tasks, attempts, strict=True)]

    def _grade(self, task: EvalTask, attempts: Sequence[SampledAttempt]) -> list[Grade]:
        known: dict[str | None, Execution] = {None: failed("no single Python fence")}
        grades: list[Grade] = []
        for attempt in attempts:
            code = extract_code(attempt.text).code
            if code not in known:
                known[code] = self._run(task, code or "")
            grades.append(Grade(TRUTH[known[code].outcome], known[code].reason))
        return grades

    def _run(self, task: EvalTask, code: str) -> Execution:
        """One failure decides; until then, one test that could not be told leaves the attempt undecided."""
        ends, doubt = self._clock() + ATTEMPT_SECONDS, None
        for job in jobs(task, code):
            if self._clock() >= ends:
                return unknown(f"not done after {ATTEMPT_SECONDS:g} seconds")
            shown = self._sandbox.run(job)
            if shown.outcome is Outcome.FAIL:
                return shown
            if shown.outcome is Outcome.UNKNOWN:
                doubt = doubt or shown
        return doubt or ALL_HOLD


class JudgeGrader:
    """By reading it. An attempt passes when the judge rather believes it than not."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[SampledAttempt]]) -> list[list[Grade]]:
        groups = [_group(task, tried) for task, tried in zip(tasks, attempts, strict=True)]
        return [[_grade(verdict) for verdict in scored.verdicts] for scored in self._evaluator.score(groups)]


def _grade(verdict: Verdict) -> Grade:
    decided = verdict.status in (Status.JUDGED, Status.CERTAIN_FAILURE)
    return Grade(verdict.correctness >= BELIEF if decided else None, ", ".join(verdict.reasons[:1]))


def _group(task: EvalTask, attempts: Sequence[SampledAttempt]) -> RolloutGroup:
    tests = _fitting(task.tests)
    problem = Problem(
        problem_id(task.prompt, tests),
        task.prompt,
        tests,
        task.entry_point,
        Source.MBPP if task.entry_point else Source.CODE_CONTESTS,
        level=task.level,
    )
    completions = tuple(Completion(_whole(task, attempt.text), (), (), attempt.finished) for attempt in attempts)
    return RolloutGroup(problem, completions, peer_id=EXAMINED, round=0, policy_step=0)


def _whole(task: EvalTask, text: str) -> str:
    """The judge reads the very program that would be run."""
    code = extract_code(text).code
    return text if code is None or not (task.before or task.after or task.imports) else fence(program(task, code))


def _fitting(tests: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for test in tests:
        if len(kept) == JUDGED_TESTS:
            break
        if len(test) <= MAX_CASE and sum(map(len, kept)) + len(test) <= JUDGED_CHARACTERS:
            kept.append(test)
    return tuple(kept)
