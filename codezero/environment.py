"""The seam of what is learned. All parts but those of the environment `code` itself know a task through this alone.

`environments/` has the implementations, docs/environments.md says how to write one.
"""

from typing import Protocol

from codezero.types import Item, Problem


class Environment(Protocol):
    """What is learned: problems, how they are asked, and which may be learned from."""

    name: str
    digest: str
    """64 hex digits of what decides its problems and scores; empty: its problems travel whole."""

    def generate(self, origin: str) -> Problem:
        """The problem of a place in a peer's own sequence; the same for the same `origin`, and never held out."""
        ...

    def prompt(self, problem: Problem, feedback: str = "") -> str:
        """The user's turn. feedback: on an attempt before this one."""
        ...

    def fault(self, problem: Problem) -> tuple[str, str] | None:
        """What is wrong with anybody's problem, as a reason and a few words. Never raises."""
        ...

    def withholds(self, problem: Problem) -> bool:
        """Is it of the part that exams are drawn from, and nobody learns from?"""
        ...

    def held_out(self, count: int, seed: int) -> list[Problem]:
        """Different problems of that part."""
        ...


class ScoredEnvironment(Environment, Protocol):
    """One whose problems every node derives, and whose answers a rule scores."""

    def derive(self, item: Item) -> Problem:
        """The problem of a place. Raises ProblemError for one that it does not have."""
        ...

    def drawn(self, level: int, origin: str) -> Problem:
        """As `generate`, of the level nearest to this."""
        ...

    def score(self, problem: Problem, answer: str) -> float | None:
        """[0, 1]; None: could not tell. Raises EvaluatorError where the rule itself fails."""
        ...
