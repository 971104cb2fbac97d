"""Files in which a process tells of itself: node.json and supervisor.json of a run folder.

Is it still there? Its number alone does not say: numbers are given again.

What `--supervise` says while it has no node running, in a file for whoever asks how the run is.
"""

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
    """When a process began, in clock ticks since the machine did, whatever the clock says; None: it cannot be told."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def is_there(pid: int, start: int | None = None) -> bool:
    """Is there such a process, and where `start` is known, is it still the same one? One that only waits for its
    parent to notice its end is not."""
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


def write_process(path: Path, told: Mapping[str, Any]) -> None:
    """This process, and what else it tells; at once or not at all. Raises OSError."""
    own = {"pid": os.getpid(), "start_ticks": start_of(os.getpid())}
    write_atomic(path, json.dumps({**told, **own}) + "\n")


def read_process(path: Path) -> dict[str, Any]:
    """What the newest process told; empty while that cannot be read."""
    try:
        with path.open("rb") as stream:
            raw = json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}


def alive(told: Mapping[str, Any]) -> bool:
    """Is the process that told this still there, and has not said that it stopped?"""
    pid, start = told.get("pid"), told.get("start_ticks")
    if not isinstance(pid, int) or pid <= 0 or told.get("stopped") is not None:
        return False
    return is_there(pid, start if isinstance(start, int) else None)


def _stat(pid: int) -> list[str]:
    """What proc(5) tells from the state on; empty where there is no /proc."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


SUPERVISOR_FILE = "supervisor.json"
"""In the run folder."""


def tell(folder: Path, words: str, *, last: bool) -> None:
    """last: it will do nothing more. Raises OSError."""
    write_process(folder / SUPERVISOR_FILE, {"time": time.time(), "words": words, "last": last})


def heard(folder: Path, node: Mapping[str, Any]) -> str:
    """What it said after the node that the run's node.json tells of began.

    Empty: nothing, or it is gone itself and what it said will not come about.
    """
    told = read_process(folder / SUPERVISOR_FILE)
    words, said, began = told.get("words"), told.get("time"), node.get("began")
    if not isinstance(words, str) or not isinstance(said, int | float):
        return ""
    outdated = isinstance(began, int | float) and said < began
    return "" if outdated or not (told.get("last") is True or alive(told)) else words
