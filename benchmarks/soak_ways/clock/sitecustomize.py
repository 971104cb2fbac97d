"""For `soak.py`: every Python process that finds this on its path reads a clock that can be moved while it runs.

The file that SOAK_CLOCK names holds one double: the seconds to add to `time.time()` and `time.time_ns()`. What does not
ask Python's `time` keeps the machine's clock: file times, SQLite, the peer-to-peer daemon (Go)."""

import mmap
import os
import struct
import time
from collections.abc import Callable

AHEAD = struct.Struct("d")


def move(path: str) -> None:
    with open(path, "rb") as file:
        shown = mmap.mmap(file.fileno(), AHEAD.size, access=mmap.ACCESS_READ)
    seconds: Callable[[], float] = time.time
    nanoseconds: Callable[[], int] = time.time_ns
    time.time = lambda: seconds() + AHEAD.unpack_from(shown)[0]
    time.time_ns = lambda: nanoseconds() + int(AHEAD.unpack_from(shown)[0]) * 10**9


if "SOAK_CLOCK" in os.environ:
    move(os.environ["SOAK_CLOCK"])
