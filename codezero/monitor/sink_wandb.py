"""Weights & Biases, in a process of its own: `python -m codezero.monitor.sink_wandb`, started by WandbSink.

wandb waits for its server at the start, at the end and in its exit hook, for minutes if that is dead; nodes must not.
The process reads JSON lines: arguments of wandb's init, then [step, figures] for each row. At the end of its input it
sends what is left, within bounded time.

The key comes from WANDB_API_KEY alone, not from a login that wandb's tools saved. Without one, and with
WANDB_MODE=offline, everything stays below logs/wandb, from where `wandb sync` sends it. Sent are the figures, the run's
name, the peer id, the models, and the versions of Python, wandb and the kind of system; no settings, paths, source or
host name.
"""

import contextlib
import importlib
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codezero.errors import EndpointError
from codezero.monitor.sinks import figures
from codezero.system.files import set_aside
from codezero.types import Metrics

LOG = "wandb.log"
"""Output of the process."""
ID_FILE = "wandb.id"
"""In the run folder: the id by which W&B recognises a resumed run."""
INIT_SECONDS = 30.0
FINISHING_SECONDS = 60.0


class WandbSink:
    """The node's end of the process. Each method raises EndpointError when the process is gone."""

    def __init__(self, project: str, facts: Mapping[str, str], folder: Path, logs: Path) -> None:
        """`project`: PROJECT or ENTITY/PROJECT; `facts`: the peer id and the models; `folder`: the run's."""
        logs.mkdir(parents=True, exist_ok=True)
        self._log = logs / LOG
        with set_aside(self._log).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "codezero.monitor.sink_wandb"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the node, at whose end its input ends
            )
        entity, _, name = project.rpartition("/")
        self._send(
            {
                "entity": entity or None,
                "project": name,
                "name": folder.name,
                "id": _id_of(folder),
                "config": dict(facts),
                "dir": str(logs),
            }
        )

    def observe(self, row: Metrics, seconds: float) -> None:
        self._send([int(row["iteration"] or 0), dict(figures(row))])

    def close(self) -> None:
        """The process sends what is left and ends by itself, if need be after this one."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise self._gone()

    def _send(self, message: dict[str, Any] | list[Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def _gone(self) -> EndpointError:
        return EndpointError(f"its process ended with {self._process.wait()}; see {self._log}")


def _id_of(folder: Path) -> str:
    """The same for a resumed run; another for a new run in a folder of the same name."""
    file = folder / ID_FILE
    if not file.is_file():
        file.write_text(secrets.token_hex(8) + "\n")
    return file.read_text().strip()


def main() -> None:
    """Raises whatever wandb raises."""
    library: Any = importlib.import_module("wandb")  # by name: types are checked alike with and without the extra
    online = bool(os.environ.get("WANDB_API_KEY")) and os.environ.get("WANDB_MODE") != "offline"
    settings = library.Settings(
        silent=True, console="off", save_code=False, disable_git=True, init_timeout=INIT_SECONDS, host="codezero",
        x_save_requirements=False, x_disable_meta=True, x_disable_stats=True,
    )  # fmt: skip
    run = library.init(
        **json.loads(sys.stdin.readline()),
        mode="online" if online else "offline",
        resume="allow" if online else None,
        settings=settings,
    )
    for line in sys.stdin:
        step, measured = json.loads(line)
        run.log(measured, step=step)
    watchdog = threading.Timer(FINISHING_SECONDS, os._exit, (1,))  # also over wandb's exit hook
    watchdog.daemon = True
    watchdog.start()
    run.finish()


if __name__ == "__main__":
    main()
