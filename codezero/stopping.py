"""A wish to stop, set by SIGINT or SIGTERM and looked at where it is safe to end."""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from queue import Empty, SimpleQueue

LEASH = "CODEZERO_LEASH"
"""Environment variable: a pipe's file descriptor that comes to its end when the parent does."""


FAILED = "stopped by an error"
"""Why a run ended that no limit and nobody ended."""
LEAVING_SECONDS = 30.0
"""From the wish to stop to the end of a process; whoever asked may kill it then."""
FINISHING_SECONDS = 20.0
"""Of these, for the iteration in flight and its checkpoint; the rest is for giving everything back."""


class Overdue(BaseException):
    """What was to be finished before the end takes too long. Raised in the main thread.

    Like KeyboardInterrupt no error: nothing that survives errors survives it.
    """


class Stop:
    """False until somebody asks.

    A threading.Event would not do: set by a signal handler it waits, at times for ever, for the lock that its own
    thread holds in `wait`. A SimpleQueue may be put to while the same thread gets from it.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The signal that asked."""
        self._asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def __bool__(self) -> bool:
        return self._asked

    def ask(self) -> None:
        """For a signal handler or any thread."""
        self._asked = True
        self._wakes.put(None)

    def wait(self, seconds: float) -> bool:
        """Until somebody asks, `seconds` at most: has somebody?"""
        if not self._asked:
            with contextlib.suppress(Empty):
                self._wakes.put(self._wakes.get(timeout=max(0.0, seconds)))  # put back, as others may wait too
        return self._asked

    @contextlib.contextmanager
    def on_signals(self, seconds: float = 0.0) -> Generator[None]:
        """The first SIGINT or SIGTERM only sets the wish, a second has its usual effect; the end restores both.

        seconds: after which, since the wish, Overdue is raised inside; 0: never. For the main thread.
        """
        asked = (signal.SIGINT, signal.SIGTERM)
        old = {which: signal.getsignal(which) for which in (*asked, signal.SIGALRM)}

        def hear(which: int, _frame: object) -> None:
            self.received = signal.Signals(which)
            self.ask()
            signal.signal(which, old[self.received])
            if seconds:
                signal.setitimer(signal.ITIMER_REAL, seconds)

        def overdue(_which: int, _frame: object) -> None:
            raise Overdue

        for which in asked:
            signal.signal(which, hear)
        if seconds:
            signal.signal(signal.SIGALRM, overdue)
        try:
            yield
        finally:
            if seconds:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            for which, handler in old.items():
                signal.signal(which, handler)


def end_with_parent() -> None:
    """Where a parent holds this process on a leash: SIGTERM to itself once the parent is gone, however it went."""
    pipe = os.environ.pop(LEASH, "")
    if pipe:
        threading.Thread(target=_wait_for_end, args=(int(pipe),), daemon=True).start()


def _wait_for_end(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: this returns at the end of the pipe
    os.kill(os.getpid(), signal.SIGTERM)
