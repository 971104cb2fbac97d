"""An eval: tasks in batches, attempted, graded and written down one batch at a time.

Memory is that of one batch, whatever the set's size. The log is an SQLite file for each choice of set, model and
sampling. The attempts at a batch are on disk before they are graded; sandbox and judge grade the same attempts. What it
holds already is not done again, so an eval that is killed goes on and samples nothing twice; the model and the grader
are not even loaded when there is nothing left for them.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from codezero.errors import ConfigError, translated
from codezero.evals.figures import Choices, TaskOutcome
from codezero.evals.grading import Grader
from codezero.evals.task import EvalTask
from codezero.protocols import GroupSampler
from codezero.types import Completion

T = TypeVar("T")
SAMPLER = ""
"""In the place of a grader: who wrote the attempts."""
SETUP = (
    "PRAGMA locking_mode=EXCLUSIVE",  # the lock is held until the file is closed
    "BEGIN EXCLUSIVE",
    "CREATE TABLE IF NOT EXISTS batch(number INTEGER, by TEXT, entry BLOB NOT NULL, PRIMARY KEY(number, by))",
    "COMMIT",
)
BATCH = 8
"""Tasks sampled together. Which batch a task is in decides its noise, so this is part of what an eval is."""


class SampledBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    attempts: list[list[Completion]]
    """[tasks, samples] Without token ids and log-probs."""


class GradedBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    passed: list[list[bool | None]]
    """[tasks, samples] None: could not be told."""
    truncated: int
    """Attempts that reached the limit of their length."""
    without_code: int
    undecided: list[Annotated[str, Meta(max_length=400)]]
    """Why, for each that could not be told."""


class EvaluationLog(AbstractContextManager["EvaluationLog"]):
    """An open file; `by`: who grades, and with which settings. Raises ConfigError when another process has the file, or
    when it is damaged."""

    def __init__(self, folder: Path, choices: Choices, by: str) -> None:
        self.path, self._by = folder / choices.file_name, by
        fault = f"{self.path} cannot be written"
        with translated(ConfigError, fault, OSError, sqlite3.Error, mend="choose another --into"):
            folder.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            for statement in SETUP:
                self._sql.execute(statement)
        except sqlite3.Error as error:
            self._sql.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise ConfigError(f"{self.path} is in use by another eval; wait, or choose another --into") from error
            raise self._damaged(error) from error

    def __exit__(self, *_: object) -> None:
        self._sql.close()  # gives the lock back

    def sampled(self, batch: int) -> SampledBatch | None:
        return self._read(batch, SAMPLER, SampledBatch)

    def graded(self, batch: int) -> GradedBatch | None:
        return self._read(batch, self._by, GradedBatch)

    def write(self, batch: int, entry: SampledBatch | GradedBatch) -> None:
        """On disk when it returns."""
        by = SAMPLER if isinstance(entry, SampledBatch) else self._by
        self._sql.execute("INSERT INTO batch VALUES(?,?,?)", (batch, by, msgspec.json.encode(entry)))

    def _read(self, batch: int, by: str, form: type[T]) -> T | None:
        try:
            row = self._sql.execute("SELECT entry FROM batch WHERE number=? AND by=?", (batch, by)).fetchone()
            return row and msgspec.json.decode(row[0], type=form)
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:  # of an entry that somebody wrote
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path} cannot be read ({error}); move the file away to begin anew")


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
