"""What the views show of a run: one frozen value, folded from the rows of `metrics.jsonl`. Pure and bounded."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codezero.monitor.metrics_file import number
from codezero.monitor.summaries import Trust
from codezero.types import Metrics, ScoredGroup

AVERAGE_KEY = re.compile(r"eval/average_at_(\d{1,4})")
TOLERATED = "tolerated/"
MAX_POINTS = 512
"""Points of a trend; at that many, neighbours are averaged, which keeps the whole run at half the resolution."""
MAX_EXAMS = 4_096
RECENT = 10
"""Iterations that speed is averaged over."""
MAX_SHOWN = 4_000
"""Characters of a question or an attempt."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A series of any length in at most MAX_POINTS means of equally many values each."""

    points: tuple[float, ...] = ()
    stride: int = 1
    """Values in a point; a power of two."""
    pending: tuple[float, ...] = ()
    """Values that do not fill a point yet."""

    @property
    def values(self) -> tuple[float, ...]:
        return (*self.points, mean(self.pending)) if self.pending else self.points

    def added(self, value: float) -> "Trend":
        pending = (*self.pending, value)
        if len(pending) < self.stride:
            return replace(self, pending=pending)
        points = (*self.points, mean(pending))
        if len(points) < MAX_POINTS:
            return replace(self, points=points, pending=())
        return Trend(tuple(map(mean, zip(points[::2], points[1::2], strict=True))), 2 * self.stride)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Tolerated:
    """Errors survived by every process of a run: each counts from 0, so a count that falls is a new process."""

    totals: Mapping[str, int] = field(default_factory=dict[str, int])
    """By type."""
    last: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the newest row says, of its own process."""

    def advanced(self, row: Metrics) -> "Tolerated":
        """After one more row."""
        now = read_tolerated(row)
        if not now and not self.last:
            return self
        totals = dict(self.totals)
        for name, times in now.items():
            before = self.last.get(name, 0)
            totals[name] = totals.get(name, 0) + (times - before if times >= before else times)
        return Tolerated(totals, now)


@dataclass(frozen=True, slots=True)
class ExamResult:
    """One sitting. Shares in [0, 1]."""

    iteration: int
    samples: int
    """n of average@n."""
    average: float
    low: float | None
    high: float | None
    """95 % interval of `average`."""
    passed: float | None
    """pass@n."""
    pass_low: float | None
    pass_high: float | None
    source: str
    """How it was measured: `executed`."""
    levels: Mapping[int, float]
    """average@n of each level that has problems."""
    problems: float | None
    unknown_share: float | None
    believed: float | None
    """Mean judged correctness of the same attempts."""
    auroc: float | None
    false_positive_share: float | None
    false_negative_share: float | None

    @property
    def label(self) -> str:
        return f"{self.source} average@{self.samples}"


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """An attempt and why it scored as it did. Foreign text, as sampled."""

    text: str
    reward: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """The most telling problem of an iteration, with its best and its worst attempt."""

    question: str
    level: int | None
    best: ShownAttempt
    worst: ShownAttempt


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything a view needs."""

    identity: str
    """Peer id."""
    swarm_kind: str
    facts: Mapping[str, str]
    """What stays the same: models, device."""
    began: float
    """Unix seconds at which this process began."""
    iteration: int = 0
    round: int = 0
    level: float | None = None
    peers: float = 0
    external_share: float | None = None
    reward: float | None = None
    tokens_per_second: float | None = None
    rewards: Trend = Trend()
    exams: tuple[ExamResult, ...] = ()
    recent_seconds: tuple[float, ...] = ()
    survived: Tolerated = field(default_factory=Tolerated)
    trust: Trust = field(default_factory=Trust)
    problem: ShownProblem | None = None
    busy: str = ""
    """What takes its time just now, beside the iterations."""

    @property
    def tolerated(self) -> dict[str, int]:
        """Errors that the run survived, by type; those that happened."""
        return {name: times for name, times in self.survived.totals.items() if times}

    @property
    def seconds_per_iteration(self) -> float | None:
        return mean(self.recent_seconds) if self.recent_seconds else None

    @property
    def exam_now(self) -> ExamResult | None:
        """The exam sat in the present iteration."""
        return self.exams[-1] if self.exams and self.exams[-1].iteration == self.iteration else None

    def advanced(self, row: Metrics, scored: Sequence[ScoredGroup] = ()) -> "RunState":
        """The state after one more row."""

        def latest(key: str, before: float | None) -> float | None:
            value = number(row, key)
            return before if value is None else value

        exam, reward, seconds = read_exam(row), number(row, "reward/mean"), number(row, "seconds")
        return replace(
            self,
            busy="",
            iteration=int(number(row, "iteration") or 0),
            round=int(latest("round", self.round) or 0),
            level=latest("difficulty/level", self.level),
            peers=latest("swarm/peers", self.peers) or 0,
            external_share=latest("swarm/external_share", self.external_share),
            reward=latest("reward/mean", self.reward),
            tokens_per_second=latest("tokens/sampled_per_second", self.tokens_per_second),
            rewards=self.rewards if reward is None else self.rewards.added(reward),
            exams=self.exams if exam is None else (*self.exams[: MAX_EXAMS - 1], exam),
            recent_seconds=self.recent_seconds if seconds is None else (*self.recent_seconds, seconds)[-RECENT:],
            survived=self.survived.advanced(row),
            trust=self.trust.advanced(row),
            problem=most_telling(scored) or self.problem,
        )

    def replayed(self, rows: Iterable[Metrics]) -> "RunState":
        """The state after the rows of an earlier process, whose speed is not this one's."""
        state = self
        for row in rows:
            state = state.advanced(row)
        return replace(state, recent_seconds=())


def read_exam(row: Metrics) -> ExamResult | None:
    """The sitting in a row; None when there was none."""
    measured = [(key, value) for key in row if AVERAGE_KEY.fullmatch(key) and (value := number(row, key)) is not None]
    if not measured:
        return None
    key, average = measured[0]
    samples = int(key.rpartition("_")[2])
    levels = {level: value for level in range(1, 6) if (value := number(row, f"eval/level_{level}")) is not None}
    return ExamResult(
        iteration=int(number(row, "iteration") or 0),
        samples=samples,
        average=average,
        low=number(row, "eval/ci_low"),
        high=number(row, "eval/ci_high"),
        passed=number(row, f"eval/pass_at_{samples}"),
        pass_low=number(row, "eval/pass_ci_low"),
        pass_high=number(row, "eval/pass_ci_high"),
        source=str(row.get("eval/source") or "measured"),
        levels=levels,
        problems=number(row, "eval/problems"),
        unknown_share=number(row, "eval/unknown_share"),
        believed=number(row, "judge/believed"),
        auroc=number(row, "judge/auroc"),
        false_positive_share=number(row, "judge/false_positive_share"),
        false_negative_share=number(row, "judge/false_negative_share"),
    )


def read_tolerated(row: Metrics) -> dict[str, int]:
    """Errors survived so far by the process that wrote the row, by type."""
    return {
        key.removeprefix(TOLERATED): int(value)
        for key in row
        if key.startswith(TOLERATED) and (value := number(row, key)) is not None
    }


def most_telling(scored: Sequence[ScoredGroup]) -> ShownProblem | None:
    """The problem whose attempts differ most in reward; None when nothing could be judged."""
    ranked = [
        sorted(
            (
                ShownAttempt(completion.text[:MAX_SHOWN], verdict.reward, verdict.reasons)
                for completion, verdict in zip(group.group.completions, group.verdicts, strict=True)
                if verdict.trainable
            ),
            key=lambda attempt: attempt.reward,
        )
        for group in scored
    ]
    told = [(group, attempts) for group, attempts in zip(scored, ranked, strict=True) if attempts]
    if not told:
        return None
    group, attempts = max(told, key=lambda pair: pair[1][-1].reward - pair[1][0].reward)
    problem = group.group.problem
    return ShownProblem(problem.question[:MAX_SHOWN], problem.level, best=attempts[-1], worst=attempts[0])


def code_of(text: str) -> str:
    """The first fenced block of an attempt, for display only; without a fence the attempt as it is."""
    _, fence, rest = text.partition("```")
    if not fence:
        return text.strip("\n")
    first, newline, body = rest.partition("\n")
    inside = body if (newline and first.strip().isalnum()) or not first.strip() else rest
    return inside.partition("```")[0].strip("\n")
