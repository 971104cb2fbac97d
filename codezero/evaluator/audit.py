"""The audit: a sample of the judged attempts is executed in a sandbox, beside the reward and never in it.

It answers one question for a person: how far can this judge be believed? Attempts are drawn half by what the judge
believed and half by peer and level, so that rare kinds are seen; every figure weighs an attempt with the inverse of
its chance to be drawn, so that the figures are of all attempts all the same.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from codezero.evaluator.evidence import LEAST_EXECUTED, Gap
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import Interval, auroc, wilson
from codezero.types import BELIEF, Metrics, Problem, Standing, Style

BINS = 5
"""Of judged correctness."""


@dataclass(frozen=True, slots=True)
class AuditedAttempt:
    """One judged completion, as the audit sees it."""

    problem: Problem
    code: str
    """What stands in the fence."""
    peer: str
    correctness: float

    @property
    def strata(self) -> tuple[object, object]:
        return min(BINS - 1, int(self.correctness * BINS)), (self.peer, self.problem.level)


@dataclass(frozen=True, slots=True)
class Audited:
    """What is remembered of an executed attempt."""

    peer: str
    level: int | None
    correctness: float
    passed: bool | None
    """None: the sandbox could not tell."""
    weight: float
    """Attempts it stands for: 1 / its chance to be drawn (Horvitz & Thompson 1952)."""


@dataclass(frozen=True, slots=True)
class AuditShare:
    """A weighted share and its interval of 95 %, by Wilson at Kish's effective number of attempts."""

    value: float | None
    interval: Interval


@dataclass(frozen=True, slots=True)
class AuditReport:
    """How judged and executed truth compare. Shares in [0, 1]; None where there was nothing to measure."""

    count: int
    """Attempts decided."""
    unknown: float | None
    """Share that the sandbox could not decide."""
    judged: float | None
    """Success as the judge believes."""
    success: AuditShare
    """Success as executed."""
    precision: AuditShare
    """Of the believed attempts, those that pass."""
    recall: AuditShare
    """Of the passing attempts, those that are believed."""
    false_positive: AuditShare
    """Of the failing attempts, those that are believed."""
    false_negative: AuditShare
    """Of the passing attempts, those that are not."""
    auroc: float | None

    @property
    def gap(self) -> Gap | None:
        """Judged minus executed success; None for too few."""
        if self.judged is None or self.success.value is None or self.count < LEAST_EXECUTED:
            return None
        low, high = self.success.interval
        return Gap(self.judged - self.success.value, self.judged - high, self.judged - low, self.count)

    def __str__(self) -> str:
        if self.judged is None or self.success.value is None:
            return "nothing audited yet"
        low, high = self.success.interval
        return f"judge says {self.judged:.0%}, audit says {self.success.value:.0%} [{low:.0%}, {high:.0%}]"


class Auditor:
    """Draws, executes, remembers. `share` of the attempts on average; the newest `window` are remembered."""

    def __init__(self, sandbox: Sandbox, *, share: float, window: int, seed: int) -> None:
        self._sandbox = sandbox
        self._share = share
        self._seed = seed
        self.done: deque[Audited] = deque(maxlen=window)
        self.drawn = 0

    def audit(self, attempts: Sequence[AuditedAttempt], occasion: int) -> list[tuple[AuditedAttempt, Audited]]:
        """Execute a sample of the attempts; `occasion` makes the draw differ. Raises SandboxError.

        Attempts at problems whose expected values are mere claims are passed over: they show nothing.
        """
        truthful = [attempt for attempt in attempts if attempt.problem.standing is not Standing.CLAIMED]
        chosen = draw(truthful, self._share, Random(f"audit {self._seed} {occasion}"))
        jobs = [Job(attempt.code, attempt.problem.tests, attempt.problem.style is Style.STDIO) for attempt, _ in chosen]
        distinct = list(dict.fromkeys(jobs))
        executed = dict(zip(distinct, self._sandbox.run_many(distinct), strict=True))
        audited = [
            (
                attempt,
                Audited(attempt.peer, attempt.problem.level, attempt.correctness, TRUTH[executed[job].outcome], weight),
            )
            for (attempt, weight), job in zip(chosen, jobs, strict=True)
        ]
        self.done.extend(row for _, row in audited)
        self.drawn += len(audited)
        return audited

    def become(self, done: Sequence[Audited], drawn: int) -> None:
        """As after these attempts."""
        self.done = deque(done, self.done.maxlen)
        self.drawn = drawn

    def report(self) -> AuditReport:
        return report(self.done)

    def by_peer_and_level(self) -> dict[tuple[str, int | None], AuditReport]:
        kinds = Counter((row.peer, row.level) for row in self.done)
        return {
            kind: report([row for row in self.done if (row.peer, row.level) == kind]) for kind, _ in kinds.most_common()
        }


def draw(attempts: Sequence[AuditedAttempt], share: float, chance: Random) -> list[tuple[AuditedAttempt, float]]:
    """Distinct attempts with the inverse of their chance of being drawn.

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


def report(rows: Sequence[Audited] | deque[Audited]) -> AuditReport:
    """The figures of these attempts."""
    decided = [(row, bool(row.passed)) for row in rows if row.passed is not None]
    right = [row for row, passed in decided if passed]
    wrong = [row for row, passed in decided if not passed]
    believed = [(row, passed) for row, passed in decided if row.correctness >= BELIEF]
    total = sum(row.weight for row in rows)
    both = bool(right) and bool(wrong)
    return AuditReport(
        count=len(decided),
        unknown=sum(row.weight for row in rows if row.passed is None) / total if total else None,
        judged=_mean([(row.weight, row.correctness) for row, _ in decided]),
        success=_share([(row.weight, passed) for row, passed in decided]),
        precision=_share([(row.weight, passed) for row, passed in believed]),
        recall=_share([(row.weight, row.correctness >= BELIEF) for row in right]),
        false_positive=_share([(row.weight, row.correctness >= BELIEF) for row in wrong]),
        false_negative=_share([(row.weight, row.correctness < BELIEF) for row in right]),
        auroc=auroc([row.correctness for row, _ in decided], [passed for _, passed in decided]) if both else None,
    )


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Hájek's estimator: the weighted sum over the sum of the weights."""
    total = sum(weight for weight, _ in weighted)
    return sum(weight * value for weight, value in weighted) / total if total else None


def _share(weighted: Sequence[tuple[float, bool]]) -> AuditShare:
    value = _mean([(weight, float(hit)) for weight, hit in weighted])
    if value is None:
        return AuditShare(None, Interval(0.0, 1.0))
    effective = sum(weight for weight, _ in weighted) ** 2 / sum(weight**2 for weight, _ in weighted)
    return AuditShare(value, wilson(min(1.0, value), effective))


def audit_metrics(report: AuditReport) -> Metrics:
    """`audit/...`: every share with its interval."""
    measured: Metrics = {
        "audit/count": report.count,
        "audit/unknown_share": report.unknown,
        "audit/judged": report.judged,
        "audit/auroc": report.auroc,
    }
    for name in ("success", "precision", "recall", "false_positive", "false_negative"):
        share: AuditShare = getattr(report, name)
        measured |= {
            f"audit/{name}": share.value,
            f"audit/{name}_low": share.interval.low,
            f"audit/{name}_high": share.interval.high,
        }
    return measured
