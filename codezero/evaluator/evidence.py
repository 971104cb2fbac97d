"""Evidence about the judge: the canary buffer, executed attempts, and the drift tests on both.

The reward may rise while the truth falls (Gao et al., "Scaling laws for reward model overoptimization", 2023), so a run
tests its judge all the time. Pure functions: evidence in, reasons out; but for the audit, which executes a sample of
the judged attempts in a sandbox, beside the reward and never in it. Half of it is drawn by judged correctness, half by
peer and level, so that rare kinds are seen. Every figure weighs an attempt with the inverse of its chance to be drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from codezero import stats
from codezero.evaluator.calibration import SKILL, Calibration, CanaryKind
from codezero.evaluator.types import Program
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import GroupOrder, Interval, WithinGroups, auroc, auroc_interval, group_order, within_groups
from codezero.types import BELIEF, Metrics, Problem, ScoredGroup, Standing, Status, Style, mean

MOST_BELIEVED = 0.10  # share of attacks or transplants that may be believed, if no more of mutants is
MOST_LOST = 0.05  # AUROC on canaries that may be lost since calibration
MOST_GAP = 0.05  # judged minus executed success that may certainly have been added to what it was at first
LEAST_EXECUTED = 50
ENOUGH_GROUPS = 40
"""Groups with a right and a wrong attempt that tell a judge's skill within groups: with 4 attempts each, 120 pairs.
The interval is then some 0.09 to either side: of simulated judges a coin never reaches SKILL, an AUROC of 0.73 in 97 %.
"""
MOST_OF_A_KIND = 0.25  # share of the buffer that transplants, and audited attempts, may each fill

Pair = tuple[float, bool]  # (judged correctness, passed when executed)


@dataclass(frozen=True, slots=True)
class EventRate:
    """A share with its interval of 95 %."""

    share: float | None  # None: nothing to take a share of
    interval: Interval
    count: int


@dataclass(frozen=True, slots=True)
class Look:
    """The last result of the drift tests on one source of evidence."""

    reasons: tuple[str, ...] = ()  # why it is alarming; empty when it is not
    strikes: int = 0  # alarming results in a row


@dataclass(frozen=True, slots=True)
class Gap:
    """Judged minus executed success, on attempts that were executed."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class JudgedCanary:
    problem: str  # id; canaries of one problem stay in one fold
    program: Program | None  # None: the static pass refused it, so it is not believed
    right: bool
    kind: CanaryKind
    scores: tuple[float | None, ...] | None = None  # by the judge's names; None: unread or unreadable


def compared(
    scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]
) -> tuple[list[Pair], list[GroupOrder]]:
    """Pair judged and executed success of all attempts that both decided; and order those of each group that the
    static pass left to the judge."""
    pairs, orders = list[Pair](), list[GroupOrder]()
    for group, truths in zip(scored, passed, strict=True):
        decided = zip(group.verdicts, truths, strict=True)
        known = [(each, truth) for each, truth in decided if each.trainable and truth is not None]
        pairs += [(verdict.correctness, truth) for verdict, truth in known]
        judged = [(verdict.correctness, truth) for verdict, truth in known if verdict.status is Status.JUDGED]
        orders.append(group_order(judged))
    return pairs, orders


def within_metrics(name: str, within: WithinGroups | None) -> Metrics:
    """`NAME` is the AUROC within groups; also its interval, and of how many pairs and groups it is."""
    keys = (name, *(f"{name}_{part}" for part in ("low", "high", "pairs", "groups")))
    return dict(zip(keys, within or [None] * len(keys), strict=True))


def executed_metrics(pairs: Sequence[Pair], orders: Sequence[GroupOrder]) -> Metrics:
    """Measure how far the judge can be believed about attempts that were executed.

    `judge/auroc` is over all attempts, of whatever problem, `judge/exam_within_auroc` over pairs of one group.
    `judge/ece` is the mean distance of a stated probability from the share that passed, in ten bins.
    `judge/false_positive_share` is the share of failed attempts it believes, `judge/false_negative_share` the share
    of passed attempts it does not believe, both at 0.5."""
    scores, truths = [score for score, _ in pairs], [truth for _, truth in pairs]
    return {
        "judge/auroc": auroc(scores, truths) if 0 < sum(truths) < len(truths) else None,
        "judge/ece": stats.ece(np.array(scores), np.array(truths)) if pairs else None,
        "judge/believed": mean(scores),
        "judge/false_positive_share": mean(score >= BELIEF for score, truth in pairs if not truth),
        "judge/false_negative_share": mean(score < BELIEF for score, truth in pairs if truth),
    } | within_metrics("judge/exam_within_auroc", within_groups(orders))


def weighted_mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Hájek's estimator: the weighted sum over the sum of the weights; None for nothing."""
    total = sum(weight for weight, _ in weighted)
    return sum(weight * value for weight, value in weighted) / total if total else None


def event_rate(weighted: Sequence[tuple[float, bool]]) -> EventRate:
    """The share of (weight, event) by Wilson's interval at Kish's effective number of trials."""
    share = weighted_mean(weighted)
    if share is None:
        return EventRate(None, Interval(0.0, 1.0), 0)
    effective = sum(weight for weight, _ in weighted) ** 2 / sum(weight**2 for weight, _ in weighted)
    return EventRate(share, stats.wilson(min(1.0, share), effective), len(weighted))


def gap_of(pairs: Sequence[Pair]) -> Gap | None:
    """None for too few."""
    if len(pairs) < LEAST_EXECUTED:
        return None
    return Gap(*stats.mean_interval([belief - passed for belief, passed in pairs]), len(pairs))


def too_much_believed(what: str, rate: EventRate, mutants: EventRate) -> str:
    """Say why this share of wrong answers is alarming; empty where the judge errs as much about plain `mutants`."""
    if rate.share is None or rate.interval.low <= max(MOST_BELIEVED, mutants.interval.high):
        return ""
    return f"believes {rate.share:.0%} of {what}, and {mutants.share or 0:.0%} of plain wrong ones"


def skill_lost(then: float | None, now: float, high: float) -> str:
    if then is None or math.isnan(now) or then - high <= 0 or then - now <= MOST_LOST:
        return ""
    return f"its AUROC on canaries fell from {then:.2f} to {now:.2f}"


def orders_badly(within: WithinGroups | None) -> str:
    """Say why the judge counts for nothing on its policy's attempts; empty where it counts or that is unknown."""
    if within is None or within.groups < ENOUGH_GROUPS or within.low >= SKILL:
        return ""
    known = f"{within.area:.2f}, and may be as low as {within.low:.2f} ({within.pairs} pairs of {within.groups} groups)"
    return f"has no proven skill within groups and gets weight 0: its AUROC there is {known}; {SKILL} is needed"


def gap_open(source: str, gap: Gap, first: Gap) -> str:
    """Say why a gap is alarming. The `first` gap is the judge's scale, of which GRPO uses nothing."""
    usual = max(0.0, first.mean)
    if gap.mean - usual - math.hypot(gap.mean - gap.low, first.high - first.mean) <= MOST_GAP:
        return ""
    return f"believes {gap.mean:.0%} more than the {source} finds true ({gap.count} attempts), {usual:.0%} at first"


def newest(canaries: Sequence[JudgedCanary], size: int) -> list[JudgedCanary]:
    """At most `size`, oldest first; a kind that has more than its share loses its oldest first."""
    kept = list(canaries)
    most = int(MOST_OF_A_KIND * size)
    for kind, limit in ((CanaryKind.TRANSPLANT, most), (CanaryKind.AUDITED, most), (None, size)):
        places = [at for at, canary in enumerate(kept) if kind in (None, canary.kind)]
        surplus = {*places[: max(0, len(places) - limit)]}
        kept = [canary for at, canary in enumerate(kept) if at not in surplus]
    return kept


def canary_alarms(canaries: Sequence[JudgedCanary], known: Calibration, first: float | None, alone: bool) -> list[str]:
    """Results of the drift tests on canaries. first: AUROC as first calibrated. alone: no other reward teaches."""
    if known.fit is None:
        return ["has no proven skill: only form can be learned"] * alone
    read = [(known.probability(canary.scores), canary.right) for canary in canaries if canary.scores is not None]
    now, _, high = auroc_interval([chance for chance, _ in read], [right for _, right in read])
    kinds = (CanaryKind.ATTACK, CanaryKind.TRANSPLANT, CanaryKind.MUTANT)
    attacks, transplants, mutants = (believed(canaries, known, kind, right=False) for kind in kinds)
    return [
        too_much_believed("wrong answers dressed up to please", attacks, mutants),
        too_much_believed("its policy's answers to other questions", transplants, mutants),
        skill_lost(first, now, high),
    ]


def believed(canaries: Sequence[JudgedCanary], known: Calibration, *kinds: CanaryKind, right: bool) -> EventRate:
    """Share of the right (wrong) canaries of these kinds that the judge believes. Unread canaries do not count."""
    events = [
        (1.0, canary.scores is not None and known.probability(canary.scores) >= BELIEF)
        for canary in canaries
        if canary.kind in kinds and canary.right is right and (canary.program is None or canary.scores is not None)
    ]
    return event_rate(events)


def canary_rates(canaries: Sequence[JudgedCanary], known: Calibration) -> tuple[EventRate, EventRate]:
    """Return the shares believed of the canaries known to be (wrong, right)."""
    wrong = (CanaryKind.MUTANT, CanaryKind.ATTACK, CanaryKind.TRANSPLANT)
    return believed(canaries, known, *wrong, right=False), believed(canaries, known, CanaryKind.REFERENCE, right=True)


def belief_metrics(canaries: Sequence[JudgedCanary], known: Calibration) -> Metrics:
    """Beliefs about the newest canaries; none of a judge without weight."""
    if known.fit is None:
        return {}
    wrong, right = canary_rates(canaries, known)
    return {
        "judge/canary_false_positive_share": wrong.share,
        "judge/canary_false_positive_low": wrong.interval.low,
        "judge/canary_false_positive_high": wrong.interval.high,
        "judge/canary_false_negative_share": None if right.share is None else 1 - right.share,
        "judge/canary_false_negative_low": 1 - right.interval.high,
        "judge/canary_false_negative_high": 1 - right.interval.low,
        "judge/attacks_believed_share": believed(canaries, known, CanaryKind.ATTACK, right=False).share,
        "judge/transplants_believed_share": believed(canaries, known, CanaryKind.TRANSPLANT, right=False).share,
    }


BINS = 5  # of judged correctness
WINDOW = 2000  # newest executed attempts in the figures: an interval of two points, and not of a policy long gone


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """A scored completion that contains code."""

    problem: Problem
    code: str  # the content of the fence
    peer: str
    correctness: float
    program: Program | None = None  # what the judge read; None where the static pass decided

    @property
    def strata(self) -> tuple[object, object]:
        return min(BINS - 1, int(self.correctness * BINS)), (self.peer, self.problem.level)


@dataclass(frozen=True, slots=True)
class Audited:
    peer: str
    level: int | None
    correctness: float
    passed: bool | None  # None: the sandbox could not tell
    weight: float  # attempts it stands for: 1 / its chance to be drawn (Horvitz & Thompson 1952)
    group: str = ""  # the same for the attempts of one group; empty: one that the judge did not order
    cheats: bool = False  # it passes tests that must fail


@dataclass(frozen=True, slots=True)
class Auditor:
    """Draws `share` of the attempts on average and executes them; its results are kept up to `window`."""

    sandbox: Sandbox
    share: float
    seed: int
    own: str = ""  # own peer id: skill within groups is measured on own attempts, which no stranger can feign
    window: int = WINDOW

    def audit(
        self, attempts: Sequence[JudgedAttempt], occasion: int, *, counted: bool = True
    ) -> list[tuple[JudgedAttempt, Audited]]:
        """Execute a sample of the attempts; `occasion` varies the draw. Raises SandboxError. `counted`: the judge has
        weight. Attempts at problems whose expected values are mere claims are skipped: they show nothing."""
        truthful = [attempt for attempt in attempts if attempt.problem.standing is not Standing.CLAIMED]
        drawn = draw_attempts(truthful, self.share, Random(f"audit {self.seed} {occasion}"))
        jobs = [Job(attempt.code, attempt.problem.tests, attempt.problem.style is Style.STDIO) for attempt, _ in drawn]
        executed = self.sandbox.run_distinct(jobs)
        results = list[tuple[JudgedAttempt, Audited]]()
        for (attempt, weight), shown in zip(drawn, map(executed.__getitem__, jobs), strict=True):
            ordered = counted and attempt.program is not None and attempt.peer == self.own
            group = f"{occasion} {attempt.problem.id[:16]}" if ordered else ""
            level, passed = attempt.problem.level, TRUTH[shown.outcome]
            row = Audited(attempt.peer, level, attempt.correctness, passed, weight, group, shown.cheats)
            results.append((attempt, row))
        return results


def draw_attempts(attempts: Sequence[JudgedAttempt], share: float, chance: Random) -> list[tuple[JudgedAttempt, float]]:
    """Distinct attempts with the inverse of their chance to be drawn. Each draw, with replacement, takes a bin of
    correctness or a (peer, level), each equally likely, and an attempt in it. An attempt drawn with probability p in
    each of n draws is in the sample with 1 - (1 - p)^n. `share` 1: all."""
    if share >= 1:
        return [(attempt, 1.0) for attempt in attempts]
    wanted = share * len(attempts)
    draws = int(wanted) + (chance.random() < wanted % 1)
    if not draws or not attempts:
        return []
    odds = [0.0] * len(attempts)
    for which in (0, 1):
        strata: dict[object, list[int]] = {}
        for index, attempt in enumerate(attempts):
            strata.setdefault(attempt.strata[which], []).append(index)
        for members in strata.values():
            for index in members:
                odds[index] += 0.5 / (len(strata) * len(members))
    drawn = sorted(set(chance.choices(range(len(attempts)), odds, k=draws)))
    return [(attempts[index], 1 / (1 - (1 - odds[index]) ** draws)) for index in drawn]


def audit_rates(rows: Sequence[Audited]) -> dict[str, EventRate]:
    """Shares of the decided attempts by execution, `success`, and of judged against executed truth."""
    decided = [row for row in rows if row.passed is not None]
    right, wrong = [row for row in decided if row.passed], [row for row in decided if not row.passed]
    return {
        "success": event_rate([(row.weight, bool(row.passed)) for row in decided]),
        "precision": event_rate([(row.weight, bool(row.passed)) for row in decided if row.correctness >= BELIEF]),
        "recall": event_rate([(row.weight, row.correctness >= BELIEF) for row in right]),
        "false_positive": event_rate([(row.weight, row.correctness >= BELIEF) for row in wrong]),
        "false_negative": event_rate([(row.weight, row.correctness < BELIEF) for row in right]),
    }


def judged_success(rows: Sequence[Audited]) -> float | None:
    return weighted_mean([(row.weight, row.correctness) for row in rows if row.passed is not None])


def audit_gap(rows: Sequence[Audited]) -> Gap | None:
    """Judged minus executed success; None for too few."""
    judged, success = judged_success(rows), audit_rates(rows)["success"]
    if judged is None or success.share is None or success.count < LEAST_EXECUTED:
        return None
    low, high = success.interval
    return Gap(judged - success.share, judged - high, judged - low, success.count)


def audit_orders(rows: Sequence[Audited]) -> list[GroupOrder]:
    """Order the own groups, as far as they were drawn."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for row in rows:
        if row.group and row.passed is not None:
            groups.setdefault(row.group, []).append((row.correctness, row.passed))
    return [order for order in map(group_order, groups.values()) if order.pairs]


def audit_metrics(rows: Sequence[Audited]) -> Metrics:
    """`audit/...`: every share with its interval of 95 %; None where there was nothing to measure."""
    decided = [row for row in rows if row.passed is not None]
    passed = [bool(row.passed) for row in decided]
    measured: Metrics = {
        "audit/count": len(decided),
        "audit/unknown_share": weighted_mean([(row.weight, row.passed is None) for row in rows]),
        "audit/cheat_share": weighted_mean([(row.weight, row.cheats) for row in rows]),
        "audit/judged": judged_success(rows),
        "audit/auroc": auroc([row.correctness for row in decided], passed) if len({*passed}) == 2 else None,
        **within_metrics("audit/within_auroc", within_groups(audit_orders(rows))),
    }
    for name, rate in audit_rates(rows).items():
        low, high = rate.interval
        measured |= {f"audit/{name}": rate.share, f"audit/{name}_low": low, f"audit/{name}_high": high}
    return measured
