"""node.json and supervisor.json of a run folder: which process wrote them, what it reports, and whether it lives."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from codezero.system.files import read_json, write_atomic

SUPERVISOR_FILE = "supervisor.json"
"""In the run folder."""


class ProcessReport(msgspec.Struct, frozen=True):
    """What a process reports of itself; the defaults stand for what it has not written."""

    pid: int = 0
    start_ticks: int | None = None
    stopped: str | None = None
    """Why it ended; None: it runs, or was killed."""
    peer_id: str = ""
    began: float | None = None
    """Seconds since 1970."""
    facts: dict[str, str] = {}
    stand_ins: str = ""
    time: float = 0.0
    """Of a supervisor's words, in seconds since 1970."""
    words: str = ""
    """What becomes of the node that died."""
    last: bool = False
    """The supervisor has given the node up and ends."""

    @property
    def alive(self) -> bool:
        """Is the process that wrote this still there, and has not reported its end?"""
        return self.pid > 0 and self.stopped is None and is_there(self.pid, self.start_ticks)


def start_of(pid: int) -> int | None:
    """When a process began, in clock ticks since the boot, whatever the clock shows; None: unknown."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def is_there(pid: int, start: int | None = None) -> bool:
    """Is there such a process, and where `start` is known, the same one? Numbers are reused; a zombie is gone."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return _stat(pid)[:1] not in (["Z"], ["X"]) and (start is None or start_of(pid) in (None, start))


def write_process(path: Path, report: Mapping[str, object]) -> None:
    """This process and its report; at once or not at all. Raises OSError."""
    pid = os.getpid()
    write_atomic(path, json.dumps({**report, "pid": pid, "start_ticks": start_of(pid)}) + "\n")


def read_process(path: Path) -> ProcessReport:
    """The newest report; that of nobody while there is none, or it cannot be read."""
    try:
        return read_json(path, ProcessReport, 16_384)
    except (OSError, ValueError):
        return ProcessReport()


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) from the state on; empty where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def supervisor_words(folder: Path, node: ProcessReport) -> str:
    """The supervisor's report on the node of node.json; empty for an older one, or of a supervisor that died."""
    report = read_process(folder / SUPERVISOR_FILE)
    return report.words if report.time >= (node.began or 0.0) and (report.last or report.alive) else ""
