"""A chain of one's own that is started beside training: the first rollouts do not wait for it."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ChainError
from codezero.protocols import Coordinator, Outbox
from codezero.system.state import KnownRound

logger = logging.getLogger(__name__)


Parts = tuple[Coordinator, Outbox]
"""What a chain gives to the round loop."""
MAX_WAITING = 1024
"""Iterations whose points wait for the chain; the oldest are dropped."""
LAST_TRIES = 3
"""Starts of a chain that does not answer in time, before points that wait for it are given up with the run."""


class LateChain:
    """Coordinator and outbox in one, started by `make` in a thread when the second iteration begins.

    Until they are there, training goes on in the last known round, and points wait for the round that is open then. A
    chain that does not answer in time is started again. Whatever else `make` raises is raised by the next call, in the
    thread that trains.
    """

    def __init__(self, make: Callable[[], Parts], known: KnownRound) -> None:
        self._make, self._known = make, known
        self._started: Future[Parts] | None = None
        self._waiting: deque[tuple[float, str | None]] = deque(maxlen=MAX_WAITING)

    def current_round(self) -> int:
        if self._waiting and self._started is None:
            self._begin()
        parts = self._parts()
        return self._known.number if parts is None else parts[0].current_round()

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        parts = self._parts()
        if parts is not None:
            self._hand_over(parts)
        if parts is None or self._waiting:
            self._waiting.append((reward, vote))
        else:
            parts[1].add(round_number, reward, vote)

    def close(self) -> None:
        """Waits until the chain is there, so that points already earned are kept. Raises what `make` raises."""
        for left in reversed(range(LAST_TRIES)):
            if not self._waiting:
                return
            try:
                return self._hand_over((self._started or self._begin()).result())
            except ChainUnreachableError:
                self._started = None
                if not left:
                    raise

    def _parts(self) -> Parts | None:
        """None while they are not there."""
        if self._started is None or not self._started.done():
            return None
        try:
            return self._started.result()
        except ChainUnreachableError as error:
            logger.warning("the chain is started again, %d points wait for it: %s", len(self._waiting), error)
            self._started = None
            return None

    def _begin(self) -> Future[Parts]:
        pool = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
        self._started = pool.submit(self._make)
        pool.shutdown(wait=False)
        return self._started

    def _hand_over(self, parts: Parts) -> None:
        with contextlib.suppress(ChainError):  # points wait
            round_number = parts[0].current_round()
            while self._waiting:
                parts[1].add(round_number, *self._waiting.popleft())
