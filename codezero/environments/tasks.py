"""Environments whose problems every node derives, and whose answers a rule scores: from a taskset of the user's own.

A taskset is a function from (level, index) to a task, and a score. Nothing that a peer sends of such a problem is
believed: a node derives it again, and scores its answers again."""

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Protocol

from codezero.environment import ScoredEnvironment
from codezero.errors import ConfigError, EvaluatorError, ProblemError, translated
from codezero.system.plugins import blamed
from codezero.system.signals import within_cpu
from codezero.types import Item, Problem, is_exam_question, problem_id

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
LEVELS = (1, 2, 3, 4, 5)
LEAST, MOST = 8, 2**31  # indices of a level
SECONDS = 5.0  # of computing, for one task or score: a stranger chooses the place, and may write the answer
MAX_QUESTION = 16_384  # characters
SAMPLES = 2  # tasks of each level that the digest is of
TRIES = 200  # places in a row that are looked at for a problem of the side that is wanted


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and what its taskset needs to score an answer."""

    question: str
    answer: object = None


class Taskset(Protocol):
    """A user's taskset. `levels` (of 1..5) and `size` (indices of a level) may be left out: all, and 2^31; so may
    `solver`, the model that learns where the settings name none."""

    name: str
    # another one whenever a task or a score changes: nodes of different versions do not believe each other
    version: str

    def task(self, level: int, index: int) -> Task:
        """The same on every machine and in every process: draw from `random.Random(f"{level} {index}")`."""
        ...

    def score(self, task: Task, answer: str) -> float | None:
        """[0, 1], of a model's whole answer; None: could not tell."""
        ...


class TaskEnvironment(ScoredEnvironment):
    """The problems and scores of a taskset. Raises ConfigError for one that cannot be used."""

    def __init__(self, tasks: Taskset) -> None:
        self._tasks, self.name = tasks, str(tasks.name)
        self.solver = str(getattr(tasks, "solver", ""))
        if not NAME.fullmatch(self.name) or self.name == "code":
            raise ConfigError(f"environment: name={self.name!r} must be 1 to 64 of a-z 0-9 . _ -, and not `code`")
        self._levels: Sequence[int] = sorted(set(getattr(tasks, "levels", LEVELS)))
        self._size = int(getattr(tasks, "size", MOST))
        if not self._levels or not set(self._levels) <= set(LEVELS) or not LEAST <= self._size <= MOST:
            bounds = f"levels of 1 to 5, and a size of {LEAST} to {MOST}"
            raise ConfigError(f"environment: {self.name} must have {bounds}, not {self._levels} and {self._size}")
        self._task = functools.lru_cache(4096)(self._read)
        with translated(ConfigError, f"environment {self.name} cannot be used", ProblemError):
            samples = [self._task(level, index).question for level in self._levels for index in range(SAMPLES)]
        text = json.dumps([self.name, str(tasks.version), self._levels, self._size, samples])
        self.digest = hashlib.sha256(text.encode()).hexdigest()

    def generate(self, origin: str) -> Problem:
        return self.drawn(Random(origin).choice(self._levels), origin)

    def drawn(self, level: int, origin: str) -> Problem:
        """Raises ProblemError where no place near the one that was drawn has any."""
        near = min(self._levels, key=lambda has: abs(has - level))
        problem = next(self._from(near, Random(f"{origin} index"), held_out=False), None)
        if problem is None:
            raise ProblemError(f"environment {self.name}: nothing to learn from at level {near}")
        return problem

    def prompt(self, problem: Problem) -> str:
        return problem.question

    def fault(self, problem: Problem) -> tuple[str, str] | None:
        """A problem of this environment has none: it was derived here."""
        item = problem.item
        of_here = item is not None and (item.environment, item.digest) == (self.name, self.digest)
        return None if of_here else ("environment", f"it is no problem of {self.name}")

    def withholds(self, problem: Problem) -> bool:
        return is_exam_question(problem.question)

    def held_out(self, count: int, seed: int) -> list[Problem]:
        """Spread evenly over the levels; fewer than `count` where there are no more."""
        random, problems = Random(f"held out {seed}"), dict[str, Problem]()
        for number in range(count):
            drawn = self._from(self._levels[number % len(self._levels)], random, held_out=True)
            if problem := next((each for each in drawn if each.id not in problems), None):
                problems[problem.id] = problem
        return list(problems.values())

    def derive(self, item: Item) -> Problem:
        if (item.environment, item.digest) != (self.name, self.digest):
            raise ProblemError(f"an item of another environment than {self.name}, or of another version")
        if item.level not in self._levels or not 0 <= item.index < self._size:
            raise ProblemError(f"{self.name} has no item {item.index} of level {item.level}")
        return self._problem(item.level, item.index)

    def score(self, problem: Problem, answer: str) -> float | None:
        if problem.item is None:
            return None
        task = self._task(problem.item.level, problem.item.index)
        with blamed(EvaluatorError, f"environment {self.name}: its score"), within_cpu(SECONDS):
            score = self._tasks.score(task, answer)
            if score is not None and not 0 <= float(score) <= 1:  # NaN is in no range
                raise ValueError(f"{score} is not 0 to 1")
            return None if score is None else float(score)

    def _from(self, level: int, random: Random, *, held_out: bool) -> Iterator[Problem]:
        """The problems of one side at TRIES places from a random one on; those that cannot be made are passed over."""
        first = random.randrange(self._size)
        for index in range(first, first + TRIES):
            with suppress(ProblemError):
                problem = self._problem(level, index % self._size)
                if is_exam_question(problem.question) == held_out:
                    yield problem

    def _problem(self, level: int, index: int) -> Problem:
        question = self._task(level, index).question
        key, item = problem_id(question, (self.name, self.digest)), Item(self.name, self.digest, level, index)
        return Problem(key, question, (), "", self.name, level=level if len(self._levels) > 1 else None, item=item)

    def _read(self, level: int, index: int) -> Task:
        what = f"environment {self.name}: item {index} of level {level}"
        with blamed(ProblemError, what), within_cpu(SECONDS):
            task = self._tasks.task(level, index)
        if not 0 < len(task.question) <= MAX_QUESTION:
            size = f"{len(task.question)} characters, not 1 to {MAX_QUESTION}"
            raise ProblemError(f"environment {self.name}: the question of item {index} of level {level} has {size}")
        return task
