"""A judge's input, its output and its protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codezero.code.assertions import Example
from codezero.code.report import StaticReport, StaticRequest
from codezero.types import Problem, Standing, Style


@dataclass(frozen=True, slots=True)
class Program:
    """A judge's input: of a completion only the canonical code."""

    question: str
    code: str
    examples: tuple[Example, ...] = ()  # tests that can be believed, as data
    stdio: bool = False  # the program reads stdin and writes stdout; else a function is called
    entry_point: str = ""
    kinds: tuple[str, ...] = ()  # of the function's arguments, as `code.kinds` has them; empty where they are not known


@dataclass(frozen=True, slots=True)
class Reading:
    """A judge's scores of one program, in the order of its `names`; higher is more likely correct."""

    scores: tuple[float | None, ...] | None  # None: unreadable; None within: an abstention in that score
    why_not: str = ""


class Judge(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """A reading per program; scores that are not `wanted` may be None. Raises EvaluatorError."""
        ...

    def forget(self) -> None:
        """At the end of an iteration: drop readings whose last digits depend on their batch, as a restart does."""


def request(problem: Problem, text: str, block: str = "best") -> StaticRequest:
    """The static pass's input for a completion, whose answer is read as `block` says."""
    return StaticRequest(text, problem.tests, problem.entry_point, problem.question, block)


def program(problem: Problem, report: StaticReport) -> Program | None:
    """The judge's input; None where the static pass has decided or could not tell. A judge never sees the expected
    values that a proposer only claims."""
    if report.unavailable or report.quarantine or report.certain_failure or report.canonical is None:
        return None
    examples = () if problem.standing is Standing.CLAIMED else report.examples
    stdio = problem.style is Style.STDIO
    return Program(problem.question, report.canonical, examples, stdio, problem.entry_point, report.kinds)
