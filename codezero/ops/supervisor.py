"""`--supervise`: a process that keeps a node alive.

It starts the node again when it dies, after longer and longer pauses, and gives up when it dies again and again without
saving an iteration in between. A wrong setting, a node that ended as it was meant to, and one that was asked to end are
final. On a full disk, where every start fails, it waits for room, and that death does not count."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from codezero.config import NodeConfig
from codezero.runs import CHECKPOINTS
from codezero.settings import quoted
from codezero.solver.checkpoint import checkpoints_in
from codezero.system.child import SUPERVISOR_FILE, Child, how_it_ended, python, write_process
from codezero.system.files import full
from codezero.system.signals import ASKING, LEAVING_SECONDS, Backoff, Stop

LONGEST_PAUSE = 300.0
POLL_SECONDS = 0.2
ROOM_SECONDS = 2.0  # between two checks whether a full disk has room again
DONE, USAGE, INTERRUPTED = 0, 2, 130
# ways to end that are not deaths; a negative one is the signal that did it
FINAL = (DONE, USAGE, -signal.SIGPIPE, *(code for which in ASKING for code in (128 + which, -which)))


def run_supervised(config: NodeConfig, folder: Path, overrides: Sequence[str]) -> int:
    """Run the node of the run in `folder` until it ends by itself, is asked to, or is given up. Its exit code."""
    began = time.monotonic()

    def command(first: bool) -> list[str]:
        words = [*overrides, f"run.directory={quoted(folder.parent)}", f"run.name={quoted(folder.name)}"]
        if not first:
            words.append("run.resume=true")
            if config.run.max_minutes:
                words.append(f"run.max_minutes={max(0.01, config.run.max_minutes - (time.monotonic() - began) / 60)}")
        return python("-m", "codezero", "run", *words)

    def saved() -> int:
        return max((int(path.name) for path in checkpoints_in(folder / CHECKPOINTS)), default=0)

    def note(words: str, last: bool) -> None:
        _print(words)
        with contextlib.suppress(OSError):  # a full disk, which `status` sees by itself
            write_process(folder / SUPERVISOR_FILE, {"time": time.time(), "words": words, "last": last})

    deaths = Backoff(config.run.restart_seconds, LONGEST_PAUSE)
    return keep_alive(command, saved, deaths, config.run.max_deaths, obstacle=lambda: full(folder), note=note)


def keep_alive(
    command: Callable[[bool], Sequence[str]],
    saved: Callable[[], int],
    deaths: Backoff,
    most: int,
    leaving_seconds: float = LEAVING_SECONDS,
    obstacle: Callable[[], str] = str,
    note: Callable[[str, bool], None] = lambda words, last: _print(words),
) -> int:
    """The exit code of the last process: 128 + N for one that signal N ended, as shells have it.

    command: of the first and of later ones. saved: progress that lasts. most: `deaths` in a row without progress, with
    which the node is given up. obstacle: what any start would fail at now; empty: nothing. note: says what becomes of a
    node that died, and whether that is the end."""
    stop, running, kept, first, code = Stop(), list[Child](), saved(), True, DONE
    with stop.on_signals(answer=partial(_answer, running)):
        while not stop:
            code, first = _run(command(first), stop, leaving_seconds, running), False
            if stop or code in FINAL:
                break
            ended = how_it_ended(code)
            if why := obstacle():
                note(f"the node {ended}; {why}", False)
                while obstacle() and not stop.wait(ROOM_SECONDS):
                    pass
            else:
                if (progress := saved()) > kept:
                    kept = progress
                    deaths.succeeded()
                pause = deaths.failed()
                if deaths.failures >= most:
                    lost = f"{deaths.failures} deaths in a row without an iteration saved between them"
                    note(f"the node {ended}; it is given up after {lost} (run.max_deaths); see its log", True)
                    break
                note(f"the node {ended}; it is started again in {pause:.1f} s ({deaths.failures} of {most})", False)
                stop.wait(pause)
            code = DONE  # of a request to stop that comes before the next start
    if stop.insisted is not None:
        return 128 + stop.insisted
    if stop and code in FINAL and code != USAGE:  # one that the signal ended had nothing to save yet
        return INTERRUPTED if stop.received is signal.SIGINT else DONE
    return code if code >= 0 else 128 - code


def _answer(running: Sequence[Child], which: signal.Signals, before: int) -> None:
    """`_run` passes the first signal on, and the node itself says what follows."""
    for child in running if before else ():
        child.send_signal(which if before == 1 else signal.SIGKILL)
    if not running:
        _print("stopping: no node is running")


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
