"""Sinks of measurements besides metrics.jsonl. Each has a thread and a bounded queue, so nothing waits for it.

A sink that fails logs one warning and is off from then on. Rows that do not fit its queue are dropped and counted;
`metrics.jsonl` has them all.
"""

import contextlib
import importlib
import json
import logging
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from codezero.errors import EndpointError
from codezero.monitor.metrics_file import number
from codezero.system.child import python
from codezero.system.files import set_aside
from codezero.types import Metrics

logger = logging.getLogger(__name__)

MOST_WAITING = 256
"""Rows queued for a sink."""
LEAVING_SECONDS = 5.0
"""For sending the rest at the end: a node that has to stop has 30."""


Observe = Callable[[Metrics, float], None]
"""Takes a row with its `iteration`, and when it was, in seconds since 1970."""
Sink = AbstractContextManager[Observe]
"""Lives in its own thread, and is left once it has everything; whatever it raises ends it and nothing else."""


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
        """End once what is waiting is sent."""
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
            with self._make(self._iteration) as observe:
                while (taken := self._rows.get()) is not None:
                    observe(*taken)
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


@contextmanager
def wandb_sink(project: str, facts: Mapping[str, str], folder: Path, logs: Path) -> Generator[Observe]:
    """Weights & Biases, in a process of its own. Raises EndpointError when that is gone.

    `project`: PROJECT or ENTITY/PROJECT; `facts`: the peer id and the models; `folder`: the run's.
    wandb waits for its server at the start, at the end and in its exit hook, for minutes if that is dead; nodes must
    not. The key comes from WANDB_API_KEY alone; without one everything stays below logs/wandb. WANDB_MODE is the
    user's. Sent are the figures, the run's name, the peer id, the models, and the versions of Python, wandb and the
    kind of system; no settings, paths, source or host name.
    """
    logs.mkdir(parents=True, exist_ok=True)
    path, identity = logs / "wandb.log", folder / "wandb.id"
    if not identity.is_file():  # a resumed run keeps its id, a new one in a folder of the same name gets another
        identity.write_text(secrets.token_hex(8) + "\n")
    with set_aside(path).open("ab") as log:
        process = subprocess.Popen(
            python("-m", "codezero.monitor.sinks"),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C is for the node, at whose end its input ends
        )
    assert process.stdin is not None

    def send(message: object) -> None:
        """A line of JSON: arguments of wandb's init, then [step, figures] for each row."""
        print(json.dumps(message), file=process.stdin, flush=True)

    entity, _, name = project.rpartition("/")
    run = {"entity": entity or None, "project": name, "name": folder.name, "id": identity.read_text().strip()}
    try:
        send(run | {"config": dict(facts), "dir": str(logs)})
        yield lambda row, _: send([int(row["iteration"] or 0), figures(row)])
        process.communicate()  # it sends what is left and ends by itself, if need be after this one
        if process.returncode:
            raise BrokenPipeError
    except BrokenPipeError as error:
        raise EndpointError(f"its process ended with {process.wait()}; see {path}") from error


def figures(row: Metrics) -> dict[str, float]:
    return {key: float(value) for key in row if (value := number(row, key)) is not None}


def main() -> None:
    """The process of wandb_sink. Raises whatever wandb raises."""
    library: Any = importlib.import_module("wandb")
    mode = os.environ.get("WANDB_MODE") or "online"
    if mode != "disabled" and not os.environ.get("WANDB_API_KEY"):
        mode = "offline"
    settings = library.Settings(
        silent=True, console="off", save_code=False, disable_git=True, init_timeout=30.0, host="codezero",
        x_save_requirements=False, x_disable_meta=True, x_disable_stats=True,
    )  # fmt: skip
    resume = {"resume": "allow" if mode == "online" else None}
    run = library.init(**json.loads(sys.stdin.readline()), **resume, mode=mode, settings=settings)
    for line in sys.stdin:
        step, measured = json.loads(line)
        run.log(measured, step=step)
    watchdog = threading.Timer(60.0, os._exit, (1,))  # also over wandb's exit hook
    watchdog.daemon = True
    watchdog.start()
    run.finish()


if __name__ == "__main__":
    main()
