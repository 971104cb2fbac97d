"""Chooses the levels to ask proposers for: BandTS, a Beta band that moves the level and Thompson sampling around it.

Each problem's level is drawn where p(1 - p) is largest (learnability: Rutherford et al. 2024, "No Regrets"); p is what
the judge believes, corrected for its errors. After a change of skill most of what was believed is forgotten (CUSUM:
Page, "Continuous inspection schemes", 1954). `codezero bench difficulty` shows what each rule is worth.

Of attempts of which a share p is right, a judge believes q = fpr + p (1 - fpr - fnr), so p = (q - fpr) / (1 - fpr -
fnr): Rogan & Gladen, "Estimating prevalence from the results of a screening test", 1978. Levels are corrected, not
single groups, because cutting off what falls outside [0, 1] one by one is biased."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta
from scipy.optimize import isotonic_regression
from scipy.special import betainc, betaincinv

from codezero.config.learning import HIGH, LOW
from codezero.system.state import StateFile
from codezero.types import Feedback, JudgeRates, Metrics, ScoredGroup

MIN_INFORMEDNESS = 0.1  # of 1 - fpr - fnr; a judge below it says nothing of a level
TAILS = (0.025, 0.975)  # ends of the interval that is reported, as quantiles of the posterior
_SPREAD = (1 / 6, 1 / 2, 5 / 6)  # quantiles of a rate's posterior that stand for it, each for a third


class Rates(NamedTuple):
    """One pair of error rates that the judge may have."""

    false_positive: float = 0.0
    false_negative: float = 0.0

    @property
    def informedness(self) -> float:
        """Youden's J: how much more a right attempt is believed than a wrong one; at least MIN_INFORMEDNESS."""
        return max(MIN_INFORMEDNESS, 1 - self.false_positive - self.false_negative)

    def judged(self, truth: float) -> float:
        """The share believed where the share `truth` is right."""
        return min(1.0, self.false_positive + truth * self.informedness)

    def truth(self, judged: float) -> float:
        """The inverse, cut to [0, 1]."""
        return min(1.0, max(0.0, (judged - self.false_positive) / self.informedness))


def possible(rates: JudgeRates | None) -> tuple[Rates, ...]:
    """Pairs of rates, equally probable, that stand for what is known of the judge; None: it makes no mistakes."""
    if rates is None:
        return (Rates(),)
    positives = _quantiles(_SPREAD, rates.false_positive, rates.wrong)
    negatives = _quantiles(_SPREAD, rates.false_negative, rates.right)
    return tuple(itertools.starmap(Rates, itertools.product(positives, negatives)))


def interval(successes: float, failures: float, rates: JudgeRates | None, around: Rates) -> tuple[float, float, float]:
    """(mean, low, high) of the true success behind a Beta(successes, failures) of the judged one. `around`: the rates
    to correct with. The parts of the uncertainty add up squared (Lang & Reiczigel, "Confidence limits for prevalence of
    disease adjusted for estimated sensitivity and specificity", 2014; there with other intervals for the parts)."""
    mean = successes / (successes + failures)
    truth = around.truth(mean)
    own = [(beta_quantile(share, successes, failures) - mean) / around.informedness for share in TAILS]
    wrong = right = [0.0, 0.0]
    if rates is not None:
        wrong, right = (
            [(quantile - rate) / around.informedness for quantile in _quantiles(TAILS, rate, count)]
            for rate, count in ((rates.false_positive, rates.wrong), (rates.false_negative, rates.right))
        )
    low = math.hypot(own[0], (1 - truth) * wrong[1], truth * right[0])
    high = math.hypot(own[1], (1 - truth) * wrong[0], truth * right[1])
    return truth, max(0.0, truth - low), min(1.0, truth + high)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(cast(float, betaincinv(a, b, share)))


def _quantiles(shares: Sequence[float], rate: float, count: int) -> list[float]:
    """Return quantiles of the posterior of a rate seen in `count` trials, from Jeffreys' prior."""
    return [beta_quantile(share, 0.5 + rate * count, 0.5 + (1 - rate) * count) for share in shares]


LOWEST, HIGHEST, FIRST = 1, 5, 2
_LEVELS = range(LOWEST, HIGHEST + 1)
CERTAINTY = 0.8  # posterior probability needed to move
EVIDENCE = 4  # problems needed since the last move
MEMORY = 0.99  # of an observation left after the next of its level; of other levels its fourth root is left
HINT = 0.25  # what peers say of a level in one iteration, in observations; and at most this share of what was seen here
TRIALS = 64  # draws behind the shares of the levels; always with the same noise, so that they move with the beliefs
SLACK, SURPRISE = 0.2, 1.2  # how far success may be from belief; how much beyond that may add up
KEPT = 0.1  # share of what was believed that outlives a surprise

_Word = Annotated[int, Meta(ge=0, lt=2**32)]
_Sum = Annotated[float, Meta(ge=0.0, le=SURPRISE)]
_Counts = Annotated[list[Annotated[float, Meta(ge=1.0)]], Meta(min_length=HIGHEST, max_length=HIGHEST)]
_Hints = Annotated[list[Annotated[float, Meta(ge=0.0)]], Meta(min_length=HIGHEST, max_length=HIGHEST)]


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """The lists have one entry per level, the lowest first."""

    level: Annotated[int, Meta(ge=LOWEST, le=HIGHEST)]
    dwell: Annotated[int, Meta(ge=0)]  # problems of the present level observed since it was entered
    successes: _Counts
    failures: _Counts
    random_version: int
    random_words: tuple[_Word, ...]
    hints: _Hints  # how much of the two comes from peers
    better: _Sum  # how much better than believed the last problems went, beyond the slack
    worse: _Sum
    judge: JudgeRates | None


class BandTS(StateFile[_State], file="difficulty.json", schema=_State):
    """only_feedback: no attempts are seen here, and peers' feedback counts for observations."""

    def __init__(self, *, seed: int, only_feedback: bool = False) -> None:
        self._only_feedback = only_feedback
        self._random = Random(f"difficulty {seed}")
        self.memory = _State(FIRST, 0, [1.0] * HIGHEST, [1.0] * HIGHEST, 0, (), [0.0] * HIGHEST, 0.0, 0.0, None)
        self._rates = possible(None)

    @property
    def level(self) -> int:
        return self.memory.level

    def observe(self, groups: Sequence[ScoredGroup], judge: JudgeRates | None = None) -> None:
        """One observation per problem whose level is known and that the judge could score; then at most one move.
        judge: how often it is mistaken; None: never. Nothing is learned from one that is mistaken too often."""
        if judge is not None and 1 - judge.false_positive - judge.false_negative < MIN_INFORMEDNESS:
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
        """Count what peers report of own proposals: of each level their median, as a small part of one observation. At
        no level may all hints together weigh more than HINT times what this node saw there itself, and they move no
        level: a crowd of liars bends the draws a little. With `only_feedback` it is all there is."""
        if self._only_feedback:
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
        """Report for each level N `difficulty/success_N`, the true success as far as the judge tells it, with its 95 %
        interval in `_low` and `_high`; `difficulty/weight_N`, about which share of the next requests asks for it."""
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
        judge = self.memory.judge
        return Rates() if judge is None else Rates(judge.false_positive, judge.false_negative)

    def _count(self, level: int, success: float) -> None:
        """Forget most of what is believed once too much went otherwise: the skill is then another than it was."""
        memory, (right, wrong) = self.memory, self._beta(level)
        believed = right / (right + wrong)
        memory.better = max(0.0, memory.better + success - believed - SLACK)
        memory.worse = max(0.0, memory.worse + believed - success - SLACK)
        if max(memory.better, memory.worse) > SURPRISE:
            memory.better = memory.worse = 0.0
            for other in _LEVELS:
                self._keep(other, KEPT)
        for other in _LEVELS:
            self._keep(other, MEMORY if other == level else MEMORY**0.25)
        self._add(level, success, 1.0)
        memory.dwell += level == memory.level

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
        parts = ((others * rates.judged(truth), rates.judged(success)) for rates in self._rates)
        return statistics.fmean(float(cast(float, betainc(a + right, b + others - right, x))) for right, x in parts)

    def _draw_one(self, chance: Random) -> int:
        rates = chance.choice(self._rates)  # the same judge at every level
        betas = [self._beta(level) for level in _LEVELS]
        draws = [rates.truth(chance.betavariate(*beta)) for beta in betas]
        # the nearest sequence that never rises, by weighted least squares
        nearest: Any = isotonic_regression(draws, weights=[*map(sum, betas)], increasing=False)
        success = dict(zip(_LEVELS, nearest.x.tolist(), strict=True))
        near = range(max(LOWEST, self.level - 1), min(HIGHEST, self.level + 1) + 1)
        learnability = {level: success[level] * (1 - success[level]) for level in near}
        best = [level for level in near if learnability[level] >= max(learnability.values()) - 1e-12]
        # levels pooled by the projection tie: the harder when they are solved more often than not, else the easier
        return best[-1] if success[best[0]] > 0.5 else best[0]


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the least value at or below which half of the weight lies."""
    half = sum(weight for _, weight in weighted) / 2
    return min(value for value, _ in weighted if sum(weight for other, weight in weighted if other <= value) >= half)
