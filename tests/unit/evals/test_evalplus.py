"""HumanEval+ and MBPP+: the reference says what is expected, EvalPlus's rule compares, base and plus have figures."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from builders.evals import plus, write_rows

from codezero.code.parsing import fence
from codezero.errors import ProblemError
from codezero.evals.figures import TaskOutcome, figures_of
from codezero.evals.grading import Grade, SandboxGrader
from codezero.evals.sets import read_tasks
from codezero.evals.task import sanitized
from codezero.sandbox.bubblewrap import open_sandbox
from codezero.sandbox.values import same_values, value_of_json, value_to_json
from codezero.types import Completion

pytestmark = pytest.mark.usefixtures("jailed")
ORACLE = Path(__file__).parents[2] / "oracles" / "evalplus_verdicts.py"
PLAIN = plus("HumanEval/1", "f", "return x + 1", [[1], [2]], [[3], [10]])
FLOATS = plus("HumanEval/2", "f", "return x / 3", [[1], [2]], [[7]])
NEAR = plus("HumanEval/3", "f", "return [x, x / 3]", [[1]], [[2]], atol=0.01)
ROOT = plus("HumanEval/32", "find_zero", "return -x[0] / x[1]", [[[1, 2]]], [], atol=1e-4)
TUPLES = plus("Mbpp/106", "f", "return y + (x[0],)", [[[1], [2]]], [], asked="x, y")
ANY_ORDER = plus("Mbpp/2", "similar_elements", "return tuple(set(x) & set(y))", [[[1, 2], [2, 1]]], [], asked="x, y")
NOT_NONE = plus("Mbpp/9", "check_str", "return [x] if x else None", [["a"]], [[""]])
DIGITS = plus("Mbpp/558", "digit_distance_nums", "return 7", [[12, 3]], [], asked="x, y")
PYRAMID = plus("Mbpp/581", "surface_Area", "return 1", [[3, 4]], [], asked="x, y")
ANYTHING = plus("Mbpp/164", "are_equivalent", "return True", [[1]], [])
SUMS = plus("Mbpp/295", "sum_div", "return 8", [[8]], [])
BIG = plus("HumanEval/5", "f", "return 7 ** x", [[3], [900]], [[2]])
BYTES = plus("HumanEval/6", "f", "return {x: {1j, None, b'a'}}", [["k"]], [[1.5]])
INFINITE = plus("Mbpp/8", "f", "return x - 1", [[float("inf")]], [[float("-inf")]])
ATTEMPTS: list[tuple[dict[str, Any], str, bool, bool]] = [  # a row, an answer's body, and whether base and all pass
    (PLAIN, "return x + 1", True, True), (PLAIN, "return min(x + 1, 4)", True, False),
    (PLAIN, "return float(x + 1)", True, True), (PLAIN, "return str(x + 1)", False, False),
    (PLAIN, "return [x + 1]", False, False), (PLAIN, "raise SystemExit", False, False),
    (PLAIN, "print(x)\n    return x + 1", True, True), (PLAIN, "return input()", False, False),
    (FLOATS, "return x * (1 / 3)", True, True), (FLOATS, "return x / 3 + 2e-7", True, True),
    (FLOATS, "return x / 3 + 1e-4", False, False), (FLOATS, "return round(x / 3, 9) if x < 7 else 2", True, False),
    (NEAR, "return [x, x / 3 + .001]", True, True), (NEAR, "return (x, x / 3 + .001)", False, False),
    (NEAR, "return [x, x / 3 + .1]", False, False), (NEAR, "return [x]", False, False),
    (ROOT, "return -0.50001", True, True), (ROOT, "return 0.5", False, False), (ROOT, "return None", False, False),
    (TUPLES, "return y + (x[0],)", True, True), (TUPLES, "return [*y, x[0]]", False, False),
    (ANY_ORDER, "return [2, 1, 1]", True, True), (ANY_ORDER, "return (each for each in (1, 2))", True, True),
    (ANY_ORDER, "return [1]", False, False), (ANY_ORDER, "return 3", False, False),
    (NOT_NONE, "return 1 if x else None", True, True), (NOT_NONE, "return bool(x)", True, True),
    (NOT_NONE, "return 1", True, False),
    (DIGITS, "return 2", True, True), (DIGITS, "return 7", True, True), (DIGITS, "return 3", False, False),
    (PYRAMID, "return 35", True, True), (PYRAMID, "return 1", True, True), (PYRAMID, "return 34", False, False),
    (ANYTHING, "return 'no'", True, True), (ANYTHING, "return 1 / 0", False, False),
    (SUMS, "return 0", True, True), (SUMS, "return 8.0", True, True), (SUMS, "return 1", False, False),
    (BIG, "return 7 ** x", True, True), (BIG, "return 7 ** x + (x > 3)", False, False),
    (BYTES, "return dict([(x, frozenset([b'a', None, 1j]))])", True, True), (BYTES, "return {x: {1j}}", False, False),
    (INFINITE, "return x", True, True), (INFINITE, "return abs(x)", True, False),
]  # fmt: skip


def answer(row: dict[str, Any], body: str) -> str:
    asked = "x, y" if row["entry_point"] in ("similar_elements", "digit_distance_nums", "surface_Area") else "x"
    return f"def {row['entry_point']}({'x, y' if row is TUPLES else asked}):\n    {body}"


def dataset(row: dict[str, Any]) -> str:
    return "mbpp" if row["task_id"].startswith("Mbpp") else "humaneval"


def grades_of(folder: Path, attempts: list[tuple[dict[str, Any], str]]) -> list[Grade]:
    tasks = {
        id(row): next(read_tasks(f"{dataset(row)}plus", [write_rows(folder / "row.jsonl", [row])]))
        for row, _ in attempts
    }
    with open_sandbox("auto") as sandbox:
        tried = [[Completion(fence(code), (), (), True)] for _, code in attempts]
        return [grade for (grade,) in SandboxGrader(sandbox).grade([tasks[id(row)] for row, _ in attempts], tried)]


def test_base_and_plus_are_decided_by_evalplus_rule(tmp_path: Path) -> None:
    grades = grades_of(tmp_path, [(row, answer(row, body)) for row, body, _, _ in ATTEMPTS])
    wrong = [
        (row["task_id"], body, grade)
        for (row, body, base, passed), grade in zip(ATTEMPTS, grades, strict=True)
        if (grade.base, grade.passed) != (base, passed)
    ]
    assert not wrong


def test_the_package_says_the_same() -> None:
    if find_spec("evalplus") is None:
        pytest.skip("the package evalplus is not installed (pip install evalplus)")
    asked = [each for each in ATTEMPTS if each[0] is not ROOT]  # 0.3.1 fails whatever finds a root: evalplus #241
    lines = [json.dumps([dataset(row), row, answer(row, body)]) for row, body, _, _ in asked]
    done = subprocess.run([sys.executable, str(ORACLE)], input="\n".join(lines), capture_output=True, text=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[base, full] for *_, base, full in asked], done


def test_a_reference_that_fails_leaves_its_attempts_undecided(tmp_path: Path) -> None:
    row = plus("HumanEval/7", "f", "return 1 / x", [[1]], [[0]])
    (grade,) = grades_of(tmp_path, [(row, "def f(x):\n    return 1 / x")])
    assert (grade.base, grade.passed) == (True, None) and grade.reason.startswith("the reference: ZeroDivisionError")


@pytest.mark.parametrize(
    ("printed", "what"),
    [("", "nothing"), ("[2", "half"), ('{"a": 1}', "no list"), ("[[2]]", "another"), ('[{"set": [[1]]}]', "no set"),
     ('[{"dict": 3}]', "no dict"), ('[{}]', "no kind"), ('[{"int": "z"}]', "no int"), ("[" * 100_000, "deep")],
)  # fmt: skip
def test_whatever_is_printed_instead_is_wrong(printed: str, what: str) -> None:
    rule = '{"entry": "f", "mbpp": false, "atol": 0.1}'
    assert not same_values(f"{rule}\n[2]", printed), what
    assert same_values(f"{rule}\n[2]", "[2]")


def test_values_come_back_as_they_were() -> None:
    values = [None, True, 1, 2**70, -(2**70), 1.5, "é\ud800", [(1, [2])], {1: {2}}, 1 + 2j, b"\xff", frozenset([3])]
    assert value_of_json(json.loads(json.dumps(value_to_json(values)))) == values
    assert value_of_json(value_to_json(range(3))) != range(3)


def test_what_evalplus_drops_of_an_answer_is_not_run() -> None:
    code = """import math
LIMIT = 3
UNUSED = 1 / 0
def helper(x):
    return x + LIMIT
def no_return(x):
    x.append(1)
@property
def decorated(x):
    return 1
def f(x):
    return helper(x)
def f(x):
    return 2
assert f(1) == 7
"""
    kept = sanitized(code, "f")
    assert kept == "import math\nLIMIT = 3\ndef helper(x):\n    return x + LIMIT\ndef f(x):\n    return helper(x)"
    assert sanitized("print(1)", "f") == "print(1)" and sanitized("def f(:", "f") == "def f(:"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [({"task_id": "Mbpp/1"}, "task_id"), ({"entry_point": "f();g"}, "entry_point"), ({"atol": "x"}, "atol"),
     ({"base_input": []}, "base_input"), ({"base_input": [1]}, "base_input"), ({"plus_input": {"a": 1}}, "plus_input"),
     ({"atol": -1}, "atol"), ({"canonical_solution": None}, "canonical_solution")],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_row(changed: dict[str, Any], fault: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [PLAIN, PLAIN | changed])
    with pytest.raises(ProblemError, match=rf"rows\.jsonl, row 2.*{fault}") as caught:
        list(read_tasks("humanevalplus", [path]))
    assert "\n" not in str(caught.value)


def test_arguments_that_do_not_fit_the_tuples_of_a_task_are_one_line(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [plus("Mbpp/124", "f", "return x", [["a", "b"]], [])])
    with pytest.raises(ProblemError, match=r"row 1: base_input") as caught:
        list(read_tasks("mbppplus", [path]))
    assert "\n" not in str(caught.value)


def test_base_has_figures_of_its_own() -> None:
    outcomes = [TaskOutcome("a", (False, True), (True, True)), TaskOutcome("b", (None, False), (True, False))]
    figures = {
        figure.name: figure.value for figure in figures_of(outcomes, samples=2, ks=[1], label="executed", seed=0)
    }
    assert figures == {"average@2": 0.25, "pass@1": 0.25, "base average@2": 0.75, "base pass@1": 0.75}
