"""What the API reads: runs below a folder, their files and markets, and the leaderboard. All methods block."""

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codezero.errors import CodeZeroError, HttpRefusal
from codezero.monitor.metrics_file import FILE_NAME, LABEL, NODE_FILE
from codezero.monitor.run_state import History
from codezero.monitor.run_summary import MAX_BYTES, summarise_run, touched
from codezero.monitor.run_types import Leaderboard, Runs, RunSummary, RunView
from codezero.system.pidfile import read_process

KEY = r"[A-Za-z0-9_-][A-Za-z0-9._~-]{0,199}"
"""What a run is called in the API: its path below the base, with ~ between the parts."""
MAX_RUNS = 200
NOTHING = "there is no such run, or no such group or game in it any more"
ReadView = Callable[[str], RunView]
"""One run's view under its key. Raises UnreadableError."""

logger = logging.getLogger(__name__)


def find_runs(base: Path) -> dict[str, Path]:
    """Folder of each run by its key, the one written last first, at most MAX_RUNS; or `base` itself if it is a run.

    Nothing else is ever opened: a key is looked up here, and not made into a path.
    """
    if any((base / name).is_file() for name in (LABEL, NODE_FILE, FILE_NAME)):
        return {key_of(base.resolve().name): base}
    files = (path for depth in ("*", "*/*") for name in (LABEL, NODE_FILE) for path in base.glob(f"{depth}/{name}"))
    folders = {path.parent for path in files}
    newest = sorted(folders, key=lambda folder: (-touched(folder), folder))[:MAX_RUNS]
    return {key_of(folder.relative_to(base).as_posix()): folder for folder in newest}


def key_of(path: str) -> str:
    """Of a path below the base. What a key cannot have is replaced, with a digest so that no two runs get the same."""
    key = path.replace("/", "~")
    if "~" not in path and re.fullmatch(KEY, key):
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"run-{re.sub(r'[^A-Za-z0-9._-]', '-', path)[:160]}-{digest}"


class RunReader:
    """What the API shows of the runs below `base`, or of the one run that `base` is; from any thread.

    What takes a run's key raises HttpRefusal when there is no such run. follow: begins to follow a run's files; what it
    returns is for one thread at a time. read_board: reads the chain, without any own peer; raises CodeZeroError.
    parts: by its address below a run's, what reads a part of the run's folder, with what is asked by keyword; it gives
    None when there is no such thing, and raises UnreadableError.
    """

    def __init__(
        self,
        base: Path,
        follow: Callable[[Path], ReadView],
        read_board: Callable[[], Leaderboard],
        parts: Mapping[str, Callable[..., object]],
    ) -> None:
        self._base, self._read_board, self._parts = base, read_board, parts
        unread = "the chain is being read; look again in a moment"
        self._board = Leaderboard(chain_id=None, contract="", round=None, peers=[], problem=unread)
        self._turn = threading.Lock()
        self._listed: tuple[float, dict[str, Path]] = (0.0, {})

        @lru_cache(24)  # the runs requested last
        def followed(folder: Path) -> tuple[threading.Lock, ReadView]:
            return threading.Lock(), follow(folder)

        @lru_cache(24)
        def histories(folder: Path) -> tuple[threading.Lock, History]:
            return threading.Lock(), History(folder, budget=MAX_BYTES)

        self._followed, self._histories = followed, histories
        self._summaries: dict[Path, tuple[float, RunSummary]] = {}

    def runs(self) -> Runs:
        """Of a run whose files are as they were, nothing is read."""
        folders = self._folders()
        self._summaries = {folder: self._summary(key, folder) for key, folder in folders.items()}
        return Runs(runs=[summary for _, summary in self._summaries.values()])

    def view(self, key: str) -> RunView:
        """Raises UnreadableError."""
        return self._view(key, self._folder(key))

    def part(self, name: str, run: str, **which: Any) -> object:
        """What is asked for beside the view. Raises UnreadableError, and HttpRefusal when there is no such thing."""
        shown = self._parts[name](self._folder(run), **which)
        if shown is None:
            raise HttpRefusal(404, NOTHING)
        return shown

    def read_board(self) -> None:
        """Read the chain for `leaderboard`. For one thread at a time."""
        try:
            self._board = self._read_board()
        except CodeZeroError as error:
            problem = " ".join(str(error).split())
            logger.info("leaderboard: %s", problem)
            self._board = replace(self._board, problem=problem)

    def leaderboard(self, key: str) -> Leaderboard:
        """As last read, with what kept the chain from being read since."""
        own = read_process(self._folder(key) / NODE_FILE).peer_id
        peers = [replace(line, own=line.peer_id == own) for line in self._board.peers]
        return replace(self._board, peers=peers)

    def watched(self) -> list[RunView]:
        """The run that wrote last, then others that are running, 16 at most. Raises UnreadableError."""
        folders = self._folders()
        first = next(iter(folders), None)
        keys = [key for key, folder in folders.items() if key == first or read_process(folder / NODE_FILE).alive]
        return [self._view(key, folders[key]) for key in keys[:16]]

    def _view(self, key: str, folder: Path) -> RunView:
        turn, read_view = self._followed(folder)
        with turn:
            return read_view(key)

    def _summary(self, key: str, folder: Path) -> tuple[float, RunSummary]:
        """With when the run wrote last. A running one can stall or die without a word, and is read anew."""
        written = touched(folder)
        if (known := self._summaries.get(folder)) and known[0] == written and not known[1].running:
            return known
        turn, history = self._histories(folder)
        with turn:
            return written, summarise_run(folder, key, history=history)

    def _folder(self, key: str) -> Path:
        """Raises HttpRefusal."""
        folder = self._folders().get(key)
        if folder is None:
            raise HttpRefusal(404, NOTHING)
        return folder

    def _folders(self) -> dict[str, Path]:
        """By key, the one written last first; looked up once a second."""
        with self._turn:
            listed_at, folders = self._listed
            if not folders or time.monotonic() - listed_at > 1.0:
                folders = find_runs(self._base)
                self._listed = time.monotonic(), folders
            return folders
