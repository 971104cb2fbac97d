"""A folder of versions of a model: who publishes them, and who follows.

`versions.json` lists them in order, each with its state, the delta that leads there from the one before, and sometimes
an anchor, the whole model. Who is at one of the states fetches the deltas behind it; whoever is not, or finds that the
content is not the one published, begins at the newest anchor.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta
from torch import Tensor

from codezero.errors import WeightsError
from codezero.system.files import Hex, write_atomic
from codezero.weights import MANIFEST, MAX_MANIFEST
from codezero.weights.delta import apply, encode, state_of
from codezero.weights.state import Layout, Weights, of_tensors, read_weights, write_anchor

logger = logging.getLogger(__name__)

ANCHOR_EVERY, MAX_VERSIONS = 10, 4_000
MAX_TABLE = 16 << 20
"""Bytes of an anchor, or of a delta, beside what its weights take."""
_Size = Annotated[int, Meta(ge=0, le=1 << 40)]


class PolicyVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """number: of the publication. delta, anchor: bytes of their files, 0 where there is none."""

    number: Annotated[int, Meta(ge=0, lt=1 << 53)]
    state: Hex
    content: Hex | None
    """Digest of the weights themselves: of every anchor, and of every so manieth version."""
    delta: _Size = 0
    anchor: _Size = 0

    def __post_init__(self) -> None:
        if not (self.delta or self.anchor) or (self.anchor and self.content is None):
            raise ValueError(f"version {self.number} cannot be reached")


class VersionList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """layout: see `Layout.digest`. versions: ascending, the first an anchor."""

    layout: Hex
    versions: Annotated[tuple[PolicyVersion, ...], Meta(min_length=1, max_length=MAX_VERSIONS)]

    def __post_init__(self) -> None:
        numbers = [version.number for version in self.versions]
        if not self.versions[0].anchor or numbers != sorted(set(numbers)):
            raise ValueError("the versions do not ascend from an anchor")


class VersionSource(Protocol):
    """Where versions lie: the manifest, and the files that it names."""

    def file(self, name: str, most: int) -> AbstractContextManager[Path]:
        """A file of at most `most` bytes; what is in it is not looked at. Raises WeightsError."""
        ...


def read_manifest(source: VersionSource) -> VersionList:
    """Raises WeightsError."""
    try:
        with source.file(MANIFEST, MAX_MANIFEST) as path:
            return msgspec.json.decode(path.read_bytes(), type=VersionList)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WeightsError(f"{MANIFEST} breaks its schema: {error}") from error


class Publisher:
    """Writes versions into a folder of its own. Holds one copy of the newest, 2 bytes a weight."""

    def __init__(self, folder: Path, *, keep: int, check_every: int, deltas: bool = True) -> None:
        """keep: anchors that stay, with all behind the oldest. check_every: versions from one content to the next, and
        a tenth of those from one anchor to the next, if so many can be listed. deltas: False: every version is an
        anchor and nothing else."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._keep, self._check_every, self._deltas = folder, keep, check_every, deltas
        self._most_deltas = min(ANCHOR_EVERY * check_every, MAX_VERSIONS // (keep + 1)) - 1
        self._newest: Weights | None = None
        self._versions: tuple[PolicyVersion, ...] = ()

    def publish(self, number: int, tensors: Mapping[str, Tensor], *, anchor: bool = False) -> PolicyVersion:
        """The weights as a delta, and as an anchor if asked for, at the beginning, or where that is the smaller.

        number: above those before, or the list begins anew. Raises OSError or WeightsError: nothing was published.
        """
        if self._versions and number <= self._versions[-1].number:
            self._newest, self._versions = None, ()
        weights, blob, before = of_tensors(tensors), b"", self._newest
        if self._deltas and before is not None and before.layout == weights.layout:
            blob = encode(before, weights.bits)
        if len(blob) >= weights.bits.nbytes:
            blob = b""
        anchor = anchor or not blob or self._deltas_behind() >= self._most_deltas
        whole = weights.content() if anchor or number % self._check_every == 0 else None
        weights.state = state_of(blob) if blob else whole or ""
        size = write_anchor(weights, self._folder / f"{whole}.safetensors") if anchor else 0
        version = PolicyVersion(number, weights.state, whole, len(blob), size)
        if blob:
            write_atomic(self._folder / delta_file(version), blob)
        versions = self._kept((*self._versions, version))
        manifest = VersionList(weights.layout.digest, versions)
        write_atomic(self._folder / MANIFEST, msgspec.json.encode(manifest), durable=True)
        self._newest, self._versions = weights, versions
        self._remove_others()
        return version

    def _deltas_behind(self) -> int:
        """Versions since the newest anchor; numbers may have gaps, so they are counted."""
        return next((behind for behind, version in enumerate(reversed(self._versions)) if version.anchor), 0)

    def _kept(self, versions: tuple[PolicyVersion, ...]) -> tuple[PolicyVersion, ...]:
        anchors = [index for index, version in enumerate(versions) if version.anchor]
        first, *others = versions[anchors[-self._keep :][0] :]
        return (msgspec.structs.replace(first, delta=0), *others)

    def _remove_others(self) -> None:
        listed = {name(version) for version in self._versions for name in (delta_file, anchor_file)} | {MANIFEST}
        for path in self._folder.iterdir():
            if path.name not in listed and path.is_file():
                path.unlink(missing_ok=True)


def delta_file(version: PolicyVersion) -> str:
    return f"{version.state}.delta"


def anchor_file(version: PolicyVersion) -> str:
    return f"{version.content}.safetensors"


def catch_up(
    source: VersionSource, own: Weights | None = None, *, layout: Layout | None = None, oldest: bool = False
) -> tuple[Weights, PolicyVersion]:
    """The newest weights of a source and their version; `own` are brought there where deltas lead from them.

    layout: of the model they are for, when there are no `own`. oldest: begin at the oldest anchor, to check all deltas
    that lead on from there. Raises WeightsError; `own` are one of the versions then.
    """
    manifest = read_manifest(source)
    layout = own.layout if own is not None else layout
    if layout is not None and layout.digest != manifest.layout:
        raise WeightsError("the versions are of another model")
    versions = manifest.versions
    states = [version.state for version in versions]
    if own is not None and own.state in states:
        ahead = versions[states.index(own.state) + 1 :]
        try:
            if all(version.delta for version in ahead):
                _follow(source, own, ahead)
                return own, versions[-1]
        except WeightsError as error:
            logger.warning("the deltas do not lead on (%s); beginning at an anchor", error)
    first = 0 if oldest else max(index for index, version in enumerate(versions) if version.anchor)
    anchor = versions[first]
    with _fetched(source, anchor_file(anchor), anchor.anchor, layout) as path:
        weights = read_weights(path, layout)
    if weights.content() != anchor.content or weights.layout.digest != manifest.layout:
        raise WeightsError(f"the anchor of version {anchor.number} is not what {MANIFEST} names")
    weights.state = anchor.state
    _follow(source, weights, versions[first + 1 :])
    return weights, versions[-1]


class HostCopy:
    """The weights that a decoder follows a source with; `layout` is that of its model."""

    def __init__(self, source: VersionSource, layout: Layout) -> None:
        self._source, self._layout = source, layout
        self.weights: Weights | None = None
        """None: what comes next begins at an anchor."""

    def reach(self, number: int, state: str) -> Weights:
        """The announced version, which has to be the newest. Raises WeightsError; all is fetched anew after a fault."""
        own, self.weights = self.weights, None
        self.weights, version = catch_up(self._source, own, layout=self._layout)
        if (version.number, version.state) != (number, state):
            raise WeightsError(f"the newest version there is {version.number}, not {number} as it was announced")
        return self.weights


def _follow(source: VersionSource, weights: Weights, versions: tuple[PolicyVersion, ...]) -> None:
    for version in versions:
        with _fetched(source, delta_file(version), version.delta, weights.layout) as path:
            blob = path.read_bytes()
        if state_of(blob) != version.state:
            raise WeightsError(f"the delta of version {version.number} is not what {MANIFEST} names")
        apply(weights, blob)
        if version.content and weights.content() != version.content:
            weights.state = ""  # of no version: the next to catch up begins at an anchor
            raise WeightsError(f"version {version.number} has not the content that was published")


@contextmanager
def _fetched(source: VersionSource, name: str, size: int, layout: Layout | None) -> Generator[Path]:
    """A file of exactly `size` bytes, which suits the layout."""
    if size == 0 or (layout is not None and size > 2 * layout.size + MAX_TABLE):
        raise WeightsError(f"a file of {size} bytes is not of this model")
    with source.file(name, size) as path:
        if (length := path.stat().st_size) != size:
            raise WeightsError(f"{name} has {length} bytes, and {size} were published")
        yield path
