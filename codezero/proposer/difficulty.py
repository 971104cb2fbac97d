"""Which levels to ask proposers for: BandTS, a Beta band that moves the level and Thompson sampling around it.

Each problem's level is drawn where p(1 - p) is largest (learnability: Rutherford et al. 2024, "No Regrets"); p is what
the judge believes, corrected for its errors. After a change of skill most of what was believed is forgotten (CUSUM:
Page, "Continuous inspection schemes", 1954). `codezero bench difficulty` shows what each rule is worth.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.config.learning import HIGH, LOW
from codezero.proposer.judge_correction import Rates, beta_cdf, interval, never_rising, possible, tells
from codezero.system.state import StateFile
from codezero.types import Feedback, JudgeRates, Metrics, ScoredGroup

LOWEST, HIGHEST, FIRST = 1, 5, 2
_LEVELS = range(LOWEST, HIGHEST + 1)
CERTAINTY = 0.8
"""Posterior probability needed to move."""
EVIDENCE = 4
"""Problems needed since the last move."""
MEMORY = 0.99
"""Share of an observation left after the next at its level; elsewhere its fourth root, so unused levels grow unsure."""
HINT = 0.25
"""What peers say of a level in one iteration, in observations; and at most this share of what was seen here."""
TRIALS = 64
"""Draws behind the shares of the levels; always with the same noise, so that they move with the beliefs."""
SLACK, SURPRISE = 0.2, 1.2
"""How far a problem's success may be from what was believed of its level; and how much beyond that may add up."""
KEPT = 0.1
"""Share of what was believed that outlives a surprise."""

_Word = Annotated[int, Meta(ge=0, lt=2**32)]
_Sum = Annotated[float, Meta(ge=0.0, le=SURPRISE)]
_Counts = Annotated[list[Annotated[float, Meta(ge=1.0)]], Meta(min_length=HIGHEST, max_length=HIGHEST)]
_Hints = Annotated[list[Annotated[float, Meta(ge=0.0)]], Meta(min_length=HIGHEST, max_length=HIGHEST)]


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """The lists have one entry per level, the lowest first."""

    level: Annotated[int, Meta(ge=LOWEST, le=HIGHEST)]
    dwell: Annotated[int, Meta(ge=0)]
    """Problems of the present level observed since it was entered."""
    successes: _Counts
    failures: _Counts
    random_version: int
    random_words: tuple[_Word, ...]
    hints: _Hints = msgspec.field(default_factory=lambda: [0.0] * HIGHEST)
    """How much of the two comes from peers."""
    better: _Sum = 0.0
    """How much better than believed the last problems went, beyond the slack."""
    worse: _Sum = 0.0
    judge: JudgeRates | None = None


class BandTS(StateFile[_State], file="difficulty.json", schema=_State):
    """told_only: no attempts are seen here, and peers' feedback counts for observations."""

    def __init__(self, *, seed: int, told_only: bool = False) -> None:
        self._told_only = told_only
        self._random = Random(f"difficulty {seed}")
        self.memory = _State(FIRST, 0, [1.0] * HIGHEST, [1.0] * HIGHEST, 0, ())
        self._rates = possible(None)

    @property
    def level(self) -> int:
        return self.memory.level

    def observe(self, groups: Sequence[ScoredGroup], judge: JudgeRates | None = None) -> None:
        """One observation per problem whose level is known and that the judge could score; then at most one move.

        judge: how often it is mistaken; None: never. Nothing is learned from one that is mistaken too often.
        """
        if judge is not None and not tells(judge):
            return
        if judge != self.memory.judge:
            self.memory.judge, self._rates = judge, possible(judge)
        observed = False
        for group in groups:
            level, success = group.group.problem.level, group.success if judge is None else group.believed
            if level is not None and level in _LEVELS and success is not None and math.isfinite(success):
                self._count(level, min(max(success, 0.0), 1.0))
                observed = True
        if observed:
            self._move()

    def hear(self, feedback: Sequence[Feedback]) -> None:
        """What peers say of own proposals: of each level the median of the peers, as a small part of one observation.

        At no level may all hints together weigh more than HINT times what this node saw there itself, and they move
        no level: a crowd of liars bends the draws a little. With `told_only` it is all there is.
        """
        if self._told_only:
            self._rely_on(feedback)
            return
        reports: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for report in feedback:
            if report.level is not None and report.level in _LEVELS:
                reports[report.level][report.peer_id].append(report.success)
        for level, by_peer in reports.items():
            hints = self.memory.hints[level - 1]
            weight = min(HINT, HINT * (self._seen(level) - hints) - hints)
            if weight > 0:
                self._add(level, statistics.median(map(statistics.fmean, by_peer.values())), weight)
                self.memory.hints[level - 1] += weight

    def _rely_on(self, feedback: Sequence[Feedback]) -> None:
        """One observation per problem: the median of what peers say of it, each weighed by its trust."""
        reports: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for report in feedback:
            if report.level is not None and report.level in _LEVELS:
                reports[report.problem_id, report.level].append((report.success, report.trust))
        for (_, level), weighted in reports.items():
            self._count(level, _median(weighted))
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
            beliefs = interval(*self._beta(level), self.memory.judge, self._likeliest)
            for name, value in zip(("", "_low", "_high"), beliefs, strict=True):
                metrics[f"difficulty/success_{level}{name}"] = value
            metrics[f"difficulty/weight_{level}"] = drawn.count(level) / TRIALS
        return metrics

    def state(self) -> _State:
        self.memory.random_version, self.memory.random_words, _ = self._random.getstate()
        return self.memory

    def restore(self, state: _State) -> None:
        self._random.setstate((state.random_version, state.random_words, None))
        self.memory, self._rates = state, possible(state.judge)

    @property
    def _likeliest(self) -> Rates:
        """What the judge's rates were seen to be."""
        judge = self.memory.judge
        return Rates() if judge is None else Rates(judge.false_positive, judge.false_negative)

    def _count(self, level: int, success: float) -> None:
        self._notice(level, success)
        for other in _LEVELS:
            self._keep(other, MEMORY if other == level else MEMORY**0.25)
        self._add(level, success, 1.0)
        self.memory.dwell += level == self.memory.level

    def _notice(self, level: int, success: float) -> None:
        """Is this one problem too many that went otherwise than believed? Then the skill is another than it was."""
        memory, (right, wrong) = self.memory, self._beta(level)
        believed = right / (right + wrong)
        memory.better = max(0.0, memory.better + success - believed - SLACK)
        memory.worse = max(0.0, memory.worse + believed - success - SLACK)
        if max(memory.better, memory.worse) > SURPRISE:
            memory.better = memory.worse = 0.0
            for other in _LEVELS:
                self._keep(other, KEPT)

    def _keep(self, level: int, share: float) -> None:
        for counts in (self.memory.successes, self.memory.failures):
            counts[level - 1] = 1 + (counts[level - 1] - 1) * share
        self.memory.hints[level - 1] *= share

    def _add(self, level: int, success: float, weight: float) -> None:
        self.memory.successes[level - 1] += weight * success
        self.memory.failures[level - 1] += weight * (1 - success)

    def _beta(self, level: int) -> tuple[float, float]:
        return self.memory.successes[level - 1], self.memory.failures[level - 1]

    def _seen(self, level: int) -> float:
        return sum(self._beta(level)) - 2

    def _move(self) -> None:
        """Success at harder levels counts for going up, failure at easier ones for going down."""
        memory, truth = self.memory, self._likeliest.truth
        seen = {level: self._seen(level) for level in _LEVELS}
        right = {level: truth((self._beta(level)[0] - 1) / max(seen[level], 1e-9)) for level in _LEVELS}
        harder = sum(seen[level] * right[level] for level in _LEVELS if level > memory.level)
        easier = sum(seen[level] * (1 - right[level]) for level in _LEVELS if level < memory.level)
        if memory.dwell + harder + easier < EVIDENCE:
            return
        if 1 - self._below(HIGH, harder, 1) >= CERTAINTY and memory.level < HIGHEST:
            memory.level, memory.dwell = memory.level + 1, 0
        elif self._below(LOW, easier, 0) >= CERTAINTY and memory.level > LOWEST:
            memory.level, memory.dwell = memory.level - 1, 0

    def _below(self, success: float, others: float, truth: float) -> float:
        """Posterior probability of less than this `success` at the level. others: problems of other levels that count
        as if the share `truth` of their attempts was right here, as the judge would have seen it."""
        a, b = self._beta(self.memory.level)
        return statistics.fmean(
            beta_cdf(rates.judged(success), a + others * rates.judged(truth), b + others * (1 - rates.judged(truth)))
            for rates in self._rates
        )

    def _draw_one(self, chance: Random) -> int:
        rates = chance.choice(self._rates)  # the same judge at every level
        betas = [self._beta(level) for level in _LEVELS]
        draws = [rates.truth(chance.betavariate(*beta)) for beta in betas]
        success = dict(zip(_LEVELS, never_rising(draws, [*map(sum, betas)]), strict=True))
        near = range(max(LOWEST, self.level - 1), min(HIGHEST, self.level + 1) + 1)
        learnability = {level: success[level] * (1 - success[level]) for level in near}
        best = [level for level in near if learnability[level] >= max(learnability.values()) - 1e-12]
        # levels pooled by the projection tie: the harder when they are solved more often than not, else the easier
        return best[-1] if success[best[0]] > 0.5 else best[0]


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Of at least one (value, weight): the least value at or below which half of the weight lies."""
    half = sum(weight for _, weight in weighted) / 2
    return min(value for value, _ in weighted if sum(weight for other, weight in weighted if other <= value) >= half)
