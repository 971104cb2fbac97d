"""What a person is shown of a run: its state on the terminal, its last problem, the judge's audit and the proposals."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from codezero.monitor.metrics_file import number
from codezero.monitor.run_state import Fold
from codezero.monitor.run_types import ExamResult
from codezero.monitor.text import count, measured, percent
from codezero.types import Metrics, ScoredGroup

MAX_SHOWN = 4_000
"""Characters of a question or a completion."""
SPEED_ROWS = 10
"""Iterations that the speed is averaged over."""


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """A completion and the reasons for its reward. Foreign text, as sampled."""

    text: str
    reward: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """The most telling problem of an iteration, with its best and its worst completion."""

    question: str
    level: int | None
    best: ShownAttempt
    worst: ShownAttempt


@dataclass(frozen=True, slots=True)
class RunState:
    """A snapshot of a run for the terminal, the swarm view and the report. None: not measured yet."""

    identity: str = ""
    """Peer id."""
    swarm_kind: str = ""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stays the same: models, device."""
    began: float = 0.0
    """Unix seconds at which this process began."""
    iteration: int = 0
    round: int = 0
    level: float | None = None
    peers: float = 0
    external_share: float | None = None
    reward: float | None = None
    tokens_per_second: float | None = None
    seconds_per_iteration: float | None = None
    """Mean of this process's last iterations."""
    rewards: Sequence[float] = ()
    exams: Sequence[ExamResult] = ()
    tolerated: Mapping[str, int] = field(default_factory=dict[str, int])
    """Errors that the run survived, by type."""
    trouble: str = ""
    """What is wrong with the judge now; empty when nothing is."""
    audit: str = ""
    """The judge against executed completions; empty without an audit."""
    problem: ShownProblem | None = None
    busy: str = ""
    """What takes time now, beside the iterations."""

    @property
    def exam_now(self) -> ExamResult | None:
        """The exam of the present iteration."""
        return self.exams[-1] if self.exams and self.exams[-1].iteration == self.iteration else None

    def after(self, fold: Fold, scored: Sequence[ScoredGroup] = ()) -> "RunState":
        """The state after the fold's rows. Without a judged group in `scored` the last problem stays."""
        own = (row for row in fold.recent if (number(row, "time") or self.began) >= self.began)
        seconds = [value for row in own if (value := number(row, "seconds")) is not None][-SPEED_ROWS:]
        return replace(
            self,
            busy="",
            iteration=int(number(fold.last, "iteration") or 0),
            round=int(fold.newest("round") or 0),
            level=fold.series["level"].newest,
            peers=fold.series["peers"].newest or 0,
            external_share=fold.series["external_share"].newest,
            reward=fold.series["reward"].newest,
            tokens_per_second=fold.series["tokens"].newest,
            seconds_per_iteration=statistics.fmean(seconds) if seconds else None,
            rewards=[value for _, value in fold.series["reward"].points],
            exams=fold.exams.items,
            tolerated=dict(fold.survived),
            trouble=fold.trouble,
            audit=audit_line(fold.judge),
            problem=most_telling(scored) or self.problem,
        )


def most_telling(scored: Sequence[ScoredGroup]) -> ShownProblem | None:
    """The problem whose completions differ most in reward, or None when none could be judged."""
    best: ShownProblem | None = None
    for group in scored:
        attempts = sorted(
            (
                ShownAttempt(completion.text[:MAX_SHOWN], verdict.reward, verdict.reasons)
                for completion, verdict in zip(group.group.completions, group.verdicts, strict=True)
                if verdict.trainable
            ),
            key=lambda attempt: attempt.reward,
        )
        problem = group.group.problem
        if attempts and (
            best is None or attempts[-1].reward - attempts[0].reward > best.best.reward - best.worst.reward
        ):
            best = ShownProblem(problem.question[:MAX_SHOWN], problem.level, best=attempts[-1], worst=attempts[0])
    return best


def code_of(text: str) -> str:
    """The first fenced block of a completion, for display only; without a fence the text as it is."""
    _, fence, rest = text.partition("```")
    if not fence:
        return text.strip("\n")
    first, newline, body = rest.partition("\n")
    inside = body if (newline and first.strip().isalnum()) or not first.strip() else rest
    return inside.partition("```")[0].strip("\n")


def audit_line(row: Metrics) -> str:
    """`judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)`; empty without an audit."""
    success = number(row, "audit/success")
    if success is None:
        return ""
    passing = measured(success, number(row, "audit/success_low"), number(row, "audit/success_high"))
    executed = count(number(row, "audit/count") or 0, "attempt")
    judged = percent(number(row, "audit/judged"))
    return f"judge says {judged}, audit says {passing} ({executed} executed)"


REASONS = 8
"""Most reasons that are named of one kind."""


def proposal_lines(row: Metrics) -> list[tuple[str, str]]:
    """(what, figure) for people; empty for a run that proposes nothing and is offered nothing."""
    lines: list[tuple[str, str]] = []
    written = number(row, "proposer/written")
    if written is not None:
        refused = _why(row, "proposer/refused_")
        why = f", {sum(refused.values())} refused as they came: {_named(refused)}" if refused else ""
        lines += [("proposals", f"{count(int(written), 'problem')} written{why}"), ("expected values", _values(row))]
    unusable = _why(row, "problems/refused_")
    if unusable:
        lines.append(("problems refused", f"{sum(unusable.values())}: {_named(unusable)}"))
    return lines


def _values(row: Metrics) -> str:
    """How many of them execution found wrong; it is only known where something is executed."""
    right, wrong = number(row, "proposer/values_right"), number(row, "proposer/values_wrong")
    if right is None or wrong is None:
        return "claims, never executed (audit.share, or reward.mode=rlvr, would tell how many are wrong)"
    total = int(right + wrong)
    return f"{percent(wrong / total)} of {total} executed are wrong" if total else "none executed yet"


def _why(row: Metrics, prefix: str) -> dict[str, int]:
    """Counts above zero by the rest of their name."""
    counts = {name.removeprefix(prefix): int(number(row, name) or 0) for name in row if name.startswith(prefix)}
    return {name: times for name, times in counts.items() if times}


def _named(why: dict[str, int]) -> str:
    most = sorted(why.items(), key=lambda reason: (-reason[1], reason[0]))[:REASONS]
    return ", ".join(f"{times} {name.replace('_', ' ')[:40]}" for name, times in most)
