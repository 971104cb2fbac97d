"""Sinks of measurements besides metrics.jsonl. Each has a thread and a bounded queue, so nothing waits for it.

A sink that fails logs one warning and is off from then on. Rows that do not fit its queue are dropped and counted;
`metrics.jsonl` has them all.
"""

import contextlib
import importlib.util
import json
import logging
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from codezero.errors import ConfigError, EndpointError
from codezero.monitor.metrics_file import number
from codezero.system.files import set_aside
from codezero.types import Metrics

logger = logging.getLogger(__name__)

MOST_WAITING = 256
"""Rows queued for a sink."""
LEAVING_SECONDS = 5.0
"""For sending the rest at the end: a node that has to stop has 30."""
TENSORBOARD_FOLDER = "tensorboard"
"""In the run folder; `tensorboard --logdir runs` reads it."""


class Sink(Protocol):
    """Lives in its own thread; whatever it raises ends it and nothing else."""

    def observe(self, row: Metrics, seconds: float) -> None:
        """A row with its `iteration`; `seconds` since 1970."""

    def close(self) -> None: ...


class BackgroundSink:
    """A sink behind its queue; `make` opens it, given the iteration that the run goes on from."""

    def __init__(self, name: str, make: Callable[[int], Sink]) -> None:
        self.name, self.dropped = name, 0
        self._make, self._iteration = make, 0
        self._rows: queue.Queue[tuple[Metrics, float] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._live, name=f"sink-{name}", daemon=True)

    def start(self, iteration: int) -> None:
        self._iteration = iteration
        self._thread.start()

    def observe(self, row: Metrics) -> None:
        """Never waits."""
        if not self._thread.is_alive():
            return
        try:
            self._rows.put_nowait((row, time.time()))
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning("%s is too slow: rows are dropped for it (metrics.jsonl has them all)", self.name)

    def end(self) -> None:
        """Once what is waiting is sent."""
        with contextlib.suppress(queue.Full):  # `wait` is in vain then
            self._rows.put_nowait(None)

    def wait(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            logger.warning("%s did not take everything in time", self.name)
        if self.dropped:
            logger.info("%s: %d rows were dropped", self.name, self.dropped)

    def _live(self) -> None:
        try:
            sink = self._make(self._iteration)
            while (taken := self._rows.get()) is not None:
                sink.observe(*taken)
            sink.close()
        except (Exception, SystemExit) as error:  # two libraries without a base of their errors
            logger.warning("%s: %s: %s; training goes on without it", self.name, type(error).__name__, error)
            logger.info("the trace of %s", self.name, exc_info=error)


def close_all(sinks: Sequence[BackgroundSink], seconds: float = LEAVING_SECONDS) -> None:
    """Close them at the same time, within `seconds` together."""
    deadline = time.monotonic() + seconds
    for sink in sinks:
        sink.end()
    for sink in sinks:
        sink.wait(deadline - time.monotonic())


class TensorBoardSink:
    """A scalar for each figure, by iteration."""

    def __init__(self, folder: Path, iteration: int) -> None:
        """`folder`: the run's. Figures after `iteration`, which a crashed run left, are hidden."""
        library: Any = importlib.import_module("tensorboardX")  # by name, as types are checked without the extra too
        self._writer: Any = library.SummaryWriter(
            str(folder / TENSORBOARD_FOLDER),
            purge_step=iteration + 1 if iteration else None,
            flush_secs=10,
            filename_suffix=f".{os.getpid()}.{iteration}",  # its own names tell only the second and the machine
        )

    def observe(self, row: Metrics, seconds: float) -> None:
        for key, value in figures(row).items():
            self._writer.add_scalar(key, value, int(row["iteration"] or 0), walltime=seconds)

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """Weights & Biases, in a process of its own. Each method raises EndpointError when that is gone.

    wandb waits for its server at the start, at the end and in its exit hook, for minutes if that is dead; nodes must
    not. The key comes from WANDB_API_KEY alone; without one, and with WANDB_MODE=offline, everything stays below
    logs/wandb. Sent are the figures, the run's name, the peer id, the models, and the versions of Python, wandb and the
    kind of system; no settings, paths, source or host name.
    """

    def __init__(self, project: str, facts: Mapping[str, str], folder: Path, logs: Path) -> None:
        """`project`: PROJECT or ENTITY/PROJECT; `facts`: the peer id and the models; `folder`: the run's."""
        logs.mkdir(parents=True, exist_ok=True)
        self._log, identity = logs / "wandb.log", folder / "wandb.id"
        if not identity.is_file():  # a resumed run keeps its id, a new one in a folder of the same name gets another
            identity.write_text(secrets.token_hex(8) + "\n")
        with set_aside(self._log).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "codezero.monitor.sinks"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the node, at whose end its input ends
            )
        entity, _, name = project.rpartition("/")
        run = {"entity": entity or None, "project": name, "name": folder.name, "id": identity.read_text().strip()}
        self._send(run | {"config": dict(facts), "dir": str(logs)})

    def observe(self, row: Metrics, seconds: float) -> None:
        self._send([int(row["iteration"] or 0), figures(row)])

    def close(self) -> None:
        """The process sends what is left and ends by itself, if need be after this one."""
        self._process.communicate()
        if self._process.returncode:
            raise self._gone()

    def _send(self, message: object) -> None:
        """A line of JSON: arguments of wandb's init, then [step, figures] for each row."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._gone() from error

    def _gone(self) -> EndpointError:
        return EndpointError(f"its process ended with {self._process.wait()}; see {self._log}")


def figures(row: Metrics) -> dict[str, float]:
    """The numbers of a row."""
    return {key: float(value) for key in row if (value := number(row, key)) is not None}


def need(library: str, package: str, key: str) -> None:
    """Raise ConfigError unless the library of an optional sink is installed."""
    if importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"{key} needs what is not installed; `{sys.executable} -m pip install {package}` installs it, "
            f"or drop {key.partition('=')[0]}"
        )


def main() -> None:
    """The process of WandbSink. Raises whatever wandb raises."""
    library: Any = importlib.import_module("wandb")
    online = bool(os.environ.get("WANDB_API_KEY")) and os.environ.get("WANDB_MODE") != "offline"
    settings = library.Settings(
        silent=True, console="off", save_code=False, disable_git=True, init_timeout=30.0, host="codezero",
        x_save_requirements=False, x_disable_meta=True, x_disable_stats=True,
    )  # fmt: skip
    mode, resume = ("online", "allow") if online else ("offline", None)
    run = library.init(**json.loads(sys.stdin.readline()), mode=mode, resume=resume, settings=settings)
    for line in sys.stdin:
        step, measured = json.loads(line)
        run.log(measured, step=step)
    watchdog = threading.Timer(60.0, os._exit, (1,))  # also over wandb's exit hook
    watchdog.daemon = True
    watchdog.start()
    run.finish()


if __name__ == "__main__":
    main()
