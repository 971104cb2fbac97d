"""A checkpoint's manifest, and everything that is checked before a checkpoint is read.

A checkpoint may come from anywhere: another version, another model, a torn disk, a stranger. So it is a folder of plain
files, bounded in number, depth and bytes; it holds exactly what its manifest says; and its format, parts, tokenizer and
parameters are those of this process. Whatever differs is refused by name. A digest shows damage, not who wrote it.
"""

import hashlib
import math
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError, translated
from codezero.system.files import Hex, read_json

FORMAT = 3
"""Of the folder as a whole: raised whenever a part begins to write something else. 3: manifest with tokenizer and
parameters; part `swarm`; the watch remembers what is under way."""
FORMER_PART = "random"
"""That earlier versions of format 3 wrote, and nobody reads any more."""
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 8 << 20
MOST_FILES = 4_096
MOST_DEPTH = 8
"""Folders within folders."""
BYTES_PER_PARAMETER = 24
"""Weights and two moments in float32 are 12."""
BYTES_BESIDES = 512 << 20
"""Tokenizer, canaries, audited attempts: everything that does not grow with the model."""

_Size = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class PolicyFingerprint:
    """The identity of a checkpoint's model: its tokenizer and the shapes of its parameters."""

    tokenizer: str = ""
    """Digest: token ids mean the same."""
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Shape by name."""
    environment: str = ""
    """Name and digest of what was learned; empty: code."""

    @property
    def most_bytes(self) -> int:
        """Limit for a checkpoint of such a model."""
        return BYTES_PER_PARAMETER * sum(map(math.prod, self.parameters.values())) + BYTES_BESIDES


class _Version(msgspec.Struct):
    """The part of a manifest that every version has."""

    format: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checkpoint's description of itself."""

    format: int
    iteration: _Size
    parts: tuple[str, ...]
    tokenizer: str
    parameters: dict[str, tuple[_Size, ...]]
    files: dict[str, tuple[_Size, Hex]]
    """Bytes and SHA-256 by path, the manifest left out."""
    environment: str = ""
    """See `PolicyFingerprint`."""


def write_manifest(folder: Path, iteration: int, parts: Collection[str], fingerprint: PolicyFingerprint) -> None:
    """Describe what `folder` holds now."""
    files = {name: (path.stat().st_size, _digest(path)) for name, path in _held(folder).items()}
    manifest = Manifest(
        FORMAT,
        iteration,
        tuple(sorted(parts)),
        fingerprint.tokenizer,
        dict(fingerprint.parameters),
        files,
        fingerprint.environment,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read_manifest(folder: Path) -> Manifest:
    """Of this format and of the iteration that the folder is named after. Raises CheckpointError."""
    with translated(CheckpointError, f"{MANIFEST} cannot be read", OSError, ValueError):
        raw = read_json(folder / MANIFEST, msgspec.Raw, MOST_MANIFEST_BYTES)
        version = msgspec.json.decode(raw, type=_Version).format
        if version != FORMAT:
            age = "an earlier" if version < FORMAT else "a later"
            raise CheckpointError(
                f"{MANIFEST} says format {version}, of {age} version of this program, which reads format {FORMAT}"
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    if manifest.iteration != int(folder.name):
        raise CheckpointError(f"{MANIFEST} says iteration {manifest.iteration}, and the folder is called {folder.name}")
    return manifest


def check(folder: Path, parts: Collection[str], fingerprint: PolicyFingerprint) -> None:
    """Raise CheckpointError unless `folder` is whole and holds these parts of such a model."""
    manifest = read_manifest(folder)
    if manifest.environment != fingerprint.environment:
        raise CheckpointError(
            f"{MANIFEST} says environment {manifest.environment or 'code'}, and this node's is "
            f"{fingerprint.environment or 'code'}"
        )
    if {*manifest.parts} - {FORMER_PART} != {*parts}:
        raise CheckpointError(
            f"{MANIFEST} says parts {', '.join(manifest.parts)}; this node has {', '.join(sorted(parts))}"
        )
    if manifest.tokenizer != fingerprint.tokenizer:
        raise CheckpointError(
            f"{MANIFEST} says tokenizer {manifest.tokenizer[:12] or 'none'}, "
            f"and this model's is {fingerprint.tokenizer[:12]}"
        )
    if manifest.parameters != fingerprint.parameters:
        raise CheckpointError(f"{MANIFEST} says parameters of another model: {_difference(manifest, fingerprint)}")
    check_files(folder, manifest, fingerprint.most_bytes)


def check_files(folder: Path, manifest: Manifest, most_bytes: int | None = None) -> None:
    """Raise CheckpointError unless `folder` holds exactly the files of `manifest`, and no more than `most_bytes`."""
    held = _held(folder)
    for name in sorted({*held} | {*manifest.files}):
        if name not in held:
            raise CheckpointError(f"{name} is missing")
        if name not in manifest.files:
            raise CheckpointError(f"{name} is not in {MANIFEST}")
        size = held[name].stat().st_size
        if size != manifest.files[name][0]:
            raise CheckpointError(f"{name} has {size} bytes, and {manifest.files[name][0]} were written")
    total = sum(size for size, _ in manifest.files.values())
    if most_bytes is not None and total > most_bytes:
        raise CheckpointError(f"its files have {total} bytes, and one of this model can have {most_bytes}")
    for name, (_, digest) in manifest.files.items():
        if _digest(held[name]) != digest:
            raise CheckpointError(f"{name} is not what was written: its SHA-256 differs")


def _difference(manifest: Manifest, fingerprint: PolicyFingerprint) -> str:
    """The first of the parameters that are not the same."""
    name, _ = min(manifest.parameters.items() ^ fingerprint.parameters.items())
    there, here = manifest.parameters.get(name), fingerprint.parameters.get(name)
    if there is None or here is None:
        return f"only {'this model' if there is None else 'the checkpoint'} has {name[:200]}"
    return f"{name[:200]} is {list(there)} there and {list(here)} here"


def _held(folder: Path) -> dict[str, Path]:
    """Every file but the manifest, by its path below `folder`, in order.

    Raises CheckpointError for a link, for what else is neither file nor folder, and for too many or too deep ones.
    """

    def unlisted(error: OSError) -> None:
        raise CheckpointError(f"{Path(error.filename).name} cannot be listed: {error.strerror}") from error

    if folder.is_symlink():
        raise CheckpointError(f"{folder.name} is a link; a checkpoint has none")
    held: dict[str, Path] = {}
    for top, folders, files in os.walk(folder, onerror=unlisted):
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
