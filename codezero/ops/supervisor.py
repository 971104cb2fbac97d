"""`--supervise`: a process that does nothing but keep a node alive.

It starts the node, starts it again when it dies, after longer and longer pauses, and gives up when it dies again and
again without saving an iteration in between. What starting again cannot mend is not tried again: a wrong setting, and
a node that ended as it was meant to or because somebody asked it to. On a full disk, where every start fails, it
waits for room, and that death does not count.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from codezero.compose import quoted
from codezero.config import NodeConfig
from codezero.runs import CHECKPOINTS
from codezero.solver.checkpoint import checkpoints_in
from codezero.system.files import full
from codezero.system.pidfile import tell
from codezero.system.signals import LEASH, LEAVING_SECONDS, Answer, Stop

LONGEST_PAUSE = 300.0
LOOKING_SECONDS = 0.2
ROOM_SECONDS = 2.0
"""Between two looks whether a full disk has room again."""
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
        """Seconds to wait; half as long at least, so that nodes that died together do not come back together.

        None: it is enough.
        """
        if saved > self._saved:
            self._saved, self.deaths = saved, 0
        self.deaths += 1
        if self.deaths >= self.most:
            return None
        return min(self._first * 2 ** min(self.deaths - 1, 32), LONGEST_PAUSE) * self._jitter(0.5, 1.0)


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

    patience = Patience(config.run.max_deaths, config.run.restart_seconds, saved())

    def note(words: str, last: bool) -> None:
        with contextlib.suppress(OSError):  # a full disk, which `status` sees by itself
            tell(folder, words, last=last)

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

    obstacle: what any start would fail at now; empty: nothing. note: is told what becomes of a node that died, and
    whether that is the end.
    """

    def say(words: str, *, last: bool = False) -> None:
        _say(words)
        note(words, last)

    stop, first, living = Stop(), True, list[subprocess.Popen[bytes]]()

    with stop.on_signals(answer=_passing_on(living)):
        while True:
            code = _live(command(first), stop, leaving_seconds, living)
            first = False
            if sys.stdout.isatty():
                print(end=SHOW_CURSOR, flush=True)  # a view that was killed has hidden it
            if stop or code in FINAL:
                return _after_asking(stop, code) if stop else as_exit_code(code)
            if why := obstacle():
                say(f"the node {_how(code)}; {why}")
                while obstacle() and not stop:
                    stop.wait(ROOM_SECONDS)
                if stop:
                    return _after_asking(stop, DONE)
                continue
            pause = patience.died(saved())
            if pause is None:
                say(
                    f"the node {_how(code)}; it is given up after {patience.deaths} deaths in a row without an "
                    "iteration saved between them (run.max_deaths); see its log",
                    last=True,
                )
                return as_exit_code(code)
            say(f"the node {_how(code)}; it is started again in {pause:.1f} s ({patience.deaths} of {patience.most})")
            if stop.wait(pause):
                return _after_asking(stop, DONE)


def _passing_on(living: Sequence[subprocess.Popen[bytes]]) -> Answer:
    """The first signal is passed on by `_live`, and a node says itself what it brings about."""

    def answer(which: signal.Signals, before: int) -> None:
        for process in living if before else ():
            process.send_signal(which if before == 1 else signal.SIGKILL)
        if not living:
            _say("stopping: no node is running")

    return answer


def as_exit_code(code: int) -> int:
    """128 + N for a process that signal N ended, as shells have it."""
    return code if code >= 0 else 128 - code


def _after_asking(stop: Stop, code: int) -> int:
    """Of a node that was asked to stop: as if it had been asked alone."""
    if stop.insisted is not None:
        return 128 + stop.insisted
    if code in FINAL and code != USAGE:  # one that the signal ended had nothing to save yet
        return INTERRUPTED if stop.received is signal.SIGINT else DONE
    return as_exit_code(code)


def _live(command: Sequence[str], stop: Stop, leaving_seconds: float, living: list[subprocess.Popen[bytes]]) -> int:
    """One process from its start to its end; it is asked to stop when this one is. Its return code.

    living: holds it meanwhile.
    """
    leash, held = os.pipe()  # its end is the end of this process, however that comes about
    # A session of its own: Ctrl-C reaches this process alone, which passes it on once.
    process = subprocess.Popen(command, start_new_session=True, env=os.environ | {LEASH: str(leash)}, pass_fds=[leash])
    os.close(leash)
    living.append(process)
    try:
        while process.poll() is None and not stop:
            stop.wait(LOOKING_SECONDS)
        if stop.received is not None and process.poll() is None:
            process.send_signal(stop.received)
            _wait(process, leaving_seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        living.remove(process)
        os.close(held)
    return process.returncode


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _say(f"the node did not end within {seconds:g} s and is killed; what it did since its last checkpoint is lost")


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _say(what: str) -> None:
    print(f"codezero: {what}", file=sys.stderr, flush=True)
