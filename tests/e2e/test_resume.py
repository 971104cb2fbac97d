"""A real node that is stopped and started again is the same run, bit for bit; so is one that is forked.

Does not show: the same across machines, or on CUDA."""

import json
from pathlib import Path

import pytest
from builders.forked_runs import checkpoints, files, lives, rows, settings


@pytest.mark.slow
def test_stopped_and_started_again_it_is_the_same_run(tmp_path: Path) -> None:
    """Across a calibration (3), with proposals of its own that come back, and with a fork of the stopped run.

    Exams are due after 0, 2 and 4 iterations, where a fork begins, and at the end.
    """
    exams = ("evals.every=10", "evals.problems=5")
    with lives() as nodes:
        nodes.live(settings(tmp_path, "whole", "run.max_iterations=5", *exams))
        nodes.live(settings(tmp_path, "cut", "run.max_iterations=2", *exams))
        nodes.live(["--fork", "cut", *settings(tmp_path, "forked", "run.max_iterations=5", *exams)])
        nodes.live(settings(tmp_path, "cut", "run.max_iterations=4", *exams))
        nodes.live(settings(tmp_path, "cut", "run.max_iterations=5", *exams))
    whole, cut, forked = (tmp_path / name for name in ("whole", "cut", "forked"))
    wanted = rows(whole)
    assert [row["iteration"] for row in wanted] == [0, 1, 2, 3, 4, 5]
    assert [row["iteration"] for row in wanted if row["eval/average_at_8"] is not None] == [0, 2, 4, 5]
    assert wanted[-1]["proposer/written"] > 0 and wanted[-1]["judge/calibrations"] == 2
    assert rows(cut) == wanted and rows(forked)[1:] == wanted[3:]
    assert rows(forked)[0]["eval/average_at_8"] == wanted[2]["eval/average_at_8"]
    last = files(checkpoints(whole)[-1])
    assert checkpoints(whole)[-1].name == "00000005" and "solver/model/model.safetensors" in last
    for run in (cut, forked):
        assert files(checkpoints(run)[-1]) == last
    proposals = json.loads(last["problems/stream.json"])["proposals"]
    assert proposals, "no proposal came back, so that its way was not tried"
