"""Points on their way to the chain: kept on disk at once, sent in the background, each counted once.

A round is sealed when it is over and training has moved on (or `settle_seconds` have passed), or `submit_after` seconds
after its first points; then its mean reward and its vote are tried until they are accepted or refused for good. Points
that come for a sealed round count in the next one that is not. A killed process may have submitted what its file does
not know as settled: the contract refuses it a second time, and it is settled then."""

import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codezero.chain.base import Outbox, OutboxView
from codezero.chain.errors import BLOCKING, NOT_REGISTERED, REWARDED, VOTED, ContractError, UnknownOutcomeError
from codezero.chain.rounds import STAGE
from codezero.errors import ChainError, translated
from codezero.system.files import LOCAL, Lock, open_database
from codezero.system.signals import Backoff

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

logger = logging.getLogger(__name__)

TRY_SECONDS = 15.0  # for one try of one submission
CLOSE_SECONDS = 5.0
BUSY_SECONDS = 10.0  # for another process's transaction on the file
PATIENCE = 3  # tries after which it is worth a complaint that a transaction is not in a block yet
PROBLEM = "problem"  # the key of `owner` under which another process reads what keeps points back now
SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE IF NOT EXISTS owner(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS iterations(
    iteration INTEGER PRIMARY KEY, round INTEGER NOT NULL, reward REAL NOT NULL, vote TEXT
);
CREATE INDEX IF NOT EXISTS iterations_by_round ON iterations(round);
CREATE TABLE IF NOT EXISTS submissions(
    round INTEGER NOT NULL, kind TEXT NOT NULL, value TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending',
    reason TEXT NOT NULL DEFAULT '', hash TEXT NOT NULL DEFAULT '', at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY(round, kind)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS submissions_pending ON submissions(state) WHERE state = 'pending';
"""
SEALED = "(SELECT coalesce(max(round), -1) FROM submissions)"  # the newest round that is
SUBMISSIONS = "SELECT round, kind, value, state, reason, hash, at FROM submissions WHERE"

State = Literal["pending", "accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Submission:
    """A round's reward or vote for the chain."""

    round: int
    kind: Literal["reward", "vote"]
    value: str  # an integer, or the peer voted for
    state: State
    reason: str  # why it was refused, or how it was found to be accepted
    hash: str  # of the transaction that took effect, as far as known
    at: float  # when it was settled, in seconds since 1970 by this machine's clock; only to be shown


class OutboxStatus(OutboxView, frozen=True, kw_only=True):
    account: str = ""  # whose points they are
    last: Submission | None = None  # the one settled last


class OutboxStore:
    """The points of one owner, in one process at a time; threads take turns. Methods raise sqlite3.Error.

    owner: whose points they are, and on which contract. Raises ChainError when the file is another's, used or damaged.
    """

    def __init__(self, path: Path, owner: Mapping[str, str] | None = None) -> None:
        self._turn = threading.Lock()
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(contextlib.closing(Lock(path.with_name(f"{path.name}.lock")))).take():
                raise ChainError(f"{path} is used by another process; a run folder belongs to one node at a time")
            mend = f"move it away; {LOCAL}"
            with translated(ChainError, f"the outbox {path} cannot be used", sqlite3.Error, mend=mend):
                opened = open_database(path, SCHEMA, seconds=BUSY_SECONDS, isolation_level="IMMEDIATE")
                self._connection = stack.enter_context(contextlib.closing(opened))
                known: dict[str, str] = dict(self._run("SELECT key, value FROM owner"))
                for key, value in (owner or {}).items():
                    if known.get(key, value) != value:
                        other = f"the outbox holds points of {key} {known[key]}, not of {value}"
                        raise ChainError(f"{other}; move it away or use another run folder")
                    self.note(key, value)
                self._run("DELETE FROM owner WHERE key=?", PROBLEM)  # of an earlier process: it may be over
            self.close = stack.pop_all().close

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration once, in the first later round if its own is sealed already."""
        insert = f"INSERT OR IGNORE INTO iterations VALUES(?, max(?, {SEALED} + 1), ?, ?)"
        self._run(insert, iteration, round_number, reward, vote)

    def collecting(self) -> list[int]:
        """Rounds with points that are not sealed, oldest first."""
        query = f"SELECT DISTINCT round FROM iterations WHERE round > {SEALED} ORDER BY round"
        return [number for (number,) in self._run(query)]

    def seal(self, newest: int) -> None:
        """Turn the points of all rounds up to this one into submissions. From here on their values are fixed."""
        with self._turn, self._connection as connection:
            means = f"SELECT round, avg(reward) FROM iterations WHERE round > {SEALED} AND round <= ? GROUP BY round"
            for number, mean in connection.execute(means, (newest,)).fetchall():
                values = number, str(round(1000 * mean))  # an integer
                connection.execute("INSERT INTO submissions(round, kind, value) VALUES(?, 'reward', ?)", values)
                connection.execute(
                    "INSERT INTO submissions(round, kind, value) SELECT round, 'vote', vote FROM iterations "
                    "WHERE round=? AND vote IS NOT NULL GROUP BY vote ORDER BY count(*) DESC, vote LIMIT 1",
                    (number,),
                )

    def pending(self) -> list[Submission]:
        """Oldest round first, rewards before votes."""
        return [Submission(*row) for row in self._run(f"{SUBMISSIONS} state='pending' ORDER BY round, kind")]

    def settle(self, submission: Submission, state: State, *, reason: str = "", tx_hash: str = "") -> None:
        """Accepted or refused, for good."""
        update = "UPDATE submissions SET state=?, reason=?, hash=?, at=? WHERE round=? AND kind=?"
        self._run(update, state, reason, tx_hash, time.time(), submission.round, submission.kind)

    def note(self, key: str, value: str) -> None:
        """Keep what other processes may want to read."""
        self._run("INSERT OR REPLACE INTO owner VALUES(?, ?)", key, value)

    def _run(self, query: str, *values: object) -> list[Any]:
        with self._turn, self._connection:
            return self._connection.execute(query, values).fetchall()


class ChainOutbox(Outbox):
    """The outbox of one peer on one contract. Raises ChainError when the file is another peer's or in use.

    submit_after: seconds after its first points at which a round is submitted though it is still open.
    round_seconds: how long rounds last, to notice that nobody opens them any more.
    settle_seconds: for the points of an iteration that began before its round was over. every: between two looks."""

    def __init__(
        self,
        path: Path,
        coordinator: "ContractCoordinator",
        peer: str,
        *,
        submit_after: float = math.inf,
        round_seconds: float = math.inf,
        settle_seconds: float = 60.0,
        every: float = 1.0,
    ) -> None:
        self.path, self._coordinator, self._peer, self._every = path, coordinator, peer, every
        self._submit_after, self._round_seconds, self._settle_seconds = submit_after, round_seconds, settle_seconds
        self._open, self._open_since = -1, 0.0  # the open round, and when this process first saw it: time.monotonic()
        self._since: dict[tuple[int, bool], float] = {}  # the same by round being collected, and whether it is over
        self._newest = -1  # the latest round that training has added to
        self._adding = threading.Lock()
        self._unsaved: deque[tuple[int, int, float, str | None]] = deque(maxlen=1024)  # the oldest are dropped
        self._problems: dict[str, str] = {}  # by topic
        self._pause = Backoff(0.5, 60.0)
        self._wake = threading.Event()
        self._until = math.inf  # less once this closes
        self._done = self._registered = False
        chain, account = str(coordinator.client.chain_id), coordinator.account
        owner = {"chain": chain, "contract": coordinator.contract, "account": account, "peer": peer}
        self._store = OutboxStore(path, owner)
        self._thread = threading.Thread(target=self._work, name="chain-outbox", daemon=True)
        self._thread.start()

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration's reward and its vote, once however often it is repeated; an own vote is dropped. Takes
        no longer than a write to the file; while the file cannot be written, points wait in memory."""
        if self._until == math.inf and not self._thread.is_alive():  # a bug: training must not go on uncounted
            raise ChainError("the outbox broke down; what this process wrote to stderr says how")
        with self._adding:
            self._unsaved.append((iteration, round_number, reward, None if vote == self._peer else vote))
            self._newest = max(self._newest, round_number)
            self._save()
        self._wake.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Submit what can be, the open round too, for at most `seconds`; then stop. Is nothing left? What is left is
        sent after the next start. A try under way may outlast this by some seconds."""
        self._until = min(self._until, time.monotonic() + seconds)
        self._wake.set()
        self._thread.join(max(0.0, self._until - time.monotonic()) + 1.0)
        if self._thread.is_alive():
            return False
        self._store.close()
        return self._done

    def _save(self) -> None:  # called with the lock
        try:
            while self._unsaved:
                self._store.add(*self._unsaved[0])
                self._unsaved.popleft()
            self._report("file", "")
        except sqlite3.Error as error:
            self._report("file", f"{self.path} cannot be written ({error})")

    def _report(self, topic: Literal["chain", "file", "standstill"], problem: str) -> None:
        """Log and publish a problem that is new or has changed; an empty one is over."""
        if self._problems.get(topic, "") == problem:
            return
        self._problems[topic] = problem
        level = logging.ERROR if problem else logging.INFO
        logger.log(level, f"points are kept back: {problem}" if problem else "points reach the chain again")
        with contextlib.suppress(sqlite3.Error):  # it has been logged
            self._store.note(PROBLEM, "; ".join(dict.fromkeys(filter(None, self._problems.values()))))

    def _work(self) -> None:
        while self._until == math.inf or (time.monotonic() < self._until and self._is_left()):
            if not self._pause.left:
                self._poll()
            self._wake.wait(self._every if self._until == math.inf else 0.1)
            self._wake.clear()
        self._done = not self._is_left()

    def _is_left(self) -> bool:
        return bool(self._unsaved or self._store.pending() or self._store.collecting())

    def _poll(self) -> None:
        try:
            with self._adding:
                self._save()
            self._seal()
            if self._deliver():
                self._pause.succeeded()
                return
        except ChainError as error:
            self._report("chain", str(error))
        except sqlite3.Error as error:
            self._report("file", f"{self.path} cannot be used ({error})")
        self._pause.failed()

    def _seal(self) -> None:
        if not (collecting := self._store.collecting()):
            return
        current, now = self._coordinator.current_round(), time.monotonic()
        if self._open != current:
            self._open, self._open_since = current, now
            self._report("standstill", "")
        elif now - self._open_since > 3 * self._round_seconds:
            self._report(
                "standstill",
                f"round {current} stays open, though rounds last {self._round_seconds:g} s: nobody opens the next one. "
                "Training goes on in this one, and later points wait",
            )
        ready = -1
        for number in (number for number in collecting if number <= current):
            over = number < current
            lasted = now - self._since.setdefault((number, over), now)
            is_late = lasted >= (self._settle_seconds if over else self._submit_after)
            if is_late or (over and self._newest > number) or self._until < math.inf:
                ready = number
        if ready >= 0:
            self._store.seal(ready)
            self._since = {key: at for key, at in self._since.items() if key[0] > ready}

    def _deliver(self) -> bool:
        """Try what is sealed, oldest first, while there is time. Has nothing failed? Raises sqlite3.Error."""
        problem, fine, pending = "", True, self._store.pending()
        for submission in pending:
            if time.monotonic() >= self._until:
                return fine
            try:
                problem = self._submit(submission) or problem
                self._pause.succeeded()
            except ChainError as error:
                is_new = isinstance(error, UnknownOutcomeError) and self._pause.failures + 1 < PATIENCE
                fine, problem = False, problem or ("" if is_new else str(error))
                if isinstance(error, BLOCKING):
                    break
        if problem or (pending and fine):
            self._report("chain", problem)
        return fine

    def _submit(self, submission: Submission) -> str:
        """Have it accepted, or say why it is refused for good. Raises ChainError when neither is so yet."""
        if not self._registered:
            self._coordinator.register(self._peer)
            self._registered = True
        number, value = submission.round, submission.value
        rewarded = submission.kind == "reward"
        name, arguments = ("submitReward", [STAGE, int(value)]) if rewarded else ("submitWinners", [[value]])
        try:
            receipt = self._coordinator.send(name, number, *arguments, self._peer, seconds=TRY_SECONDS)
            self._store.settle(submission, "accepted", tx_hash=receipt["transactionHash"].to_0x_hex())
        except ContractError as error:
            if error.name in (REWARDED, VOTED):  # the peer is this account's: an earlier process was not answered
                self._store.settle(submission, "accepted", reason="found on the chain")
            elif error.final:
                self._store.settle(submission, "refused", reason=str(error))
                return f"{submission.kind} refused: {error}"
            else:
                self._registered = error.name != NOT_REGISTERED
                raise
        return ""


def read_status(path: Path) -> OutboxStatus:
    """The points of any outbox, also one that is being written. Raises ChainError when there is none to read."""
    unreadable = translated(ChainError, f"the outbox {path} cannot be read", sqlite3.Error)
    with unreadable, contextlib.closing(open_database(path, seconds=BUSY_SECONDS)) as connection:
        run = connection.execute
        states = {"pending": 0, "accepted": 0, "refused": 0}
        states |= dict(run("SELECT state, count(*) FROM submissions GROUP BY state"))
        count = "SELECT reason, count(*) FROM submissions WHERE state='refused' GROUP BY reason"
        reasons: dict[str, int] = dict(run(count))
        (collecting,) = run(f"SELECT count(DISTINCT round) FROM iterations WHERE round > {SEALED}").fetchone()
        owner: dict[str, str] = dict(run("SELECT key, value FROM owner"))
        last: Any = run(f"{SUBMISSIONS} state <> 'pending' ORDER BY round DESC, kind LIMIT 1").fetchone()
    newest, account, problem = Submission(*last) if last else None, owner.get("account", ""), owner.get(PROBLEM, "")
    return OutboxStatus(collecting=collecting, reasons=reasons, account=account, last=newest, problem=problem, **states)
