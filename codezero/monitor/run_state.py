"""What metrics.jsonl says of a run so far, folded into a fixed size, however long the run.

The first look reads the file once from its beginning; later ones only what was appended, and start over when the file
was written anew, as a run does that goes on from a checkpoint.
"""

import statistics
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.monitor.metrics_file import FILE_NAME, Tail, number, parse
from codezero.monitor.run_types import MAX_EXAMS, MAX_ROUNDS
from codezero.monitor.series import Averaged, Thinned
from codezero.monitor.state import TOLERATED, ExamResult, Tolerated, read_exam
from codezero.types import Metrics

MAX_WHOLE = 2**53 - 1
"""The largest whole number that every reader of JSON takes exactly."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=MAX_WHOLE)]
CURVES = {
    "reward": "reward/mean",
    "loss": "train/loss",
    "entropy": "train/entropy",
    "zero_spread_share": "train/zero_spread_share",
    "level": "difficulty/level",
    "judge_auroc": "judge/canary_auroc",
    "judge_false_positive_share": "judge/canary_false_positive_share",
    "peers": "swarm/peers",
    "external_share": "swarm/external_share",
    "wrong_value_share": "proposer/wrong_value_share",
} | {f"success_{level}": f"difficulty/success_{level}" for level in range(1, 6)}
"""Name in the view, and key in a row."""
NUMBERS = CURVES | {"time": "time", "seconds": "seconds", "average": "eval/average_at_8"}
JUDGED, USED = "swarm/external_judged/", "swarm/external_used/"
"""Then a peer id: of its groups, how many were judged in an iteration, and how many entered the update."""
MAX_COUNTED = 1_000
"""Peers whose groups are counted; those not heard longest are forgotten."""
RECENT = 64
"""Rows in which the newest value of anything is looked for."""


class Row(msgspec.Struct, frozen=True, gc=False, rename=NUMBERS | {"source": "eval/source"}):
    """What is taken of every row; the rest is passed over unread, which halves the time."""

    iteration: Whole
    time: float | None = None
    round: Whole | None = None
    seconds: float | None = None
    reward: float | None = None
    loss: float | None = None
    entropy: float | None = None
    zero_spread_share: float | None = None
    level: float | None = None
    judge_auroc: float | None = None
    judge_false_positive_share: float | None = None
    peers: float | None = None
    external_share: float | None = None
    wrong_value_share: float | None = None
    success_1: float | None = None
    success_2: float | None = None
    success_3: float | None = None
    success_4: float | None = None
    success_5: float | None = None
    source: str | None = None
    average: float | None = None


_decoder = msgspec.json.Decoder(Row)


@dataclass(slots=True)
class Share:
    """What became of one peer's groups."""

    judged: int = 0
    used: int = 0


@dataclass(slots=True)
class Played:
    """One round, as it is counted."""

    number: int
    began: float
    """Seconds since 1970."""
    iterations: int = 0
    rewards: float = 0.0
    rewarded: int = 0
    """Iterations with a reward; `rewards` is their sum."""


@dataclass(slots=True)
class Fold:
    """Everything remembered of the rows so far."""

    series: dict[str, Averaged] = field(default_factory=lambda: {name: Averaged() for name in CURVES})
    exams: Thinned[ExamResult] = field(default_factory=lambda: Thinned[ExamResult](MAX_EXAMS))
    rounds: dict[int, Played] = field(default_factory=dict[int, Played])
    """The newest, oldest first."""
    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    """By peer id."""
    survived: Tolerated = field(default_factory=Tolerated)
    recent: deque[Metrics] = field(default_factory=lambda: deque[Metrics](maxlen=RECENT))
    """Whole rows, newest last."""

    def add(self, row: Row, line: bytes) -> None:
        """line: the row as it was written."""
        for name, curve in self.series.items():
            value = getattr(row, name)
            if value is not None:
                curve.add(row.iteration, value)
        if row.source is not None or row.average is not None:
            exam = read_exam(parse(line) or {})
            if exam is not None:
                self.exams.add(exam)
        if row.iteration > 0 and row.round is not None:
            self._play(row, row.round)
        if TOLERATED.encode() in line or self.survived.last:
            self.survived = self.survived.advanced(parse(line) or {})
        if JUDGED.encode() in line:
            self._share(parse(line) or {})

    def newest(self, key: str) -> float | None:
        """The last measured number; None when there was none lately."""
        return next((value for row in reversed(self.recent) if (value := number(row, key)) is not None), None)

    @property
    def last(self) -> Metrics:
        """The last row; empty when there is none."""
        return self.recent[-1] if self.recent else {}

    @property
    def step_seconds(self) -> float | None:
        """Median of the last iterations, without exams."""
        taken = [seconds for row in self.recent if (seconds := number(row, "seconds")) is not None]
        return statistics.median(taken) if taken else None

    def _play(self, row: Row, round_number: int) -> None:
        played = self.rounds.get(round_number)
        if played is None:
            played = self.rounds[round_number] = Played(
                round_number, max(0.0, (row.time or 0.0) - (row.seconds or 0.0))
            )
            if len(self.rounds) > MAX_ROUNDS:
                del self.rounds[next(iter(self.rounds))]
        played.iterations += 1
        if row.reward is not None:
            played.rewards += row.reward
            played.rewarded += 1

    def _share(self, row: Metrics) -> None:
        for key in row:
            if key.startswith(JUDGED):
                peer = key.removeprefix(JUDGED)
                share = self.shares.pop(peer, None) or Share()
                share.judged += whole(row, key) or 0
                share.used += whole(row, USED + peer) or 0
                self.shares[peer] = share  # now the last, as the one heard last
        while len(self.shares) > MAX_COUNTED:
            del self.shares[next(iter(self.shares))]


class History:
    """The fold of one run's file, brought up to date by `read`. For one thread at a time."""

    def __init__(self, folder: Path, *, budget: int | None = None) -> None:
        """budget: bytes of a longer file that the first look reads, half from its beginning, half from its end."""
        self._tail = Tail(folder / FILE_NAME, budget=budget)
        self.fold = Fold()

    def unread(self) -> int:
        """Bytes that the next `read` will read."""
        return self._tail.unread()

    def read(self) -> Fold:
        """All rows so far. Raises OSError."""
        anew, lines = self._tail.look()
        if anew:
            self.fold = Fold()
        newest: deque[bytes] = deque(maxlen=RECENT)
        for line in lines:
            row = _row(line)
            if row is not None:
                self.fold.add(row, line)
                newest.append(line)
        self.fold.recent.extend(parse(line) or {} for line in newest)
        return self.fold


def whole(row: Metrics, key: str) -> int | None:
    """A whole number from 0 to MAX_WHOLE; None for anything else."""
    value = number(row, key)
    return int(value) if value is not None and 0 <= value <= MAX_WHOLE else None


def _row(line: bytes) -> Row | None:
    """None for what is no row. The rows that a run writes go the fast way; others are taken as far as they can be."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        row = parse(line) or {}
    iteration, source = whole(row, "iteration"), row.get("eval/source")
    if iteration is None:
        return None
    numbers = {name: number(row, key) for name, key in NUMBERS.items()}
    told = source if isinstance(source, str) else None
    return Row(iteration=iteration, round=whole(row, "round"), source=told, **numbers)
