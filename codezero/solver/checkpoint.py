"""Checkpoints on disk: whole or not at all.

A checkpoint holds everything that training continues from, so a run that is stopped and started again is the same run
bit for bit, where the same machine computes the same. Not in it, and not taken back with it, is what the node knows of
other peers: their trust and addresses and the outbox are files of the run folder.

A checkpoint is a folder `00000042` with one folder per part and a manifest. It is written under a
temporary name and renamed, so a process killed at any moment leaves the checkpoint before, the new one, or both. A
power cut also takes what the system has not yet written to disk. Flushing costs as much as a small model's whole
checkpoint, so it happens every `flush_seconds`, before the rename, and the newest flushed checkpoint is kept: a power
cut loses at most that time, and the manifest shows which checkpoints it damaged. One process writes to a folder."""

import hashlib
import logging
import math
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from safetensors import SafetensorError

from codezero.errors import CheckpointError, ConfigError, DiskFullError, translated
from codezero.system.files import Hex, flush, lacks_room, link_tree, read_json
from codezero.system.state import Persistent

FORMAT = 3  # the folder's as a whole; raised whenever a part begins to write something else
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 8 << 20
MOST_FILES = 4_096
MOST_DEPTH = 8  # folders within folders
BYTES_PER_PARAMETER = 24  # weights and two moments in float32 are 12
BYTES_BESIDES = 512 << 20  # tokenizer, canaries, audited attempts: everything that does not grow with the model

_Size = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class PolicyFingerprint:
    """The identity of a checkpoint's model: its tokenizer and the shapes of its parameters."""

    tokenizer: str = ""  # digest: token ids mean the same
    # shape by name, of frozen ones and an adapter's too
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    environment: str = ""  # name and digest of what was learned; empty: code

    @property
    def most_bytes(self) -> int:
        """Limit for a checkpoint of such a model."""
        return BYTES_PER_PARAMETER * sum(map(math.prod, self.parameters.values())) + BYTES_BESIDES


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checkpoint's description of itself."""

    format: int
    iteration: _Size
    parts: tuple[str, ...]
    tokenizer: str
    parameters: dict[str, tuple[_Size, ...]]
    files: dict[str, tuple[_Size, Hex]]  # bytes and SHA-256 by path, the manifest left out
    environment: str = ""  # see `PolicyFingerprint`


def write_manifest(folder: Path, iteration: int, parts: Collection[str], fingerprint: PolicyFingerprint) -> None:
    """Describe what `folder` holds now."""
    files = {name: (path.stat().st_size, _digest(path)) for name, path in _held(folder).items()}
    tokenizer, parameters = fingerprint.tokenizer, dict(fingerprint.parameters)
    manifest = Manifest(FORMAT, iteration, tuple(sorted(parts)), tokenizer, parameters, files, fingerprint.environment)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read_manifest(folder: Path) -> Manifest:
    """The manifest, of this format and of the iteration that the folder is named after. Raises CheckpointError."""
    with translated(CheckpointError, f"{MANIFEST} cannot be read", OSError, ValueError):
        fields = read_json(folder / MANIFEST, dict[str, object], MOST_MANIFEST_BYTES)
        if (version := fields.get("format")) != FORMAT:
            raise CheckpointError(f"{MANIFEST} says format {str(version)[:20]}, and this program reads format {FORMAT}")
        manifest = msgspec.convert(fields, Manifest)
    if manifest.iteration != int(folder.name):
        raise CheckpointError(f"{MANIFEST} says iteration {manifest.iteration}, and the folder is called {folder.name}")
    return manifest


def check(folder: Path, parts: Collection[str], fingerprint: PolicyFingerprint) -> None:
    """Raise CheckpointError unless `folder` is whole and holds these parts of such a model."""
    manifest = read_manifest(folder)
    both = {
        "environment": (manifest.environment or "code", fingerprint.environment or "code"),
        "parts": (", ".join(sorted(manifest.parts)), ", ".join(sorted(parts))),
        "tokenizer": (manifest.tokenizer, fingerprint.tokenizer),
    }
    for what, (there, here) in both.items():
        if there != here:
            raise CheckpointError(f"{MANIFEST} says {what} {there[:200] or 'none'}; this node has {here}")
    if manifest.parameters != fingerprint.parameters:
        name, _ = min(manifest.parameters.items() ^ fingerprint.parameters.items())
        there, here = (of.parameters.get(name, "none") for of in (manifest, fingerprint))
        raise CheckpointError(f"{MANIFEST} says {name[:200]} is of shape {there}; this model has {here}")
    total = sum(size for size, _ in manifest.files.values())
    if total > fingerprint.most_bytes:
        raise CheckpointError(f"its files have {total} bytes, and one of this model can have {fingerprint.most_bytes}")
    check_files(folder, manifest)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raise CheckpointError unless `folder` holds exactly the files of `manifest`."""
    held = _held(folder)
    for name in sorted({*held} | {*manifest.files}):
        if name not in held:
            raise CheckpointError(f"{name} is missing")
        if name not in manifest.files:
            raise CheckpointError(f"{name} is not in {MANIFEST}")
        size = held[name].stat().st_size
        if size != manifest.files[name][0]:
            raise CheckpointError(f"{name} has {size} bytes, and {manifest.files[name][0]} were written")
    for name, (_, digest) in manifest.files.items():
        if _digest(held[name]) != digest:
            raise CheckpointError(f"{name} is not what was written: its SHA-256 differs")


def _held(folder: Path) -> dict[str, Path]:
    """The files but the manifest, by path below `folder`, in order; CheckpointError for what no checkpoint has."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder.name} is a link; a checkpoint has none")
    held: dict[str, Path] = {}
    for top, folders, files in os.walk(folder):  # what cannot be listed is missing
        for path in (Path(top, entry) for entry in (*folders, *files)):
            name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise CheckpointError(f"{name} is a link; a checkpoint has none")
            if stat.S_ISREG(mode):
                held[name] = path
            elif not stat.S_ISDIR(mode):
                raise CheckpointError(f"{name} is neither a file nor a folder")
            elif name.count("/") >= MOST_DEPTH:
                raise CheckpointError(f"{name} lies deeper than {MOST_DEPTH} folders")
            if len(held) > MOST_FILES:
                raise CheckpointError(f"it has more than {MOST_FILES} files")
    held.pop(MANIFEST, None)
    return dict(sorted(held.items()))


def _digest(path: Path) -> str:
    with translated(CheckpointError, f"{path.name} cannot be read", OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


logger = logging.getLogger(__name__)

UNFINISHED = ".tmp-"
BEST = "best"  # folder of the checkpoint whose exam was the best, beside the newest ones
REMEDY = "`--fresh` begins anew and keeps what is there under another name, `--fork RUN` begins with another run's"


class CheckpointStore:
    """The newest `keep` checkpoints of a run, which have to be of a model of this fingerprint."""

    flush_seconds = 30.0

    def __init__(
        self, directory: Path, keep: int, resume: bool = True, *, fingerprint: PolicyFingerprint | None = None
    ) -> None:
        self.directory, self.keep, self.resume = directory, keep, resume
        self.fingerprint = fingerprint or PolicyFingerprint()
        self.flushed: Path | None = None  # the newest checkpoint that this process knows to survive a power cut
        self.flushed_at = 0.0
        self.latest: int | None = None  # the iteration that the parts and the newest checkpoint agree on

    def save(self, iteration: int, parts: Mapping[str, Persistent], spare: int | None = None) -> None:
        """Write the parts as the checkpoint of `iteration`, unless it is on disk already; that of `spare` stays too.
        Raises DiskFullError, after which it may be tried again."""
        if iteration == self.latest:
            return
        unfinished, final = self.directory / f"{UNFINISHED}{iteration:08d}", self.directory / f"{iteration:08d}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _remove(unfinished)
            unfinished.mkdir()
            for name, part in parts.items():
                (unfinished / name).mkdir()
                part.save(unfinished / name)
            write_manifest(unfinished, iteration, parts, self.fingerprint)
            due = self.flushed is None or time.monotonic() - self.flushed_at >= self.flush_seconds
            if due:
                _flush(unfinished)
            _remove(final)  # a refused one
            unfinished.rename(final)
            if due:
                flush(self.directory)
                self.flushed, self.flushed_at = final, time.monotonic()
            self.latest = iteration
            folders = checkpoints_in(self.directory)  # what is newer was refused: `restore` passed it over
            past = [folder for folder in folders if int(folder.name) <= iteration]
            for needless in {*folders} - {*past[: self.keep], self.flushed, self.directory / f"{spare or 0:08d}"}:
                _remove(needless)
        except (OSError, SafetensorError) as error:
            if not lacks_room(error):
                raise
            raise DiskFullError(f"a checkpoint in {self.directory} cannot be written: {error}") from error

    def keep_best(self, iteration: int) -> None:
        """Keep this checkpoint, if it is there, in place of the best so far. Raises DiskFullError."""
        source, unfinished = self.directory / f"{iteration:08d}", self.directory / f"{UNFINISHED}{BEST}"
        final = self.directory / BEST / source.name
        if final.exists() or not source.exists():
            return
        try:
            link_tree(source, unfinished)
            _flush(unfinished)
            final.parent.mkdir(exist_ok=True)
            unfinished.rename(final)
            for other in {*checkpoints_in(final.parent)} - {final}:
                _remove(other)
            flush(final.parent)
        except OSError as error:
            if not lacks_room(error):
                raise
            raise DiskFullError(f"the best checkpoint in {self.directory} cannot be kept: {error}") from error

    @property
    def best_or_latest(self) -> Path:
        """The folder of the checkpoint that users take home."""
        return next(iter(checkpoints_in(self.directory / BEST)), self.directory / f"{self.latest or 0:08d}")

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint and return its iteration; 0 when there is none. Raises ConfigError when
        there are checkpoints but `resume` is off, CheckpointError when none can be used."""
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


def checkpoints_in(directory: Path) -> list[Path]:
    """Whatever has a checkpoint's name, newest first."""
    if not directory.is_dir():
        return []
    named = [path for path in directory.iterdir() if re.fullmatch("[0-9]{8,18}", path.name)]
    return sorted(named, key=lambda path: int(path.name), reverse=True)


def best_or_newest(directory: Path, use: Callable[[Path], object]) -> Path:
    """The best where there is one, else the newest; see `newest`."""
    return newest(directory, use, [*checkpoints_in(directory / BEST), *checkpoints_in(directory)])


def newest(directory: Path, use: Callable[[Path], object], folders: Sequence[Path] = ()) -> Path:
    """The newest that `use` does not refuse by a CheckpointError, which is raised when all are; warn of newer ones.

    folders: those to choose from, in their order."""
    refused: list[str] = []
    for folder in folders or checkpoints_in(directory):
        try:
            use(folder)
        except CheckpointError as error:
            refused.append(f"{folder.name} ({error})")
        else:
            if refused:
                logger.warning("going on from checkpoint %s; refused: %s", folder.name, "; ".join(refused))
            return folder
    raise CheckpointError(f"no checkpoint in {directory} can be used: {'; '.join(refused) or 'there is none'}")


def copy_best(source: Path, target: Path) -> str:
    """Copy a whole checkpoint of this format, the best or the newest, to `target`, which is empty; its name below
    `source`, which is only read.

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

    chosen = best_or_newest(source, copy)
    _flush(target)
    return str(chosen.relative_to(source))


def _remove(path: Path) -> None:
    """A folder with what is in it, or a link or file itself."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _flush(folder: Path) -> None:
    """Flush the content of a folder before the folder itself."""
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        flush(path)
