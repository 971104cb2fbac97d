"""`--supervise`: a process that does nothing but keep a node alive.

It starts the node again when it dies, after longer and longer pauses, and gives up when it dies again and again without
saving an iteration in between. A wrong setting, a node that ended as it was meant to, and one that was asked to end are
final. On a full disk, where every start fails, it waits for room, and that death does not count.
"""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from codezero.config import NodeConfig
from codezero.runs import CHECKPOINTS
from codezero.settings import quoted
from codezero.solver.checkpoint import checkpoints_in
from codezero.system.backoff import backoff
from codezero.system.child import Child, how_it_ended
from codezero.system.files import full
from codezero.system.pidfile import write_supervisor
from codezero.system.signals import LEAVING_SECONDS, Answer, Stop

LONGEST_PAUSE = 300.0
POLL_SECONDS = 0.2
ROOM_SECONDS = 2.0
"""Between two checks whether a full disk has room again."""
DONE, USAGE, INTERRUPTED, TERMINATED = 0, 2, 130, 143
FINAL = (DONE, USAGE, INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM)
"""Ways to end that are not deaths; a negative one is the signal that did it."""
SHOW_CURSOR = "\x1b[?25h"


class Patience:
    """How long to wait before the next start, or that there shall be none. Pure."""

    def __init__(
        self, most: int, first_pause: float, saved: int = 0, jitter: Callable[[float, float], float] = random.uniform
    ) -> None:
        """`most` deaths in a row without progress; `saved`: the iteration of the newest checkpoint."""
        self.most, self.deaths = most, 0
        self._first, self._saved, self._jitter = first_pause, saved, jitter

    def died(self, saved: int) -> float | None:
        """Seconds to wait; None: it is given up."""
        if saved > self._saved:
            self._saved, self.deaths = saved, 0
        self.deaths += 1
        return None if self.deaths >= self.most else backoff(self.deaths, self._first, LONGEST_PAUSE, self._jitter)


def run_supervised(config: NodeConfig, folder: Path, overrides: Sequence[str]) -> int:
    """Run the node of the run in `folder` until it ends by itself, is asked to, or is given up. Its exit code."""
    began = time.monotonic()

    def command(first: bool) -> list[str]:
        words = [*overrides, f"run.directory={quoted(folder.parent)}", f"run.name={quoted(folder.name)}"]
        if not first:
            words.append("run.resume=true")
            if config.run.max_minutes:
                words.append(f"run.max_minutes={max(0.01, config.run.max_minutes - (time.monotonic() - began) / 60)}")
        return [sys.executable, "-m", "codezero", "run", *words]

    def saved() -> int:
        return max((int(path.name) for path in checkpoints_in(folder / CHECKPOINTS)), default=0)

    def note(words: str, last: bool) -> None:
        with contextlib.suppress(OSError):  # a full disk, which `status` sees by itself
            write_supervisor(folder, words, last=last)

    patience = Patience(config.run.max_deaths, config.run.restart_seconds, saved())
    return keep_alive(command, saved, patience, obstacle=lambda: full(folder), note=note)


def keep_alive(
    command: Callable[[bool], Sequence[str]],
    saved: Callable[[], int],
    patience: Patience,
    leaving_seconds: float = LEAVING_SECONDS,
    obstacle: Callable[[], str] = str,
    note: Callable[[str, bool], None] = lambda words, last: None,
) -> int:
    """The exit code of the last process. `command` of the first and of later ones; `saved`: progress that lasts.

    obstacle: what any start would fail at now; empty: nothing. note: receives what becomes of a node that died, and
    whether that is the end.
    """
    stop, first, running = Stop(), True, list[Child]()

    def report(words: str, *, last: bool = False) -> None:
        _print(words)
        note(words, last)

    with stop.on_signals(answer=_passing_on(running)):
        while True:
            code = _run(command(first), stop, leaving_seconds, running)
            first = False
            if sys.stdout.isatty():
                print(end=SHOW_CURSOR, flush=True)  # a view that was killed has hidden it
            if stop or code in FINAL:
                return _after_stopping(stop, code) if stop else as_exit_code(code)
            if why := obstacle():
                report(f"the node {how_it_ended(code)}; {why}")
                while obstacle() and not stop:
                    stop.wait(ROOM_SECONDS)
                if stop:
                    return _after_stopping(stop, DONE)
                continue
            pause = patience.died(saved())
            if pause is None:
                report(
                    f"the node {how_it_ended(code)}; it is given up after {patience.deaths} deaths in a row without an "
                    "iteration saved between them (run.max_deaths); see its log",
                    last=True,
                )
                return as_exit_code(code)
            deaths = f"{patience.deaths} of {patience.most}"
            report(f"the node {how_it_ended(code)}; it is started again in {pause:.1f} s ({deaths})")
            if stop.wait(pause):
                return _after_stopping(stop, DONE)


def _passing_on(running: Sequence[Child]) -> Answer:
    """`_run` passes the first signal on, and the node itself says what follows."""

    def answer(which: signal.Signals, before: int) -> None:
        for child in running if before else ():
            child.send_signal(which if before == 1 else signal.SIGKILL)
        if not running:
            _print("stopping: no node is running")

    return answer


def as_exit_code(code: int) -> int:
    """128 + N for a process that signal N ended, as shells have it."""
    return code if code >= 0 else 128 - code


def _after_stopping(stop: Stop, code: int) -> int:
    """As if the node had received the signal alone."""
    if stop.insisted is not None:
        return 128 + stop.insisted
    if code in FINAL and code != USAGE:  # one that the signal ended had nothing to save yet
        return INTERRUPTED if stop.received is signal.SIGINT else DONE
    return as_exit_code(code)


def _run(command: Sequence[str], stop: Stop, leaving_seconds: float, running: list[Child]) -> int:
    """One process from its start to its end, in `running` meanwhile; it is stopped when this one is. Its exit code."""
    child = Child(command, stdin=None)
    running.append(child)
    try:
        while child.poll() is None and not stop:
            stop.wait(POLL_SECONDS)
        if stop.received is not None and child.poll() is None:
            child.send_signal(stop.received)
            child.wait(leaving_seconds)
    except subprocess.TimeoutExpired:
        lost = "what it did since its last checkpoint is lost"
        _print(f"the node did not end within {leaving_seconds:g} s and is killed; {lost}")
    finally:
        child.kill()
        running.remove(child)
        child.close()
    return child.returncode


def _print(text: str) -> None:
    print(f"codezero: {text}", file=sys.stderr, flush=True)
