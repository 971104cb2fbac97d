"""Rows of problem sets: MBPP and larger ones from the Hugging Face Hub at pinned revisions, files from a disk, and what
functions of the user's own return.

What the hub's cache has is read from there, without a question to the hub. Else MBPP, which is small, is fetched into
the cache, and the others are streamed. `HF_ENDPOINT`, `HF_HOME` and `HF_HUB_OFFLINE` are honoured.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

from codezero.config.learning import is_own_rows
from codezero.errors import ProblemError
from codezero.plugins import blamed, load_object
from codezero.problems.rows import MAX_ROW, MAX_ROWS
from codezero.system.http_client import answer_of
from codezero.system.lines import data_files, json_lines

Row = bytes | Mapping[str, object]
PROBE_SECONDS = 3.0
"""Within which the hub has to answer anything at all; its library would wait for minutes."""


class HubSet(NamedTuple):
    repository: str
    files: str
    """A glob pattern."""
    revision: str
    """40 hex digits of a commit."""
    small: bool = False
    """Is it fetched whole?"""


_MBPP = HubSet(
    "google-research-datasets/mbpp", "full/train-*.parquet", "4bb6404fdc6cacfda99d4ac4205087b89d32030c", small=True
)
SETS = {
    "mbpp": _MBPP,
    "mbpp_test": _MBPP._replace(files="full/test-*.parquet"),
    "mbpp_sanitized": _MBPP._replace(files="sanitized/train-*.parquet"),
    "code_contests": HubSet(
        "deepmind/code_contests", "data/train-*.parquet", "802411c3010cb00d1b05bad57ca77365a3c699d6"
    ),
    "deepcoder": HubSet(
        "agentica-org/DeepCoder-Preview-Dataset",
        "primeintellect/train-*.parquet",
        "177913a7bd43791646ef6a43645caa3c871ab3db",
    ),
}


def open_rows(name: str) -> "RowSet":
    """A name of SETS, `NAME@REVISION` for another commit of it, a path, or a function. Reads nothing yet.

    Raises ProblemError, and ConfigError for a function that is not there.
    """
    if is_own_rows(name):
        return RowSet(name, function=load_object(name, "data.sources", ("__call__",)))
    known, at, revision = name.partition("@")
    if known not in SETS:
        return RowSet(name)
    if at and not re.fullmatch("[0-9a-f]{40}", revision):
        raise ProblemError(f"{name}: a revision is the 40 hex digits of a commit")
    return RowSet(known, SETS[known]._replace(revision=revision or SETS[known].revision))


@dataclass(frozen=True, slots=True)
class RowSet:
    """A data set as shards of rows, the same each time. place: on the hub; `name` is a path where there is neither."""

    name: str
    place: HubSet | None = None
    function: Callable[[], Iterable[object]] | None = None
    """Of the user's own. It is called for each part that is read; of its rows the first MAX_ROWS count."""

    def __str__(self) -> str:
        return f"{self.name}@{self.place.revision[:8]}" if self.place else self.name

    @property
    def remote(self) -> bool:
        """May reading take long?"""
        return self.place is not None

    def shards(self) -> list[str]:
        """Addresses of its files; where some of a folder are named for a split, the training ones.

        Raises ProblemError.
        """
        if self.function is not None:
            return [self.name]
        with _named_errors(self.name):
            path = Path(os.path.expanduser(self.name))
            files = data_files(path) if self.place is None else _hub_files(self.place)
            train = [file for file in files if isinstance(file, Path) and file.name.startswith("train")]
            return [*map(str, train or files)]

    def rows(self, shard: str, start: int) -> Iterator[Row]:
        """The rows of a file from number `start`. Raises ProblemError."""
        with _named_errors(self.name if self.remote else shard):
            if self.function is not None:
                with blamed(ProblemError, shard):
                    for row in islice(self.function(), start, MAX_ROWS):
                        if not isinstance(row, Mapping | bytes):
                            raise ProblemError(f"{shard} returned a row of type {type(row).__name__}; a row is a dict")
                        yield cast(Row, row)
            elif shard.endswith(".parquet"):
                import datasets

                datasets.disable_progress_bars()
                whole = datasets.load_dataset("parquet", data_files={"train": [shard]}, split="train", streaming=True)
                yield from whole.skip(start)
            else:
                with open(shard, "rb") as file:
                    yield from islice(filter(bytes.strip, json_lines(file, MAX_ROW)), start, None)


def _hub_files(place: HubSet) -> list[Path] | list[str]:
    """Of the cache, or where they can be streamed from."""
    from huggingface_hub import HfFileSystem, constants, snapshot_download, utils

    utils.disable_progress_bars()
    utils.logging.set_verbosity_error()
    repository, pattern, revision, small = place
    fetch = partial(snapshot_download, repository, revision=revision, allow_patterns=pattern)
    with suppress(FileNotFoundError):
        if cached := sorted(Path(fetch(repo_type="dataset", local_files_only=True)).glob(pattern)):
            return cached
    if constants.HF_HUB_OFFLINE:
        raise OSError("HF_HUB_OFFLINE is set, and it is not in the cache")
    if answer_of(constants.ENDPOINT, PROBE_SECONDS) is None:
        raise OSError(f"{constants.ENDPOINT} does not answer, and it is not in the cache")
    if small and (fetched := sorted(Path(fetch(repo_type="dataset")).glob(pattern))):
        return fetched
    if found := sorted(f"hf://{path}" for path in HfFileSystem().glob(f"datasets/{repository}@{revision}/{pattern}")):
        return found
    raise OSError(f"commit {revision} has no {pattern}")


@contextmanager
def _named_errors(name: str) -> Generator[None]:
    """What the libraries raise for a file or a network that fails, as one ProblemError of one line."""
    import httpx2
    import pyarrow

    files = OSError, ValueError, RuntimeError, LookupError, EOFError
    try:
        yield
    except ProblemError:
        raise
    except (*files, httpx2.HTTPError, pyarrow.ArrowException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ProblemError(f"{name} cannot be read: {first[:300]}") from error
