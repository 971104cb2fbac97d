"""A chain of one's own that is started beside training: the first rollouts do not wait for it."""

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from codezero.errors import ChainError
from codezero.known_round import KnownRound
from codezero.protocols import Coordinator, Outbox


class Parts(Protocol):
    """What a chain gives to the round loop."""

    @property
    def coordinator(self) -> Coordinator: ...
    @property
    def outbox(self) -> Outbox: ...


MAX_WAITING = 1024
"""Iterations whose points wait for the chain; the oldest are dropped."""


class LateChain:
    """Coordinator and outbox in one, made in a thread when an iteration begins that is not the first.

    Until they are there training goes on in the last known round, and points wait: they count in the round that is open
    then. Whatever `make` raises is raised by the next call, in the thread that trains.
    """

    def __init__(self, make: Callable[[], Parts], known: KnownRound) -> None:
        self._make, self._known = make, known
        self._made: Future[Parts] | None = None
        self._waiting: deque[tuple[float, str | None]] = deque(maxlen=MAX_WAITING)

    def current_round(self) -> int:
        if self._waiting and self._made is None:
            self._begin()
        if self._made is None or not self._made.done():
            return self._known.number
        return self._made.result().coordinator.current_round()

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        if self._made is None or not self._made.done():
            self._waiting.append((reward, vote))
            return
        self._hand_over(self._made.result())
        if self._waiting:
            self._waiting.append((reward, vote))
        else:
            self._made.result().outbox.add(round_number, reward, vote)

    def close(self) -> None:
        """Waits until the chain is there, so that points already earned are kept."""
        if self._waiting:
            self._hand_over((self._made or self._begin()).result())

    def _begin(self) -> Future[Parts]:
        pool = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
        self._made = pool.submit(self._make)
        pool.shutdown(wait=False)
        return self._made

    def _hand_over(self, parts: Parts) -> None:
        with contextlib.suppress(ChainError):  # points wait
            round_number = parts.coordinator.current_round()
            while self._waiting:
                parts.outbox.add(round_number, *self._waiting.popleft())
