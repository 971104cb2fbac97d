"""A data set as a source of problems: each once in an epoch, in this peer's own order, from where it was left.

Rows come in blocks of at most BLOCK from one shard; the order of the shards and the order within a block are drawn from
seed, peer and epoch. The cursor names shard, block and place in it, so that a resumed run reads one block again and
goes on. (`datasets` would shuffle and resume a stream too, but it drops the rows in its shuffle buffer and needs the
same shards.) What was given in this epoch is remembered by id beside it: where the shards change, as when the hub is
lost and the copy in the cache is read, the cursor begins anew and still nothing comes twice.
"""

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta

from codezero.errors import ProblemError
from codezero.problems.dedup import KEY_DIGITS, Key, Novelty, NoveltyState
from codezero.problems.filters import FilterReason, FilterRefusal, malformed
from codezero.problems.hub import Row, RowSet
from codezero.problems.rows import MAX_ROWS, read_row
from codezero.problems.screen import Fits, usable
from codezero.types import Problem

logger = logging.getLogger(__name__)

BLOCK = 512
"""Rows read at once: a whole shard of CodeContests, and the training split of MBPP."""
REST_SECONDS = 300.0
"""After a failure, until the set is tried again."""

_Count = Annotated[int, Meta(ge=0)]
_T = TypeVar("_T")


class SourceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint keeps of one data set."""

    epoch: _Count = 0
    shard: _Count = 0
    block: _Count = 0
    place: _Count = 0
    """Entries of the block that were used."""
    layout: Annotated[str, Meta(max_length=16)] = ""
    """Which shards the cursor is about."""
    given: Annotated[list[Key], Meta(max_length=MAX_ROWS)] = []
    novelty: NoveltyState = NoveltyState()


@dataclass(frozen=True, slots=True)
class _Cursor:
    epoch: int
    shard: int
    block: int
    layout: str


@dataclass(frozen=True, slots=True)
class _Block:
    cursor: _Cursor
    """Where it is."""
    shards: int
    last: bool
    """Of its shard?"""
    entries: tuple[Problem | FilterRefusal, ...]


class DataSource:
    """counts: what was given and refused, by name, is added to it. wait_seconds: for a block of a remote set."""

    def __init__(
        self, name: str, rows: RowSet, *, origin: str, fits: Fits, counts: Counter[str], wait_seconds: float
    ) -> None:
        self.name = name
        self._rows, self._fits, self._counts, self._wait_seconds = rows, fits, counts, wait_seconds
        self._origin = f"{origin} {name}"
        self._pending: tuple[object, Future[object]] | None = None
        self._rests_until = 0.0
        self._barren = False
        self.trouble = ""
        """Why nothing can be had from it now; empty: something can, as far as is known."""
        self.restore(SourceState())

    def probe(self) -> None:
        """Look whether there is anything to read; `trouble` is the answer, and is left to the caller to show."""
        self._fetch("shards", self._rows.shards, logging.INFO)

    def draw(self) -> Problem | None:
        """The next usable problem; None while there is none to be had."""
        while not self._barren and (entry := self._next()) is not None:
            refusal = entry if isinstance(entry, FilterRefusal) else self._refuse(entry)
            if refusal is None:
                assert isinstance(entry, Problem)
                self._given[entry.id[:KEY_DIGITS]] = None
                return entry
            self._counts[f"refused_{refusal.reason}"] += 1
        return None

    def state(self) -> SourceState:
        given = list(self._given)[-MAX_ROWS:]
        at = self._cursor
        return SourceState(at.epoch, at.shard, at.block, self._place, at.layout, given, self._novelty.state())

    def restore(self, state: SourceState) -> None:
        self._cursor = _Cursor(state.epoch, state.shard, state.block, state.layout)
        self._place = state.place
        self._given = dict.fromkeys(state.given)
        self._novelty = Novelty(state.novelty)
        self._block: _Block | None = None

    def _refuse(self, problem: Problem) -> FilterRefusal | None:
        if problem.id[:KEY_DIGITS] in self._given:
            return FilterRefusal(FilterReason.DUPLICATE, "was given in this epoch")
        return usable(problem, self._novelty, self._fits)

    def _next(self) -> Problem | FilterRefusal | None:
        while not self._barren and (self._block is not None or self._load()):
            assert self._block is not None
            if self._place < len(self._block.entries):
                self._place += 1
                return self._block.entries[self._place - 1]
            self._advance(self._block)
        return None

    def _advance(self, block: _Block) -> None:
        self._block, self._place = None, 0
        at = block.cursor
        if not block.last:
            self._cursor = replace(at, block=at.block + 1)
        elif at.shard + 1 < block.shards:
            self._cursor = replace(at, shard=at.shard + 1, block=0)
        else:
            if not self._given:
                self._barren = True
                self._note(f"{self.name} has no usable problem", logging.WARNING)
            self._cursor = _Cursor(at.epoch + 1, 0, 0, at.layout)
            self._given, self._novelty = {}, Novelty()

    def _load(self) -> bool:
        """The block that the cursor is in, if it can be had now."""
        at = self._cursor
        block = self._fetch(at, lambda: self._read(at), logging.WARNING)
        if block is None:
            return False
        if block.cursor.layout != at.layout:
            self._place = 0
        self._block, self._cursor = block, block.cursor
        return True

    def _fetch(self, key: object, work: Callable[[], _T], level: int) -> _T | None:
        """What `work` returns; None while it cannot be had, which is logged at `level`."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            result = self._wait_for(key, work) if self._rows.remote else work()
        except ProblemError as error:
            self._counts["outages"] += 1
            self._rests_until = time.monotonic() + REST_SECONDS
            self._note(str(error), level)
            return None
        if result is None:
            self._note(self._late, level)
            return None
        if self.trouble:
            logger.info("%s can be read", self.name)
        self.trouble = ""
        return result

    def _wait_for(self, key: object, work: Callable[[], _T]) -> _T | None:
        """Run `work` in a thread that ends with the process, and wait `wait_seconds` for it; None while it goes on.

        The same `key` is the same work, which is not waited for again. Raises the ProblemError that it ended with.
        """
        if self._pending is None or (self._pending[0] != key and self._pending[1].done()):
            self._pending = key, Future[object]()
            threading.Thread(target=_run, args=(work, self._pending[1]), name="problems", daemon=True).start()
            wait([self._pending[1]], self._wait_seconds)
        if self._pending[0] != key or not self._pending[1].done():
            return None
        future, self._pending = self._pending[1], None
        return cast(_T, future.result())

    def _note(self, trouble: str, level: int) -> None:
        """Log the first trouble, and one that follows a mere delay."""
        if trouble != self.trouble and self.trouble in ("", self._late):
            logger.log(level, "%s; other sources stand in for it", trouble)
        self.trouble = trouble

    @property
    def _late(self) -> str:
        return f"{self.name} takes long"

    def _read(self, at: _Cursor) -> _Block:
        """In a thread where it may take long: touches nothing of this object that changes."""
        names = self._rows.shards()
        layout = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        shard, block = (at.shard, at.block) if layout == at.layout else (0, 0)
        Random(f"{self._origin} {at.epoch}").shuffle(names)
        entries = list(islice(map(_entry, self._rows.rows(names[shard], block * BLOCK)), BLOCK))
        last = len(entries) < BLOCK
        Random(f"{self._origin} {at.epoch} {shard} {block}").shuffle(entries)
        return _Block(_Cursor(at.epoch, shard, block, layout), len(names), last, tuple(entries))


def _entry(row: Row) -> Problem | FilterRefusal:
    try:
        return read_row(row).problem
    except ProblemError as error:
        return malformed(error)


def _run(work: Callable[[], object], future: "Future[object]") -> None:
    try:
        future.set_result(work())
    except ProblemError as error:
        future.set_exception(error)
    finally:
        if not future.done():
            future.set_exception(ProblemError("reading ended unexpectedly; the log has the reason"))
