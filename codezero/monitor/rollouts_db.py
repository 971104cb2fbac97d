"""`rollouts.db`: a sample of the newest judged groups of a run, own and peers', for people to look at.

Its number and size are bounded, and texts are cut. Nothing depends on it: what cannot be written is left out with a
warning, and a broken file is replaced. WAL without fsync: it survives kill -9, not always a power cut."""

import contextlib
import itertools
import logging
import math
import random
import sqlite3
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from codezero.config.learning import measured_level
from codezero.errors import UnreadableError, translated
from codezero.monitor.run_types import Rollout, RolloutLine, RolloutPage, ShownVerdict
from codezero.monitor.text import readable_name
from codezero.system.files import open_database
from codezero.types import ScoredGroup, Status

Kept = TypeVar("Kept", Rollout, RolloutLine)
logger = logging.getLogger(__name__)

FILE = "rollouts.db"
MAX_TEXT, MAX_QUESTION = 16_384, 8_192  # bytes of an attempt, and of a question
MAX_ATTEMPTS = 64
SCORES = ("reward", "correctness", "structure", "adherence", "format", "cap")
MAX_GROUPS = 600
MAX_BYTES = 18 << 20  # of what is kept; with SQLite's own needs and its log the files stay below 32 MiB
MAX_PAGES = 24 << 8  # of 4 KiB: 24 MiB, whatever goes wrong
MAX_WRITE = 2 << 20  # bytes written at once, unless a single group is larger
PER_SECOND, BURST = 2.0, 32  # groups kept a second when there are many, and at once after a pause
REST_SECONDS = 60.0  # from a failure to the next attempt
BUSY_SECONDS = 2.0
SCHEMA = f"""
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
PRAGMA wal_autocheckpoint=256;
PRAGMA journal_size_limit={MAX_WRITE};
CREATE TABLE IF NOT EXISTS rollouts(
    id INTEGER PRIMARY KEY AUTOINCREMENT, iteration INTEGER NOT NULL, peer TEXT NOT NULL, mine INTEGER NOT NULL,
    size INTEGER NOT NULL, line BLOB NOT NULL, body BLOB NOT NULL
);
"""
# keeps the newest of so many groups and bytes
MAKE_ROOM = """
DELETE FROM rollouts WHERE id <= (SELECT max(id) FROM (
    SELECT id, row_number() OVER newest AS place, sum(size) OVER newest AS total
    FROM rollouts WINDOW newest AS (ORDER BY id DESC)
) WHERE place > ? OR total > ?)
"""
OF_LEVEL = "json_extract(CAST(line AS TEXT), '$.level') = ?"
WITH_STATUS = (
    "EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.attempts') WHERE json_extract(value, '$.status') = ?)"
)


class RolloutStore:
    """The writer's side; one process at a time, and one thread. No method raises when the file cannot be written."""

    def __init__(self, folder: Path, me: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`me`: own peer id. Opens nothing yet."""
        self.path = folder / FILE
        self._me, self._clock = me, clock
        self._connection: sqlite3.Connection | None = None
        self._since = -math.inf  # from when on groups have been free to be kept, PER_SECOND; later than now: it rests
        self._chance = random.Random(me)

    def begin(self, iteration: int) -> None:
        """Go on after `iteration`: what was kept of later ones is of a crashed future."""
        with self._surviving():
            self._open().execute("DELETE FROM rollouts WHERE iteration > ?", (iteration,))

    def add(self, iteration: int, judged: Sequence[ScoredGroup]) -> None:
        """Keep some of the groups, chosen by chance, own and peers' in turn; the oldest kept ones make room."""
        now = self._clock()
        self._since = max(self._since, now - BURST / PER_SECOND)
        room = int(PER_SECOND * (now - self._since))
        if not judged or room < 1:
            return
        places = {True: itertools.count(), False: itertools.count()}
        mixed = self._chance.sample(judged, len(judged))
        in_turn = sorted(mixed, key=lambda scored: next(places[scored.group.peer_id == self._me]))
        with self._surviving():
            self._write(self._open(), iteration, in_turn[:room])

    def close(self) -> None:
        """The file is whole by itself afterwards, without the log of the last writes."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with self._surviving():
                connection.close()

    def _write(self, connection: sqlite3.Connection, iteration: int, chosen: Sequence[ScoredGroup]) -> None:
        rows, written = list[tuple[int, str, bool, int, bytes, bytes]](), 0
        for scored in chosen:
            rollout = shown(scored, iteration=iteration, own=scored.group.peer_id == self._me)
            line, body = msgspec.json.encode(rollout.line), msgspec.json.encode(rollout)
            size = len(line) + len(body)
            if rows and written + size > MAX_WRITE:
                break
            written += size
            rows.append((iteration, rollout.line.peer_id, rollout.line.own, size, line, body))
        connection.execute("BEGIN IMMEDIATE")
        insert = "INSERT INTO rollouts(iteration, peer, mine, size, line, body) VALUES(?, ?, ?, ?, ?, ?)"
        connection.executemany(insert, rows)
        connection.execute(MAKE_ROOM, (MAX_GROUPS, MAX_BYTES))
        connection.execute("COMMIT")
        self._since += len(rows) / PER_SECOND

    def _open(self) -> sqlite3.Connection:
        """Raises sqlite3.Error. A file that is no database, or another's, is removed."""
        script = f"{SCHEMA} PRAGMA max_page_count={MAX_PAGES};"
        open_anew = partial(open_database, self.path, script, seconds=BUSY_SECONDS, isolation_level=None)
        try:
            self._connection = self._connection or open_anew()
        except sqlite3.OperationalError:  # locked, or no space: no reason to remove it
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("%s is begun anew: %s", self.path, error)
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                self.path.with_name(name).unlink(missing_ok=True)
            self._connection = open_anew()
        return self._connection

    @contextlib.contextmanager
    def _surviving(self) -> Generator[None]:
        """Turn a failure into a warning and a pause: it only hides rollouts from the page."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            logger.warning("attempts are not kept in %s for %g s: %s", self.path, REST_SECONDS, error)
            self._since = self._clock() + REST_SECONDS
            self.close()


def shown(scored: ScoredGroup, *, iteration: int, own: bool) -> Rollout:
    """Make what is shown of a group, with id 0: who keeps it gives it one."""
    group, problem = scored.group, scored.group.problem
    attempts = list[ShownVerdict]()
    for completion, verdict in zip(group.completions[:MAX_ATTEMPTS], scored.verdicts[:MAX_ATTEMPTS], strict=True):
        known = verdict.status is not Status.UNAVAILABLE  # where nothing could be told, a score is None and not zero
        scores = {name: getattr(verdict, name) for name in SCORES}
        attempt = ShownVerdict(
            text=_beginning(completion.text, MAX_TEXT),
            status=verdict.status.value,
            **{name: round(value, 4) if known and math.isfinite(value) else None for name, value in scores.items()},
            reasons=[_beginning(reason, 512) for reason in verdict.reasons[:16]],
            finished=completion.finished,
            cut=len(completion.text) > len(_beginning(completion.text, MAX_TEXT)),
        )
        attempts.append(attempt)
    question = _beginning(problem.question, MAX_QUESTION)
    line = RolloutLine(
        id=0,
        iteration=iteration,
        round=group.round,
        peer_id=group.peer_id,
        peer_name=readable_name(group.peer_id),
        own=own,
        question=question[:200],
        source=problem.source,
        level=problem.level,
        rewards=[attempt.reward for attempt in attempts],
    )
    tests = [_beginning(test, 2_048) for test in problem.tests[:24]]
    return Rollout(line=line, problem_id=problem.id, question=question, tests=tests, attempts=attempts)


def _beginning(text: str, most: int) -> str:
    """At most `most` bytes of UTF-8, whole characters; what cannot be encoded becomes a question mark."""
    return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def read_page(
    folder: Path,
    *,
    before: int | None = None,
    limit: int = 50,
    peer: str | None = None,
    own: bool | None = None,
    level: int | None = None,
    status: str | None = None,
) -> RolloutPage:
    """The newest groups with an id below `before`, of one peer or side, of one level, or with an attempt of a status.
    None without a file. Raises UnreadableError."""
    conditions = {"id < ?": before, "peer = ?": peer, "mine = ?": own, OF_LEVEL: level, WITH_STATUS: status}
    given = {condition: value for condition, value in conditions.items() if value is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    query = f"SELECT id, line FROM rollouts {where} ORDER BY id DESC LIMIT ?"
    kept = _read(folder / FILE, RolloutLine, query, *given.values(), limit + 1)
    lines = [msgspec.structs.replace(line, id=number) for number, line in kept[:limit]]
    return RolloutPage(rollouts=lines, older=lines[-1].id if len(kept) > limit else None)


def read_rollout(folder: Path, number: int) -> Rollout | None:
    """None: there is none of this id, or no more. Raises UnreadableError."""
    for _, rollout in _read(folder / FILE, Rollout, "SELECT id, body FROM rollouts WHERE id = ?", number):
        return msgspec.structs.replace(rollout, line=msgspec.structs.replace(rollout.line, id=number))
    return None


def measured_levels(folder: Path) -> dict[str, list[int]]:
    """Count, by source, its problems without a level at each level, the lowest first, as own attempts were scored. They
    rate no proposal: what success defines cannot foretell it. Empty where nothing can be read."""
    successes: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    levels: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 5)
    with contextlib.suppress(UnreadableError):
        for _, rollout in _read(folder / FILE, Rollout, "SELECT id, body FROM rollouts WHERE mine"):
            if rollout.line.level is None:
                successes[rollout.line.source, rollout.problem_id] += [
                    attempt.correctness
                    for attempt in rollout.attempts
                    if attempt.status in (Status.JUDGED, Status.CERTAIN_FAILURE) and attempt.correctness is not None
                ]
    for (source, _), values in successes.items():
        if values:
            levels[source][measured_level(statistics.fmean(values)) - 1] += 1
    return dict(levels)


def _read(path: Path, kind: type[Kept], query: str, *values: int | str) -> list[tuple[int, Kept]]:
    """Return what the query finds, with its ids; nothing where there is no file. Raises UnreadableError."""
    if not path.is_file():
        return []
    with translated(UnreadableError, f"{path} cannot be read", sqlite3.Error, msgspec.MsgspecError):
        with contextlib.closing(open_database(path, seconds=BUSY_SECONDS)) as connection:
            rows = connection.execute(query, values).fetchall()
        return [(number, msgspec.json.decode(encoded, type=kind)) for number, encoded in rows]
