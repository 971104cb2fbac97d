"""Public problem sets: MBPP and CodeContests from the Hugging Face Hub, and files in their form from a disk.

The hub's sets are read through `datasets` at a pinned revision; `HF_ENDPOINT`, `HF_HUB_OFFLINE` and the library's cache
are honoured. MBPP is small and is kept in that cache by the first read; CodeContests is streamed, and is in the cache
only where somebody put it. While the hub does not answer, what is in the cache is read.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import logging
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from codezero.errors import ProblemError
from codezero.problems.rows import MAX_ROW

if TYPE_CHECKING:
    from datasets import DatasetBuilder

logger = logging.getLogger(__name__)

Row = bytes | Mapping[str, object]
"""What `rows.read_row` takes."""
PROBE_SECONDS = 3.0
"""Within which the hub has to say anything at all. The library itself would try for a minute and more."""
RETRIES = 2
"""Of the library, for one read of a streamed file. It runs in a thread that nobody waits for."""
WHOLE = "whole"
"""The only shard of a set that lies in the cache."""
SUFFIXES = (".jsonl", ".parquet")
_LIBRARY = threading.Lock()
"""Held while the library's settings differ from the user's."""


class RowSet(Protocol):
    """A data set as shards of rows, the same each time."""

    remote: bool
    """May reading take long?"""

    def shards(self) -> list[str]:
        """Names of its parts. Raises ProblemError."""
        ...

    def rows(self, shard: str, start: int) -> Iterator[Row]:
        """The rows of a part from number `start`. Raises ProblemError."""
        ...


@dataclass(frozen=True, slots=True)
class HubSet:
    """Where a data set lies on the hub."""

    repository: str
    configuration: str
    revision: str
    """40 hex digits of a commit."""
    split: str = "train"
    small: bool = False
    """Is it fetched whole, and so kept in the cache?"""


_MBPP = HubSet("google-research-datasets/mbpp", "full", "4bb6404fdc6cacfda99d4ac4205087b89d32030c", small=True)
SETS = {
    "mbpp": _MBPP,
    "mbpp_sanitized": replace(_MBPP, configuration="sanitized"),
    "code_contests": HubSet("deepmind/code_contests", "default", "802411c3010cb00d1b05bad57ca77365a3c699d6"),
}


def open_rows(name: str) -> RowSet:
    """A name of SETS, `NAME@REVISION` for another commit of it, or a path. Raises ProblemError."""
    known, at, revision = name.partition("@")
    if known in SETS:
        if at and not re.fullmatch("[0-9a-f]{40}", revision):
            raise ProblemError(f"{name}: a revision is the 40 hex digits of a commit")
        return HubRows(known, replace(SETS[known], revision=revision) if at else SETS[known])
    return LocalRows(Path(name).expanduser())


class HubRows:
    """One set of the hub. For one thread at a time; constructing it reads nothing."""

    remote = True

    def __init__(self, name: str, place: HubSet) -> None:
        self.name, self.place = name, place
        self._builder: DatasetBuilder | None = None
        self._files: list[str] = []
        self._warned = False

    def shards(self) -> list[str]:
        if self._builder is None:
            with _LIBRARY, _named_errors(self.name):
                self._open()
        return self._files or [WHOLE]

    def rows(self, shard: str, start: int) -> Iterator[Row]:
        self.shards()
        try:
            with _named_errors(self.name):
                yield from self._read(shard, start)
        except ProblemError:
            self._builder = None  # looked for anew, and in the cache when the hub is gone
            raise

    def _open(self) -> None:
        """Find the files, or the copy in the cache when the hub does not answer or must not be asked."""
        import datasets
        from datasets import config as settings

        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()  # it says in several lines what is said here in one
        for setting in ("STREAMING_READ_MAX_RETRIES", "STREAMING_OPEN_MAX_RETRIES"):
            setattr(settings, setting, min(RETRIES, getattr(settings, setting)))
        place, was_offline = self.place, settings.HF_HUB_OFFLINE
        offline = was_offline or not _answers(settings.HF_ENDPOINT)
        if offline and not self._warned:
            self._warned = True
            why = "HF_HUB_OFFLINE is set" if was_offline else f"{settings.HF_ENDPOINT} does not answer"
            logger.warning("%s: %s; only what is in the cache can be read", self.name, why)
        settings.HF_HUB_OFFLINE = offline
        try:
            builder = datasets.load_dataset_builder(
                place.repository, place.configuration, revision=place.revision, token=False if offline else None
            )
            files = [] if offline else list((builder.config.data_files or {}).get(place.split, []))
            if place.small or not files:
                builder.download_and_prepare()
                files = []
        finally:
            settings.HF_HUB_OFFLINE = was_offline
        if offline and builder.hash != place.revision:
            logger.warning("%s: the copy in the cache is of revision %s", self.name, builder.hash)
        self._builder, self._files = builder, files

    def _read(self, shard: str, start: int) -> Iterator[Row]:
        if not self._files:
            assert self._builder is not None
            whole: Any = self._builder.as_dataset(split=self.place.split)
            yield from whole.select(range(min(start, len(whole)), len(whole)))
        elif shard in self._files:
            yield from _parquet(shard, start)
        else:
            raise ProblemError(f"{self.name} has no part {shard}")


class LocalRows:
    """A file, or the JSONL and Parquet files below a directory; where some are named for a split, the training ones."""

    remote = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def shards(self) -> list[str]:
        found = [self.path] if self.path.is_file() else sorted(self.path.rglob("*"))
        files = [path for path in found if path.suffix in SUFFIXES]
        if not files:
            raise ProblemError(f"{self.path} is neither a JSONL or Parquet file nor a directory with some")
        return [str(path) for path in files if path.name.startswith("train")] or [str(path) for path in files]

    def rows(self, shard: str, start: int) -> Iterator[Row]:
        with _named_errors(shard):
            yield from _parquet(shard, start) if shard.endswith(".parquet") else _lines(Path(shard), start)


def _parquet(file: str, start: int) -> Iterator[Row]:
    import datasets

    yield from datasets.load_dataset("parquet", data_files={"train": [file]}, split="train", streaming=True).skip(start)


def _lines(path: Path, start: int) -> Iterator[bytes]:
    """Lines that are not blank; of one longer than MAX_ROW just enough to be refused."""
    with path.open("rb") as file:
        yield from islice(_whole_lines(iter(lambda: file.readline(MAX_ROW + 1), b"")), start, None)


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inside = False
    for piece in pieces:
        if not inside and piece.strip():
            yield piece
        inside = not piece.endswith(b"\n")


def _answers(endpoint: str) -> bool:
    """Does it say anything at all, be it a refusal? Proxies are those of the environment."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=PROBE_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code < 500
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _named_errors(name: str) -> Generator[None]:
    """What the libraries raise for a file or a network that fails, as one ProblemError of one line."""
    import httpx2
    import pyarrow
    from datasets.exceptions import DatasetsError

    failures = (OSError, ValueError, RuntimeError, LookupError, EOFError, httpx2.HTTPError)
    try:
        yield
    except ProblemError:
        raise
    except (*failures, pyarrow.ArrowException, DatasetsError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ProblemError(f"{name} cannot be read: {first[:300]}") from error
