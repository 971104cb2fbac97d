"""A node that dies is started again, within reason; real processes, and one real node that is killed.

Does not show: a machine that goes down, which is what systemd is for (docs/unattended.md)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.forked_runs import checkpoints, kill, rows, settings, wait_for

from codezero.inspection.status import read_run
from codezero.ops.supervisor import LONGEST_PAUSE, keep_alive
from codezero.system.signals import LEAVING_SECONDS, Backoff

FAITHFUL = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (Path({saved!r}).write_text("saved"), sys.exit(0)))
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
Path({up!r}).touch()
time.sleep(60)
"""
SUPERVISOR = """
import sys
from codezero.ops.supervisor import keep_alive
from codezero.system.signals import Backoff
sys.exit(keep_alive(lambda first: [sys.executable, "-c", sys.argv[1]], lambda: 0, Backoff(0.0, 1.0), 3, {leaving}))
"""


OF_A_RUN = """
import sys
from pathlib import Path
from codezero.settings import compose
from codezero.ops.supervisor import run_supervised
sys.executable = "false"  # the node
sys.exit(run_supervised(compose(sys.argv[2:]), Path(sys.argv[1]), []))
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def lives(*codes: int, most: int = 3, saved: Sequence[int] = ()) -> tuple[int, int]:
    """The exit code, and how many processes there were, of which each ended with the next of `codes`."""
    count, progress = 0, iter((0, *saved))

    def command(first: bool) -> list[str]:
        nonlocal count
        assert first == (count == 0)
        count += 1
        code = codes[count - 1]
        return python(f"import os; os.kill(os.getpid(), {-code})" if code < 0 else f"raise SystemExit({code})")

    code = keep_alive(command, lambda: next(progress, 0), Backoff(0.0, 1.0), most)
    return code, count


ENDS = [(0, 0), (2, 2), (130, 130), (-signal.SIGINT, 130), (-signal.SIGTERM, 143), (-signal.SIGHUP, 129)]


def test_a_node_that_dies_is_started_again_unless_that_cannot_mend_it() -> None:
    assert lives(1, -signal.SIGKILL, 0) == (0, 3)
    for code, shown in ENDS:
        assert lives(code) == (shown, 1)


def test_it_gives_up_and_ends_with_the_last_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert lives(1, 1, -signal.SIGKILL) == (137, 3)
    said = capfd.readouterr().err
    assert "ended with code 1; it is started again" in said and "(1 of 3)" in said
    assert "ended by SIGKILL; it is given up after 3 deaths in a row" in said


def test_a_full_disk_is_waited_for_and_no_death_counts_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("codezero.ops.supervisor.ROOM_SECONDS", 0.01)
    lives, obstacles = iter([1] * 8 + [0]), iter(["the disk is full", "the disk is full", ""] * 7 + ["", ""])
    command = [python(f"raise SystemExit({code})") for code in lives]
    code = keep_alive(lambda _: command.pop(0), lambda: 0, Backoff(0.0, 1.0), 2, obstacle=lambda: next(obstacles))
    assert code == 0 and not command
    assert capfd.readouterr().err.count("ended with code 1; the disk is full") == 7


def test_an_iteration_saved_between_two_deaths_is_progress() -> None:
    assert lives(1, 1, 1, 1, 1, 1, saved=[0, 5, 5, 9, 9, 9]) == (1, 6)
    assert lives(1, 1, 1, saved=[5, 4, 3], most=3) == (1, 3)  # a run begun again from before is none


@pytest.mark.parametrize(("which", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_and_waited_for(tmp_path: Path, which: signal.Signals, code: int) -> None:
    up, saved = tmp_path / "up", tmp_path / "saved"
    words = [*python(SUPERVISOR.format(leaving=20)), FAITHFUL.format(up=str(up), saved=str(saved))]
    with subprocess.Popen(words) as process:
        wait_for("the child", 120, up.exists, every=0.02)
        process.send_signal(which)
        assert process.wait(120) == code
    assert saved.exists() == (which is signal.SIGTERM)


def test_a_node_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    deaf = f"""
import signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path({str(tmp_path / "up")!r}).touch()
time.sleep(60)
"""
    words = [*python(SUPERVISOR.format(leaving=0.5)), deaf]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        wait_for("the child", 120, (tmp_path / "up").exists, every=0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 137 and "did not end within 0.5 s and is killed" in said


@pytest.mark.timeout(120)
@pytest.mark.parametrize("obstacle", ["", "full"])
def test_a_signal_in_a_pause_or_while_the_disk_is_full_ends_it(
    obstacle: str, capfd: pytest.CaptureFixture[str]
) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    dying, pauses = python("raise SystemExit(1)"), Backoff(LONGEST_PAUSE, LONGEST_PAUSE)
    assert keep_alive(lambda _: dying, lambda: 0, pauses, 3, obstacle=lambda: obstacle) == 0
    assert "stopping: no node is running" in capfd.readouterr().err


STUBBORN = """
import os, signal, sys, time
asked = []
def hear(which, _):
    asked.append(which)
    os.write(1, f"asked {len(asked)}\\n".encode())  # whatever is being printed
    if len(asked) == 2:
        sys.exit(128 + which)
signal.signal(signal.SIGTERM, hear)
signal.signal(signal.SIGINT, hear)
print("up", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize(("which", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_is_passed_on_too(which: signal.Signals, code: int) -> None:
    words = [*python(SUPERVISOR.format(leaving=3600)), STUBBORN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        for line in ("asked 1\n", "asked 2\n"):
            process.send_signal(which)
            assert process.stdout.readline() == line
        assert process.wait(120) == code


@pytest.mark.long
def test_the_node_saves_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    up, saved = tmp_path / "up", tmp_path / "saved"
    child = "from codezero.system.signals import end_with_parent\nend_with_parent()"
    child += FAITHFUL.format(up=str(up), saved=str(saved))
    with subprocess.Popen([*python(SUPERVISOR.format(leaving=20)), child]) as process:
        wait_for("the child", 120, up.exists, every=0.02)
        process.kill()
    wait_for("the child's end", 120, saved.exists, every=0.02)


def pid_of(run: Path) -> int:
    """Of the node that runs in a folder; 0: none."""
    saved = run / "node.json"
    node = json.loads(saved.read_text()) if saved.exists() else {}
    return 0 if node.get("stopped") else node.get("pid", 0)


@pytest.mark.long
def test_a_real_node_that_is_killed_goes_on(tmp_path: Path) -> None:
    """kill -9, another process, the same run; SIGTERM to the parent then saves and ends all within its time.

    What was begun anew is not begun anew at a death.
    """
    run = tmp_path / "run"
    words = [sys.executable, "-m", "codezero", "run", "--supervise", "--fresh", "run.restart_seconds=0.1"]
    with subprocess.Popen([*words, *settings(tmp_path, "run")], stdout=subprocess.DEVNULL) as process:
        try:
            wait_for("iterations", 150, lambda: len(checkpoints(run)) and len(rows(run)) > 1, every=0.05)
            first, done = pid_of(run), int(checkpoints(run)[-1].name)
            kill(first)
            wait_for("another process", 150, lambda: pid_of(run) not in (0, first), every=0.05)
            wait_for("progress", 150, lambda: int(checkpoints(run)[-1].name) > done + 1, every=0.05)
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
            assert time.monotonic() - asked < LEAVING_SECONDS
        finally:
            process.kill()
    steps = [row["iteration"] for row in rows(run)]
    assert steps == list(range(1, len(steps) + 1)) and int(checkpoints(run)[-1].name) == steps[-1]
    assert not list(tmp_path.glob("run.before-*"))


def test_status_says_what_becomes_of_a_dead_node(tmp_path: Path) -> None:
    def supervisor(*overrides: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*python(OF_A_RUN), str(tmp_path), *overrides], stderr=subprocess.DEVNULL)

    began = {"peer_id": "", "pid": 1 << 30, "began": time.time(), "stopped": None}
    (tmp_path / "node.json").write_text(json.dumps(began))
    assert "start it again" in read_run(tmp_path).problem
    with supervisor("run.restart_seconds=300") as waiting:
        try:
            wait_for("a death", 120, lambda: "code 1; it is started again in" in read_run(tmp_path).problem, every=0.1)
        finally:
            waiting.kill()
    assert "start it again" in read_run(tmp_path).problem, "nobody will do it now"
    with supervisor("run.max_deaths=1") as ending:
        assert ending.wait(120) == 1
    assert "given up after 1 death" in read_run(tmp_path).problem
    (tmp_path / "node.json").write_text(json.dumps(began | {"began": time.time(), "pid": os.getpid()}))
    assert not read_run(tmp_path).problem
    (tmp_path / "node.json").write_text(json.dumps(began | {"began": time.time()}))
    assert "start it again" in read_run(tmp_path).problem, "the node was started without --supervise since"


def test_a_wrong_setting_ends_it_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codezero", "run", "--supervise", "seed=x"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
