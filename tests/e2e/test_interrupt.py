"""Ctrl-C at a terminal: answered at once, then again; the run is recorded as it was, and goes on.

Real nodes, as their users start them. Does not show: several cards, whose ranks test_ranks.py ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.forked_runs import wait_for
from builders.swarm import free_port
from builders.users import processes_naming, status
from e2e.test_run import command, newest_checkpoint, rows, run
from fakes.terminal import NOISE, Seat, seated

from codezero.inspection.status import RunFiles
from codezero.monitor.report import headline
from codezero.monitor.run_state import read_exam
from codezero.monitor.text import percent

LONG = "solver.problems_per_iteration=80"  # An iteration takes seconds, within which somebody can press twice

SILENT_CHAIN = ["chain.kind=rpc", "chain.rpc_urls=[http://127.0.0.1:9]", "chain.chain_id=31337",
                f"chain.contract=0x{'12' * 20}"]  # fmt: skip
"""Every iteration survives an error."""


def quiet(seat: Seat) -> bool:
    return not [word for word in NOISE if word in seat.shown]


@pytest.mark.slow
@pytest.mark.parametrize("view", ["live", pytest.param("plain", marks=pytest.mark.long)])
def test_the_first_ctrl_c_is_answered_and_the_second_leaves_at_once(tmp_path: Path, view: str) -> None:
    page = ["login.page=on", f"login.port={free_port()}", f"login.directory={tmp_path / 'login'}"]
    words = command(tmp_path, "network=peer", f"monitor.view={view}", LONG, "evals.every=0", *page)
    with seated(words, tmp_path) as seat:
        seat.wait_for("a checkpoint", (tmp_path / "run" / "checkpoints" / "00000001").exists)
        time.sleep(1.0)  # it is there a moment before its iteration is over
        seat.press()
        seat.wait_for("stopping: saving iteration 2, up to 20 s; Ctrl-C again leaves now")
        seat.press()
        assert seat.end() == 130
        assert quiet(seat), seat.shown
    wait_for("the children's end", 60, lambda: not processes_naming(tmp_path), every=0.1)
    seen, report = status(tmp_path), (tmp_path / "run" / "report.md").read_text()
    ended = "interrupted by a second signal, and the iteration in flight left out"
    assert seen["stopped"] == ended and not seen["running"] and not seen["problem"] and seen["iteration"] == 1
    assert f"Ended: {ended}, after iteration 1." in report and "curve.png" not in report
    assert f"codezero: {ended}, after iteration 1" in seat.shown
    again = subprocess.run(command(tmp_path, "network=peer", "evals.every=0", "run.max_iterations=2"))
    assert again.returncode == 0 and [row["iteration"] for row in rows(tmp_path)] == [1, 2]
    assert int(newest_checkpoint(tmp_path).name) == 2 and status(tmp_path)["stopped"] == "max_iterations reached"


@pytest.mark.slow
@pytest.mark.parametrize("shown", [pytest.param("preparing the parts", marks=pytest.mark.long), "loading the judge"])
def test_ctrl_c_while_a_node_starts_is_answered_at_once(tmp_path: Path, shown: str) -> None:
    with seated(command(tmp_path, "network=peer", "monitor.view=plain"), tmp_path) as seat:
        seat.wait_for(shown)
        seat.press()
        assert seat.end() == 130
        assert "codezero: stopped while starting, with nothing to save" in seat.shown and quiet(seat), seat.shown
    assert status(tmp_path)["stopped"] == "stopped while starting, with nothing to save"


def test_ctrl_c_before_anything_is_loaded(tmp_path: Path) -> None:
    with seated([sys.executable, "-X", "importtime", *command(tmp_path)[1:]], tmp_path) as seat:
        seat.wait_for("codezero.errors")
        seat.press()
        assert seat.end() in (130, -signal.SIGINT)
        assert "codezero: interrupted" in seat.shown and quiet(seat), seat.shown[-3000:]


@pytest.mark.slow
def test_a_fleet_answers_at_once_and_takes_its_nodes_along(tmp_path: Path) -> None:
    words = command(tmp_path, "monitor.view=plain")
    words[3:4] = ["swarm", "up", "--nodes", "2"]
    node = tmp_path / "run" / "node-1"
    with seated(words, tmp_path) as seat:
        seat.wait_for("a node's process", lambda: (node / "logs" / "swarm.log").exists())
        seat.press()
        seat.wait_for("codezero: stopping: saving 1 node, up to 30 s; Ctrl-C again leaves now")
        seat.press()
        assert seat.end() in (130, -signal.SIGINT) and quiet(seat), seat.shown
    wait_for("the nodes' end", 60, lambda: not processes_naming(tmp_path), every=0.1)
    assert "Traceback" not in (node / "output.log").read_text()


@pytest.mark.slow
def test_a_closed_terminal_saves_and_reports(tmp_path: Path) -> None:
    """The terminal of a node's supervisor, with a live view: both lose it."""
    with seated(command(tmp_path, "evals.every=0", "monitor.view=live", "--supervise"), tmp_path) as seat:
        seat.wait_for("a checkpoint", (tmp_path / "run" / "checkpoints" / "00000001").exists)
        seat.hang_up()
        assert seat.process.wait(120) == 0
    wait_for("the children's end", 60, lambda: not processes_naming(tmp_path), every=0.1)
    seen, last = status(tmp_path), rows(tmp_path)[-1]["iteration"]
    assert seen["stopped"] == "asked to stop" and int(newest_checkpoint(tmp_path).name) == last
    assert f"Ended: asked to stop, after iteration {last}." in (tmp_path / "run" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["dashboard", "--json"], ["chain", "dev"]])
def test_a_closed_terminal_ends_what_only_serves(tmp_path: Path, words: list[str]) -> None:
    words = [*words, "--data", str(tmp_path)] if words[0] == "chain" else [*words, f"login.port={free_port()}"]
    with subprocess.Popen(
        [sys.executable, "-m", "codezero", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0 and process.stderr and b"Traceback" not in process.stderr.read()


def agreed(folder: Path, reason: str, shown: str) -> str:
    """The last executed average, which like all else the terminal, the report, `status` and the page tell alike."""
    seen, view, made = status(folder), RunFiles(folder / "run").view("run"), rows(folder)
    report, last = (folder / "run" / "report.md").read_text(), made[-1]["iteration"]
    exams = [exam for row in made if (exam := read_exam(row)) is not None]
    line = headline(view.exams)
    assert view.iteration == seen["iteration"] == last and view.running is seen["running"] is False
    assert view.stopped == seen["stopped"] == reason
    assert (
        f"codezero: {reason}, after iteration {last}" in shown and f"Ended: {reason}, after iteration {last}." in report
    )
    assert line in shown and f"**{line[0].upper()}{line[1:]}.**" in report
    assert f"| iteration {exams[0].iteration} | iteration {exams[-1].iteration} |" in report
    assert [exam.iteration for exam in view.exams] == [exam.iteration for exam in exams]
    assert (view.exams[0].average, view.exams[-1].average) == (exams[0].average, seen["executed"])
    survived = seen["tolerated"]["ChainUnreachableError"]
    assert view.tolerated == seen["tolerated"] and f"tolerated errors: ChainUnreachableError ({survived})" in report
    if exams[-1].iteration == last:
        assert f"{survived} tolerated errors" in [one for one in shown.splitlines() if one.startswith("iteration")][-1]
    assert view.updated == made[-1]["time"] and view.began is not None and view.began < view.updated
    return f"{exams[-1].label} {percent(exams[-1].average)}"


@pytest.mark.slow
def test_all_who_tell_of_a_run_agree_when_it_was_interrupted_and_when_it_ended(tmp_path: Path) -> None:
    settings = ["monitor.view=plain", "evals.every=2", *SILENT_CHAIN]
    with seated(command(tmp_path, *settings), tmp_path) as seat:
        seat.wait_for("some iterations", lambda: "iteration 4 " in seat.shown)
        seat.press()
        assert seat.end() == 130 and quiet(seat), seat.shown
    first, measured = rows(tmp_path), agreed(tmp_path, "asked to stop", seat.shown)
    reached = first[-1]["iteration"]
    again = run(tmp_path, *settings, f"run.max_iterations={reached + 3}")
    assert again.returncode == 0, again.stderr
    assert f"codezero: goes on with run at iteration {reached}, {measured}\n" in again.stdout
    agreed(tmp_path, "max_iterations reached", again.stdout)
    made = rows(tmp_path)
    assert [row["iteration"] for row in made] == list(range(reached + 4)) and made[: len(first)] == first
    key = "tolerated/ChainUnreachableError"
    assert status(tmp_path)["tolerated"]["ChainUnreachableError"] == first[-1][key] + made[-1][key]
