"""The open round: read in the background from the contract, or off the clock where there is no chain.

The open round, read again and again in the background, so that the training loop never waits for a network.

A thread that does one small job again and again until it is closed, and whose failures are told once each.

Rounds without a chain: every node reads the round off the clock, and points stay at home.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ChainError, ConfigError

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two readings."""
STALE = 30.0
"""A reading older than this is not handed out any more."""
FIRST = 5.0
"""Seconds that the very first question may take; nothing is known before."""


@dataclass(frozen=True, slots=True, order=True)
class RoundStage:
    """What is open."""

    round: int
    stage: int


class RoundWatch:
    """Hands out the last reading. The thread starts with the first question and ends with `close`."""

    def __init__(self, read: Callable[[], RoundStage], *, every: float = EVERY, stale: float = STALE) -> None:
        self._read, self._every, self._stale = read, every, stale
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._known: RoundStage | None = None
        self._read_at = 0.0
        self._failure: ChainError | None = None
        self._thread: threading.Thread | None = None

    def current(self) -> RoundStage:
        """Raises ChainError: at once when the last reading failed and no recent one is left."""
        with self._changed:
            self._start()
            if self._known is None and self._failure is None:
                self._changed.wait_for(lambda: self._known or self._failure or self._closing.is_set(), FIRST)
            if self._known is not None and time.monotonic() - self._read_at <= self._stale:
                return self._known
            if self._failure is not None:
                raise ChainUnreachableError(str(self._failure))
        raise ChainUnreachableError("the chain has not said yet which round is open")

    def update(self, known: RoundStage) -> None:
        """What another call has just read or brought about."""
        with self._changed:
            self._known, self._read_at, self._failure = known, time.monotonic(), None
            self._changed.notify_all()

    def close(self) -> None:
        """May be called twice. A reading under way is left to its own deadline."""
        self._closing.set()
        with self._changed:
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _start(self) -> None:
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._watch, name="chain-rounds", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            try:
                self.update(self._read())
            except ChainError as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
            if self._closing.wait(self._every):
                return


class Repeating:
    """Calls `job` every `seconds`. A ChainError is a warning when its text is new; anything else is a bug and raises
    in the thread, which ends it."""

    def __init__(self, name: str, job: Callable[[], object], seconds: float, *, once: bool = False) -> None:
        """once: only until it succeeds."""
        self._name, self._job, self._seconds, self._once = name, job, seconds, once
        self._closing = threading.Event()
        self._reported = ""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a job under way, which has deadlines of its own."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                self._job()
            except ChainError as error:
                if str(error) != self._reported:
                    self._reported = str(error)
                    logger.warning("%s: %s", self._name, error)
            else:
                if self._once:
                    return
                self._reported = ""
            if self._closing.wait(self._seconds):
                return


class ClockCoordinator:
    """The round is the number of whole `round_seconds` since 1970, so nodes agree on it without talking.

    now: seconds since 1970; nodes whose clocks differ by d seconds disagree for d seconds a round.
    """

    def __init__(self, round_seconds: float, now: Callable[[], float] = time.time) -> None:
        if not round_seconds > 0 or math.isinf(round_seconds):
            raise ConfigError(
                f"chain.round_seconds={round_seconds} is out of bounds; it must be finite and more than 0"
            )
        self._round_seconds = round_seconds
        self._now = now

    def current_round(self) -> int:
        return math.floor(self._now() / self._round_seconds)


class NoOutbox:
    """Sends nothing; keeps only how much would have been sent."""

    def __init__(self) -> None:
        self.entries = 0
        self.points = 0.0

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        self.entries += 1
        self.points += reward
