"""Reads for the API: runs below a folder, their files and markets, and the leaderboard. All methods block."""

import contextlib
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
from codezero.monitor.run_types import MAX_TREND, Leaderboard, RunPhase, Runs, RunSummary, RunView
from codezero.monitor.run_view import view_of
from codezero.system.child import read_process
from codezero.system.signals import FAILED

KEY = r"[A-Za-z0-9_-][A-Za-z0-9._~-]{0,199}"  # a run's name in the API: its path below the base, ~ between its parts
FILES = (FILE_NAME, NODE_FILE, LABEL)  # each makes a folder a run
MAX_RUNS = 200
MAX_BYTES = 1 << 19  # read of the metrics for a list, at first: their beginning, with the first exam, and newest rows
NOTHING = "there is no such run, or no such group or game in it any more"
ReadView = Callable[[str], RunView]  # one run's view under its key; raises UnreadableError

logger = logging.getLogger(__name__)


def touched(folder: Path) -> float:
    """When the run wrote last, in seconds since 1970; 0 when it cannot be told."""
    times = [0.0]
    for name in FILES:
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)


def summarise_run(folder: Path, key: str, history: History) -> RunSummary:
    """key: the run's name in the API. history: only what was written since its last call is read. A file that cannot be
    read counts as empty; nothing raises."""
    with contextlib.suppress(OSError):
        history.read()
    view = view_of(history.fold, read_process(folder / NODE_FILE), key, curves=())
    last = view.exams[-1] if view.exams else None
    averages = [exam.average for exam in view.exams if last and exam.label == last.label]
    step = (len(averages) - 1) / (MAX_TREND - 1)
    trend = [averages[round(place * step)] for place in range(MAX_TREND)] if step > 1 else averages
    return RunSummary(
        run=view.run,
        name=view.name,
        running=view.running,
        iteration=view.iteration,
        updated=touched(folder) or None,
        state=_phase(view),
        fleet=key.rpartition("~")[0],
        samples=last and last.samples,
        source=last.source if last else "",
        start=averages[0] if averages else None,
        now=last and last.average,
        low=last and last.low,
        high=last and last.high,
        delta=averages[-1] - averages[0] if len(averages) > 1 else None,
        reward=view.reward,
        sparkline=trend,
    )


def _phase(view: RunView) -> RunPhase:
    if view.running:
        silent = time.time() - max(view.updated or 0.0, view.began or 0.0)
        return "stalled" if silent > view.limit_seconds else "running"
    if not view.stopped:
        return "unknown" if view.began is None else "gone"
    return "failed" if view.stopped == FAILED else "ended"


def find_runs(base: Path) -> dict[str, Path]:
    """Folder of each run by its key, the one written last first, at most MAX_RUNS; or `base` itself if it is a run.
    Nothing else is ever opened: a key is looked up here, and not made into a path."""
    if any((base / name).is_file() for name in FILES):
        return {key_of(base.resolve().name): base}
    files = (path for depth in ("*", "*/*") for name in (LABEL, NODE_FILE) for path in base.glob(f"{depth}/{name}"))
    folders = {path.parent for path in files}
    newest = sorted(folders, key=lambda folder: (-touched(folder), folder))[:MAX_RUNS]
    return {key_of(folder.relative_to(base).as_posix()): folder for folder in newest}


def key_of(path: str) -> str:
    """Name a path below the base. What no key can have is replaced, with a digest, so that no two are named alike."""
    key = path.replace("/", "~")
    if "~" not in path and re.fullmatch(KEY, key):
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"run-{re.sub(r'[^A-Za-z0-9._-]', '-', path)[:160]}-{digest}"


class RunReader:
    """Reads what the API shows of the runs below `base`, or of the one run that `base` is; from any thread.

    What takes a run's key raises HttpRefusal when there is no such run. follow: begins to follow a run's files; what it
    returns is for one thread at a time. read_board: reads the chain, without any own peer; raises CodeZeroError.
    parts: by its address below a run's, what reads a part of the run's folder, with what is asked by keyword; it gives
    None when there is no such thing, and raises UnreadableError."""

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

        @lru_cache(24)  # the runs requested last
        def followed(folder: Path) -> tuple[threading.Lock, ReadView]:
            return threading.Lock(), follow(folder)

        @lru_cache(24)
        def histories(folder: Path) -> tuple[threading.Lock, History]:
            return threading.Lock(), History(folder, budget=MAX_BYTES)

        self._followed, self._histories = followed, histories
        self._summaries: dict[Path, tuple[float, RunSummary]] = {}

    def runs(self) -> Runs:
        """Summarise all runs; nothing is read of one whose files are as they were."""
        folders = find_runs(self._base)
        self._summaries = {folder: self._summary(key, folder) for key, folder in folders.items()}
        return Runs(runs=[summary for _, summary in self._summaries.values()])

    def view(self, key: str) -> RunView:
        """Raises UnreadableError."""
        return self._view(key, self._folder(key))

    def part(self, name: str, run: str, **which: Any) -> object:
        """Read a part beside the view. Raises UnreadableError, and HttpRefusal when there is no such thing."""
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
        """Return it as last read, with what kept the chain from being read since."""
        own = read_process(self._folder(key) / NODE_FILE).peer_id
        peers = [replace(line, own=line.peer_id == own) for line in self._board.peers]
        return replace(self._board, peers=peers)

    def watched(self) -> list[RunView]:
        """The run that wrote last, then others that are running, 16 at most. Raises UnreadableError."""
        folders = find_runs(self._base)
        first = next(iter(folders), None)
        keys = [key for key, folder in folders.items() if key == first or read_process(folder / NODE_FILE).alive]
        return [self._view(key, folders[key]) for key in keys[:16]]

    def _view(self, key: str, folder: Path) -> RunView:
        turn, read_view = self._followed(folder)
        with turn:
            return read_view(key)

    def _summary(self, key: str, folder: Path) -> tuple[float, RunSummary]:
        """Return when the run wrote last, too. A running one can stall or die without a word, and is read anew."""
        written = touched(folder)
        if (known := self._summaries.get(folder)) and known[0] == written and not known[1].running:
            return known
        turn, history = self._histories(folder)
        with turn:
            return written, summarise_run(folder, key, history)

    def _folder(self, key: str) -> Path:
        folder = find_runs(self._base).get(key)
        if folder is None:
            raise HttpRefusal(404, NOTHING)
        return folder
