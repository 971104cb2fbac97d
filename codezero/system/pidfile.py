"""node.json and supervisor.json of a run folder: which process wrote them, what it reports, and whether it lives."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from codezero.system.files import write_atomic

PROC = Path("/proc")
MAX_BYTES = 16_384


def start_of(pid: int) -> int | None:
    """When a process began, in clock ticks since the boot, whatever the clock shows; None: unknown."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def is_there(pid: int, start: int | None = None) -> bool:
    """Is there such a process, and where `start` is known, the same one? Numbers are given again. A zombie is not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    fields = _stat(pid)
    if fields and fields[0] in ("Z", "X"):
        return False
    now = start_of(pid)
    return start is None or now is None or now == start


def write_process(path: Path, report: Mapping[str, Any]) -> None:
    """This process and its report; at once or not at all. Raises OSError."""
    own = {"pid": os.getpid(), "start_ticks": start_of(os.getpid())}
    write_atomic(path, json.dumps({**report, **own}) + "\n")


def read_process(path: Path) -> dict[str, Any]:
    """The newest report; empty while it cannot be read."""
    try:
        with path.open("rb") as stream:
            raw = json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}


def alive(report: Mapping[str, Any]) -> bool:
    """Is the process that wrote this still there, and has not reported its end?"""
    pid, start = report.get("pid"), report.get("start_ticks")
    if not isinstance(pid, int) or pid <= 0 or report.get("stopped") is not None:
        return False
    return is_there(pid, start if isinstance(start, int) else None)


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) from the state on; empty where there is no /proc."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


SUPERVISOR_FILE = "supervisor.json"
"""In the run folder."""


def write_supervisor(folder: Path, words: str, *, last: bool) -> None:
    """What becomes of the node that died; last: the supervisor ends. Raises OSError."""
    write_process(folder / SUPERVISOR_FILE, {"time": time.time(), "words": words, "last": last})


def supervisor_words(folder: Path, node: Mapping[str, Any]) -> str:
    """The supervisor's report on the node of node.json; empty for an older one, or of a supervisor that died."""
    report = read_process(folder / SUPERVISOR_FILE)
    words, written, began = report.get("words"), report.get("time"), node.get("began")
    if not isinstance(words, str) or not isinstance(written, int | float):
        return ""
    outdated = isinstance(began, int | float) and written < began
    return "" if outdated or not (report.get("last") is True or alive(report)) else words
