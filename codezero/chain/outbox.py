"""Points on their way to the chain: kept on disk at once, sent in the background, each counted once.

A round is sealed when it is over and training has moved on (or `settle_seconds` have passed), or `submit_after` seconds
after its first points; then its mean reward and its vote are tried until they are accepted or refused for good. Points
that come for a sealed round count in the next one that is not. A killed process may have submitted what its file does
not know as settled: the contract refuses it a second time, and it is settled then.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codezero.chain.base import Outbox
from codezero.chain.errors import BLOCKING, NOT_REGISTERED, REWARDED, VOTED, ContractError, UnknownOutcomeError
from codezero.chain.rounds import STAGE
from codezero.errors import ChainError, translated
from codezero.system.files import LOCAL, Lock, closed_on_failure
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

Kind = Literal["reward", "vote"]
State = Literal["pending", "accepted", "refused"]
Topic = Literal["chain", "file", "standstill"]


@dataclass(frozen=True, slots=True)
class Submission:
    """A round's reward or vote for the chain."""

    round: int
    kind: Kind
    value: str  # an integer, or the peer voted for
    state: State
    reason: str  # why it was refused, or how it was found to be accepted
    hash: str  # of the transaction that took effect, as far as known
    at: float  # when it was settled, in seconds since 1970 by this machine's clock; only to be shown


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """collecting: rounds that are not sealed yet. pending: submissions on their way. reasons: how many refusals for
    each. last: the submission settled last. problem: what keeps points back now; empty: nothing."""

    collecting: int
    pending: int
    accepted: int
    refused: int
    reasons: dict[str, int]
    last: Submission | None
    problem: str


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
                self._connection = stack.enter_context(contextlib.closing(connect(path)))
                self._claim(owner or {})
            self.close = stack.pop_all().close

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration once, in the first later round if its own is sealed already."""
        with self._transaction() as run:
            values = iteration, round_number, reward, vote
            run(f"INSERT OR IGNORE INTO iterations VALUES(?, max(?, {SEALED} + 1), ?, ?)", values)

    def collecting(self) -> list[int]:
        """Rounds with points that are not sealed, oldest first."""
        with self._transaction() as run:
            rounds = run(f"SELECT DISTINCT round FROM iterations WHERE round > {SEALED} ORDER BY round")
            return [number for (number,) in rounds]

    def seal(self, newest: int) -> None:
        """Turn the points of all rounds up to this one into submissions. From here on their values are fixed."""
        with self._transaction() as run:
            means = f"SELECT round, avg(reward) FROM iterations WHERE round > {SEALED} AND round <= ? GROUP BY round"
            for number, mean in run(means, (newest,)).fetchall():
                values = number, str(round(1000 * mean))  # an integer
                run("INSERT INTO submissions(round, kind, value) VALUES(?, 'reward', ?)", values)
                run(
                    "INSERT INTO submissions(round, kind, value) SELECT round, 'vote', vote FROM iterations "
                    "WHERE round=? AND vote IS NOT NULL GROUP BY vote ORDER BY count(*) DESC, vote LIMIT 1",
                    (number,),
                )

    def pending(self) -> list[Submission]:
        """Oldest round first, rewards before votes."""
        with self._transaction() as run:
            return [Submission(*row) for row in run(submissions("state='pending' ORDER BY round, kind"))]

    def settle(self, submission: Submission, state: State, *, reason: str = "", tx_hash: str = "") -> None:
        """Accepted or refused, for good."""
        with self._transaction() as run:
            values = (state, reason, tx_hash, time.time(), submission.round, submission.kind)
            run("UPDATE submissions SET state=?, reason=?, hash=?, at=? WHERE round=? AND kind=?", values)

    def note(self, key: str, value: str) -> None:
        """Keep what other processes may want to read."""
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

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Callable[..., sqlite3.Cursor]]:
        with self._turn, self._connection:
            yield self._connection.execute


class ChainOutbox(Outbox):
    """The outbox of one peer on one contract. Raises ChainError when the file is another peer's or in use.

    submit_after: seconds after its first points at which a round is submitted though it is still open; None: never.
    round_seconds: how long rounds last, to notice that nobody opens them any more; None: not known.
    settle_seconds: for the points of an iteration that began before its round was over. every: between two looks.
    """

    def __init__(
        self,
        path: Path,
        coordinator: "ContractCoordinator",
        peer: str,
        *,
        submit_after: float | None = None,
        round_seconds: float | None = None,
        settle_seconds: float = 60.0,
        every: float = 1.0,
    ) -> None:
        self.path, self._coordinator, self._peer, self._every = path, coordinator, peer, every
        self._submit_after, self._round_seconds, self._settle_seconds = submit_after, round_seconds, settle_seconds
        self._open_since = (-1, 0.0)  # the open round, and when this process first saw it, by time.monotonic()
        self._since: dict[tuple[int, bool], float] = {}  # the same by round being collected, and whether it is over
        self._newest = -1  # the latest round that training has added to
        self._adding = threading.Lock()
        self._unsaved: deque[tuple[int, int, float, str | None]] = deque(maxlen=1024)  # the oldest are dropped
        self._problems: dict[Topic, str] = {}
        self._pause = Backoff(0.5, 60.0)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._until = float("inf")
        self._done = self._registered = False
        self._died: BaseException | None = None
        chain, account = str(coordinator.client.chain_id), coordinator.account
        owner = {"chain": chain, "contract": coordinator.contract, "account": account, "peer": peer}
        self._store = OutboxStore(path, owner)
        self._thread = threading.Thread(target=self._work, name="chain-outbox", daemon=True)
        self._thread.start()

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration's reward and its vote, once however often it is repeated; an own vote is dropped.

        Takes no longer than a write to the file; while the file cannot be written, points wait in memory.
        """
        if self._died is not None:
            raise ChainError(f"the outbox broke down ({self._died!r})") from self._died
        with self._adding:
            self._unsaved.append((iteration, round_number, reward, None if vote == self._peer else vote))
            self._newest = max(self._newest, round_number)
            self._save()
        self._wake.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Submit what can be, the open round too, for at most `seconds`; then stop. Is nothing left?

        What is left is sent after the next start. A try under way may outlast this by some seconds.
        """
        self._until = min(self._until, time.monotonic() + seconds)
        self._closing.set()
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

    def _report(self, topic: Topic, problem: str) -> None:
        """Log and publish a problem that is new or has changed; an empty one is over."""
        if self._problems.get(topic, "") == problem:
            return
        self._problems[topic] = problem
        if problem:
            logger.error("points are kept back: %s", problem)
        else:
            logger.info("points reach the chain again")
        with contextlib.suppress(sqlite3.Error):  # it has been logged
            self._store.note(PROBLEM, "; ".join(dict.fromkeys(filter(None, self._problems.values()))))

    def _work(self) -> None:
        try:
            while not self._closing.is_set():
                self._poll()
                self._wake.wait(self._every)
                self._wake.clear()
            while time.monotonic() < self._until and (self._store.pending() or self._store.collecting()):
                self._poll()
                time.sleep(min(0.1, max(0.0, self._until - time.monotonic())))
            self._done = not (self._store.pending() or self._store.collecting() or self._unsaved)
        except BaseException as error:  # a bug: raised by the next `add`, or training would go on uncounted
            self._died = error
            raise

    def _poll(self) -> None:
        if self._pause.left:
            return
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
        if collecting := self._store.collecting():
            current, now = self._coordinator.current_round(), time.monotonic()
            self._notice_standstill(current, now)
            if ready := [number for number in collecting if self._is_ready(number, current, now)]:
                self._store.seal(ready[-1])
                self._since = {key: at for key, at in self._since.items() if key[0] > ready[-1]}

    def _notice_standstill(self, current: int, now: float) -> None:
        number, since = self._open_since
        if number != current:
            self._open_since = (current, now)
            self._report("standstill", "")
        elif self._round_seconds is not None and now - since > 3 * self._round_seconds:
            self._report(
                "standstill",
                f"round {current} stays open, though rounds last {self._round_seconds:g} s: nobody opens the next one. "
                "Training goes on in this one, and later points wait",
            )

    def _is_ready(self, number: int, current: int, now: float) -> bool:
        over = number < current
        lasted = now - self._since.setdefault((number, over), now)
        if number > current or self._closing.is_set():
            return number <= current
        if over:
            return self._newest > number or lasted >= self._settle_seconds
        return self._submit_after is not None and lasted >= self._submit_after

    def _deliver(self) -> bool:
        """Try what is sealed, oldest first, while there is time. Is none of it left? Raises sqlite3.Error."""
        problem, fine = "", True
        pending = self._store.pending()
        for submission in pending:
            if time.monotonic() >= self._until:
                return fine
            try:
                reason = self._submit(submission)
                self._pause.succeeded()
            except ChainError as error:
                fine, reason = False, str(error)
                if isinstance(error, UnknownOutcomeError) and self._pause.failures + 1 < PATIENCE:
                    break
                if isinstance(error, BLOCKING):
                    self._report("chain", reason)
                    break
            if problem := problem or reason:
                self._report("chain", problem)
        if pending and fine and not problem:
            self._report("chain", "")
        return fine

    def _submit(self, submission: Submission) -> str:
        """Have it accepted, or say why it is refused for good. Raises ChainError when neither is so yet."""
        if not self._registered:
            self._coordinator.register(self._peer)
            self._registered = True
        number, value = submission.round, submission.value
        if submission.kind == "reward":
            name, arguments = "submitReward", (number, STAGE, int(value))
        else:
            name, arguments = "submitWinners", (number, [value])
        try:
            receipt = self._coordinator.send(name, *arguments, self._peer, seconds=TRY_SECONDS)
        except ContractError as error:
            if error.name in (REWARDED, VOTED):  # the peer is this account's: an earlier process was not answered
                self._store.settle(submission, "accepted", reason="found on the chain")
            elif error.final:
                self._store.settle(submission, "refused", reason=str(error))
                return f"{submission.kind} refused: {error}"
            else:
                self._registered = error.name != NOT_REGISTERED
                raise
        else:
            self._store.settle(submission, "accepted", tx_hash=receipt["transactionHash"].to_0x_hex())
        return ""


def submissions(where: str) -> str:
    return f"SELECT round, kind, value, state, reason, hash, at FROM submissions WHERE {where}"


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
    with unreadable, contextlib.closing(connect(path, read_only=True)) as connection:
        run = connection.execute
        states: dict[str, int] = dict(run("SELECT state, count(*) FROM submissions GROUP BY state"))
        count = "SELECT reason, count(*) FROM submissions WHERE state='refused' GROUP BY reason"
        reasons: dict[str, int] = dict(run(count))
        (collecting,) = run(f"SELECT count(DISTINCT round) FROM iterations WHERE round > {SEALED}").fetchone()
        problem: Any = run("SELECT value FROM owner WHERE key=?", (PROBLEM,)).fetchone()
        last: Any = run(submissions("state IN ('accepted', 'refused') ORDER BY round DESC, kind LIMIT 1")).fetchone()
    pending, accepted, refused = (states.get(state, 0) for state in ("pending", "accepted", "refused"))
    newest = Submission(*last) if last else None
    return OutboxStatus(collecting, pending, accepted, refused, reasons, newest, problem[0] if problem else "")
