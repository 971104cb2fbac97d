"""Who says whether an attempt passes: the sandbox, by running it ("executed"), the judge, by reading ("judged"), or the
environment's own rule ("scored").

What could not be decided is None, is shown, and never counts as wrong."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from codezero.code.answer import read_answer
from codezero.code.assertions import MAX_CASE
from codezero.code.parsing import fence
from codezero.evals.task import EvalTask, jobs, program
from codezero.evaluator.base import Evaluator, ScoredEvaluator
from codezero.sandbox.base import ALL_HOLD, TRUTH, Execution, Outcome, Sandbox, failed, unknown
from codezero.types import BELIEF, Completion, Problem, RolloutGroup, Source, Verdict, problem_id

EXECUTED, JUDGED, SCORED = "executed", "judged", "scored"
ATTEMPT_SECONDS = 120.0  # for all the tests of one attempt, by the clock; what has not failed by then is undecided
JUDGED_TESTS, JUDGED_CHARACTERS = 64, 64 * 1024  # of a task, shown to the judge; the first that fit
EXAMINED = "exam"  # peer id of the rollout groups of an exam: they belong to no peer and are never published


class Grade(NamedTuple):
    passed: bool | None
    reason: str = ""  # why not True, in a phrase
    without_code: bool = False
    cheats: bool = False  # it passes tests that must fail
    unguarded: bool = False  # it passes a test that has no condition to find a cheat by
    base: bool | None = None  # does it pass the base tests? Of a task that has them.


class SandboxGrader:
    """Grades by running. An attempt passes when every test of its task holds."""

    label = EXECUTED

    def __init__(self, sandbox: Sandbox, block: str = "best", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sandbox, self._block, self._clock = sandbox, block, clock
        self._pool = ThreadPoolExecutor(sandbox.workers, "grader")
        self._begun: dict[tuple[str, ...], Future[list[Grade]]] = {}

    def begin(self, task: EvalTask, attempts: Sequence[Completion]) -> None:
        """Grade from another thread, while other tasks are attempted; `grade` then finds it done."""
        self._begun[task.name, *(each.text for each in attempts)] = self._pool.submit(self._grade, task, attempts)

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[Completion]]) -> list[list[Grade]]:
        """[tasks, samples] Raises SandboxError."""
        begun, self._begun = self._begun, {}
        graded = [
            begun.get((task.name, *(each.text for each in tried))) or self._pool.submit(self._grade, task, tried)
            for task, tried in zip(tasks, attempts, strict=True)
        ]
        return [each.result() for each in graded]

    def refusals(self, tasks: Iterable[EvalTask]) -> dict[str, str]:
        """Name the tasks whose tests can decide no attempt, and why."""
        reasons = {task.name: self._refusal(task) for task in tasks}
        return {name: reason for name, reason in reasons.items() if reason}

    def _refusal(self, task: EvalTask) -> str:
        """Why no attempt can pass or fail; empty when some job at least can tell."""
        refusals = [self._sandbox.refusal(job) for job in jobs(task, "")]
        return refusals[0] if refusals and all(refusals) else ""

    def _grade(self, task: EvalTask, attempts: Sequence[Completion]) -> list[Grade]:
        if refusal := self._refusal(task):
            return [Grade(None, refusal) for _ in attempts]
        known: dict[str | None, tuple[Execution, Execution]] = {}
        grades: list[Grade] = []
        for attempt in attempts:
            answer = read_answer(attempt.text, task.defines, self._block)
            code = answer.code
            if code not in known:
                flawed = failed(answer.flaw)
                known[code] = (flawed, flawed) if code is None else self._run_parts(task, code)
            base, shown = known[code]
            base = TRUTH[base.outcome] if task.base else None
            passed, cheats, bare = TRUTH[shown.outcome], shown.cheats, bool(shown.unguarded)
            grades.append(Grade(passed, shown.reason, code is None, cheats, bare, base))
        return grades

    def _run_parts(self, task: EvalTask, code: str) -> tuple[Execution, Execution]:
        """Run the base tests, and all."""
        parts = [part for part in (task.tests[: task.base], task.tests[task.base :]) if part]
        base = shown = self._run(replace(task, tests=parts[0]), code)
        if len(parts) > 1 and base.outcome is Outcome.PASS:
            shown = self._run(replace(task, tests=parts[1]), code)
        return base, shown

    def _run(self, task: EvalTask, code: str) -> Execution:
        """One failure decides; until then, one test that could not be told leaves the attempt undecided."""
        ends, doubt, bare = self._clock() + ATTEMPT_SECONDS, None, ALL_HOLD
        for job in jobs(task, code):
            if self._clock() >= ends:
                return unknown(f"not done after {ATTEMPT_SECONDS:g} seconds")
            shown = self._sandbox.run(job)
            if shown.outcome is Outcome.FAIL:
                return shown
            if shown.outcome is Outcome.UNKNOWN:
                doubt = doubt or shown
            bare = shown if shown.unguarded else bare
        return doubt or bare


class EvaluatorGrader:
    """Grades by an evaluator. An attempt passes when a judge rather believes it than not, or with the full score of an
    environment's rule."""

    def __init__(self, evaluator: Evaluator, block: str = "best") -> None:
        self._evaluator, self._block, self._scored = evaluator, block, isinstance(evaluator, ScoredEvaluator)
        self.label, self._least = (SCORED, 1.0) if self._scored else (JUDGED, BELIEF)

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[Completion]]) -> list[list[Grade]]:
        """[tasks, samples] Raises EvaluatorError."""
        pairs = list(zip(tasks, attempts, strict=True))
        read = [[None] * len(tried) if self._scored else codes_of(task, tried, self._block) for task, tried in pairs]
        groups = [judged_group(task, tried, codes) for (task, tried), codes in zip(pairs, read, strict=True)]
        scored = self._evaluator.score(groups)
        return [list(map(self._grade, group.verdicts, codes)) for group, codes in zip(scored, read, strict=True)]

    def _grade(self, verdict: Verdict, code: str | None) -> Grade:
        passed = verdict.correctness >= self._least if verdict.trainable else None
        return Grade(passed, ", ".join(verdict.reasons[:1]), code is None and not self._scored)


Grader = SandboxGrader | EvaluatorGrader


def problem_of(task: EvalTask) -> Problem:
    if task.source is not None:
        return task.source
    kept: list[str] = []
    for test in task.tests:
        if len(test) <= MAX_CASE and sum(map(len, kept)) + len(test) <= JUDGED_CHARACTERS:
            kept.append(test)
    tests, source = tuple(kept[:JUDGED_TESTS]), Source.MBPP if task.entry_point else Source.CODE_CONTESTS
    key = problem_id(task.prompt, tests)
    return Problem(key, task.prompt, tests, task.entry_point, source, level=task.level)


def codes_of(task: EvalTask, attempts: Sequence[Completion], block: str) -> list[str | None]:
    """The code of each, None where there is none."""
    return [read_answer(attempt.text, task.defines, block).code for attempt in attempts]


def judged_group(task: EvalTask, attempts: Sequence[Completion], codes: Sequence[str | None]) -> RolloutGroup:
    """The attempts as the judge reads them: the very programs that would be run."""
    completions = tuple(
        Completion(attempt.text if code is None else fence(program(task, code)), (), (), attempt.finished)
        for attempt, code in zip(attempts, codes, strict=True)
    )
    return RolloutGroup(problem_of(task), completions, peer_id=EXAMINED, round=0, policy_step=0)
