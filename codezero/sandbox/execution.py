"""What execution shows, and what a sandbox has to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

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


class Sandbox(Protocol):
    """Executes programs where they can harm nothing."""

    def run(self, job: Job) -> Execution:
        """Raises SandboxError when the sandbox itself cannot be used."""
        ...

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """`run` for each, in order."""
        ...

    def close(self) -> None: ...
