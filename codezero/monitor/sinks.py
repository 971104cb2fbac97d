"""Sinks of measurements besides metrics.jsonl. Each has a thread and a bounded queue, so nothing waits for it.

A sink that fails logs one warning and is off from then on. Rows that do not fit its queue are dropped and counted;
`metrics.jsonl` has them all.
"""

import contextlib
import importlib
import importlib.util
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from codezero.errors import ConfigError
from codezero.monitor.metrics_file import number
from codezero.types import Metrics

logger = logging.getLogger(__name__)

MOST_WAITING = 256
"""Rows queued for a sink."""
LEAVING_SECONDS = 5.0
"""For sending the rest at the end, for all sinks together: a node that has to stop has 30."""
TENSORBOARD_FOLDER = "tensorboard"
"""In the run folder; `tensorboard --logdir runs` reads it."""
FLUSH_SECONDS = 10


class Sink(Protocol):
    """Lives in its own thread; whatever it raises ends it and nothing else."""

    def observe(self, row: Metrics, seconds: float) -> None:
        """A row with its `iteration`; `seconds` since 1970."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


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


class TensorBoardSink:
    """A scalar for each figure, by iteration."""

    def __init__(self, folder: Path, iteration: int) -> None:
        """`folder`: the run's. Figures after `iteration`, which a crashed run left, are hidden."""
        library: Any = importlib.import_module("tensorboardX")  # by name, as types are checked without the extra too
        self._writer: Any = library.SummaryWriter(
            str(folder / TENSORBOARD_FOLDER),
            purge_step=iteration + 1 if iteration else None,
            flush_secs=FLUSH_SECONDS,
            filename_suffix=f".{os.getpid()}.{iteration}",  # its own names tell only the second and the machine
        )

    def observe(self, row: Metrics, seconds: float) -> None:
        for key, value in figures(row):
            self._writer.add_scalar(key, value, int(row["iteration"] or 0), walltime=seconds)

    def close(self) -> None:
        self._writer.close()


def figures(row: Metrics) -> Iterator[tuple[str, float]]:
    """The numbers of a row."""
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
