"""`market.sqlite` of a run: what was seen, reported and settled, each once. One node writes it, anybody may read it.

WAL, so that a kill loses nothing; a power cut may lose the newest rows."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from codezero.errors import MarketError, translated
from codezero.market.games import MOST, MOST_GAMES, START, STEPS, Game, Outcomes, PriceRow, Reports, Score
from codezero.system.files import LOCAL, open_database

FILE = "market.sqlite"
KEPT_ROUNDS, MOST_BYTES, ROUNDS_AT_ONCE = 300, 48 << 20, 10  # older games go, and more when the file fills
KEPT_SCORES = 400  # of one peer
SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS games(
    id BLOB PRIMARY KEY, round INTEGER NOT NULL, opener TEXT NOT NULL, game BLOB NOT NULL, evidence BLOB, result BLOB
);
CREATE INDEX IF NOT EXISTS games_of ON games(round, opener);
CREATE TABLE IF NOT EXISTS reports(
    game BLOB NOT NULL, peer TEXT NOT NULL, step INTEGER NOT NULL, q INTEGER NOT NULL, PRIMARY KEY(game, peer, step)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS balances(peer TEXT PRIMARY KEY, milli INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores(
    number INTEGER PRIMARY KEY, peer TEXT NOT NULL, opener TEXT NOT NULL, first REAL NOT NULL, last REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS scores_of ON scores(peer);
CREATE TABLE IF NOT EXISTS note(id INTEGER PRIMARY KEY CHECK(id = 0), note BLOB NOT NULL);
"""
ROWS = "SELECT game, coalesce(evidence, x'90'), coalesce(result, x'c0') FROM games WHERE"


class GameResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a game on this node."""

    right: bool | None = None  # none: it could not be decided
    void: str = ""  # why no points were paid; empty: they were
    wins: dict[str, int] = {}  # by peer, milli-points
    price: PriceRow | None = None
    brier: dict[str, float] = {}
    """Scores of the `own` report, the others' `mean` and their `price`, where this node executed the attempt."""


class PlayerNote(msgspec.Struct, frozen=True):
    """The state of the node's part in the market, for the page."""

    round: int
    why: str  # why there are no bets; empty: there are


class GameRow(NamedTuple):
    game: Game
    evidence: Outcomes
    result: GameResult | None


class Ledger:
    """Threads take turns. Raises MarketError for a file that cannot be used."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self._turn = path, threading.RLock()
        with translated(MarketError, f"{path} cannot be used", sqlite3.Error, mend=f"move it away; {LOCAL}"):
            schema = "" if read_only else SCHEMA
            self._connection = open_database(path, schema, seconds=5.0, isolation_level=None)

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All of it or nothing, also when killed."""
        with self._turn, translated(MarketError, f"{self.path} cannot be used", sqlite3.Error), self._connection:
            self._run("BEGIN IMMEDIATE")
            yield

    def add(self, game: Game) -> bool:
        """Keep a game, unless its opener has opened as many as it may in that round. Is it new?"""
        with self.transaction():
            count = "SELECT count(*) FROM games WHERE round=? AND opener=?"
            if self._run(count, game.round, game.opener)[0][0] >= MOST_GAMES:
                return False
            return self._changes(
                "INSERT OR IGNORE INTO games(id, round, opener, game) VALUES(?, ?, ?, ?)",
                game.id, game.round, game.opener, msgspec.msgpack.encode(game),
            )  # fmt: skip

    def add_evidence(self, game: bytes, opener: str, outcomes: Outcomes) -> None:
        """Keep the evidence on a game of this opener; the newest counts."""
        data = msgspec.msgpack.encode(outcomes)
        self._run("UPDATE games SET evidence=? WHERE id=? AND opener=? AND result IS NULL", data, game, opener)

    def add_report(self, game: bytes, peer: str, round: int, q: int) -> bool:
        """Keep a peer's report on a game that is open in this round: the first one at a step counts. Is it new?"""
        step = "? - round - 1"
        is_open = f"id=? AND result IS NULL AND {step} BETWEEN 0 AND {STEPS - 1}"
        query = f"INSERT OR IGNORE INTO reports SELECT id, ?, {step}, ? FROM games WHERE {is_open}"
        return self._changes(query, peer, round, q, game, round)

    def starting(self, digits: str) -> list[GameRow]:
        """Games whose ids begin with these hexadecimal digits, two at most."""
        return self._rows("substr(hex(id), 1, ?)=? LIMIT 2", len(digits), digits.upper())

    def since(self, round: int) -> list[GameRow]:
        """Games announced in this round or later: oldest round first, and one of each opener before a second of any."""
        rank = "row_number() OVER (PARTITION BY round, opener ORDER BY id)"
        return self._rows(f"round >= ? ORDER BY round, {rank}, id", round)

    def newest(self, limit: int, before: int = 1 << 62, *, settled: bool = False, of: str = "") -> list[GameRow]:
        """Games of rounds below `before`, newest first. of: a peer that has reported on them."""
        which = " AND result IS NOT NULL" if settled else ""
        which += " AND id IN (SELECT game FROM reports WHERE peer=?)" if of else ""
        return self._rows(f"round < ?{which} ORDER BY round DESC, id LIMIT ?", before, *([of] if of else []), limit)

    def reports(self, game: bytes) -> dict[str, Reports]:
        """[STEPS] by peer."""
        reports: dict[str, list[int | None]] = {}
        for peer, step, q in self._run("SELECT peer, step, q FROM reports WHERE game=? ORDER BY peer", game):
            reports.setdefault(peer, [None] * STEPS)[step] = q
        return {**reports}

    def settle(self, game: Game, result: GameResult, scores: dict[str, Score]) -> bool:
        """Record how a game ended and pay it, once: False where that was done before."""
        with self.transaction():
            data = msgspec.msgpack.encode(result)
            if not self._changes("UPDATE games SET result=? WHERE id=? AND result IS NULL", data, game.id):
                return False
            for peer, win in result.wins.items():
                milli = min(MOST, max(0, self.balance(peer) + win))
                self._run("INSERT OR REPLACE INTO balances VALUES(?, ?)", peer, milli)
            for peer, score in scores.items():
                self._run("INSERT INTO scores(peer, opener, first, last) VALUES(?, ?, ?, ?)", peer, *score)
        return True

    def balance(self, peer: str) -> int:
        """Milli-points."""
        rows = self._run("SELECT milli FROM balances WHERE peer=?", peer)
        return rows[0][0] if rows else START

    def balances(self) -> dict[str, int]:
        """Milli-points of all that a game paid, by peer."""
        return dict(self._run("SELECT peer, milli FROM balances"))

    def scores(self) -> dict[str, list[Score]]:
        """By peer, oldest first."""
        scores: dict[str, list[Score]] = {}
        for peer, *score in self._run("SELECT peer, opener, first, last FROM scores ORDER BY number"):
            scores.setdefault(peer, []).append(Score(*score))
        return {peer: rows[-KEPT_SCORES:] for peer, rows in scores.items()}

    def note(self) -> PlayerNote | None:
        rows = self._run("SELECT note FROM note")
        return self._decode(rows[0][0], PlayerNote) if rows else None

    def write_note(self, note: PlayerNote) -> None:
        self._run("INSERT OR REPLACE INTO note VALUES(0, ?)", msgspec.msgpack.encode(note))

    def forget(self, round: int) -> None:
        """Drop games that are too old at this round; balances and scores stay."""
        with self.transaction():
            pages, free, size = (
                self._run(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
            )
            first = self._run("SELECT coalesce(min(round), ?) FROM games", round)[0][0]
            more = ROUNDS_AT_ONCE if (pages - free) * size > MOST_BYTES else 0
            if first < (until := max(round - KEPT_ROUNDS, first + more)):
                self._run("DELETE FROM reports WHERE game IN (SELECT id FROM games WHERE round < ?)", until)
                self._run("DELETE FROM games WHERE round < ?", until)

    def _rows(self, where: str, *values: object) -> list[GameRow]:
        kinds: tuple[Any, ...] = Game, Outcomes, GameResult | None
        rows = self._run(f"{ROWS} {where}", *values)
        return [GameRow(*(self._decode(*pair) for pair in zip(row, kinds, strict=True))) for row in rows]

    def _decode(self, data: bytes, kind: Any) -> Any:
        with translated(MarketError, f"{self.path} is damaged", msgspec.MsgspecError, mend="move it away"):
            return msgspec.msgpack.decode(data, type=kind)

    def _changes(self, query: str, *values: object) -> bool:
        with self._turn:
            self._run(query, *values)
            return self._run("SELECT changes()")[0][0] > 0

    def _run(self, query: str, *values: object) -> list[Any]:
        """The rows, read whole: threads that ask the same share a statement."""
        with self._turn, translated(MarketError, f"{self.path} cannot be used", sqlite3.Error):
            return self._connection.execute(query, values).fetchall()
