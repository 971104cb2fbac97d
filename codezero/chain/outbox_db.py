"""The outbox's SQLite file: points as they come in, and what is submitted for each round with everything ever signed.

WAL. Points are written with synchronous=NORMAL: they survive kill -9, and a power cut costs at most the last moments.
What is signed is written with FULL: it is on the disk before it is on the network, and so never signed twice.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from codezero.errors import ChainError

Kind = Literal["reward", "vote"]
State = Literal["pending", "sent", "accepted", "refused"]

REWARD_SCALE = 1000
"""The contract counts in integers: a round's reward is REWARD_SCALE times the mean of its iterations' rewards."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS owner(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points(round INTEGER PRIMARY KEY, total REAL NOT NULL, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ballots(
    round INTEGER NOT NULL, candidate TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY(round, candidate)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS submissions(
    round INTEGER NOT NULL, kind TEXT NOT NULL CHECK(kind IN ('reward', 'vote')), value TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending' CHECK(state IN ('pending', 'sent', 'accepted', 'refused')),
    reason TEXT NOT NULL DEFAULT '', hash TEXT NOT NULL DEFAULT '', at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY(round, kind)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS submissions_open ON submissions(state) WHERE state IN ('pending', 'sent');
CREATE TABLE IF NOT EXISTS signed(
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, round INTEGER NOT NULL, kind TEXT NOT NULL,
    nonce INTEGER NOT NULL, raw BLOB NOT NULL
);
"""
COLUMNS = "round, kind, value, state, reason, hash, at"
PROBLEM = "problem"
"""Under this key another process reads what is wrong now."""
BUSY_SECONDS = 10.0
MAX_CANDIDATES = 256
"""Different peers voted for in one round that are counted; own votes name one an iteration."""


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """Anybody who has it can send it."""

    hash: str
    """0x and 64 digits."""
    nonce: int
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Submission:
    """What one round has to tell the chain: a reward, or a vote."""

    round: int
    kind: Kind
    value: str
    """An integer, or the peer voted for."""
    state: State
    reason: str
    """Why it is not accepted, or how it was found to be."""
    hash: str
    """Of the transaction that took effect, as far as known."""
    at: float
    """When it was settled, in seconds since 1970 by this machine's clock; only to be shown."""


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What became of a peer's points."""

    collecting: int
    """Rounds whose points are not submitted yet."""
    pending: int
    """Submissions that wait, or were sent and have not been seen in a block."""
    accepted: int
    refused: int
    reasons: dict[str, int]
    """Of submissions that were refused, or failed and are tried again: how many for each reason."""
    last: Submission | None
    """The one settled last."""
    problem: str
    """What keeps points back now; empty: nothing."""


class OutboxStore:
    """One process at a time. Threads take turns; those that need another durability open a store of their own."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._connection = connect(path)
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._turn = threading.Lock()

    def close(self) -> None:
        self._connection.close()

    def add(self, round_number: int, reward: float, vote: str | None) -> int:
        """Count one iteration. Returns the round it counts in: the first later one, if its own is sealed already."""
        with self._transaction() as run:
            (sealed,) = run("SELECT coalesce(max(round), -1) FROM submissions").fetchone()
            target = max(round_number, sealed + 1)
            run(
                "INSERT INTO points VALUES(?, ?, 1) ON CONFLICT(round) DO UPDATE "
                "SET total = total + excluded.total, count = count + 1",
                (target, reward),
            )
            (candidates,) = run("SELECT count(*) FROM ballots WHERE round=?", (target,)).fetchone()
            if vote is not None and candidates < MAX_CANDIDATES:
                run(
                    "INSERT INTO ballots VALUES(?, ?, 1) ON CONFLICT(round, candidate) DO UPDATE SET count = count + 1",
                    (target, vote),
                )
            return target

    def collecting(self) -> list[int]:
        """Rounds with points that are not sealed, oldest first."""
        return [row[0] for row in self._connection.execute("SELECT round FROM points ORDER BY round")]

    def seal(self, round_number: int) -> None:
        """Turn the points of all rounds up to this one into submissions. From here on their values are fixed."""
        with self._transaction() as run:
            rows = run("SELECT round, total, count FROM points WHERE round <= ?", (round_number,)).fetchall()
            for number, total, count in rows:
                reward = str(round(REWARD_SCALE * total / count))
                run("INSERT INTO submissions(round, kind, value) VALUES(?, 'reward', ?)", (number, reward))
                best = run(
                    "SELECT candidate FROM ballots WHERE round=? ORDER BY count DESC, candidate LIMIT 1", (number,)
                ).fetchone()
                if best is not None:
                    run("INSERT INTO submissions(round, kind, value) VALUES(?, 'vote', ?)", (number, best[0]))
            run("DELETE FROM points WHERE round <= ?", (round_number,))
            run("DELETE FROM ballots WHERE round <= ?", (round_number,))

    def unsettled(self) -> list[Submission]:
        """Pending and sent, oldest round first, rewards before votes."""
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM submissions WHERE state IN ('pending', 'sent') ORDER BY round, kind"
        )
        return [Submission(*row) for row in rows]

    def signed_for(self, submission: Submission) -> list[SignedTransaction]:
        """Everything ever signed for it, in that order."""
        rows = self._connection.execute(
            "SELECT hash, nonce, raw FROM signed WHERE round=? AND kind=? ORDER BY number",
            (submission.round, submission.kind),
        )
        return [SignedTransaction(*row) for row in rows]

    def record(self, submission: Submission, signed: SignedTransaction) -> None:
        """On disk when this returns."""
        with self._transaction() as run:
            run(
                "INSERT OR IGNORE INTO signed(hash, round, kind, nonce, raw) VALUES(?, ?, ?, ?, ?)",
                (signed.hash, submission.round, submission.kind, signed.nonce, signed.raw),
            )
            run("UPDATE submissions SET state='sent' WHERE round=? AND kind=?", (submission.round, submission.kind))

    def explain(self, submission: Submission, reason: str) -> None:
        """Why it is not settled yet."""
        with self._transaction() as run:
            run(
                "UPDATE submissions SET reason=? WHERE round=? AND kind=? AND reason<>?",
                (reason, submission.round, submission.kind, reason),
            )

    def settle(self, submission: Submission, state: State, *, reason: str = "", hash: str = "") -> None:
        """Accepted or refused, for good."""
        with self._transaction() as run:
            run(
                "UPDATE submissions SET state=?, reason=?, hash=?, at=? WHERE round=? AND kind=?",
                (state, reason, hash, time.time(), submission.round, submission.kind),
            )
            run("DELETE FROM signed WHERE round=? AND kind=?", (submission.round, submission.kind))

    def note(self, key: str, value: str) -> None:
        """Something that other processes may want to read."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO owner VALUES(?, ?)", (key, value))

    def claim(self, owner: dict[str, str]) -> None:
        """Make the file this peer's on this contract. Raises ChainError when it is another's."""
        with self._transaction() as run:
            for key, value in owner.items():
                row = run("SELECT value FROM owner WHERE key=?", (key,)).fetchone()
                if row is not None and row[0] != value:
                    raise ChainError(
                        f"the outbox holds points of {key} {row[0]}, not of {value}; "
                        "move it away or use another run folder"
                    )
                run("INSERT OR IGNORE INTO owner VALUES(?, ?)", (key, value))

    @contextmanager
    def _transaction(self) -> Generator[Any]:
        run = self._connection.execute
        with self._turn:
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    if not read_only:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(SCHEMA)
    return connection


def lock(path: Path) -> int:
    """A descriptor that keeps other processes out until it is closed or the process ends. Raises ChainError."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ChainError(f"{path} is used by another process; a run folder belongs to one node at a time") from None
    return descriptor


def read_status(path: Path) -> OutboxStatus:
    """Of any outbox, also one that another process is writing. Raises ChainError when there is none to read."""
    try:
        connection = connect(path, read_only=True)
        try:
            states: Sequence[tuple[str, str, int]] = connection.execute(
                "SELECT state, reason, count(*) FROM submissions GROUP BY state, reason"
            ).fetchall()
            (collecting,) = connection.execute("SELECT count(*) FROM points").fetchone()
            problem = connection.execute("SELECT value FROM owner WHERE key=?", (PROBLEM,)).fetchone()
            last = _newest_settled(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ChainError(f"the outbox {path} cannot be read ({error})") from error
    reasons: dict[str, int] = {}
    for state, reason, count in states:
        if state != "accepted" and reason:
            reasons[reason] = reasons.get(reason, 0) + count
    total = {name: sum(count for state, _, count in states if state == name) for name in ("accepted", "refused")}
    pending = sum(count for state, _, count in states if state in ("pending", "sent"))
    return OutboxStatus(
        collecting, pending, total["accepted"], total["refused"], reasons, last, problem[0] if problem else ""
    )


def _newest_settled(connection: sqlite3.Connection) -> Submission | None:
    row = connection.execute(
        f"SELECT {COLUMNS} FROM submissions WHERE state IN ('accepted', 'refused') ORDER BY round DESC, kind LIMIT 1"
    ).fetchone()
    return Submission(*row) if row else None
