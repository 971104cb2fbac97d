"""`codezero runs`: what each has learned, in lines; two side by side; a broken one is a line that says so."""

import contextlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from builders.monitor import exam_row, row

from codezero.cli import main
from codezero.errors import ConfigError, UnreadableError
from codezero.inspection.run_details import parts
from codezero.inspection.run_list import compare_runs, list_lines, list_runs
from codezero.inspection.status import read_run
from codezero.monitor.metrics_file import FILE_NAME, MetricsFile
from codezero.monitor.run_types import SettingLine, write_settings
from codezero.ops.fleet import FleetNode, newest_output


def play(base: Path, name: str, *averages: float, at: int = 1_000, exam: str = "synthetic", **settings: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"seed": 0}')
    file = MetricsFile(folder)
    for iteration, average in enumerate(averages):
        file.append(row(iteration) | exam_row(iteration, average))
    file.close()
    facts = {"problems": "synthetic:1", "exam": exam}
    (folder / "node.json").write_text(json.dumps({"pid": 1, "began": 1.0, "stopped": "asked to stop", "facts": facts}))
    if settings:
        write_settings(folder, [SettingLine(key, value, "default") for key, value in settings.items()])
    for path in folder.iterdir():
        os.utime(path, (at, at))
    return folder


def test_each_run_is_a_line_with_its_way_and_the_newest_comes_first(tmp_path: Path) -> None:
    play(tmp_path, "old", 0.3, 0.348, at=1_000)
    play(tmp_path, "new", 0.3, at=2_000)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("{}")
    os.utime(tmp_path / "empty" / "run.json", (500, 500))
    head, *lines = list_lines(*list_runs(tmp_path, 20))
    assert head.split()[:3] == ["RUN", "STATE", "ITERATION"]
    assert [" ".join(line.split()[:3]) for line in lines[:3]] == ["new ended 0", "old ended 1", "empty unknown —"]
    assert "30.0 % → 34.8 %" in lines[1] and "+4.8" in lines[1] and lines[1].endswith("synthetic:1")
    assert "no exam yet" in lines[2] and "executed average@8" in lines[3]


def test_pipes_in_the_place_of_a_runs_files_hang_nobody(tmp_path: Path) -> None:
    folder, details = play(tmp_path, "piped", 0.3), parts(tmp_path)
    names = ["run.json", "node.json", "settings.json", "rollouts.db", "market.sqlite", "outbox-1-a.db", "hub.json"]
    for name in [*names, "network/status.json", "logs/swarm.log", "output.log", "checkpoints/00000001/manifest.json"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    assert "piped is broken: " in "\n".join(list_lines(*list_runs(tmp_path, 20)))
    assert read_run(folder).view.exams[-1].average == 0.3 and compare_runs(tmp_path, ["piped", "piped"]).runs
    for name in ("settings", "log", "checkpoints", "rollouts", "market", "market/games"):
        with contextlib.suppress(UnreadableError):
            details[name](folder)
    newest_output(cast(FleetNode, SimpleNamespace(began=0.0, folder=folder)))
    (folder / FILE_NAME).unlink()
    os.mkfifo(folder / FILE_NAME)
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_run(folder)
    assert "piped is broken: " in "\n".join(list_lines(*list_runs(tmp_path, 20)))
    with pytest.raises(ConfigError, match="cannot be used"):
        MetricsFile(folder)


def test_a_broken_run_is_one_line_that_says_so_and_the_others_are_shown(tmp_path: Path) -> None:
    play(tmp_path, "whole", 0.3)
    (play(tmp_path, "torn", 0.3) / "run.json").write_text("{")
    folder = play(tmp_path, "odd")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    (play(tmp_path, "evil", 0.3) / "node.json").write_text('{"facts": {"problems": "\\u001b[2J' + "x" * 900 + '"}}')
    text = "\n".join(list_lines(*list_runs(tmp_path, 20)))
    assert "torn is broken: " in text and "odd is broken: metrics.jsonl cannot be read" in text
    assert "\nwhole" in text and "\x1b" not in text and max(map(len, text.splitlines())) < 400


def test_more_runs_than_asked_for_are_counted_and_their_files_left_alone(tmp_path: Path) -> None:
    for number in range(5):
        play(tmp_path, f"r{number}", at=1_000 + number)
    (tmp_path / "r0" / "metrics.jsonl").unlink()
    (tmp_path / "r0" / "metrics.jsonl").mkdir()
    os.utime(tmp_path / "r0" / "metrics.jsonl", (1, 1))
    listed, more = list_runs(tmp_path, 2)
    assert [run.run for run in listed] == ["r4", "r3"] and more == 3
    assert list(list_lines(listed, more))[-1] == "3 older runs not shown; --limit 5 shows them"


def test_two_runs_side_by_side_with_the_settings_in_which_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, "a", 0.3, 0.4, **{"seed": "0", "solver.learning_rate": "0.1", "run.name": '"a"'})
    other = play(tmp_path, "b", 0.3, 0.5, **{"seed": "0", "solver.learning_rate": "0.2", "run.name": '"b"'})
    result = compare_runs(tmp_path, ["a", str(other)])
    assert result.settings == {"solver.learning_rate": ["0.1", "0.2"]}
    assert main(["runs", "a", "b", "--json", f"run.directory={tmp_path}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [run["delta"] for run in printed["runs"]] == pytest.approx([0.1, 0.2])
    assert main(["runs", "a", "b", f"run.directory={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "solver.learning_rate  0.1  0.2" in shown and "seed" not in shown and "do not compare" not in shown
    play(tmp_path, "c", 0.3, exam="mbpp_test")
    assert main(["runs", "a", "c", f"run.directory={tmp_path}"]) == 0
    assert "the averages do not compare" in capsys.readouterr().out
