"""What a check found, and the check itself."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """It could not be done: nothing is claimed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    state: State
    said: str
    mend: str = ""
    """What to do about it; empty where nothing needs doing."""
    check: str = ""
    """Which check found it; `diagnose` fills it in."""

    def named(self, check: str) -> "Finding":
        return dataclasses.replace(self, check=check)


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at, on its own."""

    name: str
    look: Callable[[], Finding | list[Finding]]
    """Several findings have names of their own."""
    seconds: float = 10.0
    """After which nothing is waited for any more."""
    finds: tuple[str, ...] = ()
    """The names of the findings, where they are several."""


def ok(said: str) -> Finding:
    return Finding(State.OK, said)


def warn(said: str, mend: str = "") -> Finding:
    return Finding(State.WARN, said, mend)


def fail(said: str, mend: str = "") -> Finding:
    return Finding(State.FAIL, said, mend)


def unknown(said: str, mend: str = "") -> Finding:
    return Finding(State.UNKNOWN, said, mend)
