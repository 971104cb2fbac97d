"""What a person is shown of a run: its state, in lines, its last problem, the judge's audit and the proposals."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codezero.code.answer import read_answer
from codezero.monitor.health import REASON
from codezero.monitor.metrics_file import number
from codezero.monitor.run_state import Fold
from codezero.monitor.run_types import ExamView
from codezero.monitor.text import clean, count, duration, measured, percent, print_flushed, within_groups
from codezero.types import REHEARSAL, Completion, Metrics, ScoredGroup, Verdict

FENCED = re.compile(r"```(?:[^\S\n]*(?:\w+[^\S\n]*)?\n)?(.*?)(?:```|\Z)", re.DOTALL)
MAX_SHOWN = 4_000
"""Characters of a completion."""
PAUSE_SECONDS = 10.0
"""Least time between two lines that tell of no exam."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A snapshot of a run for the terminal, the swarm view and the report. None: not measured yet; empty: nothing."""

    identity: str = ""
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
    """Median of the last ones, without exams."""
    rewards: Sequence[float] = ()
    exams: Sequence[ExamView] = ()
    tolerated: Mapping[str, int] = field(default_factory=dict[str, int])
    trouble: str = ""
    """What is wrong with judge or sampler, or keeps the run from learning, now."""
    attempts: str = ""
    """What became of the newest own ones."""
    audit: str = ""
    stand_ins: str = ""
    """What stands in for sources of problems now."""
    problem: ScoredGroup | None = None
    """The last one, of which some attempts could be judged."""
    busy: str = ""
    """What takes time now, beside the iterations."""

    @property
    def exam_now(self) -> ExamView | None:
        return self.exams[-1] if self.exams and self.exams[-1].iteration == self.iteration else None

    def after(self, fold: Fold, scored: Sequence[ScoredGroup] = ()) -> "RunState":
        """The state after the fold's rows. Without a judged group in `scored` the last problem stays."""
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
            seconds_per_iteration=fold.step_seconds,
            rewards=[value for _, value in fold.series["reward"].points],
            exams=list(fold.exams),
            tolerated=dict(fold.survived),
            trouble="; ".join(filter(None, (fold.trouble, fold.hindrance))),
            attempts=attempts_line(fold),
            audit=audit_line(fold.judge),
            stand_ins=str(fold.last.get("problems/stand_ins") or ""),
            problem=most_telling(scored) or self.problem,
        )


def plain_line(state: RunState, exams: str = "") -> str:
    """`iteration 50 · round 12 · reward 0.71 · executed average@8 52.1 % [48.9, 55.2] · level 3 · 2 peers · 0.6 s`.

    exams: shown in place of an exam of the present iteration.
    """
    exam = state.exam_now
    parts = [
        f"iteration {state.iteration}",
        f"round {state.round}",
        "" if state.reward is None else f"reward {state.reward:.2f}",
        exams or (f"{clean(exam.label, 40)} {measured(exam.average, exam.low, exam.high)}" if exam else ""),
        "" if state.level is None else f"level {state.level:.0f}",
        count(state.peers, "peer"),
        "" if state.seconds_per_iteration is None else duration(state.seconds_per_iteration),
        "" if state.trouble else state.attempts,
        state.trouble,
        count(sum(state.tolerated.values()), "tolerated error") if state.tolerated else "",
    ]
    return " · ".join(filter(None, parts))


class PlainView:
    """A line for every exam, and one each PAUSE_SECONDS at most otherwise; none twice, and the newest in the end."""

    def __init__(self, write: Callable[[str], None] = print_flushed) -> None:
        self._write, self._written = write, -math.inf
        self._shown: tuple[int, bool] | None = None
        """Iteration of the newest line, and whether it has an exam."""
        self._held: RunState | None = None
        """The newest row, while no line shows it."""

    def show(self, state: RunState) -> None:
        """Say where the run is, if it is time to; the first call only notes where it begins."""
        row = state.iteration, state.exam_now is not None
        self._shown = self._shown or row
        self._held = state if row != self._shown else None
        if row[1] or time.monotonic() - self._written >= PAUSE_SECONDS:
            self.close()

    def busy(self, state: RunState) -> None:
        self.say(f"{state.busy} …")

    def say(self, line: str) -> None:
        self._write(f"codezero: {line}")

    def close(self) -> None:
        """Show what was held back."""
        if held := self._held:
            self._held, self._shown = None, (held.iteration, held.exam_now is not None)
            self._written = self._written if self._shown[1] else time.monotonic()
            self._write(plain_line(held))


def rehearsal(stand_ins: str, facts: Mapping[str, str]) -> str:
    """What stands in for sources of problems, else for the exam or the canaries, and why; empty: nothing."""
    return stand_ins or next((f"{name}: {fact}" for name, fact in facts.items() if fact.startswith(REHEARSAL)), "")


def most_telling(scored: Sequence[ScoredGroup]) -> ScoredGroup | None:
    """The group whose rewards differ most, or None when nothing could be judged."""
    rewards = ([verdict.reward for verdict in group.trainable] for group in scored)
    spreads = {place: max(judged) - min(judged) for place, judged in enumerate(rewards) if judged}
    return scored[max(spreads, key=spreads.__getitem__)] if spreads else None


def best_and_worst(scored: ScoredGroup) -> Iterator[tuple[Completion, Verdict]]:
    """Of the attempts that could be judged, of which there is one at least."""
    pairs = zip(scored.group.completions, scored.verdicts, strict=True)
    judged = sorted((pair for pair in pairs if pair[1].trainable), key=lambda pair: pair[1].reward)
    yield judged[-1]
    yield judged[0]


def code_of(text: str, entry_point: str) -> str:
    """The answer in a completion, for display only; without one its first fenced block, or the text as it is."""
    text = text[:MAX_SHOWN]
    fenced = FENCED.search(text)
    answer = read_answer(text, entry_point).code or (fenced[1] if fenced else text)
    return answer.strip("\n")


def attempts_line(fold: Fold, *, whole: bool = False) -> str:
    """`71.0 % of the attempts learned, 3.0 % cut off, 1.0 % without a verdict: the judge abstains`; empty: not known.

    whole: over the run; else the newest.
    """
    series = [fold.series[f"{name}_share"] for name in ("learned", "cut_off", "no_verdict")]
    learned, cut_off, no_verdict = (each.mean if whole else each.newest for each in series)
    if learned is None:
        return ""
    reason = next((text for row in reversed(fold.recent) if (text := row.get(REASON))), "") if no_verdict else ""
    why = f": {clean(str(reason), 200)}" if reason else ""
    return (
        f"{percent(learned)} of the attempts learned, {percent(cut_off)} cut off, {percent(no_verdict)} unjudged{why}"
    )


def within_line(row: Metrics, name: str) -> str:
    """`AUROC 0.96 [0.91, 0.98] within groups, of 695 pairs`, whose keys begin with `name`; empty when not measured."""
    return within_groups(*(number(row, f"{name}{part}") for part in ("", "_low", "_high", "_pairs")))


def judge_line(row: Metrics) -> str:
    """How far the judge can be believed: on the policy's executed attempts, and on known solutions; empty: unknown."""
    over = number(row, "judge/canary_auroc")
    pooled = "" if over is None else f"AUROC {over:.2f} over problems, on references and mutants"
    weight = "it has no weight" if number(row, "judge/weight") == 0 else ""
    return "; ".join(filter(None, (within_line(row, "judge/within_auroc"), pooled, weight)))


def audit_line(row: Metrics) -> str:
    """`judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)`; empty without an audit."""
    success = number(row, "audit/success")
    if success is None:
        return ""
    passing = measured(success, number(row, "audit/success_low"), number(row, "audit/success_high"))
    executed = count(number(row, "audit/count") or 0, "attempt")
    ranks = within_line(row, "audit/within_auroc")
    line = f"judge says {percent(number(row, 'audit/judged'))}, audit says {passing} ({executed} executed)"
    return f"{line}; {ranks}" if ranks else line


def proposal_lines(row: Metrics) -> list[tuple[str, str]]:
    """(what, figure) for people; empty for a run that proposes nothing and is offered nothing."""
    lines: list[tuple[str, str]] = []
    written = number(row, "proposer/written")
    if written is not None:
        total, kinds = _refused(row, "proposer/refused_")
        why = f", {total} refused as they came: {kinds}" if total else ""
        lines += [("proposals", f"{count(int(written), 'problem')} written{why}"), ("expected values", _values(row))]
    if (derived := number(row, "proposer/derived")) is not None:
        lines += [("proposals", f"{count(int(derived), 'problem')} derived")]
    total, kinds = _refused(row, "problems/refused_")
    return [*lines, ("problems refused", f"{total}: {kinds}")] if total else lines


def level_lines(levels: Mapping[str, Sequence[int]]) -> list[tuple[str, str]]:
    """(source, figure) for people, of what `measured_levels` counts."""
    of = {source: (f"{problems} at {level}" for level, problems in enumerate(row, 1)) for source, row in levels.items()}
    return [(f"{source} by level", f"{', '.join(each)}, as own attempts were scored") for source, each in of.items()]


def _values(row: Metrics) -> str:
    """How many of them execution found wrong; it is only known where something is executed."""
    right, wrong = number(row, "proposer/values_right"), number(row, "proposer/values_wrong")
    if right is None or wrong is None:
        return "claims, never executed (audit.share, or reward.mode=rlvr, would tell how many are wrong)"
    total = int(right + wrong)
    return f"{percent(wrong / total)} of {total} executed are wrong" if total else "none executed yet"


def _refused(row: Metrics, prefix: str) -> tuple[int, str]:
    """How many, and the most frequent reasons, which are the rest of the names after `prefix`."""
    counts = {name.removeprefix(prefix): int(number(row, name) or 0) for name in row if name.startswith(prefix)}
    ranked = sorted((-times, name) for name, times in counts.items() if times)
    kinds = ", ".join(f"{-times} {name.replace('_', ' ')[:40]}" for times, name in ranked[:8])
    return sum(counts.values()), kinds
