"""Where measurements go besides metrics.jsonl. Each sink has a thread and a bounded queue, so nothing waits for it.

A sink that fails has one warning and is off from then on; rows that it is too slow for are dropped and counted. What
`metrics.jsonl` holds is whole in any case.
"""

import contextlib
import importlib.util
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from codezero.errors import ConfigError
from codezero.monitor.metrics_file import number
from codezero.types import Metrics

logger = logging.getLogger(__name__)

MOST_WAITING = 256
"""Rows for a sink that has not taken them yet."""
LEAVING_SECONDS = 5.0
"""For what is still to be sent at the end, by all sinks together: a node that is told to leave has 30."""


class Sink(Protocol):
    """Lives in its own thread; whatever it raises ends it and nothing else."""

    def observe(self, row: Metrics, seconds: float) -> None:
        """A row with its `iteration`; `seconds` since 1970."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


@dataclass(frozen=True, kw_only=True)
class About:
    """Whose measurements they are."""

    run: str
    peer_id: str
    facts: tuple[tuple[str, str], ...] = ()
    """What stays the same, such as models."""


class BackgroundSink:
    """A sink behind its queue."""

    def __init__(self, name: str, make: Callable[[int], Sink]) -> None:
        """`name` for people; `make` opens it, given the iteration that the run goes on from."""
        self.name, self.dropped = name, 0
        self._make = make
        self._rows: queue.Queue[tuple[Metrics, float] | None] = queue.Queue(MOST_WAITING)
        self._failed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, iteration: int) -> None:
        self._thread = threading.Thread(target=self._live, args=(iteration,), name=f"sink-{self.name}", daemon=True)
        self._thread.start()

    def observe(self, row: Metrics) -> None:
        """Never waits."""
        if self._thread is None or self._failed.is_set():
            return
        try:
            self._rows.put_nowait((row, time.time()))
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning("%s is too slow: rows are dropped for it (metrics.jsonl has them all)", self.name)

    def ask_to_end(self) -> None:
        """Once what is waiting is sent; what does not fit any more is not waited for."""
        with contextlib.suppress(queue.Full):
            self._rows.put_nowait(None)

    def close(self, seconds: float = LEAVING_SECONDS) -> None:
        """Wait so long for what is left. May be called twice."""
        if self._thread is None:
            return
        deadline = time.monotonic() + seconds
        self.ask_to_end()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("%s did not take everything within %.0f s", self.name, LEAVING_SECONDS)
        if self.dropped:
            logger.info("%s: %d rows were dropped", self.name, self.dropped)
        self._thread = None

    def _live(self, iteration: int) -> None:
        try:
            sink = self._make(iteration)
            while (taken := self._rows.get()) is not None:
                sink.observe(*taken)
            sink.close()
        except (Exception, SystemExit) as error:  # two libraries without a base of their errors
            self._failed.set()
            logger.warning("%s: %s: %s; training goes on without it", self.name, type(error).__name__, error)
            logger.info("the trace of %s", self.name, exc_info=error)


def close_all(sinks: Sequence[BackgroundSink], seconds: float = LEAVING_SECONDS) -> None:
    """Close them at the same time, within `seconds` together."""
    deadline = time.monotonic() + seconds
    for sink in sinks:
        sink.ask_to_end()
    for sink in sinks:
        sink.close(max(0.0, deadline - time.monotonic()))


def figures(row: Metrics) -> Iterator[tuple[str, float]]:
    """What of a row is a number."""
    for key in row:
        value = number(row, key)
        if value is not None:
            yield key, float(value)


def need(library: str, package: str, key: str) -> None:
    """Raise ConfigError unless the library of an optional sink is installed."""
    if importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"{key} needs what is not installed; `{sys.executable} -m pip install {package}` installs it, "
            f"or drop {key.partition('=')[0]}"
        )
