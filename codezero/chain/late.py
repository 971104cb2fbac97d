"""A chain of one's own that is started beside training: the first rollouts do not wait for it."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ChainError
from codezero.protocols import Coordinator, KnownRound, Outbox

logger = logging.getLogger(__name__)


class Parts(Protocol):
    """What a chain gives to the round loop."""

    @property
    def coordinator(self) -> Coordinator: ...
    @property
    def outbox(self) -> Outbox: ...


MAX_WAITING = 1024
"""Iterations whose points wait for the chain; the oldest are dropped."""
LAST_TRIES = 3
"""Starts of a chain that does not answer in time, before points that wait for it are given up with the run."""


class LateChain:
    """Coordinator and outbox in one, made in a thread when an iteration begins that is not the first.

    Until they are there training goes on in the last known round, and points wait: they count in the round that is open
    then. A chain that does not answer in time is made again. Whatever else `make` raises is raised by the next call, in
    the thread that trains.
    """

    def __init__(self, make: Callable[[], Parts], known: KnownRound) -> None:
        self._make, self._known = make, known
        self._made: Future[Parts] | None = None
        self._waiting: deque[tuple[float, str | None]] = deque(maxlen=MAX_WAITING)

    def current_round(self) -> int:
        if self._waiting and self._made is None:
            self._begin()
        parts = self._parts()
        return self._known.number if parts is None else parts.coordinator.current_round()

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        parts = self._parts()
        if parts is not None:
            self._hand_over(parts)
        if parts is None or self._waiting:
            self._waiting.append((reward, vote))
        else:
            parts.outbox.add(round_number, reward, vote)

    def close(self) -> None:
        """Waits until the chain is there, so that points already earned are kept. Raises what `make` raises."""
        for left in reversed(range(LAST_TRIES)):
            if not self._waiting:
                return
            try:
                return self._hand_over((self._made or self._begin()).result())
            except ChainUnreachableError:
                self._made = None
                if not left:
                    raise

    def _parts(self) -> Parts | None:
        """None while they are not there."""
        if self._made is None or not self._made.done():
            return None
        try:
            return self._made.result()
        except ChainUnreachableError as error:
            logger.warning("the chain is started again, %d points wait for it: %s", len(self._waiting), error)
            self._made = None
            return None

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
