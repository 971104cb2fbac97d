import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from builders.monitor import PEER, after, exam_row, group, read_metrics, row, rows_of
from fakes.terminal import read_terminal
from rich.console import Console

from codezero.monitor import terminal
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.rollouts_db import read_page
from codezero.monitor.run_types import RunView
from codezero.monitor.run_view import plain_line
from codezero.monitor.terminal import LiveView, PlainView, SwarmView, plain_row, render_rows, summarise
from codezero.monitor.text import readable_name
from codezero.system.signals import Share


def monitor(folder: Path, view: str = "off") -> RunMonitor:
    return RunMonitor(folder=folder, view=view, identity=PEER, facts={"swarm": "local", "solver": "nano"})


def played(folder: Path, upto: int, view: str = "off") -> RunMonitor:
    running = monitor(folder, view)
    running.started(0)
    running.observe(0, exam_row(0, 0.2), [])
    for iteration in range(1, upto + 1):
        measured = row(iteration) | (exam_row(iteration, 0.5) if iteration % 10 == 0 else {})
        running.observe(iteration, measured, [group()])
    return running


def crashed(folder: Path, upto: int) -> None:
    """`played` in a process that is gone before it can close anything."""
    code = (
        "import os, pathlib; from unit.monitor.test_monitor import played;"
        f"monitor = played(pathlib.Path({str(folder)!r}), {upto}); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 9


def iterations(folder: Path) -> list[object]:
    return [measured["iteration"] for measured in read_metrics(folder / FILE_NAME)]


def test_a_resumed_run_drops_the_future_and_remembers_the_past(tmp_path: Path) -> None:
    crashed(tmp_path, 14)
    resumed = monitor(tmp_path)
    resumed.started(12)
    assert iterations(tmp_path) == list(range(13))
    assert [exam.iteration for exam in resumed.view.exams] == [0, 10]
    assert len(resumed.view.series["reward"]) == 12
    resumed.observe(13, row(13), [])
    assert iterations(tmp_path) == list(range(14))
    resumed.close("asked to stop")


def test_how_much_of_a_part_is_done_is_shown_with_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codezero.monitor.monitor.SHOWN_EVERY", 0.0)
    running = monitor(tmp_path)
    running.busy("calibrating")
    for done in (0, 1, 2):
        running.part("judging", "texts are read", done, 4)
    assert running.doing.startswith("calibrating: 2 of 4 texts are read, about ")
    running.part("judging", "texts are read", 4, 4)
    assert running.doing == "calibrating"
    running.busy(Share("calibrating the judge", 52, 52, " solutions read"))
    for done in (0, 8):
        running.part("learning", "rows are read", done, 32)
    assert running.doing.startswith("learning: 8 of 32 rows are read")
    running.close("asked to stop")


def test_lines_show_a_row_that_was_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("codezero.monitor.monitor.SHOWN_EVERY", 0.0)
    running = played(tmp_path, 0, view="plain")
    for iteration in (1, 2):
        for done in (0, 1, 2):
            running.part("judging", "texts are read", done, 2)
        running.observe(iteration, row(iteration), [])
    running.close("asked to stop")
    shown = [line.split(" · ")[0] for line in capsys.readouterr().out.splitlines() if " · round " in line]
    assert shown == ["iteration 0", "iteration 1", "iteration 2"]


def test_rows_that_cannot_be_read_back_end_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running, file = played(tmp_path, 2), tmp_path / FILE_NAME
    file.rename(tmp_path / "away")
    file.mkdir()
    running.observe(3, row(3), [])
    assert running.view.iteration == 2 and "cannot be read, so older figures are shown" in caplog.text
    file.rmdir()
    (tmp_path / "away").rename(file)
    running.observe(4, row(4), [])
    assert running.view.iteration == 4 and iterations(tmp_path) == [0, 1, 2, 3, 4]
    running.close("asked to stop")


def test_the_end_leaves_a_report_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, 20, view="plain").close("max_iterations reached")
    shown = capsys.readouterr().out
    assert f"report: {tmp_path / 'report.md'}" in shown
    assert "rose by 30.0 points" in shown and "return sum(numbers)" in (tmp_path / "report.md").read_text()


def test_groups_are_kept_and_only_own_ones_are_on_the_screen(tmp_path: Path) -> None:
    running = monitor(tmp_path)
    running.started(0)
    foreign = group("a question of a peer")
    foreign = dataclasses.replace(foreign, group=dataclasses.replace(foreign.group, peer_id="other"))
    running.observe(1, row(1), [foreign])
    assert running.problem is None
    running.observe(2, row(2), [group("own"), foreign])
    assert running.problem and running.problem.group.problem.question == "own"
    running.close("asked to stop")
    questions = sorted(line.question for line in read_page(tmp_path, limit=9).rollouts)
    assert questions == [*["a question of a peer"] * 2, "own"]


def test_a_start_on_a_terminal_is_one_line_that_moves_and_is_gone_afterwards() -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, force_terminal=True, width=60))
    view.close()
    for doing in ("loading the libraries", "loading the \x1b[2Jsolver"):
        view.busy(doing)
    view.close()
    shown = out.getvalue()
    assert "codezero: loading the libraries … " in shown and "\x1b[2J" not in shown
    assert shown.count("\n") == 1 and shown.index("\x1b[?25h") < shown.rindex("\x1b[2K")


def test_off_is_silent_and_closing_twice_or_before_the_start_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = monitor(tmp_path)
    running.close("stopped by an error")
    assert list(tmp_path.iterdir()) == []
    running.started(0)
    for _ in range(2):
        running.close("stopped by an error")
    assert capsys.readouterr() == ("", "") and (tmp_path / "report.md").exists()


def test_auto_without_a_terminal_is_plain(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from unit.monitor.test_monitor import played;"
        f"played(Path({str(tmp_path)!r}), 10, view='auto').close('asked to stop')"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("iteration 0 ? round 0 ? executed average@8 20.0 % [17.0, 23.0]")
    assert "\x1b" not in done.stdout


def test_plain_lines_read_as_promised() -> None:
    state = after(*rows_of(2), row(50, 0.71) | exam_row(50, 0.521) | {"round": 12})
    assert plain_line(state) == (
        "iteration 50 · round 12 · reward 0.71 · executed average@8 52.1 % [49.1, 55.1] · level 3 · 2 peers · 0.6 s"
    )


def test_plain_lines_are_few_but_no_exam_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    view = PlainView(lines.append)
    rows = rows_of(0)
    view.show(after(*rows))
    for iteration in range(5, 65):
        now[0] += 1.0
        rows.append(row(iteration) | (exam_row(iteration, 0.5) if iteration in (20, 21) else {}))
        view.show(after(*rows))
    assert sum("average@8" in line for line in lines) == 2
    assert 5 <= len(lines) <= 9


def test_each_node_has_its_row(tmp_path: Path) -> None:
    running, ended, unborn = (tmp_path / name for name in ("running", "ended", "unborn"))
    for folder in (running, ended, unborn):
        folder.mkdir()
    still = played(running, 12)
    played(ended, 3).close("asked to stop")
    first, second, third = summarise([running, ended, unborn])
    assert (first.name, first.running) == (readable_name(PEER), True)
    averages = [exam.average for exam in first.exams]
    assert (first.iteration, averages, first.latest["peers"]) == (12, [0.2, 0.5], 2)
    assert first.seconds_per_iteration == pytest.approx(0.6)
    assert (second.running, second.iteration) == (False, 3)
    assert (third.name, third.running, third.iteration, third.exams) == ("unborn", False, None, [])
    still.close("asked to stop")


def nodes() -> list[RunView]:
    measured = row(50, 0.71) | exam_row(50, 0.521) | {"round": 12, "seconds": 0.62}
    view = after(exam_row(0, 0.21), exam_row(25, 0.4), measured)
    base = msgspec.structs.replace(view, name="brave-otter", running=True)
    return [base, moved(base, 1_234_567, "[bold]x"), msgspec.structs.replace(after(), name="calm-lynx")]


def moved(node: RunView, iteration: int, name: str = "brave-otter") -> RunView:
    return msgspec.structs.replace(node, name=name, iteration=iteration)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_names_every_node(width: int) -> None:
    console = Console(width=width, height=24, force_terminal=True, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(render_rows(nodes()))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= width
    for wanted in ("brave-otter", "calm-lynx", "[bold]x", "21.0 % → 52.1 %", "executed average@8", "1234567", "18 %"):
        assert wanted in text, wanted


def test_without_a_terminal_only_nodes_that_moved_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    view = SwarmView("plain", lines.append)
    rows = nodes()
    view.update(rows)
    assert len(lines) == 3
    now[0] = 1.0
    view.update([moved(rows[0], 51), *rows[1:]])
    assert len(lines) == 3
    now[0] = 20.0
    view.update([moved(rows[0], 52), *rows[1:]])
    assert lines[3:] == [
        "brave-otter · iteration 52 · round 12 · reward 0.71 · executed average@8 21.0 % → 52.1 % "
        "· level 3 · 2 peers · 0.6 s"
    ]
    view.close()


def test_the_node_file_holds_no_secret(tmp_path: Path) -> None:
    played(tmp_path, 1).close("asked to stop")
    facts = json.loads((tmp_path / NODE_FILE).read_text())
    assert set(facts) == {"peer_id", "pid", "start_ticks", "began", "stopped", "stand_ins", "facts"}
    assert facts["facts"] == {"swarm": "local", "solver": "nano"}


def test_a_warning_scrolls_by_above_the_live_view(tmp_path: Path) -> None:
    code = (
        "import logging; from pathlib import Path;"
        "from codezero.monitor.logs import setup_logging; from unit.monitor.test_monitor import played, row;"
        f"folder = Path({str(tmp_path)!r}); setup_logging(folder / 'logs'); monitor = played(folder, 3, view='auto');"
        "logging.getLogger('x').warning('lost a peer: \\x1b[2J'); monitor.observe(4, row(4), []); monitor.close('done')"
    )
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    master, slave = os.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        shown = b"".join(iter(lambda: read_terminal(master), b"")).decode()
    os.close(master)
    assert process.returncode == 0, shown
    before, _, after = shown.partition("WARNING lost a peer: ·[2J\r\n")
    assert before.endswith("\x1b[2K")  # the old picture was wiped first
    assert "codezero" in after.splitlines()[0]  # and drawn anew below
    assert f"report: {tmp_path / 'report.md'}" in after.replace("\r\n", "")


def test_a_node_that_has_not_begun_is_not_called_one_that_stopped() -> None:
    assert plain_row(after()).endswith("not begun yet")
    assert plain_row(after(exam_row(3, 0.2))).endswith("not running")
