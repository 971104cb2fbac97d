"""Which levels to ask proposers for: BandTS, a Beta band that moves the level and Thompson sampling around it.

The band steps up when the judged success at the level is surely above it and down when it is surely below. Each
single problem's level is then drawn near it, where p(1 - p) is largest: groups whose attempts all succeed or all
fail teach nothing (learnability: Rutherford et al. 2024, "No Regrets"). Success is what the judge believes, corrected
by how often it is known to be mistaken (`judge_correction.py`). When problems go better or worse than was believed
for several in a row, the skill has changed and most of what was believed is forgotten (CUSUM: Page, "Continuous
inspection schemes", 1954); `codezero bench difficulty` shows what each rule is worth.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from codezero.proposer.judge_correction import Rates, beta_cdf, interval, never_rising, possible, tells
from codezero.system.state import StateFile
from codezero.types import Feedback, JudgeRates, Metrics, ScoredGroup

LOWEST, HIGHEST, FIRST = 1, 5, 2
_LEVELS = range(LOWEST, HIGHEST + 1)
HINT = 0.25
"""What peers say of a level in one iteration, in observations; and at most this share of what was seen here."""
TRIALS = 64
"""Draws that the shares of the levels are told from; always with the same noise, so that they move with the beliefs."""
TAIL = 0.025
"""Of the posterior, outside either end of the interval that is told."""
SLACK, SURPRISE = 0.2, 1.2
"""How far a problem's success may be from what was believed of its level; and how much beyond that may add up."""
KEPT = 0.1
"""Share of what was believed that outlives a surprise."""

_Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Count = Annotated[float, msgspec.Meta(ge=1.0)]
_Hint = Annotated[float, msgspec.Meta(ge=0.0)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Sum = Annotated[float, msgspec.Meta(ge=0.0, le=SURPRISE)]


class _Judge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    false_positive: _Share
    false_negative: _Share
    wrong: Annotated[int, msgspec.Meta(ge=1)]
    right: Annotated[int, msgspec.Meta(ge=1)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Annotated[int, msgspec.Meta(ge=LOWEST, le=HIGHEST)]
    dwell: Annotated[int, msgspec.Meta(ge=0)]
    successes: Annotated[tuple[_Count, ...], msgspec.Meta(min_length=HIGHEST, max_length=HIGHEST)]
    failures: Annotated[tuple[_Count, ...], msgspec.Meta(min_length=HIGHEST, max_length=HIGHEST)]
    random_version: int
    random_words: tuple[_Word, ...]
    hints: Annotated[tuple[_Hint, ...], msgspec.Meta(min_length=HIGHEST, max_length=HIGHEST)] = (0.0,) * HIGHEST
    better: _Sum = 0.0
    worse: _Sum = 0.0
    judge: _Judge | None = None


class BandTS(StateFile[_State], file="difficulty.json", schema=_State):
    """low, high: the band of success the level is kept in. certainty: posterior probability needed to move.

    evidence: problems needed since the last move. memory: weight an observation keeps after the next at its level;
    the other levels forget at its fourth root, so that unused levels regain uncertainty. told_only: no attempts are
    seen here, and peers' feedback counts for observations.
    """

    def __init__(
        self,
        *,
        seed: int,
        low: float = 0.3,
        high: float = 0.7,
        certainty: float = 0.8,
        evidence: int = 4,
        memory: float = 0.99,
        told_only: bool = False,
    ) -> None:
        self._told_only = told_only
        self._low, self._high = low, high
        self._certainty, self._evidence, self._memory = certainty, evidence, memory
        self._random = Random(f"difficulty {seed}")
        self._level = FIRST
        self._dwell = 0
        """Problems of the present level observed since it was entered."""
        self._successes = dict.fromkeys(_LEVELS, 1.0)
        self._failures = dict.fromkeys(_LEVELS, 1.0)
        self._hints = dict.fromkeys(_LEVELS, 0.0)
        """How much of the two is hearsay."""
        self._better = self._worse = 0.0
        """How much better, and worse, than believed the last problems went, beyond the slack."""
        self._judge: JudgeRates | None = None
        self._rates = possible(None)

    @property
    def level(self) -> int:
        return self._level

    def observe(self, groups: Sequence[ScoredGroup], judge: JudgeRates | None = None) -> None:
        """One observation per problem whose level is known and that the judge could score; then at most one move.

        judge: how often it is mistaken; None: never. Nothing is learned from one that is mistaken too often.
        """
        if judge is not None and not tells(judge):
            return
        if judge != self._judge:
            self._judge, self._rates = judge, possible(judge)
        seen = False
        for group in groups:
            level, success = group.group.problem.level, group.success if judge is None else group.believed
            if level is not None and level in _LEVELS and success is not None and math.isfinite(success):
                self._count(level, min(max(success, 0.0), 1.0))
                seen = True
        if seen:
            self._move()

    def hear(self, feedback: Sequence[Feedback]) -> None:
        """What peers say of own proposals: of each level the median of the peers, as a small part of one observation.

        At no level may all hints together weigh more than HINT times what this node saw there itself, and they move
        no level: a crowd of liars bends the draws a little. With `told_only` it is all there is.
        """
        if self._told_only:
            self._rely_on(feedback)
            return
        reports: dict[int, dict[str, list[float]]] = {}
        for report in feedback:
            if report.level is not None and report.level in _LEVELS:
                reports.setdefault(report.level, {}).setdefault(report.peer_id, []).append(report.success)
        for level, by_peer in reports.items():
            seen = self._seen(level) - self._hints[level]
            weight = min(HINT, HINT * seen - self._hints[level])
            if weight > 0:
                success = statistics.median(statistics.fmean(successes) for successes in by_peer.values())
                self._add(level, success, weight)
                self._hints[level] += weight

    def _rely_on(self, feedback: Sequence[Feedback]) -> None:
        """One observation per problem: the median of what peers say of it, each weighed by its trust."""
        reports: dict[str, list[Feedback]] = {}
        for report in feedback:
            if report.level is not None and report.level in _LEVELS:
                reports.setdefault(report.problem_id, []).append(report)
        for of_problem in reports.values():
            level = of_problem[0].level
            assert level is not None
            self._count(level, _median([(report.success, report.trust) for report in of_problem]))
        if reports:
            self._move()

    def draw(self, count: int) -> list[int]:
        """A level for each of the next `count` problems, at most one away from `level`."""
        return [self._draw_one(self._random) for _ in range(count)]

    def metrics(self) -> Metrics:
        """Of each level N: `difficulty/success_N`, the true success as far as the judge tells it, with its interval of
        95 % in `_low` and `_high`; `difficulty/weight_N`, about which share of the next requests will ask for it."""
        chance = Random(TRIALS)
        drawn = [self._draw_one(chance) for _ in range(TRIALS)]
        metrics: Metrics = {}
        for level in _LEVELS:
            a, b = self._successes[level], self._failures[level]
            mean, low, high = interval(a, b, self._judge, self._likeliest, TAIL)
            metrics[f"difficulty/success_{level}"] = mean
            metrics[f"difficulty/success_{level}_low"] = low
            metrics[f"difficulty/success_{level}_high"] = high
            metrics[f"difficulty/weight_{level}"] = drawn.count(level) / TRIALS
        return metrics

    def state(self) -> _State:
        version, words, _ = self._random.getstate()
        return _State(
            level=self._level,
            dwell=self._dwell,
            successes=tuple(self._successes.values()),
            failures=tuple(self._failures.values()),
            hints=tuple(self._hints.values()),
            better=self._better,
            worse=self._worse,
            judge=self._judge and _Judge(**dataclasses.asdict(self._judge)),
            random_version=version,
            random_words=words,
        )

    def restore(self, state: _State) -> None:
        self._random.setstate((state.random_version, state.random_words, None))
        self._level, self._dwell = state.level, state.dwell
        self._successes = dict(zip(_LEVELS, state.successes, strict=True))
        self._failures = dict(zip(_LEVELS, state.failures, strict=True))
        self._hints = dict(zip(_LEVELS, state.hints, strict=True))
        self._better, self._worse = state.better, state.worse
        self._judge = None if state.judge is None else JudgeRates(**msgspec.structs.asdict(state.judge))
        self._rates = possible(self._judge)

    @property
    def _likeliest(self) -> Rates:
        """What the judge's rates were seen to be."""
        judge = self._judge
        return Rates() if judge is None else Rates(judge.false_positive, judge.false_negative)

    def _count(self, level: int, success: float) -> None:
        self._notice(level, success)
        for other in _LEVELS:
            self._keep(other, self._memory if other == level else self._memory**0.25)
        self._add(level, success, 1.0)
        self._dwell += level == self._level

    def _notice(self, level: int, success: float) -> None:
        """Is this one problem too many that went otherwise than believed? Then the skill is another than it was."""
        believed = self._successes[level] / (self._successes[level] + self._failures[level])
        self._better = max(0.0, self._better + success - believed - SLACK)
        self._worse = max(0.0, self._worse + believed - success - SLACK)
        if max(self._better, self._worse) > SURPRISE:
            self._better = self._worse = 0.0
            for other in _LEVELS:
                self._keep(other, KEPT)

    def _keep(self, level: int, share: float) -> None:
        self._successes[level] = 1 + (self._successes[level] - 1) * share
        self._failures[level] = 1 + (self._failures[level] - 1) * share
        self._hints[level] *= share

    def _add(self, level: int, success: float, weight: float) -> None:
        self._successes[level] += weight * success
        self._failures[level] += weight * (1 - success)

    def _move(self) -> None:
        """Success at harder levels counts for going up, failure at easier ones for going down."""
        successes, failures = self._successes[self._level], self._failures[self._level]
        right = {level: self._likeliest.truth(self._share_seen(level)) for level in _LEVELS}
        harder = sum(self._seen(level) * right[level] for level in _LEVELS if level > self._level)
        easier = sum(self._seen(level) * (1 - right[level]) for level in _LEVELS if level < self._level)
        if self._dwell + harder + easier < self._evidence:
            return
        # what was right, or wrong, at another level counts here as the judge would have seen it here
        above = 1 - statistics.fmean(
            beta_cdf(
                rates.judged(self._high),
                successes + harder * rates.judged(1),
                failures + harder * (1 - rates.judged(1)),
            )
            for rates in self._rates
        )
        below = statistics.fmean(
            beta_cdf(
                rates.judged(self._low), successes + easier * rates.judged(0), failures + easier * (1 - rates.judged(0))
            )
            for rates in self._rates
        )
        if above >= self._certainty and self._level < HIGHEST:
            self._enter(self._level + 1)
        elif below >= self._certainty and self._level > LOWEST:
            self._enter(self._level - 1)

    def _seen(self, level: int) -> float:
        """Observations that are remembered of a level."""
        return self._successes[level] + self._failures[level] - 2

    def _share_seen(self, level: int) -> float:
        """Judged success in them; 0 with none."""
        return (self._successes[level] - 1) / max(self._seen(level), 1e-9)

    def _enter(self, level: int) -> None:
        self._level = level
        self._dwell = 0

    def _draw_one(self, chance: Random) -> int:
        rates = chance.choice(self._rates)  # the same judge at every level
        draws = [rates.truth(chance.betavariate(self._successes[i], self._failures[i])) for i in _LEVELS]
        weights = [self._successes[i] + self._failures[i] for i in _LEVELS]
        success = dict(zip(_LEVELS, never_rising(draws, weights), strict=True))
        near = range(max(LOWEST, self._level - 1), min(HIGHEST, self._level + 1) + 1)
        learnability = {level: success[level] * (1 - success[level]) for level in near}
        best = [level for level in near if learnability[level] >= max(learnability.values()) - 1e-12]
        # levels pooled by the projection tie: the harder when they are solved more often than not, else the easier
        return best[-1] if success[best[0]] > 0.5 else best[0]


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Of at least one (value, weight): the least value at or below which half of the weight lies."""
    half = sum(weight for _, weight in weighted) / 2
    return min(value for value, _ in weighted if sum(weight for other, weight in weighted if other <= value) >= half)
