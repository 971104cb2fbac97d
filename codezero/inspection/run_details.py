"""Reads what the page shows of a run on request: its settings and where they came from, its log's end, checkpoints.

Every answer is bounded. Anybody may have made the folder: no link is followed, and no path that a file names is opened.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codezero.errors import CheckpointError, UnreadableError, translated
from codezero.monitor.logs import FILE_NAME as LOG
from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.rollouts_db import read_page, read_rollout
from codezero.monitor.run_types import SETTINGS, RunSettings
from codezero.monitor.text import clean
from codezero.solver.checkpoint import MANIFEST, MOST_MANIFEST_BYTES, checkpoints_in, read_manifest
from codezero.system.child import read_process
from codezero.system.files import read_bounded, read_json

MAX_TAIL = 64 << 10  # bytes of the end of a log


class LogTail(msgspec.Struct, frozen=True):
    path: str  # empty: there is no log
    text: str  # whole lines, unless the last one is longer than all that is read
    cut: bool  # `text` is only the end


class CheckpointLine(msgspec.Struct, frozen=True):
    name: str
    iteration: int | None
    size: int | None  # bytes of its files
    digest: str  # SHA-256 of the manifest, which holds those of all files
    saved: float  # seconds since 1970
    problem: str


class RunCheckpoints(msgspec.Struct, frozen=True):
    checkpoints: list[CheckpointLine]  # newest first


def parts(logs: Path) -> Mapping[str, Callable[..., object]]:
    """Name what `RunReader` reads of a run's folder on request. logs: of nodes that have no such folder in theirs."""
    from codezero.inspection.market import read_game, read_games, read_market  # numpy, which a list of runs spares

    def of_node(read: Callable[..., object]) -> Callable[..., object]:
        def read_own(folder: Path, **which: Any) -> object:
            return read(folder, read_process(folder / NODE_FILE).peer_id, **which)

        return read_own

    return {
        "settings": read_settings,
        "log": partial(read_log, logs=logs),
        "checkpoints": read_checkpoints,
        "rollouts": read_page,
        "rollouts/{id}": read_rollout,
        "market": of_node(read_market),
        "market/games": of_node(read_games),
        "market/games/{id}": of_node(read_game),
    }


def read_settings(folder: Path) -> RunSettings:
    with translated(UnreadableError, f"{folder / SETTINGS} cannot be read", OSError, ValueError):
        try:
            return read_json(folder / SETTINGS, RunSettings, 1 << 20)
        except FileNotFoundError:
            return RunSettings([])


def read_log(folder: Path, *, logs: Path) -> LogTail:
    """The end of the node's own log, or of that which the nodes of a folder share."""
    for path in (folder / "logs" / LOG, logs / LOG):
        if path.is_file() and not path.is_symlink():
            with translated(UnreadableError, f"{path} cannot be read", OSError), path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MAX_TAIL))
                text = file.read(MAX_TAIL).decode(errors="replace")
            cut = size > MAX_TAIL
            return LogTail(str(path), (text.partition("\n")[2] or text) if cut else text, cut)
    return LogTail("", "", False)


def read_checkpoints(folder: Path) -> RunCheckpoints:
    """One that cannot be used is listed with the reason. Its files are not read through."""
    with translated(UnreadableError, f"{folder} cannot be read", OSError):
        return RunCheckpoints([_checkpoint(path) for path in checkpoints_in(folder / "checkpoints")[:32]])


def _checkpoint(path: Path) -> CheckpointLine:
    saved = path.lstat().st_mtime
    try:
        manifest = read_manifest(path)
        digest = hashlib.sha256(read_bounded(path / MANIFEST, MOST_MANIFEST_BYTES)).hexdigest()
    except (CheckpointError, OSError, ValueError) as error:
        return CheckpointLine(path.name, None, None, "", saved, clean(str(error), 300))
    size = sum(size for size, _ in manifest.files.values())
    return CheckpointLine(path.name, manifest.iteration, size, digest, saved, "")
