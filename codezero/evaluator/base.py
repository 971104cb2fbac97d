"""The evaluator as every other part knows it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from codezero.types import JudgeRates, Metrics, RolloutGroup, ScoredGroup


class Evaluator(ABC):
    """Scores attempts: by a judge, by execution, or by an environment's own rule. Its state is in every checkpoint."""

    @abstractmethod
    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError, and SandboxError where rewards are executed."""

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:  # noqa: B027 - there may be no judge
        """Test the judge itself, once an iteration. Raises EvaluatorError, SandboxError and AlarmError."""

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        """`judge/...` of an exam, by execution [groups][G]: it raises alarms, and may take the judge's weight.

        Empty where the reward is the truth.
        """
        return {}

    def rates(self) -> JudgeRates | None:
        """The judge's error rates, which correct what it says of success; None where attempts are executed."""
        return None

    def examined(self) -> "Evaluator | None":
        """The judge alone, whatever it counts for, as an exam tests it; None where there is no judge to test."""
        return None

    @abstractmethod
    def metrics(self) -> Metrics:
        """`judge/...`: how far this judge can be believed; `audit/...` where attempts are executed to see it."""

    def save(self, folder: Path) -> None:  # noqa: B027 - one without state writes nothing
        """Write what it goes on from into `folder`."""

    def load(self, folder: Path) -> None:  # noqa: B027
        """Become what `save` wrote. Raises CheckpointError."""
