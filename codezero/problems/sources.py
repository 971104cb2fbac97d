"""Sources of problems: MBPP and larger sets of the Hugging Face Hub, files of a disk, functions of the user's own.

What the hub's cache has whole is read from there, without a question to the hub. Else MBPP, which is small, is fetched
into the cache, and the others are streamed. `HF_ENDPOINT`, `HF_HOME` and `HF_HUB_OFFLINE` are honoured.

A DataSource gives each problem of a set once in an epoch, in this peer's own order. Rows come in blocks of one shard;
the order of the shards and within a block is drawn from seed, peer and epoch. The cursor names shard, block and place
in it, so that a resumed run reads one block again and goes on. `datasets`' own `state_dict` does not take its place:
the rows in its shuffle buffer are lost when it is resumed, and other shards of the same set are not noticed."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import csv
import hashlib
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta

from codezero.config.learning import is_own_rows
from codezero.errors import CodeZeroError, ConfigError, ProblemError, translated
from codezero.problems import filters, rows
from codezero.problems.filters import CURATED, FilterReason, FilterRefusal, Key, Novelty, NoveltyState, Screen, inspect
from codezero.problems.rows import MAX_ROW, MAX_ROWS, SETS, HubSet, NamedRow, Row, parse_columns, read_row
from codezero.system.files import SUFFIXES, data_files, json_lines
from codezero.system.http_client import answer_of
from codezero.system.plugins import blamed, load_object
from codezero.types import Problem, Worked

logger = logging.getLogger(__name__)

BLOCK = 512  # rows read at once: a whole shard of CodeContests, and the training split of MBPP
ANY_ROWS = [f"*{suffix}" for suffix in SUFFIXES]
REST_SECONDS = 300.0  # after a failure, until the set is tried again

_Count = Annotated[int, Meta(ge=0)]
_T = TypeVar("_T")


def open_rows(name: str) -> "RowSet":
    """A name of SETS, `hub:USER/NAME`, `@REVISION` for another commit of either, a path, or a function. Reads nothing
    yet.

    Raises ProblemError, and ConfigError for a function that is not there."""
    if is_own_rows(name):
        return RowSet(name, function=load_object(name, "data.sources", ("__call__",)))
    name, columns = parse_columns(name) if not Path(os.path.expanduser(name)).exists() else (name, {})
    known, at, revision = name.partition("@")
    own = re.fullmatch(r"hub:([\w-][\w.-]*/[\w.-]+)", known)
    if known not in SETS and own is None:
        return RowSet(name, columns=columns)
    if at and not re.fullmatch("[0-9a-f]{40}", revision):
        raise ProblemError(f"{name}: a revision is the 40 hex digits of a commit")
    place = HubSet(own[1], "", "main", small=True) if own else SETS[known]
    return RowSet(known, place._replace(revision=revision or place.revision), columns=columns)


@dataclass(frozen=True, slots=True)
class RowSet:
    """A data set as shards of rows, the same each time. place: on the hub; `name` is a path where there is neither."""

    name: str
    place: HubSet | None = None
    function: Callable[[], Iterable[object]] | None = None  # of the user's own; its first MAX_ROWS rows count
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # see `parse_columns`

    def __str__(self) -> str:
        return f"{self.name}@{self.place.revision[:8]}" if self.place else self.name

    @property
    def remote(self) -> bool:
        """May reading take long?"""
        return self.place is not None

    def shards(self) -> list[str]:
        """Addresses of its files; where some of a folder are named for a split, the training ones. Raises
        ProblemError."""
        if self.function is not None:
            return [self.name]
        with _named_errors(self.name):
            if self.place is not None:
                return _hub_files(self.place)
            path = Path(os.path.expanduser(self.name))
            return [*map(str, _training(rows.folder_files(path) or data_files(path)))]

    def rows(self, shard: str, start: int) -> Iterator[Row]:
        """The rows of a file from number `start`. Raises ProblemError."""
        rows = self._read(shard, start)
        return (NamedRow(row, self.columns) for row in rows) if self.columns else rows

    def _read(self, shard: str, start: int) -> Iterator[bytes | Mapping[str, object]]:
        with _named_errors(self.name if self.remote else shard):
            if self.function is not None:
                with blamed(ProblemError, shard):
                    for row in islice(self.function(), start, MAX_ROWS):
                        if not isinstance(row, Mapping | bytes):
                            raise ProblemError(f"{shard} returned a row of type {type(row).__name__}; a row is a dict")
                        yield cast("bytes | Mapping[str, object]", row)
            elif shard.endswith(".parquet"):
                import datasets

                datasets.disable_progress_bars()
                whole = datasets.load_dataset("parquet", data_files={"train": [shard]}, split="train", streaming=True)
                yield from whole.skip(start)
            elif shard.endswith(".csv"):
                with open(shard, encoding="utf-8-sig", newline="") as file:
                    yield from islice(csv.DictReader(file, restkey="", strict=True), start, None)
            elif (read := rows.folder_rows(Path(shard))) is not None:
                yield from islice(read, start, None)
            else:
                with open(shard, "rb") as file:
                    yield from islice(filter(bytes.strip, json_lines(file, MAX_ROW)), start, None)


def _hub_files(place: HubSet) -> list[str]:
    """Those of the cache, if it has all that their names count (`-of-00002`), or addresses to stream them from."""
    from huggingface_hub import HfFileSystem, constants, snapshot_download, utils

    utils.disable_progress_bars()
    utils.logging.set_verbosity_error()
    repository, pattern, revision, small = place

    def held(*, local: bool) -> list[str]:
        fetch = partial(snapshot_download, repository, revision=revision, allow_patterns=pattern or ANY_ROWS)
        folder = Path(fetch(repo_type="dataset", local_files_only=local))
        files = sorted(map(str, folder.glob(pattern) if pattern else _training(data_files(folder))))
        counts = [int(count) for file in files for count in re.findall(r"-of-(\d+)\.", file)]
        return files if len(files) >= max(counts, default=1) else []

    with suppress(FileNotFoundError):
        if files := held(local=True):
            return files
    if constants.HF_HUB_OFFLINE:
        raise OSError("HF_HUB_OFFLINE is set, and it is not whole in the cache")
    if answer_of(constants.ENDPOINT, 3.0) is None:  # its library would wait for minutes
        raise OSError(f"{constants.ENDPOINT} does not answer, and it is not whole in the cache")
    if small and (files := held(local=False)):
        return files
    if files := sorted(f"hf://{path}" for path in HfFileSystem().glob(f"datasets/{repository}@{revision}/{pattern}")):
        return files
    raise OSError(f"commit {revision} has no {pattern or ', '.join(SUFFIXES)}")


def _training(files: list[Path]) -> list[Path]:
    """Those that are named for the training split, where some are."""
    return [file for file in files if file.name.startswith("train")] or files


@contextmanager
def _named_errors(name: str) -> Generator[None]:
    """Raise one ProblemError of one line for what the libraries raise where a file or a network fails."""
    import httpx2
    import pyarrow

    files = OSError, ValueError, RuntimeError, LookupError, EOFError, csv.Error
    try:
        yield
    except ProblemError:
        raise
    except (*files, httpx2.HTTPError, pyarrow.ArrowException) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ProblemError(f"{name} cannot be read: {first[:300]}") from error


def begin(work: Callable[[], _T]) -> Future[_T]:
    """Run `work` in a thread that ends with the process; the future gets its result, or its error of this package."""
    future = Future[_T]()

    def run() -> None:
        try:
            future.set_result(work())
        except CodeZeroError as error:
            future.set_exception(error)
        finally:
            if not future.done():
                future.set_exception(ProblemError("reading ended unexpectedly; the log has the reason"))

    threading.Thread(target=run, name="problems", daemon=True).start()
    return future


class _Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    epoch: _Count = 0
    shard: _Count = 0
    block: _Count = 0
    layout: Annotated[str, Meta(max_length=16)] = ""  # which shards it is about


class SourceState(_Cursor, frozen=True):
    place: _Count = 0  # entries of the block that were used
    given: Annotated[list[Key], Meta(max_length=MAX_ROWS)] = []
    novelty: NoveltyState = NoveltyState()


_Block = tuple[_Cursor, list[Problem | FilterRefusal]]  # where it is, and its entries in this peer's order


def read_entry(row: Row) -> Problem | FilterRefusal:
    try:
        return read_row(row).problem
    except ProblemError as error:
        return FilterRefusal(FilterReason.MALFORMED, str(error)[:200])


class DataSource:
    """counts: what was given and refused, by name, is added to it. wait_seconds: for a block of a remote set. The ids
    given in this epoch are remembered: where the shards change, the cursor begins anew and nothing comes twice."""

    def __init__(
        self, name: str, rows: RowSet, origin: str, screen: Screen, counts: Counter[str], wait_seconds: float
    ) -> None:
        self._name, self._rows, self._screen = name, rows, screen
        self._counts, self._wait_seconds = counts, wait_seconds
        self._origin, self._late = f"{origin} {name}", f"{name} takes long"
        self._rests_until = 0.0
        self._barren = False
        self.trouble = ""  # why nothing can be had from it now; empty: something can, as far as is known
        self.restore(SourceState())

    def probe(self) -> None:
        """Find out whether there is anything to read; `trouble` is the answer. Raises ConfigError for a path of this
        machine where nothing is."""
        if self._rows.remote:
            self._next_block(logging.INFO)  # kept for the first draw
            return
        with translated(ConfigError, "data.sources", ProblemError):
            self._rows.shards()

    def draw(self) -> Problem | None:
        """The next usable problem; None while there is none to be had."""
        while (entry := self._next()) is not None:
            if isinstance(entry, FilterRefusal):
                refusal = entry
            elif (key := entry.id[: filters.KEY_DIGITS]) in self._given:
                refusal = FilterRefusal(FilterReason.DUPLICATE, "was given in this epoch")
            elif (refusal := self._screen.refuse(entry)) is None:
                self._given[key] = None
                return entry
            if not self._cursor.epoch:  # later ones refuse the same rows again
                self._counts[f"refused_{refusal.reason}"] += 1
        return None

    def state(self) -> SourceState:
        at, given = self._cursor, list(self._given)[-MAX_ROWS:]
        return SourceState(at.epoch, at.shard, at.block, at.layout, self._place, given, self._screen.state())

    def restore(self, state: SourceState) -> None:
        self._cursor = _Cursor(state.epoch, state.shard, state.block, state.layout)
        self._place, self._given = state.place, dict.fromkeys(state.given)
        self._screen.restore(state.novelty)
        self._entries: list[Problem | FilterRefusal] = []  # those of the cursor's block, once it was read
        self._blocks = self._read(self._cursor)
        self._reading: Future[_Block] | None = None  # of the next one, once it is begun

    def _next(self) -> Problem | FilterRefusal | None:
        while not self._barren and self._place >= len(self._entries):
            if (block := self._next_block(logging.WARNING)) is None:
                return None
            before, (self._cursor, self._entries), self._reading = self._cursor, block, None
            self._place = self._place if self._cursor == before else 0
            if self._cursor.epoch > before.epoch:
                self._barren = not self._given
                if self._barren:
                    self._note(f"{self._name} has no usable problem", logging.WARNING)
                self._given = {}
                self._screen.restore(NoveltyState())
        if self._barren:
            return None
        self._place += 1
        return self._entries[self._place - 1]

    def _next_block(self, level: int) -> _Block | None:
        """Read it in a thread; None while it cannot be had, which is logged at `level`. `wait_seconds` are spent once
        on a block of a remote set."""
        if time.monotonic() < self._rests_until:
            return None
        if self._reading is None:
            self._reading = begin(self._blocks.__next__)
            wait([self._reading], self._wait_seconds if self._rows.remote else None)
        if not self._reading.done():
            self._note(self._late, level)
            return None
        try:
            block = self._reading.result()
        except ProblemError as error:
            self._counts["outages"] += 1
            self._rests_until = time.monotonic() + REST_SECONDS
            self._note(str(error), level)
            self._blocks, self._reading = self._read(self._cursor), None
            return None
        if self.trouble and block[1]:  # the names of its shards alone are no row
            logger.info("%s can be read", self._name)
            self.trouble = ""
        return block

    def _note(self, trouble: str, level: int) -> None:
        """Log the first trouble, and one that follows a mere delay."""
        if trouble != self.trouble and self.trouble in ("", self._late):
            logger.log(level, "%s; other sources stand in for it", trouble)
        self.trouble = trouble

    def _read(self, at: _Cursor) -> Iterator[_Block]:
        """Yield the blocks from `at` on: behind the last shard an epoch begins, and in other shards this one does
        again."""
        while True:
            names = self._rows.shards()
            layout = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
            if layout != at.layout or at.shard >= len(names):
                at = _Cursor(at.epoch + (layout == at.layout), 0, 0, layout)
            yield at, []  # a probe waits for no more than the names of the shards
            Random(f"{self._origin} {at.epoch}").shuffle(names)
            rows, ended = self._rows.rows(names[at.shard], at.block * BLOCK), False
            while not ended:
                entries = list(islice(map(read_entry, rows), BLOCK))
                Random(f"{self._origin} {at.epoch} {at.shard} {at.block}").shuffle(entries)
                yield at, entries
                ended = len(entries) < BLOCK
                at = msgspec.structs.replace(at, shard=at.shard + ended, block=0 if ended else at.block + 1)


CANARY_ROWS, CANARY_EVERY = 384, 4  # of so many first rows of a source every fourth is the judge's: 94 of MBPP's 374
MAX_HELD_BACK = 10_000  # problems that new ones are compared with


def exam_problems(name: str, count: int, *, seed: int, seconds: float) -> list[Problem]:
    """`count` usable problems of a set or path, the same for the same seed. Raises ProblemError when there is none, or
    it takes longer than `seconds` to read them."""
    problems = [row.problem for row in _usable(name, seconds, MAX_ROWS, 1)]
    if not problems:
        raise ProblemError(f"{name} has no usable problem")
    return problems if count >= len(problems) else Random(f"exam {seed}").sample(problems, count)


def canary_rows(
    name: str, *, withheld: Novelty, seconds: float, whole: bool = False, solved: bool = True
) -> list[Worked]:
    """The judge's rows of a source with solutions known to be right, none like what is `withheld`, to which they go.

    `whole`: all rows are the judge's. Not `solved`: those without solutions too. Raises ProblemError when there is
    none, or reading takes longer than `seconds`."""
    read = _usable(name, seconds, *((MAX_ROWS, 1) if whole else (CANARY_ROWS, CANARY_EVERY)))
    if not (rows := [row for row in read if (row.right or not solved) and withheld.add(row.problem) is None]):
        lacks = "solutions known to be right" if solved else "problems but those of the exam"
        raise ProblemError(f"{name} has no {lacks}; `codezero data check` says what its rows lack")
    return rows


def digest(problems: Sequence[Problem]) -> str:
    """8 hex digits, the same for the same problems in any order."""
    return hashlib.sha256("".join(sorted(problem.id for problem in problems)).encode()).hexdigest()[:8]


def _usable(name: str, seconds: float, first: int, every: int) -> list[Worked]:
    """Every n-th of the first rows of a set, where it is well formed. Raises ProblemError, also after `seconds`."""

    def read() -> Iterator[Worked]:
        rows = open_rows(name)
        lines = chain.from_iterable(rows.rows(shard, 0) for shard in rows.shards())
        for line in islice(lines, 0, first, every):
            with suppress(ProblemError):
                worked = read_row(line)
                if inspect(worked.problem, CURATED) is None:
                    yield worked

    with translated(ProblemError, f"{name} takes longer than {seconds:g} s to read", TimeoutError, reason=False):
        return begin(lambda: list(read())).result(seconds)
