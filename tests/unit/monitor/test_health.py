"""When a run counts as stalled or dead, and what monitoring is told. Pure, but for one process that is killed."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders.api_server import monitor, served
from prometheus_client import generate_latest

from codezero.inspection.status import RunFiles
from codezero.monitor.api import RunCollector
from codezero.monitor.run_state import CAUSES, VERDICTS, WINDOW, hindrances
from codezero.monitor.run_types import RunView
from codezero.monitor.run_view import LEAST_LIMIT, START_SECONDS, health, limit_seconds, overall
from codezero.system.signals import FAILED
from codezero.types import Metrics


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
    views = [msgspec.structs.replace(view, tolerated={evil: 2})]
    text = generate_latest(RunCollector(views, health(view, 2000.0))).decode()
    assert 'codezero_tolerated_total{kind="a\\"} 1\\nfake{x=\\"\\\\",run="one"} 2.0\n' in text
    assert "# TYPE codezero_tolerated_total counter\n" in text and "codezero_exam" not in text


def rows(count: int = WINDOW, **shares: float | str) -> list[Metrics]:
    return [{"attempts/count": 128} | {f"attempts/{name}": value for name, value in shares.items()}] * count


@pytest.mark.parametrize(
    ("of", "causes", "words"),
    [
        (rows(learned_share=0.5, wrong_share=0.5), [], ""),
        (rows(9, learned_share=0.0, wrong_share=1.0), [], ""),
        (rows(learned_share=0.09, wrong_share=0.9), ["little wrong"], "9.0 % of the attempts of 10 iterations"),
        (rows(learned_share=0.0, right_share=0.6, wrong_share=0.4), ["little right"], "choose harder data.sources"),
        (rows(learned_share=0.0, failing_share=1.0), ["little failing"], "easier data.sources"),
        (rows(1, learned_share=0.6, cut_off_share=0.4), ["cut_off"], "40.0 % of the attempts are cut off"),
        (rows(1, learned_share=0.7, cut_off_share=0.3, no_verdict_share=0.3), [], ""),
        (rows(learned_share=0, cut_off_share=0.9, no_verdict_share=0.4), ["little cut_off", "no_verdict"], "max_new"),
    ],
)
def test_what_keeps_a_run_from_learning_is_said_with_its_setting(
    of: list[Metrics], causes: list[str], words: str
) -> None:
    obstacles = hindrances(of)
    assert [*obstacles] == causes and words in "".join(obstacles.values())


def test_a_judge_without_weight_and_a_verdict_that_is_missing_are_named() -> None:
    flat = [*rows(9, learned_share=0.0, right_share=1.0), rows(1, right_share=1.0)[0] | {"judge/weight": 0.0}]
    assert "the judge has weight 0; set evaluator.model" in hindrances(flat)["little unweighed"]
    for reason, mend in (
        ("reward.function=own.py:f gave no reward", "mend reward.function"),
        ("the judge was measured on no programs", "set evaluator.canaries_from"),
        ("the judge cannot be asked: gone", "look at evaluator.url"),
        ("out of time", "look at audit.sandbox"),
    ):
        missing = rows(1, no_verdict_share=1.0, no_verdict_reason=reason)
        words = f"100.0 % of the attempts have no verdict ({reason}); {mend}"
        assert hindrances(missing)["no_verdict"].startswith(words)
    assert hindrances([{"iteration": 1}, {"attempts/count": 0}]) == {}


def test_the_settings_that_are_named_are_settings() -> None:
    words = " ".join([*(mend for _, mend in CAUSES.values()), *VERDICTS.values()])
    known = {*re.findall(r"`(\w+\.\w+)`", (Path(__file__).parents[3] / "docs" / "settings.md").read_text())}
    assert {word.strip(".,;") for word in words.split() if "." in word.strip(".,;")} <= known
