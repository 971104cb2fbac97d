"""The evaluator as every other part knows it, and the one that is an environment's own rule."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from codezero.environment import ScoredEnvironment
from codezero.errors import EvaluatorError
from codezero.types import Completion, JudgeRates, Metrics, Problem, RolloutGroup, ScoredGroup, Status, Verdict

logger = logging.getLogger(__name__)


class Evaluator(ABC):
    """Scores attempts: by a judge, by execution, or by an environment's own rule. Its state is in every checkpoint."""

    @abstractmethod
    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError, and SandboxError where rewards are executed."""

    def begin(self, group: RolloutGroup) -> None:  # noqa: B027 - there may be nothing that other processes do
        """Start on a group while others are still sampled: `score` then waits for it, and not for all of them."""

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:  # noqa: B027 - there may be no judge
        """Test the judge itself, once an iteration. Raises EvaluatorError, SandboxError and AlarmError."""

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        """`judge/...` of an exam, by execution [groups][G]: it raises alarms, and may take the judge's weight. Empty
        where the reward is the truth."""
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


def unavailable(why: str) -> Verdict:
    """Could not tell: masked out, never a 0 that counts."""
    return Verdict(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Status.UNAVAILABLE, (why,))


def quarantined(*reasons: str) -> Verdict:
    """An attack on whoever decides: nothing is learned from it."""
    return Verdict(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Status.QUARANTINED, reasons)


class ScoredEvaluator(Evaluator):
    """An environment's own rule: the score of an answer is its reward, and every part of it. Nothing is executed. An
    answer on which the rule itself fails is unavailable, never wrong: whoever wrote it loses it, and nobody else."""

    def __init__(self, environment: ScoredEnvironment) -> None:
        self._environment, self._scored, self._failed = environment, 0, 0

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """Raises EvaluatorError where the rule fails on every answer of several."""
        rows = [tuple(self._verdict(group.problem, each) for each in group.completions) for group in groups]
        scored = list(map(ScoredGroup, groups, rows))
        verdicts = [verdict for group in scored for verdict in group.verdicts]
        failed = [verdict.reasons[0] for verdict in verdicts if verdict.status is Status.UNAVAILABLE]
        self._scored, self._failed = self._scored + len(verdicts), self._failed + len(failed)
        if len(failed) == len(verdicts) > 1:
            raise EvaluatorError(f"environment {self._environment.name}: no answer could be scored: {failed[0]}")
        return scored

    def metrics(self) -> Metrics:
        """`judge/...`: of the answers since the last call."""
        scored, failed, self._scored, self._failed = self._scored, self._failed, 0, 0
        share = failed / scored if scored else None
        return {"judge/identity": f"rule of {self._environment.name}", "judge/unavailable_share": share}

    def _verdict(self, problem: Problem, answer: Completion) -> Verdict:
        try:
            score = self._environment.score(problem, answer.text)
        except EvaluatorError as error:
            logger.warning("%.200s, of %.80r", error, answer.text)
            return unavailable(f"{error!s:.200}")
        if score is None:
            return unavailable("the rule could not tell")
        reasons = (f"scores {score:.2g}", *(() if answer.finished else ("no end of text",)))
        return Verdict(score, score, score, score, score, 1.0, Status.JUDGED, reasons)
