"""Right programs and near misses that were written by hand: every one is in a pair, and figures of known verdicts.

Does not show what a judge makes of them; the benchmark does.
"""

import json
from dataclasses import replace

import pytest
import styles
from styles import Pair, Program, Row, Scored, Study

from codezero.types import Status, Verdict


def verdict(correctness: float, status: Status = Status.JUDGED) -> Verdict:
    return Verdict(0.0, correctness, 1.0, 1.0, 1.0, 1.0, status)


def row(study: Study, right: float, wrong: float, status: Status = Status.JUDGED) -> Row:
    program = Program("first look", "", 2)
    return Row(study, Pair(program, program), verdict(right, status), verdict(wrong))


def test_every_program_of_the_file_is_in_a_pair() -> None:
    rows = [json.loads(line) for line in styles.FILE.read_text().splitlines()]
    for row, study in zip(rows, styles.natural(), strict=True):
        assert {pair.right.code for pair in study.pairs} == {*row["right"]}
        assert {pair.wrong.code for pair in study.pairs} == {*row["wrong"]}
        assert all(pair.right.distance and pair.wrong.distance for pair in study.pairs)


def test_figures_of_known_verdicts() -> None:
    study = next(styles.natural())
    other = replace(study, problem=replace(study.problem, id="other", level=2))
    rows = (row(study, 0.9, 0.2), row(study, 0.3, 0.95), row(other, 0.5, 0.5), row(other, 0, 0, Status.UNAVAILABLE))
    found = styles.figures([Scored(verdict(0.9), rows)])
    overall = found["overall"]
    assert overall["right"]["believed"] == round(2 / 3, 4) and overall["right"]["abstained"] == 0.25
    assert overall["near_misses"]["believed"] == 0.5 and overall["near_misses"]["n"] == 4
    assert overall["pairs"]["auroc"] == 0.5 and overall["pairs"]["pairs"] == 3 and overall["pairs"]["problems"] == 2
    assert overall["surely_mistaken"] == round(1 / 7, 4)
    assert found["reference"]["believed"] == 1 and found["by_level"].keys() == {"1", "2"}
    assert found["by_kind"]["first look"] == overall


def test_execution_in_the_place_of_the_judge_tells_all_pairs_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert styles.main(["--json", "--problems", "3", "reward.mode=rlvr"]) == 0
    overall = json.loads(capsys.readouterr().out)["overall"]
    assert overall["right"]["believed"] == 1 and overall["near_misses"]["abstained"] == 0


def test_a_wrong_setting_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert styles.main(["--json", "--problems", "1", "evaluator.modle=nano"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "modle" in err
