"""The seam of what is learned. All parts but those of the environment `code` itself know a task through this alone.

`environments/` has the implementations, docs/environments.md says how to write one."""

from abc import ABC, abstractmethod

from codezero.types import Item, Problem


class Environment(ABC):
    """A task to learn: problems, their prompts, and which may be learned from."""

    name: str
    digest: str  # 64 hex digits of what decides its problems and scores; empty: its problems travel whole
    solver: str = ""  # the model that learns where the settings name the embedded one; empty: that one

    @property
    def facts(self) -> dict[str, str]:
        """Facts of a run that this environment decides."""
        return {}

    @abstractmethod
    def generate(self, origin: str) -> Problem:
        """The problem of a place in a peer's own sequence; the same for the same `origin`, and never held out."""

    @abstractmethod
    def prompt(self, problem: Problem) -> str:
        """The user's turn."""

    @abstractmethod
    def fault(self, problem: Problem) -> tuple[str, str] | None:
        """Find what is wrong with anybody's problem, as a reason and a few words. Never raises."""

    @abstractmethod
    def withholds(self, problem: Problem) -> bool:
        """Is it of the part that exams are drawn from, and nobody learns from?"""

    @abstractmethod
    def held_out(self, count: int, seed: int) -> list[Problem]:
        """Different problems of that part."""


class ScoredEnvironment(Environment):
    """One whose problems every node derives, and whose answers a rule scores."""

    @property
    def facts(self) -> dict[str, str]:
        problems = f"{self.name} {self.digest[:12]}"
        scorer = {"evaluator": f"rule of {self.name}", "proposer": "derived"}
        return {"environment": self.name, "problems": problems, **scorer}

    @abstractmethod
    def derive(self, item: Item) -> Problem:
        """The problem of a place. Raises ProblemError for one that it does not have."""

    @abstractmethod
    def drawn(self, level: int, origin: str) -> Problem:
        """As `generate`, of the level nearest to this."""

    @abstractmethod
    def score(self, problem: Problem, answer: str) -> float | None:
        """[0, 1]; None: could not tell. Raises EvaluatorError where the rule itself fails."""
