"""A folder of versions of a model: who publishes them, how they travel, and who follows.

`versions.json` lists them in order, each with its state, the delta that leads there from the one before, and sometimes
an anchor, the whole model. A copy at one of the states fetches the deltas behind it; any other begins at the newest
anchor. The versions come from a folder of this machine, or over HTTP by the routes that serve such a folder."""

import re
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx2
import msgspec
from aiohttp import web
from msgspec import Meta
from torch import Tensor

from codezero.errors import WeightsError, translated
from codezero.system.files import UNDECODABLE, Hex, write_atomic
from codezero.system.http_client import proxy_for, trusted, why
from codezero.system.web import check_bearer
from codezero.weights.delta import Layout, Weights, apply, encode, read_anchor, state_of, weights_of, write_anchor

MANIFEST, MAX_MANIFEST = "versions.json", 1 << 20  # the file that lists the versions, and its bytes at most
ANCHORS, ANCHOR_EVERY = 2, 100  # whole versions that stay, and versions from one to the next
MAX_VERSIONS = 4_000  # of a list that is read
MAX_TABLE = 16 << 20  # bytes of an anchor, or of a delta, beside those that its weights take
FIRST_SECONDS, LEAST_RATE = 10.0, 1 << 20  # a file may take so long, and a second more for every so many bytes
_FILE = re.compile(r"[0-9a-f]{64}\.(?:delta|safetensors)|" + re.escape(MANIFEST))
_Size = Annotated[int, Meta(ge=0, le=1 << 40)]


class PolicyVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """number: of the publication. delta, anchor: bytes of their files, 0 where there is none."""

    number: Annotated[int, Meta(ge=0, lt=1 << 53)]
    state: Hex
    content: Hex | None = None  # digest of the weights themselves: of every anchor
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


class VersionSource:
    """A folder that a `Publisher` writes on this machine, or the `routes` at an http(s) address."""

    def __init__(self, where: str | Path, token: str = "") -> None:
        """token: sent to that server alone; redirects are not followed."""
        self._where = str(where).rstrip("/")
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})

    @contextmanager
    def file(self, name: str, most: int) -> Generator[Path]:
        """A file of at most `most` bytes, whose content is not checked. Raises WeightsError."""
        where = self._where
        if not where.startswith(("http://", "https://")):
            path = Path(where, name)
            with translated(WeightsError, f"{where} is no folder of versions, or lacks {name}", OSError):
                size = path.stat().st_size
            if size > most:
                raise WeightsError(f"{path} is longer than {most} bytes")
            yield path
            return
        with tempfile.NamedTemporaryFile() as file:
            deadline = time.monotonic() + FIRST_SECONDS + most / LEAST_RATE
            way: Any = {"proxy": proxy_for(where), "verify": trusted(), "trust_env": False, "headers": self._headers}
            try:
                with httpx2.stream("GET", f"{where}/{name}", timeout=FIRST_SECONDS, **way) as response:
                    if response.status_code != 200:
                        raise WeightsError(f"{where} answers {response.status_code} for {name}")
                    for piece in response.iter_raw():
                        file.write(piece)
                        if file.tell() > most or time.monotonic() > deadline:
                            raise WeightsError(f"{where} sends {name} too slowly, or more than was published")
                file.flush()
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                raise WeightsError(f"{where} cannot be read: {why(error, where)}") from error
            yield Path(file.name)


def routes(folder: Path, token: str) -> list[web.RouteDef]:
    """GET of the manifest and of files named by digest, nothing else of the folder; in ranges too.

    token: what a request has to bear; empty: whoever reaches the port may read, so that has to be a loopback address.
    """

    async def serve(request: web.Request) -> web.StreamResponse:
        check_bearer(request, token)
        name = request.match_info["name"]  # decoded, so there may be any character in it
        path = folder / name
        if not _FILE.fullmatch(name) or path.is_symlink() or not path.is_file():
            raise web.HTTPNotFound(text="no such version")
        return web.FileResponse(path)

    return [web.get("/{name}", serve)]


def read_manifest(source: VersionSource) -> VersionList:
    """Raises WeightsError."""
    with (
        source.file(MANIFEST, MAX_MANIFEST) as path,
        translated(WeightsError, f"{MANIFEST} breaks its schema", *UNDECODABLE),
    ):
        return msgspec.json.decode(path.read_bytes(), type=VersionList)


def delta_file(version: PolicyVersion) -> str:
    return f"{version.state}.delta"


def anchor_file(version: PolicyVersion) -> str:
    return f"{version.content}.safetensors"


class Publisher:
    """Writes versions into a folder of its own. Holds one copy of the newest, 2 bytes a weight."""

    def __init__(self, folder: Path, *, deltas: bool = True) -> None:
        """deltas: False: every version is an anchor and nothing else."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._deltas = folder, deltas
        self._newest: Weights | None = None
        self._versions: tuple[PolicyVersion, ...] = ()

    def publish(self, number: int, tensors: Mapping[str, Tensor], *, anchor: bool = False) -> PolicyVersion:
        """The weights as a delta, and as an anchor if asked for, when one is due, or where that is the smaller.

        number: above those before, or the list begins anew. Raises OSError or WeightsError: nothing was published."""
        if self._versions and number <= self._versions[-1].number:
            self._newest, self._versions = None, ()
        weights, blob, before = weights_of(tensors), b"", self._newest
        if self._deltas and before is not None and before.layout == weights.layout:
            blob = encode(before, weights.bits)
        if len(blob) >= weights.bits.nbytes:
            blob = b""
        due = not any(version.anchor for version in self._versions[1 - ANCHOR_EVERY :])
        content = weights.content() if anchor or due or not blob else None
        weights.state = state_of(blob) if blob else content or ""
        size = write_anchor(weights, self._folder / f"{content}.safetensors") if content else 0
        version = PolicyVersion(number, weights.state, content, len(blob), size)
        if blob:
            write_atomic(self._folder / delta_file(version), blob)
        versions = (*self._versions, version)
        oldest = [at for at, listed in enumerate(versions) if listed.anchor][-ANCHORS:][0]
        versions = (msgspec.structs.replace(versions[oldest], delta=0), *versions[oldest + 1 :])
        manifest = VersionList(weights.layout.digest, versions)
        write_atomic(self._folder / MANIFEST, msgspec.json.encode(manifest), durable=True)
        self._newest, self._versions = weights, versions
        files = {name(listed) for listed in versions for name in (delta_file, anchor_file)} | {MANIFEST}
        for path in self._folder.iterdir():
            if path.name not in files and path.is_file():
                path.unlink(missing_ok=True)
        return version


class HostCopy:
    """The weights that a decoder follows a source with; `layout` is that of its model."""

    def __init__(self, source: VersionSource, layout: Layout) -> None:
        self._source, self._layout = source, layout
        self.weights: Weights | None = None  # None: the next version begins at an anchor

    def reach(self, number: int, state: str) -> Weights:
        """The announced version, which has to be the newest. Raises WeightsError; all is fetched anew after a fault."""
        weights, self.weights = self.weights, None
        manifest = read_manifest(self._source)
        versions, newest = manifest.versions, manifest.versions[-1]
        if manifest.layout != self._layout.digest:
            raise WeightsError("the versions are of another model")
        if (newest.number, newest.state) != (number, state):
            raise WeightsError(f"the newest version there is {newest.number}, not {number} as it was announced")
        at = next((at for at, version in enumerate(versions) if weights and version.state == weights.state), -1)
        if weights is None or at < 0 or not all(version.delta for version in versions[at + 1 :]):
            at = max(at for at, version in enumerate(versions) if version.anchor)
            anchor = versions[at]
            with self._fetched(anchor_file(anchor), anchor.anchor) as path:
                weights = read_anchor(path, self._layout)
            if weights.content() != anchor.content:
                raise WeightsError(f"the anchor of version {anchor.number} is not what {MANIFEST} names")
            weights.state = anchor.state
        for version in versions[at + 1 :]:
            with self._fetched(delta_file(version), version.delta) as path:
                blob = path.read_bytes()
            if state_of(blob) != version.state:
                raise WeightsError(f"the delta of version {version.number} is not what {MANIFEST} names")
            apply(weights, blob)
            if version.content and weights.content() != version.content:
                raise WeightsError(f"version {version.number} has not the content that was published")
        self.weights = weights
        return weights

    @contextmanager
    def _fetched(self, name: str, size: int) -> Generator[Path]:
        """A file of exactly `size` bytes, which suits the layout."""
        if size == 0 or size > 2 * self._layout.size + MAX_TABLE:
            raise WeightsError(f"a file of {size} bytes is not of this model")
        with self._source.file(name, size) as path:
            if (length := path.stat().st_size) != size:
                raise WeightsError(f"{name} has {length} bytes, and {size} were published")
            yield path
