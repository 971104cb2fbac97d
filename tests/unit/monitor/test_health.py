"""When a run counts as stalled or dead, and what monitoring is told. Pure, but for one process that is killed."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.api_server import monitor, served

from codezero.inspection.status import RunFiles
from codezero.monitor.health import LEAST_LIMIT, START_SECONDS, health, limit_seconds, overall
from codezero.monitor.prometheus import exposition
from codezero.monitor.run_types import RunView
from codezero.system.signals import FAILED


@pytest.fixture
def view(tmp_path: Path) -> RunView:
    made = monitor(tmp_path)
    made.started(0)
    shown = RunFiles(tmp_path).view("one")
    made.close("asked to stop")
    return msgspec.structs.replace(shown, began=1000.0, updated=2000.0, limit_seconds=LEAST_LIMIT, iteration=5)


def test_a_stall_is_a_step_that_is_overdue(view: RunView) -> None:
    assert health(view, 2000.0 + LEAST_LIMIT).healthy
    late = health(view, 2001.0 + LEAST_LIMIT)
    assert (late.healthy, late.seconds_since_step) == (False, 121.0) and "no step for 121 s" in late.problem


def test_a_process_that_just_began_is_not_measured_by_its_predecessor(view: RunView) -> None:
    assert health(msgspec.structs.replace(view, began=9000.0), 9060.0).healthy


def test_a_clock_that_was_set_back_is_told_until_the_next_step(view: RunView) -> None:
    set_back = health(view, 1500.0)
    assert "the clock was set back" in set_back.problem and set_back.seconds_since_step == 0
    went_on = msgspec.structs.replace(view, began=9000.0)
    assert health(went_on, 2060.0).healthy and "no step for" in health(went_on, 2001.0 + LEAST_LIMIT).problem
    assert "the clock was set back" in health(msgspec.structs.replace(view, updated=None, began=9000.0), 60.0).problem


def test_who_ended_and_said_why_is_healthy_and_who_vanished_is_not(view: RunView) -> None:
    ended = msgspec.structs.replace(view, running=False, stopped="max_iterations reached")
    failed = msgspec.structs.replace(view, running=False, stopped=FAILED)
    assert not health(failed, 2000.0).healthy and "stopped by an error" in health(failed, 2000.0).problem
    vanished = msgspec.structs.replace(view, running=False)
    assert health(ended, 1e9).healthy
    assert "is gone and has not said why" in health(vanished, 2000.0).problem
    assert overall([ended, vanished, view], 2000.0).problem and overall([ended, view], 2000.0).healthy
    assert overall([], 0.0).healthy


@pytest.mark.parametrize(
    ("starting", "step", "exam", "limit"),
    [(True, 1.0, 1.0, START_SECONDS), (False, None, None, 120), (False, 60.0, None, 600), (False, 1.0, 100.0, 420)],
)
def test_the_limit_knows_slow_steps_and_exams(
    starting: bool, step: float | None, exam: float | None, limit: float
) -> None:
    assert limit_seconds(starting, step, exam) == limit


def test_a_killed_run_is_unhealthy_over_http(tmp_path: Path) -> None:
    code = (
        "import os;"
        "from pathlib import Path; from builders.api_server import played;"
        f"played(Path({str(tmp_path)!r}) / 'one', 3); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 9
    with served(tmp_path) as site:
        answer = site.get("/healthz")
        assert answer.status == 503 and answer.json["healthy"] is False and answer.json["run"] == "one"
        assert b"codezero_healthy 0.0" in site.get("/metrics").body


def test_labels_cannot_break_out_of_their_line(view: RunView) -> None:
    evil = 'a"} 1\nfake{x="\\'
    text = exposition([msgspec.structs.replace(view, tolerated={evil: 2})], health(view, 2000.0)).decode()
    assert 'codezero_tolerated_total{kind="a\\"} 1\\nfake{x=\\"\\\\",run="one"} 2.0\n' in text
    assert "# TYPE codezero_tolerated_total counter\n" in text and "codezero_exam" not in text


def test_every_line_is_what_prometheus_reads(view: RunView) -> None:
    hostile = msgspec.structs.replace(view, tolerated={'x"}\n1': 2}, latest={"reward": 0.5})
    text = exposition([hostile], health(hostile, 2000.0)).decode()
    sample = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+')
    for line in text.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line), line
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) and text.endswith("\n")
