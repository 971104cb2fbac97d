"""Which runs there are below a folder, and the names by which the API knows them."""

import contextlib
import hashlib
import re
from pathlib import Path

from codezero.monitor.monitor import NODE_FILE
from codezero.monitor.store import FILE_NAME, parse
from codezero.run_folder import LABEL

KEY = r"[A-Za-z0-9_-][A-Za-z0-9._~-]{0,199}"
"""What a run is called in the API: its path below the base, with ~ between the parts."""
MAX_RUNS = 200
LAST_BYTES = 1 << 17
"""Read from the end of the metrics to find their last row."""


def find_runs(base: Path) -> dict[str, Path]:
    """Folder of each run by its key, the one written last first, at most MAX_RUNS; or `base` itself if it is a run.

    Nothing else is ever opened: a key is looked up here, and not made into a path.
    """
    if _is_run(base):
        return {key_of(base.resolve().name): base}
    found = {
        path.parent for file in (LABEL, NODE_FILE) for depth in ("*", "*/*") for path in base.glob(f"{depth}/{file}")
    }
    newest = sorted(found, key=lambda folder: (-touched(folder), folder))[:MAX_RUNS]
    return {key_of(folder.relative_to(base).as_posix()): folder for folder in newest}


def key_of(path: str) -> str:
    """Of a path below the base. What a key cannot have is replaced, with a digest so that no two runs get the same."""
    key = path.replace("/", "~")
    if "~" not in path and re.fullmatch(KEY, key):
        return key
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"run-{re.sub(r'[^A-Za-z0-9._-]', '-', path)[:160]}-{digest}"


def touched(folder: Path) -> float:
    """When the run wrote last, in seconds since 1970; 0 when it cannot be told."""
    times = [0.0]
    for name in (FILE_NAME, NODE_FILE, LABEL):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)


def last_iteration(folder: Path) -> int | None:
    """Of the metrics' last whole row; None while there is none."""
    try:
        with (folder / FILE_NAME).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - LAST_BYTES))
            *lines, _torn = stream.read(LAST_BYTES).split(b"\n")
    except OSError:
        return None
    rows = (parse(line) for line in reversed(lines))
    row = next((row for row in rows if row is not None), None)
    return None if row is None else int(row["iteration"] or 0)


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (LABEL, NODE_FILE, FILE_NAME))
