"""What the API reads: the runs below a folder, their files, and the leaderboard. Its methods block, in any thread."""

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from codezero.errors import CodeZeroError, UnreadableError
from codezero.monitor.metrics_file import FILE_NAME, LABEL, parse
from codezero.monitor.monitor import NODE_FILE
from codezero.monitor.rollouts_db import read_page, read_rollout
from codezero.monitor.run_types import MAX_PEERS, BoardLine, Leaderboard, Rollout, RolloutPage, RunLine, Runs, RunView
from codezero.monitor.text import readable_name
from codezero.system.pidfile import read_process

KEY = r"[A-Za-z0-9_-][A-Za-z0-9._~-]{0,199}"
"""What a run is called in the API: its path below the base, with ~ between the parts."""
MAX_RUNS = 200
LAST_BYTES = 1 << 17
"""Read from the end of the metrics to find their last row."""
FOLLOWED = 24
"""Runs whose place in their metrics is kept, the most recently requested ones."""
WATCHED = 16
"""Running nodes that health and Prometheus cover."""
GLANCE = 4 << 20
"""Bytes of metrics that are read while a request waits."""
PATIENCE = 1.0
"""Seconds that a request waits for more."""
LOOK_SECONDS = 1.0
"""For which the list of folders holds."""
BOARD_SECONDS = 30.0
"""Between two reads of the chain."""
BOARD_WAIT_SECONDS = 5.0
"""That a request waits for the first read; a long chain takes longer, and is shown at a later request."""
BEING_READ = "the chain is being read; look again in a moment"
FAILED = "the chain could not be read; see the log"
MOST = 2**53 - 1
"""Points beyond are shown as this: a peer may claim any number of points."""

logger = logging.getLogger(__name__)


def find_runs(base: Path) -> dict[str, Path]:
    """Folder of each run by its key, the one written last first, at most MAX_RUNS; or `base` itself if it is a run.

    Nothing else is ever opened: a key is looked up here, and not made into a path.
    """
    if _is_run(base):
        return {key_of(base.resolve().name): base}
    folders = {
        path.parent for file in (LABEL, NODE_FILE) for depth in ("*", "*/*") for path in base.glob(f"{depth}/{file}")
    }
    newest = sorted(folders, key=lambda folder: (-touched(folder), folder))[:MAX_RUNS]
    return {key_of(folder.relative_to(base).as_posix()): folder for folder in newest}


def key_of(path: str) -> str:
    """Of a path below the base. What a key cannot have is replaced, with a digest so that no two runs get the same."""
    key = path.replace("/", "~")
    if "~" not in path and re.fullmatch(KEY, key):
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"run-{re.sub(r'[^A-Za-z0-9._-]', '-', path)[:160]}-{digest}"


def touched(folder: Path) -> float:
    """When the run wrote last, in seconds since 1970; 0 when it cannot be told."""
    times = [0.0]
    for name in (FILE_NAME, NODE_FILE, LABEL):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)


def last_iteration(folder: Path) -> int | None:
    """Of the metrics' last whole row; None while there is none."""
    try:
        with (folder / FILE_NAME).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - LAST_BYTES))
            *lines, _torn = stream.read(LAST_BYTES).split(b"\n")
    except OSError:
        return None
    rows = (parse(line) for line in reversed(lines))
    row = next((row for row in rows if row is not None), None)
    return None if row is None else int(row["iteration"] or 0)


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (LABEL, NODE_FILE, FILE_NAME))


class PeerStanding(Protocol):
    """One peer on the chain."""

    owner: str
    points: int
    rounds: int
    votes: int
    last_round: int


class ChainStandings(Protocol):
    @property
    def chain_id(self) -> int: ...
    @property
    def contract(self) -> str: ...
    @property
    def round(self) -> int: ...
    @property
    def peers(self) -> Mapping[str, PeerStanding]: ...


class LeaderboardCache:
    """Reads the chain in a thread, one read at a time. `read` raises CodeZeroError when the chain cannot be read."""

    def __init__(self, read: Callable[[], ChainStandings]) -> None:
        self._read, self._turn = read, threading.Lock()
        self._standings: ChainStandings | None = None
        self._problem, self._began = "", -BOARD_SECONDS
        self._done = threading.Event()
        """Nothing is being read."""
        self._done.set()

    def leaderboard(self, own: str) -> Leaderboard:
        """As read at most BOARD_SECONDS ago, or while the next read lasts. `own`: peer id of the run's node."""
        with self._turn:
            if self._done.is_set() and time.monotonic() - self._began >= BOARD_SECONDS:
                self._began = time.monotonic()
                self._done.clear()
                threading.Thread(target=self._work, name="leaderboard", daemon=True).start()
        if self._standings is None:
            self._done.wait(BOARD_WAIT_SECONDS)
        if self._standings is None:
            return Leaderboard(chain_id=None, contract="", round=None, peers=[], problem=self._problem or BEING_READ)
        return _ranked(self._standings, own, self._problem)

    def _work(self) -> None:
        problem = FAILED
        try:
            self._standings, problem = self._read(), ""
        except CodeZeroError as error:
            problem = " ".join(str(error).split())
            logger.info("leaderboard: %s", problem)
        finally:
            self._problem = problem
            self._done.set()


def _ranked(standings: ChainStandings, own: str, problem: str) -> Leaderboard:
    """Most points first; equal ones by votes, then by peer id."""
    ranked = sorted(standings.peers.items(), key=lambda entry: (-entry[1].points, -entry[1].votes, entry[0]))
    lines = [
        BoardLine(
            peer_id=peer,
            name=readable_name(peer),
            owner=standing.owner,
            points=max(-MOST, min(standing.points, MOST)),
            rounds=standing.rounds,
            votes=standing.votes,
            last_round=min(standing.last_round, MOST),
            own=peer == own,
        )
        for peer, standing in ranked[:MAX_PEERS]
    ]
    contract, current = standings.contract, min(standings.round, MOST)
    return Leaderboard(chain_id=standings.chain_id, contract=contract, round=current, peers=lines, problem=problem)


class Files(Protocol):
    """One run's files. For one thread at a time."""

    def unread(self) -> int:
        """Bytes that `view` will read."""
        ...

    def view(self, key: str) -> RunView:
        """Raises UnreadableError."""
        ...


class Follow(Protocol):
    """Begins to follow one run; with a budget only the beginning and the end of what it wrote are read."""

    def __call__(self, folder: Path, *, budget: int | None = None) -> Files: ...


class Followed:
    """A run that was asked for. While all that a long one wrote is being read, its beginning and end are shown."""

    def __init__(self, folder: Path, follow: Follow) -> None:
        self._folder, self._follow = folder, follow
        self._whole = follow(folder)
        self._turn, self._deciding = threading.Lock(), threading.Lock()
        self._caught_up = threading.Event()
        self._caught_up.set()

    def view(self, key: str) -> RunView:
        """Raises UnreadableError."""
        with self._deciding:
            if self._caught_up.is_set() and self._whole.unread() > GLANCE:
                self._caught_up.clear()
                threading.Thread(target=self._catch_up, args=(key,), name="page-history", daemon=True).start()
        if not self._caught_up.wait(PATIENCE):
            return self._follow(self._folder, budget=GLANCE).view(key)
        with self._turn:
            return self._whole.view(key)

    def _catch_up(self, key: str) -> None:
        try:
            with self._turn:
                self._whole.view(key)
        except UnreadableError as error:
            logger.info("%s", error)  # whoever asks next is told
        finally:
            self._caught_up.set()


class RunReader:
    """What the API shows of the runs below `base`, or of the one run that `base` is; from any thread.

    board: reads the chain; raises CodeZeroError where there is none.
    """

    def __init__(self, base: Path, follow: Follow, board: Callable[[], ChainStandings]) -> None:
        self._base, self._follow = base, follow
        self._boards = LeaderboardCache(board)
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._turn = threading.Lock()
        self._found: tuple[float, dict[str, Path]] = (0.0, {})

    def runs(self) -> Runs:
        return Runs(runs=[_line(key, folder) for key, folder in self._folders().items()])

    def view(self, key: str) -> RunView | None:
        """None: there is no such run. Raises UnreadableError."""
        folder = self._folders().get(key)
        if folder is None:
            return None
        with self._turn:
            followed = self._followed.pop(key, None) or Followed(folder, self._follow)
            self._followed[key] = followed
            while len(self._followed) > FOLLOWED:
                self._followed.popitem(last=False)
        return followed.view(key)

    def rollouts(
        self, key: str, *, before: int | None, limit: int, peer: str | None, own: bool | None
    ) -> RolloutPage | None:
        """None: there is no such run. Raises UnreadableError."""
        folder = self._folders().get(key)
        return folder and read_page(folder, before=before, limit=limit, peer=peer, own=own)

    def rollout(self, key: str, number: int) -> Rollout | None:
        """None: there is no such run or group, or no more. Raises UnreadableError."""
        folder = self._folders().get(key)
        return folder and read_rollout(folder, number)

    def leaderboard(self, key: str) -> Leaderboard | None:
        """None: there is no such run. What keeps the chain from being read is told in it."""
        folder = self._folders().get(key)
        return folder and self._boards.leaderboard(read_process(folder / NODE_FILE).peer_id)

    def watched(self) -> list[RunView]:
        """The run that wrote last, then the others that are running. Raises UnreadableError."""
        lines = self.runs().runs
        keys = [line.run for place, line in enumerate(lines) if place == 0 or line.running][:WATCHED]
        return [view for run in keys if (view := self.view(run)) is not None]

    def _folders(self) -> dict[str, Path]:
        """By key, the one written last first."""
        with self._turn:
            read_at, folders = self._found
            if not folders or time.monotonic() - read_at > LOOK_SECONDS:
                folders = find_runs(self._base)
                self._found = time.monotonic(), folders
            return folders


def _line(key: str, folder: Path) -> RunLine:
    node = read_process(folder / NODE_FILE)
    return RunLine(
        run=key,
        name=readable_name(node.peer_id) if node.peer_id else "unknown",
        running=node.alive,
        iteration=last_iteration(folder),
        updated=touched(folder) or None,
    )
