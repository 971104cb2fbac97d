"""A data set as a source of problems: each once in an epoch, in this peer's own order, from where it was left.

Rows come in blocks of at most BLOCK from one shard; the order of the shards and the order within a block are drawn from
seed, peer and epoch. The cursor names shard, block and place in it, so that a resumed run reads one block again and
goes on. What was given in this epoch is remembered by id beside it: where the shards change, as when the hub is lost
and the copy in the cache is read, the cursor begins anew and still nothing comes twice.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.errors import ProblemError
from codezero.problems.dedup import KEY_DIGITS, Key, Novelty, NoveltyState, Repeat
from codezero.problems.filters import CURATED, PROPOSED, Reason, Refusal, inspect, is_exam, malformed
from codezero.problems.hub import Row, RowSet
from codezero.problems.patience import Patient
from codezero.problems.rows import MAX_ROWS, read_row
from codezero.types import Problem, Source

logger = logging.getLogger(__name__)

BLOCK = 512
"""Rows read at once: a whole shard of CodeContests, and the training split of MBPP."""
REST_SECONDS = 300.0
"""After a failure, until the set is tried again."""

Fits = Callable[[Problem], bool]
"""Can the solver's context hold it?"""
_Count = Annotated[int, Meta(ge=0)]
_REPEATS = {Repeat.TESTS: Reason.DUPLICATE, Repeat.QUESTION: Reason.NEAR_DUPLICATE}


class ShelfState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint keeps of one data set."""

    epoch: _Count = 0
    shard: _Count = 0
    block: _Count = 0
    place: _Count = 0
    """Entries of the block that were looked at."""
    layout: Annotated[str, Meta(max_length=16)] = ""
    """Which shards the cursor is about."""
    given: Annotated[list[Key], Meta(max_length=MAX_ROWS)] = []
    novelty: NoveltyState = NoveltyState()


@dataclass(frozen=True, slots=True)
class _Block:
    layout: str
    shards: int
    shard: int
    block: int
    last: bool
    """Of its shard?"""
    entries: tuple[Problem | Refusal, ...]


def usable(problem: Problem, novelty: Novelty, fits: Fits) -> Refusal | None:
    """What is wrong with a problem, wherever it comes from; None and remembered when nothing is."""
    refusal = inspect(problem, PROPOSED if problem.source is Source.PROPOSER else CURATED)
    if refusal is not None:
        return refusal
    if is_exam(problem):
        return Refusal(Reason.HELD_OUT, "the exam asks it")
    if not fits(problem):
        return Refusal(Reason.CONTEXT, "longer than the solver's context holds")
    repeat = novelty.add(problem)
    return None if repeat is None else Refusal(_REPEATS[repeat], f"the {repeat} of an earlier one")


@dataclass(frozen=True, slots=True)
class _Cursor:
    epoch: int
    shard: int
    block: int
    layout: str


class Shelf:
    """counts: what was given and refused, by name, is added to it. wait_seconds: for a block of a remote set."""

    def __init__(
        self, name: str, rows: RowSet, *, origin: str, fits: Fits, counts: Counter[str], wait_seconds: float
    ) -> None:
        self.name = name
        self._rows, self._fits, self._counts = rows, fits, counts
        self._origin = f"{origin} {name}"
        self._patient = Patient[object](wait_seconds) if rows.remote else None
        self._rests_until = 0.0
        self._barren = False
        self.trouble = ""
        """Why nothing can be had from it now; empty: something can, as far as is known."""
        self.restore(ShelfState())

    def probe(self) -> None:
        """Look whether there is anything to read; `trouble` is the answer, and is left to the caller to show."""
        self._ask("shards", self._rows.shards, logging.INFO)

    def draw(self) -> Problem | None:
        """The next usable problem; None while there is none to be had."""
        while not self._barren and (entry := self._next()) is not None:
            refusal = entry if isinstance(entry, Refusal) else self._refuse(entry)
            if refusal is None:
                assert isinstance(entry, Problem)
                self._given[entry.id[:KEY_DIGITS]] = None
                return entry
            self._counts[f"refused_{refusal.reason}"] += 1
        return None

    def state(self) -> ShelfState:
        given = list(self._given)[-MAX_ROWS:]
        at = self._cursor
        return ShelfState(at.epoch, at.shard, at.block, self._place, at.layout, given, self._novelty.state())

    def restore(self, state: ShelfState) -> None:
        self._cursor = _Cursor(state.epoch, state.shard, state.block, state.layout)
        self._place = state.place
        self._given = dict.fromkeys(state.given)
        self._novelty = Novelty(state.novelty)
        self._block: _Block | None = None

    def _refuse(self, problem: Problem) -> Refusal | None:
        if problem.id[:KEY_DIGITS] in self._given:
            return Refusal(Reason.DUPLICATE, "was given in this epoch")
        return usable(problem, self._novelty, self._fits)

    def _next(self) -> Problem | Refusal | None:
        while not self._barren:
            if self._block is None and not self._load():
                return None
            assert self._block is not None
            if self._place < len(self._block.entries):
                self._place += 1
                return self._block.entries[self._place - 1]
            self._advance(self._block)
        return None

    def _advance(self, block: _Block) -> None:
        self._block, self._place = None, 0
        epoch = self._cursor.epoch
        if not block.last:
            self._cursor = _Cursor(epoch, block.shard, block.block + 1, block.layout)
        elif block.shard + 1 < block.shards:
            self._cursor = _Cursor(epoch, block.shard + 1, 0, block.layout)
        else:
            if not self._given:
                self._barren = True
                self._note(f"{self.name} has no usable problem", logging.WARNING)
            self._cursor = _Cursor(epoch + 1, 0, 0, block.layout)
            self._given, self._novelty = {}, Novelty()

    def _load(self) -> bool:
        """The block that the cursor is in, if it can be had now."""
        at = self._cursor
        loaded = self._ask(at, lambda: self._read(at), logging.WARNING)
        if not isinstance(loaded, _Block):
            return False
        if loaded.layout != at.layout:
            self._place = 0
        self._block, self._cursor = loaded, _Cursor(at.epoch, loaded.shard, loaded.block, loaded.layout)
        return True

    def _ask(self, key: Hashable, work: Callable[[], object], level: int) -> object | None:
        """What `work` returns; None while it cannot be had, which is logged at `level`."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            answer = work() if self._patient is None else self._patient.ask(key, work)
        except ProblemError as error:
            self._counts["outages"] += 1
            self._rests_until = time.monotonic() + REST_SECONDS
            self._note(str(error), level)
            return None
        if answer is None:
            self._note(self._late, level)
            return None
        if self.trouble:
            logger.info("%s can be read", self.name)
        self.trouble = ""
        return answer

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
        found = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        shard, block = (at.shard, at.block) if found == at.layout else (0, 0)
        Random(f"{self._origin} {at.epoch}").shuffle(names)
        taken = list(islice(map(_entry, self._rows.rows(names[shard], block * BLOCK)), BLOCK))
        last = len(taken) < BLOCK
        Random(f"{self._origin} {at.epoch} {shard} {block}").shuffle(taken)
        return _Block(found, len(names), shard, block, last, tuple(taken))


def _entry(row: Row) -> Problem | Refusal:
    try:
        return read_row(row).problem
    except ProblemError as error:
        return malformed(error)
