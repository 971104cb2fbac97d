"""What execution shows, and what a sandbox has to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Outcome(StrEnum):
    """What execution showed."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The sandbox could not tell; never counted as wrong."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of one program against its tests."""

    outcome: Outcome
    reason: str = ""
    """Why not PASS, in a phrase of at most 200 characters."""


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
