"""Judge and reward of the user's own code: made to fit, and held to what they have to return.

Whatever they raise or return that cannot be used is an EvaluatorError, as of a judge that cannot be asked.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from codezero.config.contradictions import JUDGES, REWARDS
from codezero.config.learning import named
from codezero.errors import ConfigError, EvaluatorError
from codezero.evaluator.reward import unavailable
from codezero.evaluator.types import Program, Reading
from codezero.plugins import blamed, load_object
from codezero.types import ScoredGroup, Verdict

JUDGE = ("names", "read", "forget")
"""What `types.Judge` has."""


class OwnJudge:
    """A `types.Judge` of an object that is one, or that has, or is, score(question, code) -> float | None."""

    def __init__(self, spec: Any) -> None:
        """Raises ConfigError."""
        self._what = f"evaluator.object={named(spec)}"
        given = load_object(spec, "evaluator.object", group=JUDGES)
        self._judge = given if all(hasattr(given, name) for name in JUDGE) else None
        self._score = getattr(given, "score", given)
        if self._judge is None and not callable(self._score):
            lacks = f"is a {type(given).__name__} without score, or {', '.join(JUDGE)}"
            raise ConfigError(f"{self._what} {lacks}; add what is missing")
        self.names: tuple[str, ...] = tuple(self._judge.names) if self._judge else ("score",)

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """See `types.Judge`. Raises EvaluatorError, also for a score that is no finite number."""
        with blamed(EvaluatorError, self._what):
            if self._judge is None:
                readings = [Reading((self._score(program.question, program.code),)) for program in programs]
            else:
                readings = list(cast("Iterable[Reading]", self._judge.read(programs, wanted)))
            wrong = [score for reading in readings for score in reading.scores or () if not _usable(score)]
            lengths = {len(reading.scores) for reading in readings if reading.scores is not None}
        if wrong:
            raise EvaluatorError(f"{self._what} scored {wrong[0]!r}; a score is a finite number, or None")
        if len(readings) != len(programs) or not lengths <= {len(self.names)}:
            raise EvaluatorError(f"{self._what} must return a score of each name for each of {len(programs)} programs")
        return readings

    def forget(self) -> None:
        with blamed(EvaluatorError, self._what):
            if self._judge is not None:
                self._judge.forget()


def _usable(score: object) -> bool:
    return score is None or math.isfinite(cast(float, score))


def own_reward(spec: Any) -> Callable[[ScoredGroup], ScoredGroup]:
    """Puts the rewards of `reward.function` in the place of the evaluator's, where a verdict may carry gradient.

    Attempts without tokens are left alone: nobody learns from an exam's. Raises ConfigError; what is returned raises
    EvaluatorError.
    """
    what = f"reward.function={named(spec)}"
    function = load_object(spec, "reward.function", ("__call__",), REWARDS)

    def rewarded(scored: ScoredGroup) -> ScoredGroup:
        if not any(completion.token_ids for completion in scored.group.completions):
            return scored
        with blamed(EvaluatorError, what):
            given = [None if each is None else float(each) for each in function(scored)]
        if len(given) != len(scored.verdicts):
            raise EvaluatorError(f"{what} returned {len(given)} rewards for {len(scored.verdicts)} attempts")
        pairs = zip(scored.verdicts, given, strict=True)
        return replace(scored, verdicts=tuple(with_reward(verdict, each) for verdict, each in pairs))

    def with_reward(verdict: Verdict, reward: float | None) -> Verdict:
        if not verdict.trainable:
            return verdict
        if reward is None:
            return unavailable(f"{what} gave no reward")
        if not 0 <= reward <= 1:  # NaN is in no range
            raise EvaluatorError(f"{what} returned {reward}; a reward is a number from 0 to 1, or None")
        return replace(verdict, reward=reward, reasons=(*verdict.reasons, f"rewarded by {named(spec)}"))

    return rewarded
