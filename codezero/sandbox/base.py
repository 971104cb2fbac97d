"""What a sandbox does: a job in, an execution out; assertions, or a program whose output is compared.

The tests of such a program are cases: each gives it an input and holds what it prints against the output wanted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Self

import msgspec

from codezero.errors import ProblemError

MAX_CASES = 20
"""Only this many are run, from the first: they bound the time one program can take."""
MAX_CASE_BYTES = 2**20
MAX_OUTPUT_BYTES = 256 * 1024
"""A program that prints more is wrong."""


class Case(msgspec.Struct, frozen=True):
    """One test: what stands on stdin and what has to stand on stdout."""

    input: str
    output: str


def read_cases(tests: Sequence[str]) -> list[Case]:
    """The first MAX_CASES tests, each from its JSON text. Raises ProblemError when one of them cannot be used."""
    return [_read(test, number) for number, test in enumerate(tests[:MAX_CASES], start=1)]


def _read(test: str, number: int) -> Case:
    if len(test) > MAX_CASE_BYTES:
        raise ProblemError(f"test {number} is longer than {MAX_CASE_BYTES} bytes")
    try:
        return msgspec.json.decode(test, type=Case)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise ProblemError(f"test {number} cannot be read: {error}") from error


def same_output(wanted: str, printed: str) -> bool:
    """Line by line the same words. How they are spaced, and blank lines at the end, do not matter.

    Case, spelling of numbers and blank lines before the end do.
    """
    return all(left == right for left, right in zip_longest(_words(wanted), _words(printed)))


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.rstrip().split("\n")]


REASON_CHARACTERS = 200


class Outcome(StrEnum):
    """What execution showed."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The sandbox could not tell; never counted as wrong."""


TRUTH: dict[Outcome, bool | None] = {Outcome.PASS: True, Outcome.FAIL: False, Outcome.UNKNOWN: None}
"""What an outcome says of the code; None: nothing."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of one program against its tests."""

    outcome: Outcome
    reason: str = ""
    """Why not PASS, in a phrase of at most 200 printable characters."""
    provisional: bool = False
    """A FAIL that CPython need not see: the code raised something, or hit a limit, in an interpreter that is slower and
    knows less. A sandbox behind this one decides; without one it stands."""

    def of_test(self, number: int) -> "Execution":
        """The same, and which test showed it."""
        return Execution(self.outcome, _phrase(f"test {number}: {self.reason}"), self.provisional)


ALL_HOLD = Execution(Outcome.PASS)


def failed(reason: str, *, provisional: bool = False) -> Execution:
    """The code is at fault."""
    return Execution(Outcome.FAIL, _phrase(reason), provisional)


def unknown(reason: str) -> Execution:
    """Nobody can tell."""
    return Execution(Outcome.UNKNOWN, _phrase(reason))


def _phrase(reason: str) -> str:
    """Some of it was written by the code: cut, and without control characters."""
    return "".join(character if character.isprintable() else " " for character in reason[:REASON_CHARACTERS])


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the tests it is held against."""

    code: str
    """Not fenced."""
    tests: tuple[str, ...]
    stdio: bool = False
    """The tests are `{"input": .., "output": ..}`; else they are assertions."""


class Sandbox(ABC):
    """Executes programs where they can harm nothing. A context manager that ends with `close`."""

    @abstractmethod
    def run(self, job: Job) -> Execution:
        """Execute the code, then its tests. Raises SandboxError when the sandbox itself cannot be used."""

    @abstractmethod
    def close(self) -> None: ...

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """`run` for each, in order."""
        return [self.run(job) for job in jobs]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_cases(tests: Sequence[str], run: Callable[[Case], Execution]) -> Execution:
    """Run the cases in order until one does not hold. Raises ProblemError for tests that cannot be used."""
    for number, case in enumerate(read_cases(tests), start=1):
        execution = run(case)
        if execution.outcome is not Outcome.PASS:
            return execution.of_test(number)
    return ALL_HOLD
