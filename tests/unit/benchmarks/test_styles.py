"""Right programs and near misses that were written by hand: every one is in a pair, and figures of known verdicts.

Does not show what a judge makes of them; the benchmark does."""

import json

import pytest
import styles


def test_every_program_of_the_file_is_in_a_pair() -> None:
    rows = [json.loads(line) for line in styles.FILE.read_text().splitlines()]
    for row, study in zip(rows, styles.natural(), strict=True):
        assert {pair.right.code for pair in study.pairs} == {*row["right"]}
        assert {pair.wrong.code for pair in study.pairs} == {*row["wrong"]}
        assert all(pair.right.distance and pair.wrong.distance for pair in study.pairs)


def test_execution_in_the_place_of_the_judge_tells_all_pairs_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert styles.main(["--json", "--problems", "3", "reward.mode=rlvr"]) == 0
    overall = json.loads(capsys.readouterr().out)["overall"]
    assert overall["right"]["believed"] == 1 and overall["near_misses"]["abstained"] == 0
