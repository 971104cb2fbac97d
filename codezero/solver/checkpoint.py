"""Checkpoints on disk: whole or not at all.

A checkpoint is a folder `00000042` with one folder per part and a manifest of every file's size and SHA-256. It is
written under a temporary name and renamed, so a process killed at any moment leaves the checkpoint before, the new one,
or both. A power cut also takes what the system has not yet brought to disk. Forcing it there costs as much as a small
model's whole checkpoint, so it is done every `flush_seconds`, before the rename, and the newest checkpoint that was
flushed is kept until there is a newer one: a power cut loses at most the last `flush_seconds`, and the manifest tells
which checkpoints it took. One process writes to a folder at a time.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from codezero.errors import CheckpointError, ConfigError
from codezero.protocols import Persistent

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
UNFINISHED = ".tmp-"


class CheckpointStore:
    """The newest `keep` checkpoints of a run. See `protocols.Checkpoints`."""

    def __init__(self, directory: Path, keep: int, resume: bool = True, *, flush_seconds: float = 30.0):
        self.directory, self.keep, self.resume, self.flush_seconds = directory, keep, resume, flush_seconds
        self.flushed: Path | None = None
        """The newest checkpoint that this process knows to survive a power cut."""
        self.flushed_at = 0.0
        self.latest: int | None = None
        """The iteration that the parts and the newest checkpoint agree on."""

    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        """Write the parts as the checkpoint of `iteration`, unless it is on disk already."""
        if iteration == self.latest:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        unfinished = self.directory / f"{UNFINISHED}{iteration:08d}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, part in parts.items():
            (unfinished / name).mkdir()
            part.save(unfinished / name)
        manifest = {"format": FORMAT, "iteration": iteration, "parts": sorted(parts), "files": _digests(unfinished)}
        (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=1))
        final = self.directory / f"{iteration:08d}"
        flush = self.flushed is None or time.monotonic() - self.flushed_at >= self.flush_seconds
        if flush:
            _flush(unfinished)
        if final.exists():  # damaged too
            shutil.rmtree(final)
        unfinished.rename(final)
        if flush:
            _flush_one(self.directory)
            self.flushed, self.flushed_at = final, time.monotonic()
        self.latest = iteration
        self._prune(iteration)

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint and return its iteration; 0 when there is none.

        A damaged one is passed over with a warning. Raises ConfigError when there are checkpoints but `resume` is off,
        CheckpointError when there are some and none is whole.
        """
        folders = self._folders()
        if folders and not self.resume:
            raise ConfigError(
                f"run.resume=False, but {self.directory} has checkpoints; choose another run.name or drop the override"
            )
        for stale in self.directory.glob(f"{UNFINISHED}*"):
            shutil.rmtree(stale)
        for folder in folders:
            try:
                check(folder, parts)
                for name, part in parts.items():
                    part.load(folder / name)
            except CheckpointError as error:
                logger.warning("checkpoint %s is damaged and passed over: %s", folder.name, error)
            else:
                self.latest = int(folder.name)
                return self.latest
        if folders:
            raise CheckpointError(f"no checkpoint in {self.directory} is whole; move the folder away to begin anew")
        return 0

    def _prune(self, iteration: int) -> None:
        folders = self._folders()
        # What is newer is damaged: `restore` passed it over.
        past = [folder for folder in folders if int(folder.name) <= iteration]
        for needless in {*folders} - {*past[: self.keep], self.flushed}:
            shutil.rmtree(needless)

    def _folders(self) -> list[Path]:
        """Newest first."""
        if not self.directory.is_dir():
            return []
        return sorted((path for path in self.directory.iterdir() if path.name.isdecimal()), reverse=True)


def check(folder: Path, parts: Mapping[str, Persistent]) -> None:
    """Raise CheckpointError unless `folder` holds exactly what its manifest says, for all of `parts`."""
    try:
        manifest = cast(object, json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"its manifest cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise CheckpointError("its manifest is not an object")
    said = cast("dict[str, object]", manifest)
    if said.get("format") != FORMAT:
        raise CheckpointError(f"its format is {said.get('format')}, this program reads {FORMAT}")
    if said.get("iteration") != int(folder.name) or said.get("parts") != sorted(parts):
        raise CheckpointError("its manifest is of another iteration or of other parts")
    if said.get("files") != _digests(folder):
        raise CheckpointError("its files are not what was written")


def _digests(folder: Path) -> dict[str, list[int | str]]:
    """Size and SHA-256 of every file below `folder` but the manifest."""
    found: dict[str, list[int | str]] = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if name != MANIFEST:
            with path.open("rb") as file:
                found[name] = [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]
    return found


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _flush(folder: Path) -> None:
    """Every file, then every folder, the outermost last."""
    for path in _files(folder):
        _flush_one(path)
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        _flush_one(path)
    _flush_one(folder)


def _flush_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
