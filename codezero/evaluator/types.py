"""What a judge reads and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codezero.code.assertions import Example
from codezero.code.report import StaticReport, StaticRequest
from codezero.types import Problem, Standing, Style


@dataclass(frozen=True, slots=True)
class Program:
    """What a judge reads: nothing of a completion but its canonical code."""

    question: str
    code: str
    examples: tuple[Example, ...] = ()
    """Tests that can be believed, as data."""
    stdio: bool = False
    """The program reads stdin and writes stdout; else a function is called."""
    entry_point: str = ""
    """Name of that function."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A judge's scores of one program, in the order of its `names`; higher speaks for correct."""

    scores: tuple[float | None, ...] | None
    """None: the judge could not read this program. A single None: it abstained in that score."""
    why_not: str = ""


class Judge(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """A reading per program; scores that are not `wanted` may be None. Raises EvaluatorError."""
        ...

    def forget(self) -> None:
        """An iteration is over. Drop remembered readings whose last digits depend on what was read beside them.

        A restart has none of them either, and has to read the same.
        """
        ...


class Guard(Protocol):
    def check_many(self, items: Sequence[StaticRequest]) -> list[StaticReport]: ...

    def transplant_many(self, items: Sequence[tuple[str, str, str]]) -> list[str | None]:
        """For each (source, old entry point, new entry point) the renamed source; None where it cannot be."""
        ...


def request(problem: Problem, text: str) -> StaticRequest:
    """What the static pass is asked about a completion."""
    return StaticRequest(text, problem.tests, problem.entry_point, problem.question)


def program(problem: Problem, report: StaticReport) -> Program | None:
    """What there is to judge; None where the static pass has decided or could not tell.

    A proposer's expected values are inventions, so a judge never sees them.
    """
    if report.unavailable or report.quarantine or report.certain_failure or report.canonical is None:
        return None
    examples = () if problem.standing is Standing.CLAIMED else report.examples
    return Program(problem.question, report.canonical, examples, problem.style is Style.STDIO, problem.entry_point)


def unread(readings: Sequence[Reading]) -> list[str]:
    """Why a judge could not read some, where it could not."""
    why = [reading.why_not for reading in readings if reading.scores is None]
    return [f"{len(why)} of {len(readings)} could not be read: {why[0]}"] if why else []
