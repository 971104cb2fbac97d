"""Checkpoints on disk: whole or not at all.

A checkpoint holds everything that training continues from, so a run that is stopped and started again is the same run
bit for bit, where the same machine computes the same. Not in it, and not taken back with it, is what the node knows of
other peers: their trust and addresses and the outbox are files of the run folder.

A checkpoint is a folder `00000042` with one folder per part and a manifest (`manifest.py`). It is written under a
temporary name and renamed, so a process killed at any moment leaves the checkpoint before, the new one, or both. A
power cut also takes what the system has not yet written to disk. Flushing costs as much as a small model's whole
checkpoint, so it happens every `flush_seconds`, before the rename, and the newest flushed checkpoint is kept: a power
cut loses at most that time, and the manifest shows which checkpoints it damaged. One process writes to a folder.
"""

import logging
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError

from codezero.errors import CheckpointError, ConfigError, DiskFullError
from codezero.solver.manifest import PolicyFingerprint, check, check_files, read_manifest, write_manifest
from codezero.system.files import flush, lacks_room
from codezero.system.state import Persistent

logger = logging.getLogger(__name__)

UNFINISHED = ".tmp-"
REMEDY = "`--fresh` begins anew and keeps what is there under another name, `--fork RUN` begins with another run's"


class CheckpointStore:
    """The newest `keep` checkpoints of a run. See `protocols.Checkpoints`.

    fingerprint: of the model they have to be of.
    """

    flush_seconds = 30.0

    def __init__(
        self, directory: Path, keep: int, resume: bool = True, *, fingerprint: PolicyFingerprint | None = None
    ) -> None:
        self.directory, self.keep, self.resume = directory, keep, resume
        self.fingerprint = fingerprint or PolicyFingerprint()
        self.flushed: Path | None = None
        """The newest checkpoint that this process knows to survive a power cut."""
        self.flushed_at = 0.0
        self.latest: int | None = None
        """The iteration that the parts and the newest checkpoint agree on."""

    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        """Write the parts as the checkpoint of `iteration`, unless it is on disk already.

        Raises DiskFullError, after which it may be tried again.
        """
        if iteration == self.latest:
            return
        unfinished, final = self.directory / f"{UNFINISHED}{iteration:08d}", self.directory / f"{iteration:08d}"
        try:
            self._write(unfinished, iteration, parts)
            due = self.flushed is None or time.monotonic() - self.flushed_at >= self.flush_seconds
            if due:
                _flush(unfinished)
            _remove(final)  # a refused one
            unfinished.rename(final)
            if due:
                flush(self.directory)
                self.flushed, self.flushed_at = final, time.monotonic()
            self.latest = iteration
            self._prune(iteration)
        except (OSError, SafetensorError) as error:
            if not lacks_room(error):
                raise
            raise DiskFullError(f"a checkpoint in {self.directory} cannot be written: {error}") from error

    def _write(self, folder: Path, iteration: int, parts: Mapping[str, Persistent]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _remove(folder)
        folder.mkdir()
        for name, part in parts.items():
            (folder / name).mkdir()
            part.save(folder / name)
        write_manifest(folder, iteration, parts, self.fingerprint)

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint and return its iteration; 0 when there is none.

        Raises ConfigError when there are checkpoints but `resume` is off, CheckpointError when none can be used.
        """
        folders = checkpoints_in(self.directory)
        if folders and not self.resume:
            raise ConfigError(
                f"run.resume=False, but {self.directory} has checkpoints; choose another run.name or drop the override"
            )
        for stale in self.directory.glob(f"{UNFINISHED}*"):
            _remove(stale)
        if not folders:
            return 0

        def load(folder: Path) -> None:
            check(folder, parts, self.fingerprint)
            for name, part in parts.items():
                part.load(folder / name)

        try:
            self.latest = int(newest(self.directory, load).name)
        except CheckpointError as error:
            raise CheckpointError(f"{error}. {REMEDY}") from error
        return self.latest

    def _prune(self, iteration: int) -> None:
        folders = checkpoints_in(self.directory)
        # What is newer was refused: `restore` passed it over.
        past = [folder for folder in folders if int(folder.name) <= iteration]
        for needless in {*folders} - {*past[: self.keep], self.flushed}:
            _remove(needless)


def checkpoints_in(directory: Path) -> list[Path]:
    """Whatever has a checkpoint's name, newest first."""
    if not directory.is_dir():
        return []
    named = [path for path in directory.iterdir() if re.fullmatch("[0-9]{8,18}", path.name)]
    return sorted(named, key=lambda path: int(path.name), reverse=True)


def newest(directory: Path, use: Callable[[Path], object]) -> Path:
    """The newest that `use` does not refuse by a CheckpointError, which is raised when all are; warn of newer ones."""
    refused: list[str] = []
    for folder in checkpoints_in(directory):
        try:
            use(folder)
        except CheckpointError as error:
            refused.append(f"{folder.name} ({error})")
        else:
            if refused:
                logger.warning("going on from checkpoint %s; refused: %s", folder.name, "; ".join(refused))
            return folder
    raise CheckpointError(f"no checkpoint in {directory} can be used: {'; '.join(refused) or 'there is none'}")


def copy_newest(source: Path, target: Path) -> str:
    """Copy the newest whole checkpoint of this format to `target`, which is empty; its name. `source` is only read.

    Its owner may be writing there: one that goes or changes while it is copied is passed over. Raises CheckpointError.
    """

    def copy(folder: Path) -> None:
        try:
            manifest = read_manifest(folder)
            check_files(folder, manifest)
            shutil.copytree(folder, target / folder.name, symlinks=True)
            check_files(target / folder.name, manifest)
        except (CheckpointError, OSError) as error:
            _remove(target / folder.name)
            raise CheckpointError(str(error)) from error

    name = newest(source, copy).name
    _flush(target)
    return name


def _remove(path: Path) -> None:
    """A folder with what is in it, or a link or file itself."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _flush(folder: Path) -> None:
    """What a folder holds before the folder itself."""
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        flush(path)
