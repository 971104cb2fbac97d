"""An eval: tasks in batches, a few of which are attempted together, each graded and written down on its own.

Memory is that of a few batches, whatever the set's size. The log is an SQLite file for each choice of set, model and
sampling, which others may read meanwhile. The attempts at a batch are on disk before they are graded; sandbox and judge
grade the same attempts. What it holds already is not done again, so an eval that is killed goes on and samples nothing
twice, and one of more samples draws the missing ones; the model and the grader are not even loaded when there is
nothing left for them."""

import contextlib
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from codezero.config import EvalsConfig
from codezero.errors import ConfigError, translated
from codezero.evals.figures import Choices, TaskOutcome
from codezero.evals.grading import Grade, Grader
from codezero.evals.task import EvalTask
from codezero.models.base import GroupSampler
from codezero.system.files import Lock
from codezero.system.signals import Share
from codezero.types import Completion

T = TypeVar("T")
MAX_SAMPLES = 256
SAMPLER = ""  # in the place of a grader: who wrote the attempts
SETUP = """PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS batch(
    number INTEGER, first INTEGER, by TEXT, entry BLOB NOT NULL, PRIMARY KEY(number, first, by))"""
BATCH = 8  # tasks of one entry in the log
# Drawn together, as many batches as have so many: a sampler is slow with few rows. What is drawn together decides the
# noise, so both are part of what an eval is.
ATTEMPTS = 128


class EvalRequest(NamedTuple):
    set: str
    files: tuple[Path, ...]
    samples: int | None  # None: those of the settings
    ks: tuple[int, ...]  # empty: 1 and the number of samples
    policies: tuple[str, ...]  # one, or two to compare; empty: the config's solver
    judged: bool
    into: Path | None
    start: int = 1  # number of the first problem
    limit: int | None = None  # most problems; None: all
    skip_bad: bool = False
    prelude: str | None = None  # one of PRELUDES; None: that of the set's own harness

    def checked(self, evals: EvalsConfig) -> "EvalRequest":
        """Fill in the number of samples and the ks that it leaves to the settings. Raises ConfigError."""
        samples = attempts_of(evals, self.samples, MAX_SAMPLES)
        ks = self.ks or tuple(dict.fromkeys((1, samples)))
        if wrong := [k for k in ks if not 1 <= k <= samples]:
            need = f"give --samples {max(ks)}" if evals.temperature else "set evals.temperature above 0"
            raise ConfigError(f"--k={wrong[0]} cannot be estimated from {samples} attempts; {need}")
        for option, number in (("--start", self.start), ("--limit", self.limit)):
            if number is not None and number < 1:
                raise ConfigError(f"{option}={number} is out of bounds; it must be 1 or more")
        return self._replace(samples=samples, ks=ks)


def attempts_of(evals: EvalsConfig, given: int | None, most: int) -> int:
    """At each problem: `given` by --samples, else of the settings. Raises ConfigError."""
    if given is not None and not 1 <= given <= most:
        raise ConfigError(f"--samples={given} is out of bounds; it must be 1 to {most}")
    if given and given > 1 and not evals.temperature:
        alike = "evals.temperature=0 is greedy and draws the same attempt every time"
        raise ConfigError(f"--samples={given}: {alike}; give --samples 1, or a temperature above 0")
    return given or evals.attempts


class SampledBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    attempts: list[list[Completion]]  # [tasks, samples] Without token ids and log-probs


class GradedAttempt(msgspec.Struct, frozen=True, array_like=True):
    passed: bool | None  # None: could not be told
    reason: Annotated[str, Meta(max_length=400)]  # why it could not; else empty
    truncated: bool  # it reached the limit of its length
    without_code: bool
    base: bool | None = None  # of the base tests alone, where the task has them


class GradedBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    attempts: list[Annotated[list[GradedAttempt], Meta(min_length=1)]]  # [tasks, samples]


class EvaluationLog(AbstractContextManager["EvaluationLog"]):
    """An open file; `by`: who grades, and with which settings. Raises ConfigError when another process has the file, or
    when it is damaged."""

    def __init__(self, folder: Path, choices: Choices, by: str) -> None:
        self.path, self._by = folder / choices.file_name, by
        refusal, mend = f"{self.path} cannot be written", "choose another --into"
        with contextlib.ExitStack() as opened:
            with translated(ConfigError, refusal, OSError, sqlite3.Error, mend=mend):
                folder.mkdir(parents=True, exist_ok=True)
                lock = Lock(self.path.with_suffix(".lock"), ConfigError)
                opened.callback(lock.close)
                if not lock.take():
                    raise ConfigError(f"{self.path} is in use by another eval; wait, or {mend}")
                self._sql = sqlite3.connect(self.path, isolation_level=None)
            opened.callback(self._sql.close)
            try:
                self._sql.executescript(SETUP)
            except sqlite3.Error as error:
                raise self._damaged(error) from error
            self._opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def sampled(self, batch: int, first: int) -> SampledBatch | None:
        """The attempts at a batch from number `first` on, as many as were drawn together."""
        return self._read(batch, first, SAMPLER, SampledBatch)

    def graded(self, batch: int, first: int) -> GradedBatch | None:
        return self._read(batch, first, self._by, GradedBatch)

    def write(self, first: int, entries: Mapping[int, SampledBatch | GradedBatch]) -> None:
        """Write entries by their batch's number; all are on disk when it returns, or none."""
        rows = [
            (number, first, SAMPLER if isinstance(entry, SampledBatch) else self._by, msgspec.json.encode(entry))
            for number, entry in entries.items()
        ]
        self._sql.execute("BEGIN IMMEDIATE")
        self._sql.executemany("INSERT INTO batch VALUES(?,?,?,?)", rows)
        self._sql.execute("COMMIT")

    def _read(self, batch: int, first: int, by: str, form: type[T]) -> T | None:
        try:
            query = "SELECT entry FROM batch WHERE number=? AND first=? AND by=?"
            row = self._sql.execute(query, (batch, first, by)).fetchone()
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
        for name, row in zip(batch.tasks, batch.attempts, strict=True):
            passed, base = (tuple(getattr(attempt, of) for attempt in row) for of in ("passed", "base"))
            self.outcomes.append(TaskOutcome(name, passed, base))
            self.attempts += len(row)
            self.truncated += sum(attempt.truncated for attempt in row)
            self.without_code += sum(attempt.without_code for attempt in row)
            self.undecided.update(attempt.reason for attempt in row if attempt.passed is None)


@dataclass(frozen=True)
class EvalRun:
    tasks: Callable[[], Iterable[EvalTask]]
    count: int  # of the tasks
    samples: int
    choices: Choices
    log: EvaluationLog
    sampler: Callable[[], GroupSampler]
    grader: Callable[[], Grader]
    say: Callable[[str], None]
    name: str = "attempts"

    def run(self) -> EvalTotals:
        """To the end. Raises ProblemError for a row that cannot be used, ConfigError for a log of other tasks, and
        KeyboardInterrupt that says how far it is."""
        totals = EvalTotals()
        try:
            rest = iter(self.tasks())
            numbered = enumerate(iter(lambda: list(islice(rest, BATCH)), []))
            while together := dict(islice(numbered, max(1, ATTEMPTS // (BATCH * self.samples)))):
                for number in together:
                    totals.add(self._graded(number, together))
                    decided = [passed for outcome in totals.outcomes for passed in outcome.decided]
                    share = f" problems, {sum(decided)} of {len(decided)} decided attempts pass"
                    self.say(Share(self.name, len(totals.outcomes), self.count, share))
        except KeyboardInterrupt as stop:
            done = f"{self.name}: stopped with {len(totals.outcomes)} of {self.count} problems done"
            stop.args = (f"{done}; the same command goes on from there",)
            raise
        return totals

    def _graded(self, number: int, together: Mapping[int, Sequence[EvalTask]]) -> GradedBatch:
        """The first `samples` attempts: those that the log holds, and what is missing. together: the tasks of batches
        that are attempted with this one, by number."""
        tasks = together[number]
        rows: list[list[GradedAttempt]] = [[] for _ in tasks]
        while (have := len(rows[0])) < self.samples:
            graded = self.log.graded(number, have) or self._grade(number, have, together)
            self._check(graded.tasks, tasks)
            rows = [row + more for row, more in zip(rows, graded.attempts, strict=True)]
        return GradedBatch([task.name for task in tasks], [row[: self.samples] for row in rows])

    def _grade(self, number: int, first: int, together: Mapping[int, Sequence[EvalTask]]) -> GradedBatch:
        tasks = together[number]
        sampled = self.log.sampled(number, first)
        if sampled is None:
            drawn = self._sample(number, first, together)
            self.log.write(first, drawn)
            sampled = drawn[number]
        self._check(sampled.tasks, tasks)
        grader = self.grader()
        self.say(Share(self.name, number * BATCH, self.count, " problems"))
        grades = grader.grade(tasks, sampled.attempts)
        attempts = [list(map(_graded, *row)) for row in zip(grades, sampled.attempts, strict=True)]
        self.log.write(first, {number: (graded := GradedBatch(sampled.tasks, attempts))})
        return graded

    def _sample(self, number: int, first: int, together: Mapping[int, Sequence[EvalTask]]) -> dict[int, SampledBatch]:
        """Attempts from number `first` on, at each of these batches that the log holds none of."""
        sampler = self.sampler()
        self.say(Share(self.name, number * BATCH, self.count, " problems"))
        missing = {each: tasks for each, tasks in together.items() if self.log.sampled(each, first) is None}
        drawn = sampler.sample(
            [task.prompt for tasks in missing.values() for task in tasks],
            group_size=self.samples - first,
            max_new_tokens=self.choices.max_new_tokens,
            temperature=self.choices.temperature,
            generator_seed=batch_seed(self.choices.seed, number, first),
        )
        texts = ([replace(attempt, token_ids=(), logprobs=()) for attempt in group] for group in drawn)
        return {
            each: SampledBatch([task.name for task in tasks], list(islice(texts, len(tasks))))
            for each, tasks in missing.items()
        }

    def _check(self, written: Sequence[str], tasks: Sequence[EvalTask]) -> None:
        if list(written) != [task.name for task in tasks]:
            raise ConfigError(f"{self.log.path} is of other tasks; move it away to begin anew")


def _graded(grade: Grade, attempt: Completion) -> GradedAttempt:
    reason = grade.reason if grade.passed is None else ""
    return GradedAttempt(grade.passed, reason, not attempt.finished, grade.without_code, grade.base)


def batch_seed(seed: int, batch: int, first: int = 0) -> int:
    """Seed the sampling noise: another one for each first batch of a call and for attempts that are added later, from
    number `first` on; the same whether the eval was interrupted or not."""
    place = f"{seed}/{batch}/{first}" if first else f"{seed}/{batch}"
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:6])
