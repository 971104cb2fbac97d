"""`codezero runs`: the runs below a folder, a line each, and two or more of them side by side.

From their files alone, within bounds. A run that cannot be read is a line that says why.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from codezero.errors import ConfigError, UnreadableError, translated
from codezero.inspection.run_details import read_settings
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE
from codezero.monitor.reader import MAX_BYTES, find_runs, summarise_run
from codezero.monitor.run_state import History
from codezero.monitor.run_types import RunSummary
from codezero.monitor.text import clean, count, duration, measured, percent
from codezero.runs import read_label
from codezero.system.child import read_process

MAX_COMPARED = 8


class ListedRun(RunSummary, frozen=True, kw_only=True):
    folder: str
    learns: str  # what it learns on; empty: it has not said
    exam: str
    problem: str  # why it cannot be read; empty: it can


class Comparison(msgspec.Struct, frozen=True):
    runs: list[ListedRun]
    settings: dict[str, list[str | None]]  # JSON of each run, by key, where they differ; None: not recorded


def list_runs(base: Path, limit: int) -> tuple[list[ListedRun], int]:
    """The newest `limit`, and how many more there are, as far as they were looked for. Raises ConfigError for none."""
    folders = find_runs(base)
    if not folders:
        raise ConfigError(f"there is no run below {base}; start one with `codezero run`, or name another folder")
    return [read_line(path, key) for key, path in list(folders.items())[:limit]], max(0, len(folders) - limit)


def compare_runs(base: Path, names: Sequence[str]) -> Comparison:
    """names: below `base`, or folders. Raises ConfigError."""
    if len(names) > MAX_COMPARED:
        raise ConfigError(f"{len(names)} runs do not fit beside each other; name {MAX_COMPARED} at most")
    folders = [find_run(base, name) for name in names]
    settings: list[dict[str, str]] = []
    for folder in folders:
        settings.append({})
        with contextlib.suppress(UnreadableError):
            settings[-1].update((line.key, line.value) for line in read_settings(folder).settings)
    no_choice = {"run.name", "run.directory", "run.logs"}  # say nothing of what was tried
    keys = sorted({key for each in settings for key in each} - no_choice)
    rows = {key: [each.get(key) for each in settings] for key in keys}
    differing = {key: values for key, values in rows.items() if len(set(values)) > 1}
    return Comparison([read_line(path, name) for path, name in zip(folders, names, strict=True)], differing)


def find_run(base: Path, name: str) -> Path:
    """`name` below `base`, or a run's folder. Raises ConfigError."""
    for path in (base / name, Path(os.path.expanduser(name))):
        if path.is_dir() and path.resolve() in (run.resolve() for run in find_runs(path).values()):
            return path
    raise ConfigError(f"{name}: there is no such run below {base}; `codezero runs` lists them")


def read_line(folder: Path, key: str) -> ListedRun:
    history, problem = History(folder, budget=MAX_BYTES), ""
    try:
        read_label(folder)
        with translated(UnreadableError, f"{FILE_NAME} cannot be read", OSError):
            history.read()
    except (ConfigError, UnreadableError) as error:
        problem = str(error)
    facts = read_process(folder / NODE_FILE).facts
    return ListedRun(
        **msgspec.structs.asdict(summarise_run(folder, key, history=history)),
        folder=str(folder),
        learns=facts.get("environment") or facts.get("problems", ""),
        exam=facts.get("exam", ""),
        problem=problem,
    )


def list_lines(runs: Sequence[ListedRun], more: int) -> Iterator[str]:
    rows = [("RUN", "STATE", "ITERATION", "AVERAGE, START → NOW", "POINTS", "AGE", "LEARNS ON")]
    for run in runs:
        rows.append((run.run, _state(run), _number(run), _way(run), _delta(run), _age(run), run.learns))
    yield from _aligned(rows)
    yield from (f"{clean(run.run)} is broken: {clean(run.problem, 300)}" for run in runs if run.problem)
    if measures := sorted({f"{run.source} average@{run.samples}" for run in runs if run.samples}):
        yield f"average: {clean(', '.join(measures))} of the exam's problems; `codezero runs A B` compares two"
    if more:
        yield f"{count(more, 'older run')} not shown; --limit {len(runs) + more} shows them"


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    runs = comparison.runs
    figures: dict[str, Callable[[ListedRun], str]] = {
        "state": _state,
        "iteration": _number,
        "average": lambda run: f"{run.source} average@{run.samples}" if run.samples else "no exam yet",
        "start": lambda run: percent(run.start),
        "now": lambda run: measured(run.now, run.low, run.high),
        "points": _delta,
        "reward": lambda run: "—" if run.reward is None else f"{run.reward:.2f}",
        "age": _age,
        "learns on": lambda run: run.learns,
        "exam": lambda run: run.exam,
    }
    rows = [("", *(run.run for run in runs))]
    rows += [(name, *map(shown, runs)) for name, shown in figures.items()]
    yield from _aligned(rows)
    yield "settings that differ:" if comparison.settings else "no recorded setting differs"
    rows = [(f"  {key}", *(value or "not recorded" for value in row)) for key, row in comparison.settings.items()]
    yield from _aligned(rows)
    yield from (f"{clean(run.run)} is broken: {clean(run.problem, 300)}" for run in runs if run.problem)
    if len({run.exam for run in runs}) > 1:
        yield "their exams are of different problems: the averages do not compare"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    cleaned = [[clean(cell, 48) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    for row in cleaned:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _state(run: ListedRun) -> str:
    state = "interrupted" if run.state == "gone" else run.state  # killed, or the machine went down
    return "broken" if run.problem else state


def _number(run: ListedRun) -> str:
    return "—" if run.iteration is None else str(run.iteration)


def _way(run: ListedRun) -> str:
    return "no exam yet" if run.now is None else f"{percent(run.start)} → {percent(run.now)}"


def _delta(run: ListedRun) -> str:
    return "—" if run.delta is None else f"{100 * run.delta:+.1f}"


def _age(run: ListedRun) -> str:
    if run.updated is None:
        return "—"
    seconds = max(0.0, time.time() - run.updated)
    return f"{seconds / 86_400:.0f} d" if seconds >= 2 * 86_400 else " ".join(duration(seconds).split()[:2])
