"""The process that handles the key leaves no picture of its memory, and shows it to no process of the same user."""

import ctypes
import logging
import resource
import sys

logger = logging.getLogger("codezero.login")

PR_SET_DUMPABLE = 4


def harden() -> None:
    """No core dumps; on Linux, no ptrace and no /proc/PID/environ or mem either. Not against root."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("this process could not be hidden from others of this user")
