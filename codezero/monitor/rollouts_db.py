"""`rollouts.db`: a sample of the newest judged groups of a run, own and peers', for people to look at.

Its number and size are bounded, and texts are cut. Nothing depends on it: what cannot be written is left out with a
warning, and a broken file is replaced. WAL without fsync: it survives kill -9, not always a power cut.
"""

import contextlib
import logging
import math
import random
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from codezero.errors import UnreadableError
from codezero.monitor.run_types import Rollout, RolloutLine, RolloutPage, ShownVerdict
from codezero.monitor.text import readable_name
from codezero.types import Completion, ScoredGroup, Status, Verdict

MAX_TEXT = 16_384
"""Bytes of an attempt."""
MAX_QUESTION = 8_192
"""Bytes."""
MAX_TEST = 2_048
"""Bytes of one test."""
MAX_TESTS = 24
MAX_ATTEMPTS = 64
MAX_REASONS = 16
MAX_REASON = 512
"""Bytes of one reason."""
BEGINNING = 200
"""Characters of the question in a list."""


def shown(scored: ScoredGroup, *, iteration: int, own: bool) -> Rollout:
    """With id 0: who keeps it gives it one."""
    group, problem = scored.group, scored.group.problem
    attempts = [
        _attempt(completion, verdict)
        for completion, verdict in zip(group.completions[:MAX_ATTEMPTS], scored.verdicts[:MAX_ATTEMPTS], strict=True)
    ]
    question = beginning(problem.question, MAX_QUESTION)
    line = RolloutLine(
        id=0,
        iteration=iteration,
        round=group.round,
        peer_id=group.peer_id,
        peer_name=readable_name(group.peer_id),
        own=own,
        question=question[:BEGINNING],
        source=problem.source.value,
        level=problem.level,
        rewards=[attempt.reward for attempt in attempts],
    )
    tests = [beginning(test, MAX_TEST) for test in problem.tests[:MAX_TESTS]]
    return Rollout(line=line, problem_id=problem.id, question=question, tests=tests, attempts=attempts)


def beginning(text: str, most: int) -> str:
    """At most `most` bytes of UTF-8, whole characters; what cannot be encoded becomes a question mark."""
    return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _attempt(completion: Completion, verdict: Verdict) -> ShownVerdict:
    text = beginning(completion.text, MAX_TEXT)
    known = verdict.status is not Status.UNAVAILABLE
    return ShownVerdict(
        text=text,
        status=verdict.status.value,
        reward=_number(verdict.reward, known),
        correctness=_number(verdict.correctness, known),
        structure=_number(verdict.structure, known),
        adherence=_number(verdict.adherence, known),
        format=_number(verdict.format, known),
        cap=_number(verdict.cap, known),
        reasons=[beginning(reason, MAX_REASON) for reason in verdict.reasons[:MAX_REASONS]],
        finished=completion.finished,
        cut=len(text) < len(completion.text),
    )


def _number(value: float, known: bool) -> float | None:
    """None where nothing could be told, which is not a zero."""
    return round(value, 4) if known and math.isfinite(value) else None


logger = logging.getLogger(__name__)

FILE = "rollouts.db"
MAX_GROUPS = 600
MAX_BYTES = 18 << 20
"""Of what is kept; with SQLite's own needs and the log of the last writes, the files stay below 32 MiB."""
MAX_PAGES = 24 << 8
"""Of 4 KiB: 24 MiB, whatever goes wrong."""
MAX_WRITE = 2 << 20
"""Bytes written at once, unless a single group is larger."""
PER_SECOND = 2.0
"""Groups kept a second when there are many."""
BURST = 32
"""Groups that may be kept at once after a pause."""
REST_SECONDS = 60.0
"""From a failure to the next attempt."""
BUSY_SECONDS = 2.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS rollouts(
    id INTEGER PRIMARY KEY AUTOINCREMENT, iteration INTEGER NOT NULL, peer TEXT NOT NULL, mine INTEGER NOT NULL,
    size INTEGER NOT NULL, line BLOB NOT NULL, body BLOB NOT NULL
);
"""


class RolloutStore:
    """The writer's side; one process at a time, and one thread. No method raises when the file cannot be written."""

    def __init__(self, folder: Path, me: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`me`: own peer id. Opens nothing yet."""
        self.path = folder / FILE
        self._me, self._clock = me, clock
        self._connection: sqlite3.Connection | None = None
        self._allowance, self._counted = float(BURST), clock()
        self._resting_until = 0.0
        self._chance = random.Random(me)
        self._size = 0
        """Bytes that are kept."""

    def begin(self, iteration: int) -> None:
        """Go on after `iteration`: what was kept of later ones is of a crashed future."""
        with self._surviving():
            self._open().execute("DELETE FROM rollouts WHERE iteration > ?", (iteration,))
            self._measure()

    def add(self, iteration: int, judged: Sequence[ScoredGroup]) -> None:
        """Keep some of the groups, chosen by chance, own and peers' in turn; the oldest kept ones make room."""
        now = self._clock()
        self._allowance = min(BURST, self._allowance + PER_SECOND * (now - self._counted))
        self._counted = now
        if not judged or self._allowance < 1 or now < self._resting_until:
            return
        with self._surviving():
            self._write(self._open(), iteration, self._in_turn(judged)[: int(self._allowance)])

    def close(self) -> None:
        """The file is whole by itself afterwards, without the log of the last writes."""
        with self._surviving():
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _in_turn(self, judged: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        mixed = self._chance.sample(judged, len(judged))
        own = [scored for scored in mixed if scored.group.peer_id == self._me]
        others = [scored for scored in mixed if scored.group.peer_id != self._me]
        first, second = self._chance.sample([own, others], 2)
        both = min(len(own), len(others))
        return [scored for pair in zip(first, second, strict=False) for scored in pair] + own[both:] + others[both:]

    def _write(self, connection: sqlite3.Connection, iteration: int, chosen: Sequence[ScoredGroup]) -> None:
        """One transaction."""
        rows: list[tuple[int, str, bool, int, bytes, bytes]] = []
        written = 0
        for scored in chosen:
            rollout = shown(scored, iteration=iteration, own=scored.group.peer_id == self._me)
            line, body = msgspec.json.encode(rollout.line), msgspec.json.encode(rollout)
            size = len(line) + len(body)
            if rows and written + size > MAX_WRITE:
                break
            written += size
            rows.append((iteration, rollout.line.peer_id, rollout.line.own, size, line, body))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO rollouts(iteration, peer, mine, size, line, body) VALUES(?, ?, ?, ?, ?, ?)", rows
        )
        left = self._make_room(connection, self._size + written)
        connection.execute("COMMIT")
        self._size = left
        self._allowance -= len(rows)

    def _make_room(self, connection: sqlite3.Connection, size: int) -> int:
        """Delete the oldest until the rest is within bounds; its size."""
        (count,) = connection.execute("SELECT count(*) FROM rollouts").fetchone()
        if count <= MAX_GROUPS and size <= MAX_BYTES:
            return size
        last = 0
        for number, freed in connection.execute("SELECT id, size FROM rollouts ORDER BY id").fetchall():
            if count <= MAX_GROUPS and size <= MAX_BYTES:
                break
            last, count, size = number, count - 1, size - freed
        connection.execute("DELETE FROM rollouts WHERE id <= ?", (last,))
        return size

    def _open(self) -> sqlite3.Connection:
        """Raises sqlite3.Error. A file that is no database, or another's, is removed."""
        if self._connection is None:
            try:
                self._connection = _connected(self.path)
            except sqlite3.OperationalError:  # locked, or no space: no reason to remove it
                raise
            except sqlite3.DatabaseError as error:
                logger.warning("%s is begun anew: %s", self.path, error)
                for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                    self.path.with_name(name).unlink(missing_ok=True)
                self._connection = _connected(self.path)
            self._measure()
        return self._connection

    def _measure(self) -> None:
        if self._connection is not None:
            (self._size,) = self._connection.execute("SELECT coalesce(sum(size), 0) FROM rollouts").fetchone()

    @contextlib.contextmanager
    def _surviving(self) -> Generator[None]:
        """A failure is a warning and a pause: it costs people a look, and the run nothing."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            logger.warning("attempts are not kept in %s for %g s: %s", self.path, REST_SECONDS, error)
            self._resting_until = self._clock() + REST_SECONDS
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()


def read_page(
    folder: Path, *, before: int | None = None, limit: int = 50, peer: str | None = None, own: bool | None = None
) -> RolloutPage:
    """The newest groups with an id below `before`, of one peer or of one side only. No file: an empty page.

    Raises UnreadableError.
    """
    conditions = {"id < ?": before, "peer = ?": peer, "mine = ?": own}
    given = {condition: value for condition, value in conditions.items() if value is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    with _reading(folder / FILE) as connection:
        if connection is None:
            return RolloutPage(rollouts=[], older=None)
        rows = connection.execute(
            f"SELECT id, line FROM rollouts {where} ORDER BY id DESC LIMIT ?", (*given.values(), limit + 1)
        ).fetchall()
        lines = [_numbered(msgspec.json.decode(line, type=RolloutLine), number) for number, line in rows[:limit]]
    return RolloutPage(rollouts=lines, older=lines[-1].id if len(rows) > limit else None)


def read_rollout(folder: Path, number: int) -> Rollout | None:
    """None: there is none of this id, or no more. Raises UnreadableError."""
    with _reading(folder / FILE) as connection:
        row = connection and connection.execute("SELECT body FROM rollouts WHERE id = ?", (number,)).fetchone()
        if not row:
            return None
        rollout = msgspec.json.decode(row[0], type=Rollout)
    return msgspec.structs.replace(rollout, line=_numbered(rollout.line, number))


def _numbered(line: RolloutLine, number: int) -> RolloutLine:
    return msgspec.structs.replace(line, id=number)


def _connected(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        for setting in ("synchronous=OFF", "wal_autocheckpoint=256", f"journal_size_limit={MAX_WRITE}"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute(f"PRAGMA max_page_count={MAX_PAGES}")
        connection.executescript(SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection | None]:
    """None where there is no file. Raises UnreadableError."""
    if not path.is_file():
        yield None
        return
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        ) as connection:
            yield connection
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
