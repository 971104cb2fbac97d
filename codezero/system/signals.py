"""Stopping and waiting: a request to stop, answered at once and honoured where it is safe, and pauses between tries."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import NoReturn

PARENT_PIPE = "CODEZERO_PARENT_PIPE"  # Environment variable with the parent-death pipe's file descriptor
FAILED = "stopped by an error"  # Why a run ended that neither a limit nor a signal ended; by a signal:
ASKED = "asked to stop"
CUT = "asked to stop, and the iteration in flight left out"
INTERRUPTED = "interrupted by a second signal, and the iteration in flight left out"
LEAVING_SECONDS = 30.0  # From the request to stop to the end of a process; whoever asked may kill it then
FINISHING_SECONDS = 20.0  # Of these, for the iteration in flight and its checkpoint; the rest is for the clean-up
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Answer = Callable[[signal.Signals, int], None]  # Is called with a signal and the number of those before it
_jitter = random.Random().uniform  # Not of the shared generator, which is seeded for training


class Share(str):
    """The progress of what takes its time, to estimate how long it may still take. of: 0: unknown."""

    def __new__(cls, what: str, done: int = 0, of: int = 0, note: str = "") -> "Share":
        parts = f": {done} of {of}{note}" if of else f": {done}{note}" if done else ""
        text = super().__new__(cls, what + parts)
        text.what, text.done, text.of = what, done, of
        return text

    what: str
    done: int
    of: int


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, where it unwinds as Ctrl-C does."""

    signal = signal.SIGTERM


@contextlib.contextmanager
def unwinding() -> Generator[None]:
    """Raise Terminated at the first SIGTERM or SIGHUP, one that nohup ignores excepted. For the main thread."""

    def receive(which: int, _frame: object) -> NoReturn:
        signal.signal(which, before[signal.Signals(which)])
        stop = Terminated()
        stop.signal = signal.Signals(which)
        raise stop

    before = {which: signal.signal(which, receive) for which in asking() if which is not signal.SIGINT}
    try:
        yield
    finally:
        for which, usual in before.items():
            signal.signal(which, usual)


class Overdue(BaseException):
    """Finishing takes too long. Raised in the main thread; like KeyboardInterrupt it is no Exception."""


class Stop:
    """False until a stop is requested. No threading.Event: set by a signal handler, it may wait for ever for the lock
    that its own thread holds in `wait`."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.insisted: signal.Signals | None = None  # A later one, where signals are answered
        self._requested = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def __bool__(self) -> bool:
        return self._requested

    def ask(self) -> None:
        """Request a stop, from a signal handler or any thread."""
        self._requested = True
        self._wakes.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until a stop is requested, `seconds` at most; returns whether it is."""
        if not self._requested:
            with contextlib.suppress(Empty):
                self._wakes.put(self._wakes.get(timeout=max(0.0, seconds)))  # put back, as others may wait too
        return self._requested

    @contextlib.contextmanager
    def on_signals(self, seconds: float = 0.0, answer: Answer | None = None) -> Generator[None]:
        """The first signal of ASKING only requests a stop, a second has its usual effect; the end restores all.

        A closed terminal sends SIGHUP, often twice: one after another signal has no effect, and one that was ignored
        from the start (nohup) stays so.

        seconds: from the request until Overdue is raised inside; 0: never. answer: is called for every signal, at once
        and in another thread; a second one has no other effect then. For the main thread."""
        old = {which: signal.getsignal(which) for which in (*asking(), signal.SIGALRM)}

        def receive(which: int, _frame: object) -> None:
            if self.received is not None:
                self.insisted = self.insisted if which == signal.SIGHUP else signal.Signals(which)
                return
            self.received = signal.Signals(which)
            self.ask()
            for usual in (signal.SIGINT, signal.SIGTERM) if answer is None else ():
                signal.signal(usual, old[usual])
            if seconds:
                signal.setitimer(signal.ITIMER_REAL, seconds)

        def overdue(_which: int, _frame: object) -> None:
            raise Overdue

        for which in asking():
            signal.signal(which, receive)
        if seconds:
            signal.signal(signal.SIGALRM, overdue)
        try:
            with contextlib.nullcontext() if answer is None else _answering(answer):
                yield
        finally:
            if seconds:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            for which, handler in old.items():
                signal.signal(which, handler)


@contextlib.contextmanager
def within_cpu(seconds: float) -> Generator[None]:
    """Raise TimeoutError in the block once this process has computed for `seconds` in it. In the main thread alone,
    where signals arrive; a block elsewhere, and one inside a library, goes on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def overdue(_which: int, _frame: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} seconds")

    before = signal.signal(signal.SIGPROF, overdue)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _answering(answer: Answer) -> Generator[None]:
    """Call `answer` for each signal in a thread of its own. Python's handlers wait while the main thread is in a
    library; its C handler, which writes to a pipe, does not."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        before = 0
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while numbers := pipe.read(16):
                for number in numbers:
                    if number in ASKING and not (before and number == signal.SIGHUP):
                        answer(signal.Signals(number), before)
                        before += 1

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    outer = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(outer)
        os.close(writing)
        thread.join()


def asking() -> tuple[signal.Signals, ...]:
    """ASKING, without a SIGHUP that this process ignores."""
    return tuple(which for which in ASKING if which != signal.SIGHUP or signal.getsignal(which) is not signal.SIG_IGN)


def again(which: signal.Signals) -> str:
    """Say how a person who sent this signal leaves without what the first one brings about."""
    if which is signal.SIGHUP:
        return "SIGTERM leaves now"
    return f"{'Ctrl-C' if which is signal.SIGINT else which.name} again leaves now"


def leave(which: signal.Signals, record: Callable[[], object]) -> NoReturn:
    """End this process with 128 + the signal's number once `record` has returned, after 3 s at the latest. Nothing is
    unwound: each child ends by itself when this process does, as after a kill."""
    limit = threading.Timer(3.0, os._exit, (128 + which,))
    limit.daemon = True
    limit.start()
    try:
        record()
    finally:
        os._exit(128 + which)


def end_with_parent() -> None:
    """Send SIGTERM to this process once the parent that holds PARENT_PIPE is gone, however it went."""
    pipe = os.environ.pop(PARENT_PIPE, "")

    def wait_for_end() -> None:
        os.read(int(pipe), 1)  # nothing is ever written: this returns at the end of the pipe
        os.kill(os.getpid(), signal.SIGTERM)

    if pipe:
        threading.Thread(target=wait_for_end, daemon=True).start()


def backoff(failures: int, first: float, longest: float) -> float:
    """Return seconds before the next try: first * 2^(failures - 1), at most `longest`, shortened at random by half.

    failures: in a row, 1 or more. Nodes that failed together must not come back together."""
    return min(first * 2.0 ** min(failures - 1, 32), longest) * _jitter(0.5, 1.0)


class Backoff:
    """One thing's failures in a row, and when it may be tried again."""

    def __init__(self, first: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`first`, `longest`: seconds of a pause."""
        self.failures = 0
        self._first, self._longest, self._clock, self._due = first, longest, clock, 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._due - self._clock())

    def failed(self) -> float:
        """Count a failure; returns the seconds to wait."""
        self.failures += 1
        pause = backoff(self.failures, self._first, self._longest)
        self._due = self._clock() + pause
        return pause

    def succeeded(self) -> None:
        self.failures, self._due = 0, 0.0
