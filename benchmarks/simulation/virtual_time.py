"""An event loop whose time is virtual: it jumps to the next event and never waits, so an hour passes in seconds.

The same asyncio program runs on it unchanged: timeouts, semaphores, task groups. Nothing here reads a real clock.
Does not support threads, signals, sockets or child processes: nothing from outside the loop can wake it.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

EPOCH = 1_700_000_000.0
"""Seconds since 1970 at which a virtual clock starts."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class StalledError(RuntimeError):
    """Every task waits for something that no timer will bring about."""


class Agenda(selectors.SelectSelector):
    """What takes the place of waiting for files: virtual time passes, and what is due by then happens."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.disturbed = False
        """Has the loop got something to do since it began to wait?"""
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def add(self, when: float, act: Callable[[Result], None], argument: Result) -> None:
        """`act(argument)` at `when`; what was added first happens first."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act, argument))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """No file is ever ready. Raises StalledError when nothing is left to come."""
        if timeout is not None and timeout <= 0:
            return []
        end = math.inf if timeout is None else self.seconds + timeout
        self.disturbed = False
        while self._events and self._events[0][0] <= end:
            when, _, act, argument = heapq.heappop(self._events)
            self.seconds = max(self.seconds, when)
            act(argument)
            if self.disturbed:
                return []
        if end == math.inf:
            raise StalledError("nothing is left that could happen")
        self.seconds = end
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and is exact; `clock()` is the same in seconds since 1970, for what asks the hour."""

    def __init__(self) -> None:
        self._agenda = Agenda()
        super().__init__(self._agenda)

    def time(self) -> float:
        return self._agenda.seconds

    def clock(self) -> float:
        return EPOCH + self._agenda.seconds

    def at(self, when: float, act: Callable[[Result], None], argument: Result) -> None:
        """As `call_at`, for the millions of events of a network: no handle, no context, a fifth of the time."""
        self._agenda.add(when, act, argument)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self._agenda.disturbed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._agenda.disturbed = True
        return super().call_at(when, callback, *args, context=context)


def run(loop: VirtualLoop, main: Coroutine[Any, Any, Result]) -> Result:
    """`main` to its end in virtual time; tasks that are left over are cancelled and the loop is closed."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)
