"""The audit executes a sample of the judged attempts in a sandbox, beside the reward and never in it.

It measures how far the judge can be believed. Half of the sample is drawn by judged correctness, half by peer and
level, so that rare kinds are seen. Every figure weighs an attempt with the inverse of its chance to be drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from codezero.evaluator.evidence import LEAST_EXECUTED, EventRate, Gap, event_rate, weighted_mean, within_metrics
from codezero.evaluator.types import Program
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import GroupOrder, auroc, group_order, within_groups
from codezero.types import BELIEF, Metrics, Problem, Standing, Style

BINS = 5
"""Of judged correctness."""
WINDOW = 2000
"""Newest executed attempts in the figures: an interval of two points, and not of a policy long gone."""


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """A scored completion that contains code."""

    problem: Problem
    code: str
    """The content of the fence."""
    peer: str
    correctness: float
    program: Program | None = None
    """What the judge read; None where the static pass decided."""

    @property
    def strata(self) -> tuple[object, object]:
        return min(BINS - 1, int(self.correctness * BINS)), (self.peer, self.problem.level)


@dataclass(frozen=True, slots=True)
class Audited:
    peer: str
    level: int | None
    correctness: float
    passed: bool | None
    """None: the sandbox could not tell."""
    weight: float
    """Attempts it stands for: 1 / its chance to be drawn (Horvitz & Thompson 1952)."""
    group: str = ""
    """The same for the attempts of one group; empty: one that the judge did not order."""
    cheats: bool = False
    """It passes tests that must fail."""


@dataclass(frozen=True, slots=True)
class Auditor:
    """Draws `share` of the attempts on average and executes them; its results are kept up to `window`."""

    sandbox: Sandbox
    share: float
    seed: int
    own: str = ""
    """Peer id of this node. Skill within groups is measured on its attempts alone: a stranger could feign its lack."""
    window: int = WINDOW

    def audit(
        self, attempts: Sequence[JudgedAttempt], occasion: int, *, counted: bool = True
    ) -> list[tuple[JudgedAttempt, Audited]]:
        """Execute a sample of the attempts; `occasion` varies the draw. Raises SandboxError. `counted`: the judge has
        weight.

        Attempts at problems whose expected values are mere claims are skipped: they show nothing.
        """
        truthful = [attempt for attempt in attempts if attempt.problem.standing is not Standing.CLAIMED]
        drawn = draw(truthful, self.share, Random(f"audit {self.seed} {occasion}"))
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


def draw(attempts: Sequence[JudgedAttempt], share: float, chance: Random) -> list[tuple[JudgedAttempt, float]]:
    """Distinct attempts with the inverse of their chance to be drawn.

    Each draw, with replacement, takes a bin of correctness or a (peer, level), each equally likely, and an attempt in
    it. An attempt drawn with probability p in each of n draws is in the sample with 1 - (1 - p)^n. `share` 1: all.
    """
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


def rates(rows: Sequence[Audited]) -> dict[str, EventRate]:
    """Shares of the decided attempts by execution, `success`, and of judged against executed truth."""
    decided = [(row, bool(row.passed)) for row in rows if row.passed is not None]
    right = [row for row, passed in decided if passed]
    wrong = [row for row, passed in decided if not passed]
    return {
        "success": event_rate([(row.weight, passed) for row, passed in decided]),
        "precision": event_rate([(row.weight, passed) for row, passed in decided if row.correctness >= BELIEF]),
        "recall": event_rate([(row.weight, row.correctness >= BELIEF) for row in right]),
        "false_positive": event_rate([(row.weight, row.correctness >= BELIEF) for row in wrong]),
        "false_negative": event_rate([(row.weight, row.correctness < BELIEF) for row in right]),
    }


def judged_success(rows: Sequence[Audited]) -> float | None:
    """Of the decided attempts."""
    return weighted_mean([(row.weight, row.correctness) for row in rows if row.passed is not None])


def gap(rows: Sequence[Audited]) -> Gap | None:
    """Judged minus executed success; None for too few."""
    judged, success = judged_success(rows), rates(rows)["success"]
    if judged is None or success.share is None or success.count < LEAST_EXECUTED:
        return None
    low, high = success.interval
    return Gap(judged - success.share, judged - high, judged - low, success.count)


def orders(rows: Sequence[Audited]) -> list[GroupOrder]:
    """Of the own groups, as far as they were drawn."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for row in rows:
        if row.group and row.passed is not None:
            groups.setdefault(row.group, []).append((row.correctness, row.passed))
    return [order for order in map(group_order, groups.values()) if order.pairs]


def metrics(rows: Sequence[Audited]) -> Metrics:
    """`audit/...`: every share with its interval of 95 %; None where there was nothing to measure."""
    decided = [row for row in rows if row.passed is not None]
    passed = [bool(row.passed) for row in decided]
    measured: Metrics = {
        "audit/count": len(decided),
        "audit/unknown_share": weighted_mean([(row.weight, row.passed is None) for row in rows]),
        "audit/cheat_share": weighted_mean([(row.weight, row.cheats) for row in rows]),
        "audit/judged": judged_success(rows),
        "audit/auroc": auroc([row.correctness for row in decided], passed) if len({*passed}) == 2 else None,
        **within_metrics("audit/within_auroc", within_groups(orders(rows))),
    }
    for name, rate in rates(rows).items():
        low, high = rate.interval
        measured |= {f"audit/{name}": rate.share, f"audit/{name}_low": low, f"audit/{name}_high": high}
    return measured
