"""Which folder a run lives in: chosen, locked and labelled before anything heavy loads.

`<run.directory>/<run.name>/` holds run.json (the choices that cannot change within a run), checkpoints/,
metrics.jsonl, report.md and curve.png. One process owns it at a time; the lock goes with the process.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

from codezero.config import NodeConfig
from codezero.errors import ConfigError

LABEL = "run.json"


class RunFolder:
    """An owned run folder."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock
        """Kept open: closing the file gives the lock back."""

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def release(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def open_run_folder(config: NodeConfig) -> RunFolder:
    """The named folder, or without a name the newest free one made with the same choices, or a new one.

    Raises ConfigError when the named one is in use or was made with other choices.
    """
    base = Path(config.run.directory)
    choices = _choices(config)
    if config.run.name:
        path = base / config.run.name
        made = _read_label(path)
        if made is not None and made != choices:
            key = next(key for key in choices if made.get(key) != choices[key])
            raise ConfigError(
                f"{key}={choices[key]}, but {path} was begun with {made.get(key)}; choose another run.name"
            )
        folder = _lock(path)
        if folder is None:
            raise ConfigError(f"run.name={config.run.name} is in use by another process; choose another run.name")
        return _labelled(folder, choices)
    if config.run.resume:
        for path in _newest_first(base):
            if _read_label(path) == choices and (folder := _lock(path)) is not None:
                return folder
    return _labelled(_fresh(base), choices)


def _choices(config: NodeConfig) -> dict[str, Any]:
    """What stays the same for the whole run."""
    return {
        "seed": config.seed,
        "model.solver": config.model.solver,
        "evaluator.model": config.evaluator.model,
        "swarm.name": config.swarm.name,
    }


def _newest_first(base: Path) -> Iterator[Path]:
    labels = sorted(base.glob(f"*/{LABEL}"), key=lambda label: label.stat().st_mtime, reverse=True)
    return (label.parent for label in labels)


def _read_label(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads((path / LABEL).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path / LABEL} cannot be read ({error}); remove it or choose another run.name") from error


def _lock(path: Path) -> RunFolder | None:
    """None when another process holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("w")
    except OSError as error:
        raise ConfigError(f"run.directory: {path} cannot be written ({error.strerror}); choose another") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return RunFolder(path, lock)


def _fresh(base: Path) -> RunFolder:
    """A folder named after the present moment that nobody has."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        path = base / f"{stamp}{suffix}"
        if not path.exists() and (folder := _lock(path)) is not None:
            return folder
    raise ConfigError(f"run.directory: no free name like {stamp} below {base}; give run.name")


def _labelled(folder: RunFolder, choices: dict[str, Any]) -> RunFolder:
    """Write the label if it is missing, and mark the folder as the newest."""
    label = folder.path / LABEL
    if not label.exists():
        part = label.with_suffix(".part")
        part.write_text(json.dumps(choices, indent=2) + "\n")
        os.replace(part, label)
    os.utime(label)
    return folder
