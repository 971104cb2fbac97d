"""The outbox's SQLite file: points as they come in, and what is submitted for each round with everything ever signed.

WAL and synchronous=FULL: what is signed is on the disk before it is on the network, and so never signed twice.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from codezero.errors import ChainError, translated
from codezero.system.files import LOCAL, Lock, closed_on_failure

Kind = Literal["reward", "vote"]
State = Literal["pending", "sent", "accepted", "refused"]

REWARD_SCALE = 1000
"""The contract counts in integers: a round's reward is REWARD_SCALE times the mean of its iterations' rewards."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS owner(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted(iteration INTEGER PRIMARY KEY);
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
SUBMISSIONS = "SELECT round, kind, value, state, reason, hash, at FROM submissions WHERE state IN"
PROBLEM = "problem"
"""Under this key of `owner` another process reads what is wrong now."""
BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """Anybody who has it can send it."""

    hash: str
    """0x and 64 digits."""
    nonce: int
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Submission:
    """What one round has to tell the chain."""

    round: int
    kind: Kind
    value: str
    """An integer, or the peer voted for."""
    state: State
    reason: str
    """Why it was refused, or how it was found to be accepted."""
    hash: str
    """Of the transaction that took effect, as far as known."""
    at: float
    """When it was settled, in seconds since 1970 by this machine's clock; only to be shown."""


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    collecting: int
    """Rounds whose points are not submitted yet."""
    pending: int
    """Submissions that wait, or were sent and have not been seen in a block."""
    accepted: int
    refused: int
    reasons: dict[str, int]
    """Of refused submissions: how many for each."""
    last: Submission | None
    """The one settled last."""
    problem: str
    """What keeps points back now; empty: nothing."""


class OutboxStore:
    """Of one owner, in one process at a time; threads take turns. Methods raise sqlite3.Error.

    owner: whose points they are, and on which contract. Raises ChainError when the file is another's, used or damaged.
    """

    def __init__(self, path: Path, owner: Mapping[str, str] | None = None) -> None:
        self._turn = threading.Lock()
        with ExitStack() as stack:
            if not stack.enter_context(closing(Lock(path.with_name(f"{path.name}.lock")))).take():
                raise ChainError(f"{path} is used by another process; a run folder belongs to one node at a time")
            mend = f"move it away; {LOCAL}"
            with translated(ChainError, f"the outbox {path} cannot be used", sqlite3.Error, mend=mend):
                self._connection = stack.enter_context(closing(connect(path)))
                self._claim(owner or {})
            self.close = stack.pop_all().close

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration, in the first later round if its own is sealed already; a second one is the first."""
        with self._transaction() as run:
            if not run("INSERT OR IGNORE INTO counted VALUES(?)", (iteration,)).rowcount:
                return  # repeated from a checkpoint
            (sealed,) = run("SELECT coalesce(max(round), -1) FROM submissions").fetchone()
            target = max(round_number, sealed + 1)
            run(
                "INSERT INTO points VALUES(?, ?, 1) ON CONFLICT(round) DO UPDATE "
                "SET total = total + excluded.total, count = count + 1",
                (target, reward),
            )
            if vote is not None:
                run(
                    "INSERT INTO ballots VALUES(?, ?, 1) ON CONFLICT(round, candidate) DO UPDATE SET count = count + 1",
                    (target, vote),
                )

    def collecting(self) -> list[int]:
        """Rounds with points that are not sealed, oldest first."""
        with self._transaction() as run:
            return [number for (number,) in run("SELECT round FROM points ORDER BY round")]

    def seal(self, round_number: int) -> None:
        """Turn the points of all rounds up to this one into submissions. From here on their values are fixed."""
        with self._transaction() as run:
            rows = run("SELECT round, total, count FROM points WHERE round <= ?", (round_number,)).fetchall()
            for number, total, count in rows:
                reward = str(round(REWARD_SCALE * total / count))
                run("INSERT INTO submissions(round, kind, value) VALUES(?, 'reward', ?)", (number, reward))
                run(
                    "INSERT INTO submissions(round, kind, value) SELECT round, 'vote', candidate FROM ballots "
                    "WHERE round=? ORDER BY count DESC, candidate LIMIT 1",
                    (number,),
                )
            run("DELETE FROM points WHERE round <= ?", (round_number,))
            run("DELETE FROM ballots WHERE round <= ?", (round_number,))

    def unsettled(self) -> list[Submission]:
        """Pending and sent, oldest round first, rewards before votes."""
        with self._transaction() as run:
            rows = run(f"{SUBMISSIONS} ('pending', 'sent') ORDER BY round, kind")
            return [Submission(*row) for row in rows]

    def signed_for(self, submission: Submission) -> list[SignedTransaction]:
        """Everything ever signed for it, in that order."""
        with self._transaction() as run:
            rows = run("SELECT hash, nonce, raw FROM signed WHERE round=? AND kind=? ORDER BY number", _key(submission))
            return [SignedTransaction(*row) for row in rows]

    def record(self, submission: Submission, signed: SignedTransaction) -> None:
        """On disk when this returns."""
        with self._transaction() as run:
            run(
                "INSERT OR IGNORE INTO signed(hash, nonce, raw, round, kind) VALUES(?, ?, ?, ?, ?)",
                (signed.hash, signed.nonce, signed.raw, *_key(submission)),
            )
            run("UPDATE submissions SET state='sent' WHERE round=? AND kind=?", _key(submission))

    def settle(self, submission: Submission, state: State, *, reason: str = "", hash: str = "") -> None:
        """Accepted or refused, for good."""
        with self._transaction() as run:
            values = (state, reason, hash, time.time(), *_key(submission))
            run("UPDATE submissions SET state=?, reason=?, hash=?, at=? WHERE round=? AND kind=?", values)
            run("DELETE FROM signed WHERE round=? AND kind=?", _key(submission))

    def note(self, key: str, value: str) -> None:
        """Something that other processes may want to read."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO owner VALUES(?, ?)", (key, value))

    def _claim(self, owner: Mapping[str, str]) -> None:
        with self._transaction() as run:
            known: dict[str, str] = dict(run("SELECT key, value FROM owner"))
            for key, value in owner.items():
                if known.get(key, value) != value:
                    raise ChainError(
                        f"the outbox holds points of {key} {known[key]}, not of {value}; "
                        "move it away or use another run folder"
                    )
                run("INSERT OR IGNORE INTO owner VALUES(?, ?)", (key, value))
            run("DELETE FROM owner WHERE key=?", (PROBLEM,))  # of an earlier process: it may be over

    @contextmanager
    def _transaction(self) -> Generator[Callable[..., sqlite3.Cursor]]:
        """Begins with the first change."""
        with self._turn, self._connection:
            yield self._connection.execute


def _key(submission: Submission) -> tuple[int, Kind]:
    return submission.round, submission.kind


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level="IMMEDIATE", check_same_thread=False
    )
    with closed_on_failure(connection):
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(SCHEMA)
    return connection


def read_status(path: Path) -> OutboxStatus:
    """The points of any outbox, also one that is being written. Raises ChainError when there is none to read."""
    unreadable = translated(ChainError, f"the outbox {path} cannot be read", sqlite3.Error)
    with unreadable, closing(connect(path, read_only=True)) as connection:
        run = connection.execute
        states: dict[State, int] = dict(run("SELECT state, count(*) FROM submissions GROUP BY state"))
        refused = "SELECT reason, count(*) FROM submissions WHERE state='refused' GROUP BY reason"
        reasons: dict[str, int] = dict(run(refused))
        (collecting,) = run("SELECT count(*) FROM points").fetchone()
        problem: Any = run("SELECT value FROM owner WHERE key=?", (PROBLEM,)).fetchone()
        last: Any = run(f"{SUBMISSIONS} ('accepted', 'refused') ORDER BY round DESC, kind LIMIT 1").fetchone()
    return OutboxStatus(
        collecting=collecting,
        pending=states.get("pending", 0) + states.get("sent", 0),
        accepted=states.get("accepted", 0),
        refused=sum(reasons.values()),
        reasons=reasons,
        last=Submission(*last) if last else None,
        problem=problem[0] if problem else "",
    )
