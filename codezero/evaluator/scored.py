"""An environment's own rule as the evaluator: the score of an answer is its reward. No judge, and nothing is executed.

An answer on which the rule itself fails is unavailable, never wrong: whoever wrote it loses it, and nobody else.
"""

import logging
from collections.abc import Sequence

from codezero.environment import ScoredEnvironment
from codezero.errors import EvaluatorError
from codezero.evaluator.base import Evaluator
from codezero.evaluator.reward import unavailable
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Status, Verdict

logger = logging.getLogger(__name__)


class ScoredEvaluator(Evaluator):
    """An environment's rule. Its verdicts have no other parts: each is the score."""

    def __init__(self, environment: ScoredEnvironment) -> None:
        self._environment, self._scored, self._failed = environment, 0, 0

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """Raises EvaluatorError where the rule fails on every answer of several."""
        scored = [
            ScoredGroup(group, tuple(self._verdict(group.problem, each) for each in group.completions))
            for group in groups
        ]
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
