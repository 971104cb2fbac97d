"""Judge and reward of the user's own code: made to fit, and held to what they have to return.

Whatever a judge raises or returns that cannot be used is an EvaluatorError, as of one that cannot be asked; a reward
costs the attempts that it is about."""

import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from codezero.config import JUDGES, REWARDS
from codezero.config.learning import named
from codezero.errors import ConfigError, EvaluatorError, OwnCodeError
from codezero.evaluator.base import unavailable
from codezero.evaluator.types import Program, Reading
from codezero.system.plugins import blamed, load_object
from codezero.types import ScoredGroup, Verdict

logger = logging.getLogger(__name__)

JUDGE = ("names", "read", "forget")  # what `types.Judge` has
CALLS = 32  # groups of attempts that tell a reward that fails from one that failed: an iteration's or two


class _Failures:
    """Counts what own code could not say."""

    def __init__(self, lost: str) -> None:
        """lost: what is lost by each, in the plural."""
        self._lost, self._count = lost, 0

    def add(self, errors: Sequence[EvaluatorError]) -> None:
        """A warning, with the trace at the first, and whenever the number has another digit."""
        before, self._count = self._count, self._count + len(errors)
        if errors and (not before or len(str(before)) < len(str(self._count))):
            trace = None if before else errors[0].__cause__
            logger.warning("%s so far: %d; %s", self._lost, self._count, errors[0], exc_info=trace)


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
        with blamed(ConfigError, self._what):
            self.names: tuple[str, ...] = tuple(self._judge.names) if self._judge else ("score",)
        self._failures = _Failures("programs without a score")

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """See `types.Judge`. Raises EvaluatorError, also for a score that is no finite number. A program on which
        `score` fails costs no other one its reading, while those are the fewer."""
        if self._judge is None:
            readings, failures = list[Reading](), list[EvaluatorError]()
            for program in programs:
                try:
                    with blamed(EvaluatorError, self._what):
                        readings.append(self._checked(Reading((self._score(program.question, program.code),))))
                except EvaluatorError as error:
                    failures.append(error)
                    readings.append(Reading(None, f"{error!s:.300}"))
            if 2 * len(failures) > len(programs):
                raise failures[0]
            self._failures.add(failures)
            return readings
        with blamed(EvaluatorError, self._what):
            readings = [self._checked(each) for each in cast("Iterable[Reading]", self._judge.read(programs, wanted))]
            lengths = {len(reading.scores) for reading in readings if reading.scores is not None}
        if len(readings) != len(programs) or not lengths <= {len(self.names)}:
            raise EvaluatorError(f"{self._what} must return a score of each name for each of {len(programs)} programs")
        return readings

    def _checked(self, reading: Reading) -> Reading:
        if wrong := [score for score in reading.scores or () if score is not None and not math.isfinite(score)]:
            raise EvaluatorError(f"{self._what} scored {wrong[0]!r}; a score is a finite number, or None")
        return reading

    def forget(self) -> None:
        with blamed(EvaluatorError, self._what):
            if self._judge is not None:
                self._judge.forget()


class OwnReward:
    """Puts the rewards of `reward.function` in the place of the evaluator's, where a verdict may carry gradient. An
    attempt that it gives no usable reward is unavailable; a call that raises, or returns rewards of another scale or
    number, costs its group. Attempts without tokens are left alone: nobody learns from an exam's."""

    def __init__(self, spec: Any, own: str = "") -> None:
        """own: peer id whose calls may end the run; a stranger's attempts may not. Raises ConfigError."""
        self._what, self._reason, self._own = f"reward.function={named(spec)}", f"rewarded by {named(spec)}", own
        self._function = load_object(spec, "reward.function", ("__call__",), REWARDS)
        self._failures, self._calls = _Failures("attempts without a reward"), deque[tuple[int, int]](maxlen=CALLS)

    def __call__(self, scored: ScoredGroup) -> ScoredGroup:
        """Raises OwnCodeError when it fails on more than half of the attempts of the last CALLS own groups."""
        if not any(completion.token_ids for completion in scored.group.completions):
            return scored
        try:
            with blamed(EvaluatorError, self._what):
                given = list(self._function(scored))
            if len(given) != len(scored.verdicts):
                counts = f"{len(given)} rewards for {len(scored.verdicts)} attempts"
                raise EvaluatorError(f"{self._what} returned {counts}")
            pairs = zip(scored.verdicts, given, strict=True)
            verdicts = [self._with(verdict, each) if verdict.trainable else verdict for verdict, each in pairs]
        except EvaluatorError as error:
            verdicts = [error if verdict.trainable else verdict for verdict in scored.verdicts]
        failures = [each for each in verdicts if isinstance(each, EvaluatorError)]
        self._failures.add(failures)
        if scored.group.peer_id == self._own:
            self._calls.append((len(failures), len(scored.trainable)))
            lost, total = (sum(counts) for counts in zip(*self._calls, strict=True))
            if failures and len(self._calls) == CALLS and 2 * lost > total:
                share = f"no usable reward for {lost} of the last {total} attempts"
                raise OwnCodeError(f"{self._what}: {share}; the last failure: {failures[-1]}") from failures[-1]
        known = [unavailable(f"{each!s:.300}") if isinstance(each, EvaluatorError) else each for each in verdicts]
        return replace(scored, verdicts=tuple(known))

    def _with(self, verdict: Verdict, given: Any) -> Verdict | EvaluatorError:
        """The verdict with the reward, or why there is none. Raises EvaluatorError for a reward of another scale, which
        says as little about the rest of its group."""
        try:
            with blamed(EvaluatorError, self._what):
                reward = None if given is None else float(given)
        except EvaluatorError as error:
            return error
        if reward is None:
            return unavailable(f"{self._what} gave no reward")
        if 0 <= reward <= 1:
            return replace(verdict, reward=reward, reasons=(*verdict.reasons, self._reason))
        wrong = EvaluatorError(f"{self._what} returned {reward}; a reward is a number from 0 to 1, or None")
        if math.isfinite(reward):
            raise wrong
        return wrong
