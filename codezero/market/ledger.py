"""`market.sqlite` of a run: what was seen, shown and settled, each once. One node writes it, anybody may read it.

WAL, so that a kill loses nothing. A power cut may lose the newest rows, but never a seal whose root is on the way to a
chain: that alone waits for the disk (synchronous=FULL), and many small writes in an iteration do not.
"""

import sqlite3
import threading
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from codezero.errors import MarketError, translated
from codezero.market.games import Game
from codezero.market.payout import MOST, START
from codezero.market.pricing import Score
from codezero.system.files import LOCAL, closed_on_failure

FILE = "market.sqlite"
BUSY_SECONDS = 5.0
KEPT_ROUNDS, MOST_BYTES, ROUNDS_AT_ONCE = 300, 48 << 20, 10
"""Older games are dropped with all that is about them, and so many more when the file fills; balances and scores stay.
"""
KEPT_SCORES = 400
"""Of one peer."""
SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS items(
    kind TEXT NOT NULL, round INTEGER NOT NULL, peer TEXT NOT NULL, name BLOB NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY(kind, round, peer, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_named ON items(kind, name);
CREATE TABLE IF NOT EXISTS balances(peer TEXT PRIMARY KEY, milli INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores(
    number INTEGER PRIMARY KEY, peer TEXT NOT NULL, opener TEXT NOT NULL, first REAL NOT NULL, last REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS scores_of ON scores(peer);
"""
T = TypeVar("T")


class Fact(StrEnum):
    """What an item is; its round, peer and name."""

    GAME = "game"
    """Announced: round, opener, game id."""
    SEAL = "seal"
    """Own reports and their salt: round."""
    ROOT = "root"
    """As anchored, or as announced where there is no chain: round, peer, root."""
    READ = "read"
    """A round whose anchors, or ballots, are all read: round, `anchors` or `ballots`."""
    REVEAL = "reveal"
    """The reports under a root, shown in time: round of the seal, peer, root."""
    LATE = "late"
    """The same, shown later."""
    SECRET = "secret"
    """The opening of an own game: round, opener, game id."""
    OPENING = "opening"
    """Shown: round, opener, game id."""
    EVIDENCE = "evidence"
    """What a game's opener executed: round, opener, game id."""
    EXECUTED = "executed"
    """The answer that own executions agree on, or None: round, opener, game id."""
    BALLOT = "ballot"
    """A juror's answers to games of a round: round of the games, juror."""
    VALUES = "values"
    """What own attempts return: round, opener, game id."""
    PRICE = "price"
    """PriceRow: round, opener, game id."""
    RESULT = "result"
    """GameResult: round, opener, game id."""
    CONFIRMED = "confirmed"
    """A value that the node stands behind: round, opener, game id."""
    NOTE = "note"
    """The state of the node's own part, under a name: round 0."""


class PriceRow(msgspec.Struct, frozen=True):
    """Of a game, after each step whose reports are seen, oldest first. [steps][K]"""

    skilled: list[list[float]]
    robust: list[list[float]]
    voters: int
    """Peers with a vote in the newest."""


class GameResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a game ended on this node."""

    answer: int | None = None
    """What points were paid for; None: void, or no chain."""
    void: str = ""
    """Why no points were paid; empty: they were."""
    truth: int | None = None
    """What records were kept by; None: nobody executed it."""
    contested: bool = False
    """Own execution says something else than the ballots."""
    wins: dict[str, int] = {}
    """By peer, milli-points."""
    jury: list[str] = []
    """Peers with a seat."""
    brier: dict[str, float] = {}
    """Where the truth is known: of `own` report, of the `equal` pool, of the `skilled` and `robust` price."""
    pools: list[list[float]] = []
    """[2][K] Of the others' reports, before they are sharpened: skilled and robust; empty where nobody has a vote."""
    confirmed_right: bool | None = None
    """Was the value that the node would have confirmed the truth? None: it would have confirmed none."""
    price: float | None = None
    """The skilled price of the likeliest answer, where the truth is known."""
    right: bool = False
    """Was that answer the truth?"""


class PlayerNote(msgspec.Struct, frozen=True):
    """What the node's part says of itself, under the name NOTE."""

    round: int
    why: str
    """Why there are no bets; empty: there are."""
    counts: dict[str, int]
    """Since the start of the process."""
    confirming: bool = False


NOTE = b"player"


class LedgerRow(NamedTuple):
    round: int
    peer: str
    name: bytes
    data: Any


class Ledger:
    """Threads take turns. Raises MarketError for a file that cannot be used."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self._turn = path, threading.RLock()
        with translated(MarketError, f"{path} cannot be used", sqlite3.Error, mend=f"move it away; {LOCAL}"):
            uri = f"{path.absolute().as_uri()}{'?mode=ro' if read_only else ''}"
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            with closed_on_failure(self._connection):
                if not read_only:
                    self._connection.executescript(SCHEMA)

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All of it or nothing, also when killed."""
        with self._turn, translated(MarketError, f"{self.path} cannot be written", sqlite3.Error):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def put(self, entry: Fact, round: int, peer: str, name: bytes, data: object, *, replace: bool = False) -> bool:
        """Is it new? What is there already stands, unless `replace`."""
        query = f"INSERT OR {'REPLACE' if replace else 'IGNORE'} INTO items VALUES(?, ?, ?, ?, ?)"
        with self._turn:
            if entry is Fact.SEAL:
                self._run("PRAGMA synchronous=FULL")
            self._run(query, entry, round, peer, name, msgspec.msgpack.encode(data))
            ((new,),) = self._run("SELECT changes()")
            if entry is Fact.SEAL:
                self._run("PRAGMA synchronous=NORMAL")
        return new > 0

    def get(self, entry: Fact, round: int, peer: str, name: bytes, kind: type[T]) -> T | None:
        found = self._rows("kind=? AND round=? AND peer=? AND name=?", kind, entry, round, peer, name)
        return found[0].data if found else None

    def of(self, entry: Fact, game: Game, kind: Any) -> Any:
        """The one of those named by round, opener and game id; None: there is none."""
        return self.get(entry, game.round, game.opener, game.id, kind)

    def all(self, entry: Fact, kind: Any, rounds: Iterable[int] | None = None) -> list[LedgerRow]:
        """Oldest round first. rounds: none others."""
        if rounds is None:
            return self._rows("kind=?", kind, entry)
        return [item for number in rounds for item in self._rows("kind=? AND round=?", kind, entry, number)]

    def named(self, entry: Fact, name: bytes, kind: Any) -> list[LedgerRow]:
        return self._rows("kind=? AND name=?", kind, entry, name)

    def newest(self, entry: Fact, kind: Any, limit: int, before: int = 1 << 62) -> list[LedgerRow]:
        """Of rounds below `before`, newest first."""
        return self._rows("kind=? AND round<?", kind, entry, before, order=f"DESC LIMIT {int(limit)}")

    def unsettled(self, kind: Any) -> list[LedgerRow]:
        """Games without a result, oldest first."""
        done = "SELECT 1 FROM items AS r WHERE r.kind='result' AND (r.round, r.peer, r.name)=(g.round, g.peer, g.name)"
        return self._rows(f"g.kind=? AND NOT EXISTS ({done})", kind, Fact.GAME)

    def starting(self, entry: Fact, digits: str, kind: Any) -> list[LedgerRow]:
        """Whose names begin with these hexadecimal digits, two at most."""
        where = "kind=? AND substr(hex(name), 1, ?)=?"
        return self._rows(where, kind, entry, len(digits), digits.upper(), order="LIMIT 2")

    def count(self, entry: Fact, round: int | None = None) -> int:
        """Of one round, or of all."""
        which, values = ("", ()) if round is None else (" AND round=?", (round,))
        return self._run(f"SELECT count(*) FROM items WHERE kind=?{which}", entry, *values)[0][0]

    def settle(self, item: LedgerRow, wins: dict[str, int], scores: dict[str, Score]) -> bool:
        """Record how a game ended and pay it, once: False where that was done before."""
        with self.transaction():
            if not self.put(Fact.RESULT, *item):
                return False
            for peer, win in wins.items():
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
        """Of all that a game paid: milli-points by peer."""
        return dict(self._run("SELECT peer, milli FROM balances"))

    def scores(self) -> dict[str, list[Score]]:
        """By peer, oldest first."""
        found: dict[str, list[Score]] = {}
        for peer, *score in self._run("SELECT peer, opener, first, last FROM scores ORDER BY number"):
            found.setdefault(peer, []).append(Score(*score))
        return {peer: rows[-KEPT_SCORES:] for peer, rows in found.items()}

    def forget(self, round: int) -> None:
        """Drop what is too old at this round."""
        with self.transaction():
            pages, free, size = (
                self._run(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
            )
            first = self._run("SELECT min(round) FROM items WHERE round > 0")[0][0] or round
            more = ROUNDS_AT_ONCE if (pages - free) * size > MOST_BYTES else 0
            self._run("DELETE FROM items WHERE round > 0 AND round < ?", max(round - KEPT_ROUNDS, first + more))

    def _rows(self, where: str, kind: Any, *values: object, order: str = "") -> list[LedgerRow]:
        query = f"SELECT round, peer, name, data FROM items AS g WHERE {where} ORDER BY round {order}"
        with translated(MarketError, f"{self.path} is damaged", msgspec.MsgspecError, mend="move it away"):
            rows = self._run(query, *values)
            return [
                LedgerRow(round, peer, name, msgspec.msgpack.decode(data, type=kind))
                for round, peer, name, data in rows
            ]

    def _run(self, query: str, *values: object) -> list[Any]:
        """The rows, read whole: threads that ask the same share a statement."""
        with self._turn, translated(MarketError, f"{self.path} cannot be used", sqlite3.Error):
            return self._connection.execute(query, values).fetchall()


@contextmanager
def opened(folder: Path) -> Generator["Ledger | None"]:
    """Of a run, to read; None where the run has no market."""
    path = folder / FILE
    if not path.is_file():
        yield None
        return
    with closing(Ledger(path, read_only=True)) as ledger:
        yield ledger
