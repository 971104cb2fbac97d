"""An eval: tasks in batches, attempted, graded and written down one batch at a time.

Memory is that of one batch, whatever the set's size. What an evaluation log holds already is not done again; the model
and the grader are not even loaded when there is nothing left for them.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from codezero.errors import ConfigError
from codezero.evals.evaluation_log import Choices, EvaluationLog, GradedBatch, SampledBatch
from codezero.evals.figures import TaskOutcome
from codezero.evals.grading import Grader
from codezero.evals.task import EvalTask
from codezero.protocols import GroupSampler

BATCH = 8
"""Tasks sampled together. Which batch a task is in decides its noise, so this is part of what an eval is."""


@dataclass(slots=True)
class EvalTotals:
    outcomes: list[TaskOutcome] = field(default_factory=list[TaskOutcome])
    attempts: int = 0
    truncated: int = 0
    without_code: int = 0
    undecided: Counter[str] = field(default_factory=Counter[str])

    def add(self, batch: GradedBatch) -> None:
        self.outcomes += [
            TaskOutcome(name, tuple(passed)) for name, passed in zip(batch.tasks, batch.passed, strict=True)
        ]
        self.attempts += sum(map(len, batch.passed))
        self.truncated += batch.truncated
        self.without_code += batch.without_code
        self.undecided.update(batch.undecided)


@dataclass(frozen=True)
class EvalRun:
    tasks: Callable[[], Iterable[EvalTask]]
    choices: Choices
    log: EvaluationLog
    sampler: Callable[[], GroupSampler]
    grader: Callable[[], Grader]
    say: Callable[[str], None]

    def run(self) -> EvalTotals:
        """To the end. Raises ProblemError for a row that cannot be used, ConfigError for a log of other tasks."""
        totals = EvalTotals()
        for number, tasks in enumerate(_batches(self.tasks())):
            known = self.log.graded(number)
            graded = known or self._grade(number, tasks)
            self._check(graded.tasks, tasks)
            totals.add(graded)
            if known is None:
                self.log.write(number, graded)
                decided = [passed for outcome in totals.outcomes for passed in outcome.decided]
                share = f"{sum(decided)} of {len(decided)} decided attempts pass"
                self.say(f"{len(totals.outcomes)} tasks done, {share}")
        return totals

    def _grade(self, number: int, tasks: Sequence[EvalTask]) -> GradedBatch:
        sampled = self.log.sampled(number)
        if sampled is None:
            sampled = self._sample(number, tasks)
            self.log.write(number, sampled)
        self._check(sampled.tasks, tasks)
        grades = self.grader().grade(tasks, sampled.attempts)
        flat = [attempt for group in sampled.attempts for attempt in group]
        return GradedBatch(
            tasks=sampled.tasks,
            passed=[[grade.passed for grade in group] for group in grades],
            truncated=sum(not attempt.finished for attempt in flat),
            without_code=sum(grade.without_code for group in grades for grade in group),
            undecided=[grade.reason for group in grades for grade in group if grade.passed is None],
        )

    def _sample(self, number: int, tasks: Sequence[EvalTask]) -> SampledBatch:
        drawn = self.sampler().sample(
            [task.prompt for task in tasks],
            group_size=self.choices.samples,
            max_new_tokens=self.choices.max_new_tokens,
            temperature=self.choices.temperature,
            generator_seed=batch_seed(self.choices.seed, number),
        )
        attempts = [[replace(completion, token_ids=(), logprobs=()) for completion in group] for group in drawn]
        return SampledBatch([task.name for task in tasks], attempts)

    def _check(self, written: Sequence[str], tasks: Sequence[EvalTask]) -> None:
        if list(written) != [task.name for task in tasks]:
            raise ConfigError(f"{self.log.path} is of other tasks; move it away to begin anew")


def batch_seed(seed: int, batch: int) -> int:
    """Of the sampling noise: another one for each batch, the same whether the eval was interrupted or not."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{batch}".encode()).digest()[:6])


def _batches(tasks: Iterable[EvalTask]) -> Iterator[list[EvalTask]]:
    rest = iter(tasks)
    while batch := list(islice(rest, BATCH)):
        yield batch
