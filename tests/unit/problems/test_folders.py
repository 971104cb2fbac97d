"""exercism's canonical cases and QuixBugs' programs are sources, and what is wrong with their files is one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from codezero.cli import main
from codezero.errors import ProblemError
from codezero.problems.rows import read_row
from codezero.problems.sources import open_rows
from codezero.types import Worked

CASES: dict[str, Any] = {
    "exercise": "own-steps",
    "cases": [
        {"description": "all", "cases": [
            {"uuid": "1", "property": "stepsTo", "input": {"fromHere": 1, "to": [2]}, "expected": None},
            {"uuid": "2", "property": "stepsTo", "input": {"to": [3], "fromHere": 2}, "expected": {"a": True}},
            {"uuid": "3", "property": "stepsTo", "input": {"fromHere": 0, "to": []}, "expected": {"error": "no"}},
        ]},
        {"uuid": "4", "property": "back", "input": {"x": "é"}, "expected": 1.5},
        {"uuid": "5", "property": "back", "input": {"x": "f"}, "expected": 2},
    ],
}  # fmt: skip
RIGHT = "def larger(a, b):\n    return a if a > b else b\n"


def exercism(folder: Path, held: str) -> Path:
    at = folder / "exercises" / "own-steps"
    at.mkdir(parents=True)
    (at / "canonical-data.json").write_text(held)
    (at / "description.md").write_text("# Description\n\nCount the steps.\n")
    return folder


def quixbugs(folder: Path, tests: str, programs: bool = True) -> Path:
    kinds = {
        "python_programs": RIGHT.replace(">", "<") + '"""\nThe larger of two.\n"""\n',
        "correct_python_programs": RIGHT,
    }
    for kind, text in kinds.items():
        (folder / kind).mkdir()
        if programs:
            (folder / kind / "larger.py").write_text(text)
    (folder / "json_testcases").mkdir()
    (folder / "json_testcases" / "larger.json").write_text(tests)
    return folder


def read(folder: Path) -> list[Worked]:
    rows = open_rows(str(folder))
    return [read_row(row) for shard in rows.shards() for row in rows.rows(shard, 0)]


def test_each_property_of_an_exercise_is_a_problem(tmp_path: Path) -> None:
    steps, back = (row.problem for row in read(exercism(tmp_path, json.dumps(CASES, indent=2))))
    assert steps.entry_point == "steps_to" and back.entry_point == "back"
    assert steps.tests == ("assert steps_to(1, [2]) == None", "assert steps_to(2, [3]) == {'a': True}")
    assert steps.question == "# Description\n\nCount the steps.\n\n\nWrite a function steps_to(from_here, to)."


def test_a_program_of_quixbugs_is_a_near_miss_beside_its_mended_form(tmp_path: Path) -> None:
    (row,) = read(quixbugs(tmp_path, "[[1, 2], 2]\n\n[[5, 3], 5]\n"))
    assert row.problem.tests == ("assert larger(1, 2) == 2", "assert larger(5, 3) == 5")
    assert row.right == (RIGHT,) and "a < b" in row.wrong[0] and row.problem.reference == RIGHT
    assert row.problem.question == "The larger of two.\n\n\nWrite a function larger(a, b)."


def test_data_check_runs_the_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(quixbugs(tmp_path, "[[1, 2], 2]\n[[5, 3], 5]\n"))]) == 0
    assert "1 of 1 usable; references executed: 1 pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ("{", "canonical-data.json: Input data was truncated"),
        ('{"exercise": "e"}', "canonical-data.json: Object missing required field `cases`"),
        ('{"exercise": "e", "cases": [{"property": "a b"}]}', r"canonical-data.json: .*cases\[0\].property"),
        ('{"exercise": "e", "cases": ' + '[{"cases": ' * 2000 + "[]" + "}]" * 2000 + "}", "canonical-data.json"),
    ],
)
def test_what_is_wrong_with_an_exercise_is_one_line(held: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=fault) as caught:
        read(exercism(tmp_path, held))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tests", "programs", "fault"),
    [
        ("[[1], 2]\n[1]\n", True, "larger.json, line 2: "),
        ("[[1], 2]\nx\n", True, "larger.json, line 2: "),
        ("[[1], 2]\n", False, "python_programs/larger.py cannot be read"),
    ],
)
def test_what_is_wrong_with_quixbugs_is_one_line(tests: str, programs: bool, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=fault) as caught:
        read(quixbugs(tmp_path, tests, programs))
    assert "\n" not in str(caught.value)
