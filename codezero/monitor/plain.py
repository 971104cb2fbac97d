"""The view without a terminal: single lines that read well in a log and never flood it."""

import time
from collections.abc import Callable

from codezero.monitor.summaries import RunState
from codezero.monitor.text import clean, count, duration, measured

PAUSE_SECONDS = 10.0
"""Least time between two lines that tell of no exam."""
NEWS_SECONDS = 1.0
"""The same for a line that tells of trouble with the judge, or of its end."""
SEPARATOR = " · "


def print_flushed(line: str) -> None:
    """To stdout, at once."""
    print(line, flush=True)


def plain_line(state: RunState) -> str:
    """`iteration 50 · round 12 · reward 0.71 · executed average@8 52.1 % [48.9, 55.2] · level 3 · 2 peers · 0.6 s`."""
    exam, seconds = state.exam_now, state.seconds_per_iteration
    parts = [f"iteration {state.iteration}", f"round {state.round}"]
    if state.reward is not None:
        parts.append(f"reward {state.reward:.2f}")
    if exam is not None:
        parts.append(f"{clean(exam.label, 40)} {measured(exam.average, exam.low, exam.high)}")
    if state.level is not None:
        parts.append(f"level {state.level:.0f}")
    parts.append(count(state.peers, "peer"))
    if seconds is not None:
        parts.append(duration(seconds))
    if state.trouble:
        parts.append(state.trouble)
    if state.tolerated:
        parts.append(f"{count(sum(state.tolerated.values()), 'tolerated error')}")
    return SEPARATOR.join(parts)


class PlainView:
    """A line for every exam, soon one for new trouble, and one each PAUSE_SECONDS at most otherwise."""

    def __init__(
        self, write: Callable[[str], None] = print_flushed, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._written: float | None = None
        self._at: int | None = None
        self._trouble = ""

    def show(self, state: RunState) -> None:
        """Say where the run is, if it is time to; the first call only notes where it begins."""
        moved = self._at is not None and (state.iteration != self._at or state.exam_now is not None)
        self._at = state.iteration
        now = self._clock()
        pause = PAUSE_SECONDS if state.trouble == self._trouble else NEWS_SECONDS
        due = self._written is None or now - self._written >= pause
        if moved and (due or state.exam_now is not None):
            self._written, self._trouble = now, state.trouble
            self._write(plain_line(state))

    def busy(self, state: RunState) -> None:
        """One line for what takes its time."""
        self._write(f"codezero: {state.busy} …")

    def say(self, line: str) -> None:
        """At once."""
        self._write(f"codezero: {line}")

    def close(self) -> None:
        """Nothing to give back."""
