"""Room on the disk: is there none, and was that why something could not be written?"""

import errno
import shutil
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
LEAST = 4 << 20
"""Bytes. Below this a disk counts as full: not even a small model's checkpoint fits."""


def lacks_room(error: Exception) -> bool:
    """Also of errors that other languages' libraries raise, which only say so."""
    return getattr(error, "errno", None) in FULL or any(f"(os error {number})" in str(error) for number in FULL)


def full(folder: Path) -> str:
    """What is wrong with the disk that a folder is on; empty: nothing, or it cannot be told."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= LEAST:
        return ""
    return f"the disk is full, {free / (1 << 20):.1f} MiB are left for {folder}: make room, and the run goes on"
