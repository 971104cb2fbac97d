"""Checkpoints on disk: whole or not at all.

A checkpoint holds all that training goes on from: weights or adapter, the optimiser's moments, the number of steps
(which is the learning rate's position), every generator of random numbers or the counter that it is seeded with, the
cursor of the problem stream and what it has drawn, proposals, difficulty, the judge's calibration with the canaries
under way, and the last known round. A run that is stopped and started again is the same run bit for bit, where the same
machine computes the same. What a node knows of other peers is not in it and is not taken back with it: their trust, the
way to them and the outbox are files of the run's folder, which survive a restart by themselves.

A checkpoint is a folder `00000042` with one folder per part and a manifest (`manifest.py`). It is written under a
temporary name and renamed, so a process killed at any moment leaves the checkpoint before, the new one, or both. A
power cut also takes what the system has not yet brought to disk. Forcing it there costs as much as a small model's
whole checkpoint, so it is done every `flush_seconds`, before the rename, and the newest checkpoint that was flushed is
kept until there is a newer one: a power cut loses at most the last `flush_seconds`, and the manifest tells which
checkpoints it took. One process writes to a folder at a time.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import os
import random
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from safetensors import SafetensorError

from codezero.errors import CheckpointError, ConfigError, DiskFullError
from codezero.solver.manifest import PolicyFingerprint, check, check_files, read_manifest, write_manifest
from codezero.system.files import lacks_room
from codezero.system.state import Persistent, StateFile

if TYPE_CHECKING:
    import numpy as np
    import torch

logger = logging.getLogger(__name__)

UNFINISHED = ".tmp-"
REMEDY = "`--fresh` begins anew and keeps what is there under another name, `--fork RUN` begins with another run's"


class CheckpointStore:
    """The newest `keep` checkpoints of a run. See `protocols.Checkpoints`.

    fingerprint: of the model they have to be of. also: parts that are not the node's own, by name.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        resume: bool = True,
        *,
        fingerprint: PolicyFingerprint | None = None,
        also: Mapping[str, Persistent] | None = None,
        flush_seconds: float = 30.0,
    ):
        self.directory, self.keep, self.resume, self.flush_seconds = directory, keep, resume, flush_seconds
        self.fingerprint, self.also = fingerprint or PolicyFingerprint(), dict(also or {})
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
        try:
            self._save(iteration, parts)
        except (OSError, SafetensorError) as error:
            if not lacks_room(error):
                raise
            raise DiskFullError(f"a checkpoint in {self.directory} cannot be written: {error}") from error

    def _save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        unfinished = self.directory / f"{UNFINISHED}{iteration:08d}"
        _remove(unfinished)
        unfinished.mkdir()
        whole = self.also | dict(parts)
        for name, part in whole.items():
            (unfinished / name).mkdir()
            part.save(unfinished / name)
        write_manifest(unfinished, iteration, whole, self.fingerprint)
        final = self.directory / f"{iteration:08d}"
        flush = self.flushed is None or time.monotonic() - self.flushed_at >= self.flush_seconds
        if flush:
            _flush(unfinished)
        _remove(final)  # a refused one
        unfinished.rename(final)
        if flush:
            _flush_one(self.directory)
            self.flushed, self.flushed_at = final, time.monotonic()
        self.latest = iteration
        self._prune(iteration)

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint and return its iteration; 0 when there is none.

        Those that cannot be used are passed over, with one warning that names what is wrong with each. Raises
        ConfigError when there are checkpoints but `resume` is off, CheckpointError when none can be used.
        """
        folders = checkpoints_in(self.directory)
        if folders and not self.resume:
            raise ConfigError(
                f"run.resume=False, but {self.directory} has checkpoints; choose another run.name or drop the override"
            )
        for stale in self.directory.glob(f"{UNFINISHED}*"):
            _remove(stale)
        refused: list[str] = []
        whole = self.also | dict(parts)
        for folder in folders:
            try:
                check(folder, whole, self.fingerprint)
                for name, part in whole.items():
                    part.load(folder / name)
            except CheckpointError as error:
                refused.append(f"{folder.name} ({error})")
            else:
                if refused:
                    logger.warning("going on from checkpoint %s; refused: %s", folder.name, "; ".join(refused))
                self.latest = int(folder.name)
                return self.latest
        if folders:
            raise CheckpointError(f"no checkpoint in {self.directory} can be used: {'; '.join(refused)}. {REMEDY}")
        return 0

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


def copy_newest(source: Path, target: Path) -> str:
    """Copy the newest whole checkpoint in `source` to `target`, and return its name; `source` is only read.

    Its owner may be writing there: one that goes or changes while it is copied is passed over. Raises CheckpointError
    when there is none, or none that is whole and of this format.
    """
    refused: list[str] = []
    for folder in checkpoints_in(source):
        copy = target / folder.name
        try:
            manifest = read_manifest(folder)
            check_files(folder, manifest)
            shutil.copytree(folder, copy, symlinks=True)
            check_files(copy, manifest)
        except (CheckpointError, OSError) as error:
            refused.append(f"{folder.name} ({error})")
            _remove(copy)
        else:
            _flush(copy)
            _flush_one(target)
            return folder.name
    why = f"none in {source} can be used: {'; '.join(refused)}" if refused else f"there is none in {source}"
    raise CheckpointError(f"no checkpoint to begin with: {why}")


def _remove(path: Path) -> None:
    """A folder with what is in it, or a link or file itself."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _flush(folder: Path) -> None:
    """Every file, then every folder, the outermost last."""
    paths = sorted(folder.rglob("*"))
    for path in [path for path in paths if path.is_file()]:
        _flush_one(path)
    for path in [path for path in reversed(paths) if path.is_dir()]:
        _flush_one(path)
    _flush_one(folder)


def _flush_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _RngState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    python_version: int
    python_words: tuple[_Word, ...]
    python_gauss: float | None
    numpy_words: Annotated[tuple[_Word, ...], msgspec.Meta(min_length=624, max_length=624)]
    numpy_position: Annotated[int, msgspec.Meta(ge=0, le=624)]
    numpy_has_gauss: Annotated[int, msgspec.Meta(ge=0, le=1)]
    numpy_gauss: float
    torch: bytes
    cuda: list[bytes]
    """By device; empty where CUDA was not used."""


class GlobalGenerators(StateFile[_RngState], file="generators.json", schema=_RngState):
    """The process-wide generators of random numbers: Python's, numpy's and torch's. See `protocols.Persistent`.

    The parts of a node have generators of their own, or seed one from a counter. What libraries draw besides (dropout
    of an adapter, a back end that samples by itself) comes from these.
    """

    def state(self) -> _RngState:
        import numpy as np
        import torch

        version, words, gauss = random.getstate()
        _, numpy_words, position, has_gauss, numpy_gauss = cast(
            "tuple[str, np.ndarray[Any, Any], int, int, float]", np.random.get_state()
        )
        return _RngState(
            python_version=version,
            python_words=cast("tuple[int, ...]", words),
            python_gauss=gauss,
            numpy_words=tuple(numpy_words.tolist()),
            numpy_position=position,
            numpy_has_gauss=has_gauss,
            numpy_gauss=numpy_gauss,
            torch=torch.get_rng_state().numpy().tobytes(),
            cuda=_cuda_states(),
        )

    def restore(self, state: _RngState) -> None:
        import numpy as np
        import torch

        try:
            random.setstate((state.python_version, state.python_words, state.python_gauss))
            numpy_words = np.array(state.numpy_words, dtype=np.uint32)
            cached = (state.numpy_has_gauss, state.numpy_gauss)
            np.random.set_state(("MT19937", numpy_words, state.numpy_position, *cached))
            torch.set_rng_state(_tensor(state.torch))
            for device, cuda_state in enumerate(to_restore(state.cuda, _cuda_devices())):
                torch.cuda.set_rng_state(_tensor(cuda_state), device)
        except (TypeError, OverflowError, RuntimeError) as error:
            raise ValueError(str(error)) from error


def to_restore(saved: Sequence[bytes], devices: int) -> Sequence[bytes]:
    """The CUDA states to set: all, or none where the devices are not as many as they were."""
    if len(saved) == devices:
        return saved
    logger.info("the checkpoint was written with %d CUDA devices and %d are used here", len(saved), devices)
    return ()


def _cuda_devices() -> int:
    """0 as long as this process has not used CUDA: asking for more would start it."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_initialized() else 0


def _cuda_states() -> list[bytes]:
    import torch

    return [torch.cuda.get_rng_state(device).numpy().tobytes() for device in range(_cuda_devices())]


def _tensor(state: bytes) -> "torch.Tensor":
    """[bytes] uint8"""
    import torch

    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
