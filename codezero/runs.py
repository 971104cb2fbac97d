"""The run folder: chosen, locked and labelled before anything heavy loads; start, resume and fork.

`<run.directory>/<run.name>/` holds run.json (the choices that cannot change within a run, and whose checkpoint it began
with, if anybody's), checkpoints/, metrics.jsonl, report.md and curve.png; besides, what no checkpoint takes back: trust
in peers (swarm/) and the outbox. One process owns it at a time; the lock goes with the process."""

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

from codezero.config import NodeConfig
from codezero.errors import CheckpointError, ConfigError, translated
from codezero.monitor.metrics_file import LABEL
from codezero.monitor.run_state import History
from codezero.monitor.text import clean, percent
from codezero.solver.checkpoint import checkpoints_in, copy_best, read_manifest
from codezero.system.files import LOCAL, read_json, take_lock, write_atomic

ORIGIN = "forked_from"  # in the label of a run that began with another's checkpoint
CHOICES = ("role", "seed", "model.solver", "evaluator.model", "swarm.name")  # they stay the same for the whole run
CHECKPOINTS = "checkpoints"
AUTOMATIC = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(-\d+)?")  # names of runs that nobody named, as of `_dated`
STAGING = ".fork"  # where a forked run is put together before it gets its name
MAX_BYTES = 1 << 20  # read of the label, and of the metrics, half from their beginning and half from their end


@dataclass
class RunFolder(contextlib.AbstractContextManager["RunFolder"]):
    """An owned run folder."""

    path: Path
    lock: IO[str]  # kept open: closing the file gives the lock back
    choices: Mapping[str, Any]  # what `run.json` gets once the start has succeeded

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def record_start(self) -> None:
        """Write run.json if it is missing, and mark the folder as the newest. Raises OSError."""
        label = self.path / LABEL
        if not label.exists():
            _write_label(self.path, self.choices)
        os.utime(label)

    def release(self) -> None:
        self.lock.close()

    def __exit__(self, *_: object) -> None:
        self.release()


def begin(config: NodeConfig, *, fresh: bool = False, fork: str | None = None, supervised: bool = False) -> RunFolder:
    """The owned folder of the run that the config and the two options of `codezero run` ask for.

    One line on stdout names the run, and what was moved or copied. supervised: the line of a resumed run is left to the
    node's own process. Raises ConfigError and CheckpointError."""
    if fresh and fork is not None:
        raise ConfigError("--fresh begins without a past and --fork with another run's; give one of them")
    if fork is not None:
        folder, line = _open_forked(config, fork)
    elif fresh:
        folder, line = _open_fresh(config)
    else:
        folder = open_run_folder(config)
        refused = not config.run.resume and checkpoints_in(folder.checkpoints)  # once it would go on
        line = "" if supervised or refused else _start_line(folder)
    if line:
        print(f"codezero: {line}", flush=True)
    return folder


def open_run_folder(config: NodeConfig) -> RunFolder:
    """The named folder, or the newest free one of those without a name that has the same choices, or a new one. Raises
    ConfigError when the named one is in use or was made with other choices."""
    base, choices = Path(config.run.directory), _choices(config)
    if config.run.name:
        path = base / config.run.name
        label = read_label(path) or choices
        for key, choice in choices.items():
            if label.get(key) != choice:
                begun = f"{path} was begun with {label.get(key)}"
                raise ConfigError(f"{key}={choice}, but {begun}; choose another run.name")
        return _locked(path, choices)
    if config.run.resume:
        labels = sorted(base.glob(f"*/{LABEL}"), key=lambda label: label.stat().st_mtime, reverse=True)
        for path in (label.parent for label in labels if AUTOMATIC.fullmatch(label.parent.name)):
            same = choices.items() <= (read_label(path) or {}).items()
            if same and (folder := _lock(path, choices)) is not None:
                return folder
    return _new(base, choices)


def _open_fresh(config: NodeConfig) -> tuple[RunFolder, str]:
    """A run without a past, and a line about it. A run that has its name is moved aside, and nothing is deleted."""
    base, choices, kept = Path(config.run.directory), _choices(config), ""
    path = base / config.run.name
    if config.run.name and _is_run(path):
        with _locked(path, choices):
            aside = path.rename(next(_dated(base, f"{path.name}.before-")))
        kept = f"; the one before is whole in {aside}, and run.name={aside.name} goes on with it"
    folder = _locked(path, choices) if config.run.name else _new(base, choices)
    return folder, f"new run {folder.path.name}{kept}"


def _open_forked(config: NodeConfig, run: str) -> tuple[RunFolder, str]:
    """A new run, whole or not at all, that begins with a checkpoint of `run`, a name or a folder: its best, or without
    one its newest; a line about it."""
    if not config.run.resume:
        raise ConfigError("--fork goes on from a checkpoint and run.resume=False does not; give one of them")
    base, choices = Path(config.run.directory), _choices(config)
    source = next((path for path in (base / run, Path(run)) if run and _is_run(path)), None)
    if source is None:
        raise ConfigError(f"--fork={run}: there is no such run below {base}, and no folder of one by that name")
    learned = (choices | (read_label(source) or {}))["model.solver"]
    if learned != config.model.solver:
        raise ConfigError(f"model.solver={config.model.solver}, but {source} was begun with {learned}; give that one")
    path = base / config.run.name if config.run.name else None
    if path is not None and path.exists():
        there = f"{path} is there already; choose another run.name, or drop --fork to go on"
        raise ConfigError(f"--fork makes a new run, and {there}")
    folder = _lock(base / STAGING, choices)
    if folder is None:
        raise ConfigError(f"another --fork is under way in {base / STAGING}; wait for it to end")
    try:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)  # of a process that was killed here
        folder.checkpoints.mkdir()
        name = copy_best(source / CHECKPOINTS, folder.checkpoints)
        _write_label(folder.path, choices | {ORIGIN: {"run": str(source.resolve()), "checkpoint": name}})
        folder.path = folder.path.rename(path or next(_dated(base)))
    except BaseException as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.release()
        if isinstance(error, CheckpointError):
            raise CheckpointError(f"--fork={run}: {error}") from error
        raise
    return folder, f"new run {folder.path.name}, which begins with checkpoint {name} of {run}"


def _is_run(path: Path) -> bool:
    return (path / LABEL).exists() or (path / CHECKPOINTS).is_dir()


def _choices(config: NodeConfig) -> dict[str, Any]:
    choices = {key: attrgetter(key)(config) for key in CHOICES}
    return choices | ({"model.adapter": config.model.adapter} if config.model.adapter else {})


def read_label(path: Path) -> dict[str, Any] | None:
    """Read what the run in this folder was begun with; None: there is no label. Raises ConfigError for a broken one."""
    try:
        return read_json(path / LABEL, dict[str, Any], MAX_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path / LABEL} cannot be read ({error}); remove it or choose another run.name") from error


def _write_label(path: Path, label: Mapping[str, Any]) -> None:
    write_atomic(path / LABEL, json.dumps(dict(label), indent=2) + "\n")


def _locked(path: Path, choices: Mapping[str, Any]) -> RunFolder:
    folder = _lock(path, choices)
    if folder is None:
        raise ConfigError(f"run.name={path.name} is in use by another process; choose another run.name")
    return folder


def _lock(path: Path, choices: Mapping[str, Any]) -> RunFolder | None:
    """None when another process holds it."""
    with translated(ConfigError, f"run.directory: {path} cannot be written and locked", OSError, mend=LOCAL):
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as unlocked:
            lock = unlocked.enter_context((path / ".lock").open("a+"))  # which waits for no pipe's other end
            if take_lock(lock):
                unlocked.pop_all()
                return RunFolder(path, lock, choices)
    return None


def _new(base: Path, choices: Mapping[str, Any]) -> RunFolder:
    return next(folder for path in _dated(base) if (folder := _lock(path, choices)) is not None)


def _dated(base: Path, prefix: str = "") -> Iterator[Path]:
    """Folders named after the present moment that are not there yet."""
    stamp = prefix + time.strftime("%Y-%m-%d_%H-%M-%S")
    names = itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2)))
    return (base / name for name in names if not (base / name).exists())


def _start_line(folder: RunFolder) -> str:
    """Which run it is and how far it has come. A checkpoint that turns out to be damaged is named when it is loaded."""
    iteration = 0
    for checkpoint in checkpoints_in(folder.checkpoints):
        with contextlib.suppress(CheckpointError):
            iteration = read_manifest(checkpoint).iteration
            break
    if not iteration:
        return f"new run {folder.path.name}"
    exams = History(folder.path, budget=MAX_BYTES).read().exams
    measured = [exam for exam in exams if exam.iteration <= iteration]
    last = f", {clean(measured[-1].label, 40)} {percent(measured[-1].average)}" if measured else ""
    return f"goes on with {folder.path.name} at iteration {iteration}{last}"
