"""Rows of anybody's sets: from the hub by its name, from CSV, by columns that are found or named."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.hub_server import Hub, serving

from codezero.cli import main
from codezero.config.learning import source_weights
from codezero.errors import ProblemError
from codezero.problems.rows import NamedRow, parse_columns, read_row
from codezero.problems.sources import open_rows

QUESTION, TESTS = "Write a function twice(n) that doubles n.", ["assert twice(2) == 4", "assert twice(0) == 0"]
CODE = "def twice(n):\n    return 2 * n"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": QUESTION, "tests": TESTS, "solution": CODE},
        {"instruction": QUESTION, "test": "\n".join(TESTS), "canonical_solution": CODE},
        {"text": QUESTION, "unit_tests": json.dumps(TESTS), "response": CODE},
        {"description": QUESTION, "asserts": repr(TESTS), "answer": CODE, "other": 7},
        {"task": QUESTION, "test_cases": TESTS, "output": CODE},
    ],
)
def test_columns_are_found_by_their_usual_names(row: dict[str, object]) -> None:
    for given in (row, json.dumps(row).encode()):
        worked = read_row(given)
        assert (worked.problem.question, worked.problem.tests) == (QUESTION, tuple(TESTS))
        assert worked.problem.entry_point == "twice" and worked.right == (CODE,)


def test_columns_can_be_named() -> None:
    row = {"text": "the wrong one", "ask": QUESTION, "checks": TESTS, "mine": CODE, "code": "no"}
    worked = read_row(NamedRow(row, {"question": "ask", "tests": "checks", "code": "mine"}))
    assert worked.problem.question == QUESTION and worked.right == (CODE,)
    assert parse_columns("a/b.csv?question=ask&tests=checks") == ("a/b.csv", {"question": "ask", "tests": "checks"})
    for wrong in ("a.csv?", "a.csv?tests", "a.csv?test=checks", "a.csv?tests="):
        with pytest.raises(ProblemError, match=r"write PATH\?question=COLUMN"):
            parse_columns(wrong)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"ask": QUESTION, "tests": TESTS},
            r"no column question; there are ask, tests; name one: PATH\?question=COLUMN",
        ),
        ({"prompt": QUESTION, "checks": TESTS}, "no column tests; there are prompt, checks"),
        ({"prompt": QUESTION, "test": "1 +"}, "neither a list nor assertions"),
        ({"prompt": QUESTION, "test": "[" * 300 + "]" * 300}, "neither a list nor assertions"),
        ({"prompt": QUESTION, "test": "x" * 70_000}, "tests of more than"),
        ({"prompt": QUESTION, "test": "[1, 2]"}, "neither a list nor assertions"),
        ({"prompt": QUESTION, "test": "import os\nos.remove('x')"}, "at least|length"),
        ({"prompt": None, "test": "assert twice(2) == 4"}, "Expected `str`"),
    ],
)
def test_a_row_without_its_columns_is_refused_in_one_line(row: dict[str, object], line: str) -> None:
    with pytest.raises(ProblemError, match=line) as raised:
        read_row(row)
    assert "\n" not in str(raised.value)


def test_tests_keep_what_stands_before_them() -> None:
    row = {"prompt": QUESTION, "test": f"import math\n{TESTS[0]}\n{TESTS[1]}"}
    assert read_row(row).problem.tests == tuple(f"import math\n{test}" for test in TESTS)


def test_a_csv_is_read_as_spreadsheets_write_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([["ask", "checks", "code"], [QUESTION, "\n".join(TESTS), CODE], ["only a question"]])
    assert main(["data", "check", f"{path}?question=ask&tests=checks", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["usable"] == 1 and report["rows"] == 2
    assert source_weights([f"{path}:2", "hub:me/mine?question=ask"]) == {
        str(path): 2.0,
        "hub:me/mine?question=ask": 1.0,
    }
    path.write_bytes(b'question,tests\n"' + b"x" * 200_000)
    with pytest.raises(ProblemError, match="cannot be read"):
        list(open_rows(str(path)).rows(str(path), 0))


@pytest.mark.slow
def test_a_set_of_the_hub_is_read_by_its_name_and_later_from_the_cache(tmp_path: Path) -> None:
    rows = [{"prompt": QUESTION, "test": "\n".join(TESTS), "solution": CODE}]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {"README.md": b"---\nlicense: mit\n---\n", "data/train.jsonl": lines, "data/test.jsonl": lines * 3}
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    check = [sys.executable, "-m", "codezero", "data", "check", "hub:me/mine", "--json"]
    with serving(Hub({("me/mine", "5" * 40): files})) as hub:
        done = subprocess.run(check, capture_output=True, text=True, env={**environment, "HF_ENDPOINT": hub.url})
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["usable"] == 1, "the training split alone"
    offline = {**environment, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}
    again = subprocess.run(check, capture_output=True, text=True, env=offline)
    assert again.returncode == 0 and json.loads(again.stdout)["usable"] == 1, again.stderr
