"""The open round, read from a chain in the background, or from the clock where there is none.

Nothing heavy is imported here."""

import logging
import math
import threading
import time
from collections.abc import Callable

from codezero.chain.base import Coordinator
from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ChainError

logger = logging.getLogger(__name__)

STAGE = 0  # of rewards: the contract refuses a stage after the current one, even in old rounds
ROUND_SECONDS = 2.0  # between two readings of the open round


class Repeating:
    """Calls `job` every `seconds` in a thread, with `once` only until it succeeds. A ChainError is a warning when its
    text is new; anything else is a bug and ends the thread."""

    def __init__(self, name: str, job: Callable[[], object], seconds: float, *, once: bool = False) -> None:
        self._name, self._job, self._seconds, self._once = name, job, seconds, once
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def close(self, seconds: float | None = None) -> None:
        """Wait for a job under way, which has deadlines of its own, for at most `seconds`."""
        self._closing.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        reported, is_over = "", False
        while not is_over:
            try:
                self._job()
                if self._once:
                    return
                reported = ""
            except ChainError as error:
                if str(error) != reported:
                    reported = str(error)
                    logger.warning("%s: %s", self._name, error)
            is_over = self._closing.wait(self._seconds)


class RoundWatch:
    """Reads the open round in the background from the first call on, so that training never waits for a network.

    every, stale: seconds between two readings, and after which one is not handed out any more."""

    def __init__(self, read: Callable[[], int], *, every: float = ROUND_SECONDS, stale: float = 30.0) -> None:
        self._read, self._every, self._stale = read, every, stale
        self._starting = threading.Lock()
        self._reading: Repeating | None = None
        self._answered = threading.Event()
        self._known = (-1, -math.inf)  # the last reading and its time.monotonic()
        self._failure = "the chain has not said yet which round is open"

    def current(self) -> int:
        """The last reading. Raises ChainUnreachableError when it is too old, or there is none."""
        with self._starting:
            self._reading = self._reading or Repeating("chain-rounds", self._tick, self._every)
        self._answered.wait(5.0)  # only of the first call
        number, at = self._known
        if time.monotonic() - at > self._stale:
            raise ChainUnreachableError(self._failure)
        return number

    def close(self) -> None:
        """May be called twice. A reading under way is left to its own deadline."""
        if self._reading is not None:
            self._reading.close(1.0)

    def _tick(self) -> None:
        try:
            self._known = self._read(), time.monotonic()
        except ChainError as error:
            self._failure = str(error)
        self._answered.set()


class ClockCoordinator(Coordinator):
    """Without a chain the round is the number of whole `round_seconds` since 1970, so nodes agree without talking."""

    def __init__(self, round_seconds: float, now: Callable[[], float] = time.time) -> None:
        self._round_seconds, self._now = round_seconds, now

    def current_round(self) -> int:
        return math.floor(self._now() / self._round_seconds)
