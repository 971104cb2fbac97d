"""One pass over a run's folder -> `RunSummary`, a line for lists of runs in the terminal and on the page."""

import contextlib
import time
from pathlib import Path

from codezero.monitor.health import limit_seconds
from codezero.monitor.metrics_file import FILE_NAME, LABEL, NODE_FILE, number, whole
from codezero.monitor.run_state import Fold, History
from codezero.monitor.run_types import MAX_TREND, RunPhase, RunSummary
from codezero.monitor.text import readable_name
from codezero.system.pidfile import ProcessReport, read_process
from codezero.system.signals import FAILED

MAX_BYTES = 1 << 19
"""Read of the metrics at first: their beginning, where the start value is, and their newest rows."""


def touched(folder: Path) -> float:
    """When the run wrote last, in seconds since 1970; 0 when it cannot be told."""
    times = [0.0]
    for name in (FILE_NAME, NODE_FILE, LABEL):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)


def summarise_run(folder: Path, key: str = "", *, history: History | None = None) -> RunSummary:
    """key: the run's name in the API. history: of an earlier call, which reads only what was written since.

    A file that cannot be read counts as empty; nothing raises.
    """
    node, history = read_process(folder / NODE_FILE), history or History(folder, budget=MAX_BYTES)
    with contextlib.suppress(OSError):
        history.read()
    fold = history.fold
    last = fold.exams[-1] if fold.exams else None
    same = [exam for exam in fold.exams if last and (exam.source, exam.samples) == (last.source, last.samples)]
    averages = [exam.average for exam in same]
    return RunSummary(
        run=key or folder.name,
        name=readable_name(node.peer_id) if node.peer_id else "unknown",
        running=node.alive,
        iteration=whole(fold.last, "iteration"),
        updated=touched(folder) or None,
        state=_status(node, fold),
        fleet=key.rpartition("~")[0],
        samples=last and last.samples,
        source=last.source if last else "",
        start=averages[0] if averages else None,
        now=last and last.average,
        low=last and last.low,
        high=last and last.high,
        delta=averages[-1] - averages[0] if len(averages) > 1 else None,
        reward=fold.newest("reward/mean"),
        sparkline=_thinned(averages),
    )


def _status(node: ProcessReport, fold: Fold) -> RunPhase:
    if node.alive:
        updated = number(fold.last, "time") or 0.0
        begun = updated >= (node.began or 0.0)  # the newest row is of this process
        limit = limit_seconds(not begun, fold.step_seconds, fold.newest("eval/seconds"))
        return "stalled" if time.time() - max(updated, node.began or 0.0) > limit else "running"
    if node.stopped is None:
        return "unknown" if node.began is None else "gone"
    return "failed" if node.stopped == FAILED else "ended"


def _thinned(values: list[float]) -> list[float]:
    """At most MAX_TREND of them, evenly, with the first and the last."""
    if len(values) <= MAX_TREND:
        return values
    return [values[round(place * (len(values) - 1) / (MAX_TREND - 1))] for place in range(MAX_TREND)]
