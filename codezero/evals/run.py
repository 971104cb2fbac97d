"""An eval: tasks in batches, attempted, marked and written down one batch at a time.

Memory is that of one batch, whatever the set's size. What a ledger holds already is not done again; the model and
the marker are not even loaded when there is nothing left for them.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from codezero.errors import ConfigError
from codezero.evals.figures import Outcome
from codezero.evals.grading import Marker
from codezero.evals.ledger import Attempt, Choices, Ledger, Marked, Sampled
from codezero.evals.task import Task
from codezero.protocols import GroupSampler

BATCH = 8
"""Tasks sampled together. Which batch a task is in decides its noise, so this is part of what an eval is."""


@dataclass(slots=True)
class Sat:
    """What an eval has found so far."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    attempts: int = 0
    truncated: int = 0
    without_code: int = 0
    undecided: Counter[str] = field(default_factory=Counter[str])

    def add(self, marked: Marked) -> None:
        self.outcomes += [
            Outcome(name, tuple(passed)) for name, passed in zip(marked.tasks, marked.passed, strict=True)
        ]
        self.attempts += sum(map(len, marked.passed))
        self.truncated += marked.truncated
        self.without_code += marked.without_code
        self.undecided.update(marked.undecided)


@dataclass(frozen=True)
class Sitting:
    """All that an eval needs."""

    tasks: Callable[[], Iterable[Task]]
    choices: Choices
    ledger: Ledger
    sampler: Callable[[], GroupSampler]
    marker: Callable[[], Marker]
    has_code: Callable[[str], bool]
    say: Callable[[str], None]

    def sit(self) -> Sat:
        """To the end. Raises ProblemError for a row that cannot be used, ConfigError for a ledger of other tasks."""
        sat = Sat()
        for number, tasks in enumerate(_batches(self.tasks())):
            marked = self.ledger.marked(number)
            if marked is None:
                marked = self._mark(number, tasks)
                self.ledger.write(marked)
                sat.add(marked)
                self.say(f"{len(sat.outcomes)} tasks done, {_share(sat)}")
            else:
                self._check(marked.tasks, tasks)
                sat.add(marked)
        return sat

    def _mark(self, number: int, tasks: Sequence[Task]) -> Marked:
        sampled = self.ledger.sampled(number)
        if sampled is None:
            sampled = self._sample(number, tasks)
            self.ledger.write(sampled)
        self._check(sampled.tasks, tasks)
        marks = self.marker().mark(tasks, sampled.attempts)
        flat = [attempt for group in sampled.attempts for attempt in group]
        return Marked(
            batch=number,
            by=self.ledger.by,
            tasks=sampled.tasks,
            passed=[[mark.passed for mark in group] for group in marks],
            truncated=sum(not attempt.finished for attempt in flat),
            without_code=sum(not self.has_code(attempt.text) for attempt in flat),
            undecided=[mark.reason for group in marks for mark in group if mark.passed is None],
        )

    def _sample(self, number: int, tasks: Sequence[Task]) -> Sampled:
        drawn = self.sampler().sample(
            [task.prompt for task in tasks],
            group_size=self.choices.samples,
            max_new_tokens=self.choices.max_new_tokens,
            temperature=self.choices.temperature,
            generator_seed=batch_seed(self.choices.seed, number),
        )
        attempts = [[Attempt(one.text, one.finished) for one in group] for group in drawn]
        return Sampled(number, [task.name for task in tasks], attempts)

    def _check(self, written: Sequence[str], tasks: Sequence[Task]) -> None:
        if list(written) != [task.name for task in tasks]:
            raise ConfigError(f"{self.ledger.path} is of other tasks; move it away to begin anew")


def batch_seed(seed: int, batch: int) -> int:
    """Of the sampling noise: another one for each batch, the same whether the eval was interrupted or not."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{batch}".encode()).digest()[:6])


def _batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    rest = iter(tasks)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _share(sat: Sat) -> str:
    decided = [passed for outcome in sat.outcomes for passed in outcome.decided]
    return f"{sum(decided)} of {len(decided)} decided attempts pass"
