"""The one fold of `metrics.jsonl` that all views of a run show. Its size is fixed, however long the run.

A read covers what was appended since the last one. The fold starts over when the file was replaced, as by a run that
resumes from a checkpoint."""

import functools
import re
import statistics
from collections import deque
from collections.abc import Iterable, Reversible, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self, cast

import msgspec

from codezero.monitor.metrics_file import FILE_NAME, LARGEST, MAX_BYTES, Tail, number, parse, whole
from codezero.monitor.run_types import MAX_EXAMS, MAX_POINTS, MAX_ROUNDS, ExamView, Series
from codezero.monitor.text import clean, percent
from codezero.types import Metrics

CURVES = {  # name in the page's view, and key in a row; tokens_total is summed up here
    "reward": "reward/mean", "loss": "train/loss", "entropy": "train/entropy",
    "zero_spread_share": "train/zero_spread_share", "level": "difficulty/level", "judge_auroc": "judge/canary_auroc",
    "judge_false_positive_share": "judge/canary_false_positive_share", "peers": "swarm/peers",
    **{f"judge_within_auroc{part}": f"judge/within_auroc{part}" for part in ("", "_low", "_high")},
    "external_share": "swarm/external_share",
    "time": "time", "seconds": "seconds", "tokens": "tokens/sampled_per_second", "tokens_total": "",
    "learned_share": "attempts/learned_share", "cut_off_share": "attempts/cut_off_share",
    "no_verdict_share": "attempts/no_verdict_share",
    "cpu": "system/cpu", "memory": "system/memory_bytes", "gpu_memory": "system/gpu_bytes",
    **{f"seconds_{step}": f"seconds/{step}" for step in ["attempts", "sampling", "exchange", "learning", "proposals"]},
    **{f"success_{level}": f"difficulty/success_{level}" for level in range(1, 6)},
}  # fmt: skip
UNAVAILABLE = "judge/unavailable_share"
EXAM = {  # field of `ExamView`, and key in a row
    "low": "eval/ci_low", "high": "eval/ci_high", "pass_low": "eval/pass_ci_low", "pass_high": "eval/pass_ci_high",
    **{name: f"eval/{name}" for name in ["control", "problems", "unknown_share", "cheats_share", "unguarded_share"]},
    **{name: f"judge/{name}" for name in ["believed", "auroc", "false_positive_share", "false_negative_share"]},
    **{f"within_auroc{part}": f"judge/exam_within_auroc{part}" for part in ("", "_low", "_high", "_pairs")},
}  # fmt: skip
TOLERATED = "tolerated/"
JUDGED = "swarm/external_judged/"  # then a peer id: how many of its groups were judged in an iteration
WINDOW = 10  # iterations with own attempts that tell a run that hardly learns from one that had a bad moment
LITTLE = 1 / 10  # share of the attempts that are learned from, in all of WINDOW
MUCH = 1 / 3  # share of the attempts that are cut off, or without a verdict, in the newest iteration
CAUSES = {  # what is so of the attempts, and the setting that mends it, by the name of its share in a row
    "cut_off": ("are cut off at the token limit", "raise solver.max_new_tokens"),
    "no_verdict": ("have no verdict", ""),
    "quarantined": ("look like attacks on the judge", "look at them on the page; set evaluator.model or audit.share"),
    "failing": (
        "cannot pass, like all others at their problem",
        "choose easier data.sources or another model.solver, or read answers as answer.block says",
    ),
    "wrong": (
        "count as wrong and earn the same as all others at their problem",
        "choose easier data.sources or another model.solver, raise solver.group_size, or change reward.function",
    ),
    "right": (
        "count as right and earn the same as all others at their problem",
        "choose harder data.sources, or change reward.function",
    ),
    "unweighed": (
        "earn the same as all others at their problem: the judge has weight 0",
        "set evaluator.model, evaluator.canaries_from or reward.mode",
    ),
}
REASON = "attempts/no_verdict_reason"
VERDICTS = {  # the setting by what stands in the reason for which there is no verdict; the first that does
    "reward.function=": "mend reward.function", "evaluator.object=": "mend evaluator.object",
    "environment ": "mend environment", "measured on": "set evaluator.canaries_from",
    "proposer's claims": "lower data.proposer_share", "judge": "look at evaluator.url and evaluator.model",
    "": "look at audit.sandbox and reward.test_seconds",
}  # fmt: skip


class Averaged:
    """Points of a curve, each the mean of equally many values that were added one after another. With MAX_POINTS of
    them neighbours are joined, so that the whole keeps its shape at half the resolution."""

    def __init__(self) -> None:
        # sums of x and y of the values in each point, and their number: `_stride`, or fewer in the last
        self._sums: list[tuple[float, float, int]] = []
        self._stride: int = 1  # a power of two
        self.first = self.highest = self.newest = cast(float | None, None)

    def add(self, x: float, y: float) -> None:
        """Add a value; one that cannot be reckoned with, as NaN, is passed over."""
        if not -LARGEST <= y <= LARGEST:
            return
        self.newest = y
        self.first = y if self.first is None else self.first
        self.highest = y if self.highest is None else max(self.highest, y)
        if self._sums and self._sums[-1][2] < self._stride:
            self._sums[-1] = _together(self._sums[-1], (x, y, 1))
        else:
            self._sums.append((x, y, 1))
        if len(self._sums) == MAX_POINTS and self._sums[-1][2] == self._stride:
            self._sums = [*map(_together, self._sums[::2], self._sums[1::2])]
            self._stride *= 2

    @property
    def mean(self) -> float | None:
        _, total, values = functools.reduce(_together, self._sums, (0.0, 0.0, 0))
        return total / values if values else None

    @property
    def points(self) -> Series:
        """At most MAX_POINTS; the last one may be of fewer values than the others."""
        return [(float(f"{x / values:.6g}"), float(f"{y / values:.6g}")) for x, y, values in self._sums]


def _together(point: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    return point[0] + other[0], point[1] + other[1], point[2] + other[2]


@dataclass(slots=True)
class Played:
    began: float  # seconds since 1970
    iterations: int = 0
    rewards: Averaged = field(default_factory=Averaged)


@dataclass(slots=True)
class Fold:
    series: dict[str, Averaged] = field(default_factory=lambda: {name: Averaged() for name in CURVES})
    # oldest first, at most MAX_EXAMS; then every other one is dropped, but for the first and the newest
    exams: list[ExamView] = field(default_factory=list[ExamView])
    best: ExamView | None = None  # the first of those with the highest lower bound
    since_best: int = 0  # exams after it
    rounds: dict[int, Played] = field(default_factory=dict[int, Played])  # by number; the newest, oldest first
    # groups that were judged, and those of them that entered an update, by peer id, the most recent last
    shares: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    survived: dict[str, int] = field(default_factory=dict[str, int])  # errors, by type, over all the run's processes
    # (iteration, trouble with judge or sampler) wherever it began or changed; the first ones
    troubles: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    # the iteration and the words in which each of `hindrances` came first
    obstacles: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    recent: deque[Metrics] = field(default_factory=lambda: deque[Metrics](maxlen=64))  # whole rows, newest last
    _counters: dict[str, int] = field(default_factory=dict[str, int])  # of errors, in the newest row
    _first_shares: str = ""  # of the first exam: see `paired_gain`
    _trouble: str = ""  # of the newest row with the judge's figures

    def extend(self, lines: Iterable[bytes]) -> Self:
        """Add rows as they were written. Lines that are no row are skipped."""
        for line in lines:
            if (row := parse(line)) is not None:
                self._add(row, cast(int, row["iteration"]))
                self.recent.append(row)
                for cause, words in hindrances(self.recent).items():
                    self.obstacles.setdefault(cause, (cast(int, row["iteration"]), words))
        return self

    def newest(self, key: str) -> float | None:
        """The last measured number in the recent rows, or None."""
        return next((value for row in reversed(self.recent) if (value := number(row, key)) is not None), None)

    @property
    def last(self) -> Metrics:
        """Empty when there is none."""
        return self.recent[-1] if self.recent else {}

    @property
    def judge(self) -> Metrics:
        """The newest row with the judge's figures; empty when there is none."""
        return next((row for row in reversed(self.recent) if UNAVAILABLE in row), Metrics())

    @property
    def step_seconds(self) -> float | None:
        seconds = [value for row in self.recent if (value := number(row, "seconds")) is not None]
        return statistics.median(seconds) if seconds else None

    def _add(self, row: Metrics, iteration: int) -> None:
        for name, key in CURVES.items():
            if (value := number(row, key)) is not None:
                self.series[name].add(iteration, value)
        if (tokens := number(row, "tokens/sampled")) is not None:
            self.series["tokens_total"].add(iteration, (self.series["tokens_total"].newest or 0.0) + tokens)
        measured = row.get("eval/source") is not None or row.get("eval/average_at_8") is not None
        if measured and (exam := read_exam(row)) is not None:
            self._examine(exam, str(row.get("eval/shares") or ""))
        if iteration > 0 and (round_number := whole(row, "round")) is not None:
            self._play(row, iteration, round_number)
        if UNAVAILABLE in row:
            trouble = trouble_of(row)
            if trouble and trouble != self._trouble and len(self.troubles) < 200:
                self.troubles.append((iteration, trouble))
            self._trouble = trouble
        self._survive(row)
        self._share(row)

    def _examine(self, exam: ExamView, shares: str) -> None:
        """Figures of another set do not compare: with them the list begins anew."""
        if self.exams and "" != self.exams[-1].set != exam.set:
            self.exams.clear()
            self.best = None
        if not self.exams:
            self._first_shares = shares
        elif gain := paired_gain(self._first_shares, shares):
            exam = msgspec.structs.replace(exam, gain_low=gain[0], gain_high=gain[1])
        self.exams.append(exam)
        self.since_best += 1
        if exam.low is not None and (self.best is None or exam.low > (self.best.low or 0.0)):
            self.best, self.since_best = exam, 0
        if len(self.exams) > MAX_EXAMS:
            del self.exams[1:-1:2]

    def _survive(self, row: Metrics) -> None:
        """A counter that falls belongs to a new process."""
        counters = {key.removeprefix(TOLERATED): whole(row, key) or 0 for key in row if key.startswith(TOLERATED)}
        for name, times in counters.items():
            before = self._counters.get(name, 0)
            if new := times - before if times >= before else times:
                self.survived[name] = self.survived.get(name, 0) + new
        self._counters = counters

    def _play(self, row: Metrics, iteration: int, round_number: int) -> None:
        played = self.rounds.get(round_number)
        if played is None:
            began = (number(row, "time") or 0.0) - (number(row, "seconds") or 0.0)
            played = self.rounds[round_number] = Played(max(0.0, began))
            if len(self.rounds) > MAX_ROUNDS:
                del self.rounds[next(iter(self.rounds))]
        played.iterations += 1
        if (reward := number(row, "reward/mean")) is not None:
            played.rewards.add(iteration, reward)

    def _share(self, row: Metrics) -> None:
        for key in row:
            if key.startswith(JUDGED):
                peer = key.removeprefix(JUDGED)
                judged, used = self.shares.pop(peer, (0, 0))  # comes back at the end, as the most recent
                used += whole(row, f"swarm/external_used/{peer}") or 0
                self.shares[peer] = judged + (whole(row, key) or 0), used
        while len(self.shares) > 1_000:  # the least recent are dropped
            del self.shares[next(iter(self.shares))]


class History:
    """The fold of one run's file, brought up to date by `read`. For one thread at a time."""

    def __init__(self, folder: Path, *, budget: int = MAX_BYTES) -> None:
        """budget: bytes of a longer file that the first read covers, half from its beginning, half from its end."""
        self._tail = Tail(folder / FILE_NAME, budget=budget)
        self.fold = Fold()

    def read(self) -> Fold:
        """Fold all rows so far. Raises OSError."""
        anew, lines = self._tail.poll()
        if anew:
            self.fold = Fold()
        return self.fold.extend(lines)


def trouble_of(row: Metrics) -> str:
    """Name the alarms of a row with the judge's figures; empty when nothing is wrong."""
    alarms = {"the judge": row.get("judge/alarm"), "the sampler": row.get("train/mismatch_alarm")}
    return "; ".join(f"ALARM: {who} {clean(str(alarm), 400)}" for who, alarm in alarms.items() if alarm)


def read_exam(row: Metrics) -> ExamView | None:
    keys = (key for key in row if re.fullmatch(r"eval/average_at_\d{1,4}", key) and number(row, key) is not None)
    if (key := next(keys, None)) is None:
        return None
    samples, begun = int(key.rpartition("_")[2]), whole(row, "eval/iteration")
    return ExamView(
        iteration=whole(row, "iteration") or 0 if begun is None else begun,  # one beside training ends in a later row
        samples=samples,
        average=number(row, key) or 0.0,
        passed=number(row, f"eval/pass_at_{samples}"),
        source=str(row.get("eval/source") or "measured"),
        levels={level: value for level in range(1, 6) if (value := number(row, f"eval/level_{level}")) is not None},
        set=str(row.get("eval/set") or ""),
        **{name: number(row, measure) for name, measure in EXAM.items()},
    )


def paired_gain(first: str, last: str) -> tuple[float, float] | None:
    """95 % interval of the mean of last - first, each bytes in hex of 254ths (ff: none); None if they do not compare.

    In pairs, since what makes a problem hard is the same both times. It has the moments of `stats.resampled_means`
    between -1 and 1, which are a Dirichlet distribution's, and the form of a normal one."""
    try:
        pairs = list(zip(bytes.fromhex(first), bytes.fromhex(last), strict=True))
    except ValueError:
        return None
    gains = [(after - before) / 254 for before, after in pairs if 255 not in (before, after)]
    if not gains:
        return None
    mean, size = statistics.fmean(gains), len(gains) + 1  # half an observation at either end
    middle = sum(gains) / size
    spread = (sum(gain * gain for gain in gains) + 1) / size - middle * middle
    reach = statistics.NormalDist().inv_cdf(0.975) * (spread / (size + 1)) ** 0.5
    return min(middle - reach, mean), max(middle + reach, mean)


def hindrances(rows: Reversible[Metrics]) -> dict[str, str]:
    """Find what keeps a run from learning, by cause: how much, and the setting that mends it; empty: nothing does.

    rows: oldest first, of which those of the newest iterations with own attempts count."""
    recent = [*islice((row for row in reversed(rows) if number(row, "attempts/count")), WINDOW)][::-1]
    newest = _shares(recent[-1:])
    causes = {
        name: _sentence(name, newest[name], recent[-1:]) for name in ("cut_off", "no_verdict") if newest[name] > MUCH
    }
    shares = _shares(recent)
    learned = shares.pop("learned")
    if len(recent) == WINDOW and learned < LITTLE:
        most = max(shares, key=shares.__getitem__)
        why = _sentence(most, shares[most], recent)
        causes.pop(most, None)
        little = f"{percent(learned)} of the attempts of {WINDOW} iterations teach: {why}"
        causes = {f"little {most}": little} | causes
    return causes


def _shares(rows: Sequence[Metrics]) -> dict[str, float]:
    """Average the shares of the attempts of these rows: `learned`, and each of CAUSES."""
    counts = [number(row, "attempts/count") or 0.0 for row in rows]
    shares = dict.fromkeys(("learned", *CAUSES), 0.0)
    for row, count in zip(rows, counts, strict=True):
        for name in shares:
            shares[name] += (number(row, f"attempts/{name}_share") or 0.0) * count / max(sum(counts), 1.0)
    if rows and number(rows[-1], "judge/weight") == 0:
        shares["unweighed"] = shares.pop("wrong") + shares.pop("right")
    return shares


def _sentence(cause: str, share: float, rows: Sequence[Metrics]) -> str:
    what, mend = CAUSES[cause]
    if cause == "no_verdict":
        reason = max(rows, key=lambda row: number(row, "attempts/no_verdict_share") or 0.0).get(REASON) or ""
        what = f"{what} ({clean(str(reason), 300)})"
        mend = next(setting for words, setting in VERDICTS.items() if words in str(reason))
    return f"{percent(share)} of the attempts {what}; {mend}"
