"""What `--supervise` says while it has no node running, in a file for whoever asks how the run is."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codezero.processes import alive, read_process, write_process

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
