"""Is a process that a file tells of still there? Its number alone does not say: numbers are given again."""

import os
from pathlib import Path

PROC = Path("/proc")


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


def _stat(pid: int) -> list[str]:
    """What proc(5) tells from the state on; empty where there is no /proc."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
