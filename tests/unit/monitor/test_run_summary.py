"""A run in a list: how it stands, and what its exams say of it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from builders.api_server import monitor, no_chain, played
from builders.monitor import exam_row, row

from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE
from codezero.monitor.reader import RunReader
from codezero.monitor.run_summary import summarise_run
from codezero.monitor.run_types import MAX_TREND, RunPhase
from codezero.system.signals import FAILED


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ({"pid": os.getpid(), "began": -60.0}, "running"),
        ({"pid": os.getpid(), "began": -10_000.0}, "stalled"),
        ({"pid": os.getpid(), "began": 1.0, "stopped": "asked to stop"}, "ended"),
        ({"pid": os.getpid(), "began": 1.0, "stopped": FAILED}, "failed"),
        ({"pid": 2**30, "began": 1.0}, "gone"),
        ({}, "unknown"),
    ],
)
def test_a_run_says_how_it_stands(tmp_path: Path, report: dict[str, Any], state: RunPhase) -> None:
    began = report.get("began", 0.0)
    if began < 0:  # so many seconds ago
        report = {**report, "began": time.time() + began}
    (tmp_path / NODE_FILE).write_text(json.dumps(report))
    assert summarise_run(tmp_path).state == state


def test_only_exams_that_were_measured_alike_are_compared(tmp_path: Path) -> None:
    judged = exam_row(0, 0.9) | {"eval/source": "judged"}
    exams = [judged, *(exam_row(iteration, 0.2 + iteration / 200) for iteration in range(1, 81))]
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(exam) + "\n" for exam in exams))
    summary = summarise_run(tmp_path)
    assert summary.start == pytest.approx(0.205) and summary.now == pytest.approx(0.6)
    assert summary.delta == pytest.approx(0.395) and len(summary.sparkline) == MAX_TREND
    assert (summary.sparkline[0], summary.sparkline[-1]) == (summary.start, summary.now)


def test_a_run_that_wrote_nothing_since_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path / "ended", 3).close("asked to stop")
    running = monitor(tmp_path / "running")
    running.started(0)
    read: list[str] = []

    def counted(folder: Path, *rest: object, **more: object) -> object:
        read.append(folder.name)
        return summarise_run(folder, *rest, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("codezero.monitor.reader.summarise_run", counted)
    reader = RunReader(tmp_path, lambda _: lambda _: pytest.fail("no view"), no_chain, {})
    reader.runs()
    running.observe(1, row(1), [])
    listed = {run.run: run.iteration for run in reader.runs().runs}
    running.close("asked to stop")
    assert listed == {"ended": 3, "running": 1} and sorted(read) == ["ended", "running", "running"]
