"""What the views say of a run: how it stands, and what its judge and its exams are worth."""

import json
import os
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.api_server import monitor, no_chain, played
from builders.monitor import after, exam_row, folded, row
from rich.console import Console

from codezero.evals.exam import packed_shares
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE
from codezero.monitor.reader import RunReader, summarise_run
from codezero.monitor.run_state import History, paired_gain
from codezero.monitor.run_types import MAX_TREND, RunPhase
from codezero.monitor.run_view import plain_line, trouble_line
from codezero.monitor.terminal import render
from codezero.stats import bounded_interval
from codezero.system.signals import FAILED
from codezero.types import Metrics


def judged(iteration: int, **more: float | str | None) -> Metrics:
    return row(iteration) | {"judge/unavailable_share": 0.0} | {key.replace("__", "/"): more[key] for key in more}


SILENT = judged(
    2, attempts__count=8, attempts__no_verdict_share=1.0, attempts__no_verdict_reason="the judge cannot be asked: gone",
    attempts__learned_share=0.0,
)  # fmt: skip
ALARM = judged(3, judge__alarm="believes 40% more\x1b[31m than the exam finds true")
AUDIT = judged(
    4, audit__judged=0.71, audit__success=0.43, audit__success_low=0.35, audit__success_high=0.51, audit__count=212
)


def shown(*rows: Metrics) -> str:
    view = after(*rows)
    console = Console(file=StringIO(), width=140, height=40, force_terminal=False)
    with console.capture() as capture:
        console.print(render(view, None, 40))
    return capture.get() + plain_line(view)


def test_nothing_is_said_when_there_is_nothing():
    assert trouble_line(after(judged(1))) == "" == after(judged(1)).judge.audit
    assert "ALARM" not in shown(judged(1)) and "audit" not in shown(judged(1))


def test_a_silent_judge_is_said_until_it_answers():
    words = "have no verdict (the judge cannot be asked: gone); look at evaluator.url and evaluator.model"
    assert words in plain_line(after(judged(1), SILENT)) and "cannot be asked" in shown(SILENT)
    assert trouble_line(after(SILENT, judged(3, attempts__count=8, attempts__no_verdict_share=0.3))) == ""
    assert words in plain_line(after(SILENT, exam_row(3, 0.5)))  # a row without its figures says nothing


def test_alarms_of_judge_and_sampler_are_said_without_their_control_characters():
    text = shown(ALARM)
    assert text.count("ALARM: the judge believes 40% more") == 2 and "\x1b" not in text
    apart = judged(3, train__mismatch_alarm="gives tokens other probabilities\x1b[31m than the learner")
    text = shown(apart)
    assert text.count("ALARM: the sampler gives tokens other probabilities") == 2 and "\x1b" not in text
    assert folded(judged(1), apart, apart, judged(4)).troubles == [(3, trouble_line(after(apart)))]
    both = trouble_line(after(apart | {"judge/alarm": "believes too much"}))
    assert both.startswith("ALARM: the judge believes too much; ALARM: the sampler gives")
    assert trouble_line(after(apart, judged(4))) == ""


def test_the_audit_is_said_in_one_line():
    assert "judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)" in shown(AUDIT)


def test_the_report_tells_when_trouble_began():
    fold = folded(judged(1), SILENT, SILENT, judged(3), ALARM, ALARM)
    assert [at for at, _ in fold.troubles] == [3] and [at for at, _ in fold.obstacles.values()] == [2]


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
    assert summarise_run(tmp_path, "", History(tmp_path)).state == state


def test_only_exams_that_were_measured_alike_are_compared(tmp_path: Path) -> None:
    judged = exam_row(0, 0.9) | {"eval/source": "judged"}
    exams = [judged, *(exam_row(iteration, 0.2 + iteration / 200) for iteration in range(1, 81))]
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(exam) + "\n" for exam in exams))
    summary = summarise_run(tmp_path, "", History(tmp_path))
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


@pytest.mark.slow
@pytest.mark.parametrize(("problems", "attempts"), [(12, 4), (150, 4), (200, 8)])
def test_the_interval_of_a_paired_gain_covers_it_and_is_narrower_than_two_alone(problems: int, attempts: int):
    draw, covered, narrower = np.random.default_rng(3), 0, 0
    for _ in range(200):
        before = draw.beta(0.3, 0.7, problems)
        after = np.where(draw.random(problems) < 0.2, (1 + before) / 2, before)
        seen = [draw.binomial(attempts, chances) / attempts for chances in (before, after)]
        gain = paired_gain(*(packed_shares(list(each)) for each in seen))
        assert gain is not None
        covered += gain[0] <= (after - before).mean() <= gain[1]
        alone = [bounded_interval(each) for each in seen]
        narrower += gain[1] - gain[0] < sum(each.high - each.low for each in alone)
    assert covered >= 186 and narrower == 200


@pytest.mark.parametrize(("first", "last"), [("", ""), ("00", "0000"), ("zz", "00"), ("ff", "00"), ("0", "0")])
def test_what_is_not_the_same_problems_twice_has_no_paired_gain(first: str, last: str):
    assert paired_gain(first, last) is None


def test_a_paired_gain_passes_over_what_was_not_decided():
    assert paired_gain(packed_shares([None, 0.0]), packed_shares([1.0, 0.5])) == paired_gain("00", "7f")
    assert packed_shares([0.5] * 501) == ""
