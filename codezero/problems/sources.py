"""A data set as a source of problems: each once in an epoch, in this peer's own order, from where it was left.

Rows come in blocks of one shard; the order of the shards and within a block is drawn from seed, peer and epoch. The
cursor names shard, block and place in it, so that a resumed run reads one block again and goes on. The ids given in
this epoch are remembered: where the shards change, the cursor begins anew and still nothing comes twice.

`datasets` reads, skips rows and tries again. Its `state_dict` does not take the cursor's place: the rows in its shuffle
buffer are lost when it is resumed, and other shards of the same set are not noticed.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from itertools import islice
from random import Random
from typing import Annotated, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Meta

from codezero.errors import ConfigError, ProblemError, translated
from codezero.problems.dedup import KEY_DIGITS, Key, NoveltyState
from codezero.problems.filters import FilterReason, FilterRefusal, Screen
from codezero.problems.held_back import begin
from codezero.problems.hub import Row, RowSet
from codezero.problems.rows import MAX_ROWS, read_row
from codezero.types import Problem

logger = logging.getLogger(__name__)

BLOCK = 512
"""Rows read at once: a whole shard of CodeContests, and the training split of MBPP."""
REST_SECONDS = 300.0
"""After a failure, until the set is tried again."""

_Count = Annotated[int, Meta(ge=0)]
_T = TypeVar("_T")
Entry = Problem | FilterRefusal


class SourceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    epoch: _Count = 0
    shard: _Count = 0
    block: _Count = 0
    place: _Count = 0
    """Entries of the block that were used."""
    layout: Annotated[str, Meta(max_length=16)] = ""
    """Which shards the cursor is about."""
    given: Annotated[list[Key], Meta(max_length=MAX_ROWS)] = []
    novelty: NoveltyState = NoveltyState()


class _Cursor(NamedTuple):
    epoch: int
    shard: int
    block: int
    layout: str


def read_entry(row: Row) -> Entry:
    try:
        return read_row(row).problem
    except ProblemError as error:
        return FilterRefusal(FilterReason.MALFORMED, str(error)[:200])


class DataSource:
    """counts: what was given and refused, by name, is added to it. wait_seconds: for a block of a remote set."""

    def __init__(
        self, name: str, rows: RowSet, origin: str, screen: Screen, counts: Counter[str], wait_seconds: float
    ) -> None:
        self._name, self._rows, self._screen = name, rows, screen
        self._counts, self._wait_seconds = counts, wait_seconds
        self._origin, self._late = f"{origin} {name}", f"{name} takes long"
        self._pending: tuple[object, Future[object]] | None = None
        self._rests_until = 0.0
        self._barren = False
        self.trouble = ""
        """Why nothing can be had from it now; empty: something can, as far as is known."""
        self.restore(SourceState())

    def probe(self) -> None:
        """Find out whether there is anything to read; `trouble` is the answer. Raises ConfigError for a path of this
        machine where nothing is."""
        if self._rows.remote:
            self._fetch("shards", self._rows.shards, logging.INFO)
            return
        with translated(ConfigError, "data.sources", ProblemError):
            self._rows.shards()

    def draw(self) -> Problem | None:
        """The next usable problem; None while there is none to be had."""
        while (entry := self._next()) is not None:
            if isinstance(entry, FilterRefusal):
                refusal = entry
            elif (key := entry.id[:KEY_DIGITS]) in self._given:
                refusal = FilterRefusal(FilterReason.DUPLICATE, "was given in this epoch")
            elif (refusal := self._screen.refuse(entry)) is None:
                self._given[key] = None
                return entry
            if not self._cursor.epoch:  # later ones refuse the same rows again
                self._counts[f"refused_{refusal.reason}"] += 1
        return None

    def state(self) -> SourceState:
        epoch, shard, block, layout = self._cursor
        given = list(self._given)[-MAX_ROWS:]
        return SourceState(epoch, shard, block, self._place, layout, given, self._screen.state())

    def restore(self, state: SourceState) -> None:
        self._cursor: _Cursor = _Cursor(state.epoch, state.shard, state.block, state.layout)
        self._place, self._given = state.place, dict.fromkeys(state.given)
        self._screen.restore(state.novelty)
        self._entries: list[Entry] | None = None
        """Of the cursor's block, once it was read."""

    def _next(self) -> Entry | None:
        while not self._barren:
            at = self._cursor
            if self._entries is None:
                if (block := self._fetch(at, partial(self._read, at), logging.WARNING)) is None:
                    return None
                self._cursor, self._entries = block
                self._place = self._place if self._cursor == at else 0
                if self._cursor.epoch > at.epoch:
                    if barren := not self._given:
                        self._note(f"{self._name} has no usable problem", logging.WARNING)
                    self._barren, self._given = barren, {}
                    self._screen.restore(NoveltyState())
            elif self._place < len(self._entries):
                self._place += 1
                return self._entries[self._place - 1]
            else:
                ended = len(self._entries) < BLOCK
                self._cursor = at._replace(shard=at.shard + ended, block=0 if ended else at.block + 1)
                self._entries, self._place = None, 0
        return None

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
        elif self.trouble:
            logger.info("%s can be read", self._name)
            self.trouble = ""
        return result

    def _wait_for(self, key: object, work: Callable[[], _T]) -> _T | None:
        """Begin `work`, and wait `wait_seconds` for it; None while it goes on.

        The same `key` is the same work, which is not waited for again. Raises the ProblemError that it ended with.
        """
        if self._pending is None or (self._pending[0] != key and self._pending[1].done()):
            self._pending = key, begin(cast("Callable[[], object]", work))
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

    def _read(self, at: _Cursor) -> tuple[_Cursor, list[Entry]]:
        """The block, and where it is: behind the last shard an epoch begins, and in other shards this one does again.

        In a thread where it may take long: touches nothing of this object that changes.
        """
        names = self._rows.shards()
        layout = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        if layout != at.layout or at.shard >= len(names):
            at = _Cursor(at.epoch + (layout == at.layout), 0, 0, layout)
        Random(f"{self._origin} {at.epoch}").shuffle(names)
        rows = self._rows.rows(names[at.shard], at.block * BLOCK)
        entries = list(islice(map(read_entry, rows), BLOCK))
        Random(f"{self._origin} {at.epoch} {at.shard} {at.block}").shuffle(entries)
        return at, entries
