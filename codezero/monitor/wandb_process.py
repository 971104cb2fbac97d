"""The process that talks to Weights & Biases: `python -m codezero.monitor.wandb_process`, started by `sink_wandb`.

wandb waits for its server at exits and beginnings, for minutes if that is dead; here nobody waits with it. Standard
input has a line of JSON about the run and one for each row; at its end what is left is sent, within bounded time.

The key comes from WANDB_API_KEY alone, not from a login that its own tools saved; without one, and with
WANDB_MODE=offline, everything stays below logs/wandb, from where `wandb sync` sends it. What is sent: the figures, the
run's name, the peer id, the models, and the versions of Python, wandb and the system's kind; no settings, paths, source
or name of the machine.
"""

import importlib
import json
import os
import secrets
import sys
import threading
from pathlib import Path
from typing import Any, TypedDict, cast

KEY = "WANDB_API_KEY"
ID_FILE = "wandb.id"
"""In the run's folder: by which W&B knows the run again when it goes on."""
INIT_SECONDS = 30.0
FINISHING_SECONDS = 60.0


class Begin(TypedDict):
    """The first line."""

    project: str
    """PROJECT or ENTITY/PROJECT."""
    run: str
    facts: dict[str, str]
    folder: str
    """The run's."""
    logs: str


class Row(TypedDict):
    step: int
    figures: dict[str, float]


def main() -> None:
    """Raises whatever wandb raises."""
    run = begin(cast(Begin, json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        row = cast(Row, json.loads(line))
        run.log(row["figures"], step=row["step"])
    watchdog = threading.Timer(FINISHING_SECONDS, os._exit, (1,))  # also over wandb's own work at the exit
    watchdog.daemon = True
    watchdog.start()
    run.finish()


def begin(told: Begin) -> Any:
    """wandb's run."""
    library: Any = importlib.import_module("wandb")  # by name: types are checked alike with and without the extra
    entity, _, name = told["project"].rpartition("/")
    online = bool(os.environ.get(KEY)) and os.environ.get("WANDB_MODE") != "offline"
    return library.init(
        project=name,
        entity=entity or None,
        name=told["run"],
        id=_id_of(Path(told["folder"])),
        resume="allow" if online else None,
        mode="online" if online else "offline",
        dir=told["logs"],
        config=told["facts"],
        settings=library.Settings(
            silent=True,
            console="off",
            save_code=False,
            disable_git=True,
            init_timeout=INIT_SECONDS,
            host="codezero",
            x_save_requirements=False,
            x_disable_meta=True,
            x_disable_stats=True,
        ),
    )


def _id_of(folder: Path) -> str:
    """The same for a run that goes on; another for one that begins anew in a folder of the same name."""
    file = folder / ID_FILE
    if not file.is_file():
        file.write_text(secrets.token_hex(8) + "\n")
    return file.read_text().strip()


if __name__ == "__main__":
    main()
