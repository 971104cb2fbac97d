"""Rows in the form of MBPP and CodeContests become problems with known solutions, or are refused by name."""

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import ProblemError
from codezero.evaluator.calibration import CanaryKind, CanaryLibrary, draw_canaries, proven
from codezero.problems.rows import MAX_CASES, read_row
from codezero.sandbox.base import TRUTH, Job
from codezero.sandbox.monty import MontySandbox
from codezero.types import Source, Style

MBPP: dict[str, Any] = {
    "task_id": 7,
    "text": "Write a python function to double each number of a list.",
    "code": "def twice(nums):\n    return [2 * n for n in nums]",
    "test_list": ["assert set(twice([1, 2])) == set([2, 4])", "assert twice([]) == []"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
CONTEST: dict[str, Any] = {
    "name": "sums",
    "description": "Read two numbers and write their sum.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": ["5 6\n"], "output": ["11\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main(){}", "print(sum(map(int, input().split())))"]},
    "incorrect_solutions": {"language": [3], "solution": ["a, b = input().split()\nprint(a + b)"]},
    "difficulty": 7,
}

DEEPCODER: dict[str, Any] = {
    "problem": "Read two numbers and write their sum.\n",
    "solutions": ["```python\nprint(sum(map(int, input().split())))\n```", "print(5)"],
    "tests": json.dumps([{"type": "stdin_stdout", "input": f"{n} 2\n", "output": f"{n + 2}\n"} for n in range(70)]),
}


def calls(*tests: tuple[Any, Any], name: str = "add", **fields: Any) -> str:
    return json.dumps([{"fn_name": name, "input": given, "output": wanted, **fields} for given, wanted in tests])


def line(row: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**row, **changes}).encode()


OTHER = line(MBPP, text="Add one.", code="def inc(n):\n    return n + 1", test_list=["assert inc(1) == 2"] * 2)
LYING = line(MBPP, text="Add two.", code="def two(n):\n    return n + 1", test_list=["assert two(1) == 3"] * 2)


def test_a_row_of_mbpp():
    worked = read_row(line(MBPP))
    assert worked.problem.entry_point == "twice" and worked.problem.source is Source.MBPP
    assert worked.problem.tests == tuple(MBPP["test_list"]) and worked.right == (MBPP["code"],)
    sanitised = {key: value for key, value in MBPP.items() if key not in ("text", "test_setup_code")}
    other = read_row(line(sanitised, prompt="Double.", test_imports=["import math"]))
    assert other.problem.question == "Double." and other.problem.tests[0].startswith("import math\nassert")


def test_a_row_of_code_contests_keeps_python_only():
    worked = read_row(line(CONTEST))
    assert worked.problem.style is Style.STDIO and worked.problem.source is Source.CODE_CONTESTS
    assert json.loads(worked.problem.tests[1]) == {"input": "5 6\n", "output": "11\n"}
    assert worked.right == ("print(sum(map(int, input().split())))",)
    assert worked.wrong == ("a, b = input().split()\nprint(a + b)",)


def test_a_row_of_deepcoder_with_a_program():
    worked = read_row(line(DEEPCODER))
    assert worked.problem.style is Style.STDIO and worked.problem.source is Source.DEEPCODER
    assert len(worked.problem.tests) == MAX_CASES and json.loads(worked.problem.tests[1])["output"] == "3\n"
    assert worked.problem.reference == "print(sum(map(int, input().split())))" and len(worked.right) == 2
    untyped = json.dumps([{"input": "1", "output": "2"}, {"input": "2", "output": "3"}])
    assert read_row(line(DEEPCODER, tests=untyped)).problem.style is Style.STDIO


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (calls(([1, "a"], [3]), ([[2], None], [True])), ("add(1, 'a') == 3", "add([2], None) == True")),
        (calls(([1], [3]), ([2], [1, 2])), ("add(1) == [3]", "add(2) == [1, 2]")),
        (calls(("[1, [2.5]]", {"a": None}), type="function_call"), ("add(1, [2.5]) == {'a': None}",)),
        (calls(([], "x"), ([[]], "'\n")), ("add() == 'x'", 'add([]) == "\'\\n"')),
        (calls(([10**30], [[1]])), (f"add({10**30}) == [1]",)),
    ],
)
def test_a_row_of_deepcoder_with_a_function(tests: str, expected: tuple[str, ...]):
    worked = read_row(line(DEEPCODER, tests=tests, solutions=["def add(*given):\n    return 3"]))
    assert worked.problem.entry_point == "add" and worked.problem.tests == tuple(f"assert {test}" for test in expected)


def test_a_function_of_deepcoder_is_executed():
    row = line(DEEPCODER, tests=calls(([1, 2], [3]), ([4, -4], [0])), solutions=["def add(a, b):\n    return a + b"])
    problem = read_row(row).problem
    with MontySandbox() as sandbox:
        assert TRUTH[sandbox.run(Job(problem.reference or "", problem.tests)).outcome]
        assert TRUTH[sandbox.run(Job("def add(a, b): return [a + b]", problem.tests)).outcome] is False


@given(st.lists(st.tuples(st.lists(st.from_type(type(None)) | st.integers() | st.text() | st.booleans()), st.text())))
def test_arguments_and_outputs_stay_what_they_are(pairs: list[tuple[list[Any], str]]):
    try:
        problem = read_row(line(DEEPCODER, tests=calls(*pairs))).problem
    except ProblemError:
        assert not pairs or any(len(repr(pair)) > 15_000 for pair in pairs)
        return
    seen: list[tuple[list[Any], str]] = []
    for test in problem.tests:
        (statement,) = ast.parse(test).body
        assert isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare)
        call, (wanted,) = statement.test.left, statement.test.comparators
        assert isinstance(call, ast.Call)
        seen.append((list(map(ast.literal_eval, call.args)), ast.literal_eval(wanted)))
    assert seen == pairs[: len(seen)]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (line(DEEPCODER, tests="["), "truncated"), (line(DEEPCODER, tests="[]"), "of type nothing"),
        (line(DEEPCODER, tests=[]), "tests"),
        (line(DEEPCODER, tests='[{"input": ' + "[" * 5000), "recursion|truncated"),
        (line(DEEPCODER, tests='[{"input": "1"}]'), "output"),
        (line(DEEPCODER, tests='[{"input": ["1"], "output": "1"}]'), "Expected `str`"),
        (line(DEEPCODER, tests=calls(([1], 2), type="stdin_stdout")), "Expected `str`"),
        (line(DEEPCODER, tests=calls(([1], 2), type="functional")), "of type functional"),
        (line(DEEPCODER, tests=calls((7, 2))), "Expected `array`"),
        (line(DEEPCODER, tests=calls(("7", 2))), "Expected `array`"),
        (line(DEEPCODER, tests=calls(("[1e999]", 2))), "out of range"),
        (line(DEEPCODER, tests=calls(([1], 2), name="f\n")), "pattern|matching regex"),
        (line(DEEPCODER, tests='[{"input": [], "output": 1, "type": "function_call"}]'), "function_call: not of one"),
        (line(DEEPCODER, tests=calls(([1], 2))[:-1] + ', {"input": "", "output": ""}]'), "of one known"),
        (line(DEEPCODER, tests=calls(([], 2))[:-1] + "," + calls(([], 2), name="g")[1:]), "of one"),
        (line(DEEPCODER, tests=calls((["x" * 10**5], 2))), "no tests"), (b"{", "truncated"), (b"[]", "object"),
        (b"{}", "no column question; there are none"), (line(MBPP, test_list=[]), "test_list"),
        (line(MBPP, test_list=["assert"]), "test 1"), (line(MBPP, test_list=["assert 1 == 1"]), "no test calls"),
        (line(MBPP, code=7), "code"), (line(MBPP, text=""), "question"),
        (line(CONTEST, public_tests={}, private_tests={}), "no tests"), (line(CONTEST, solutions=None), "solutions"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_named(row: bytes, why: str):
    with pytest.raises(ProblemError, match=why):
        read_row(row)


@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.text() | st.integers(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from([*MBPP, *CONTEST, *DEEPCODER]), x),
    ).map(lambda x: json.dumps(x).encode())
)
def test_any_bytes_are_a_row_or_refused(data: bytes):
    try:
        assert read_row(data).problem.tests
    except ProblemError as error:
        assert str(error)


@pytest.fixture(scope="module")
def library() -> CanaryLibrary:
    with MontySandbox() as sandbox:
        return CanaryLibrary(proven([*map(read_row, (line(MBPP), OTHER, LYING, line(CONTEST)))], sandbox))


def test_what_is_called_right_passes_and_what_is_called_wrong_fails(library: CanaryLibrary):
    drawn = draw_canaries(library, 200, "x")
    assert {canary.kind for canary in drawn} == {CanaryKind.REFERENCE, CanaryKind.MUTANT, CanaryKind.ATTACK}
    with MontySandbox() as sandbox:
        for canary in drawn:
            job = Job(canary.code, canary.problem.tests, canary.problem.style is Style.STDIO)
            assert TRUTH[sandbox.run(job).outcome] is canary.right


def test_a_reference_that_fails_its_own_tests_measures_nobody(library: CanaryLibrary):
    assert read_row(LYING).problem.id not in {problem.id for problem in library.problems}


def test_a_library_without_solutions_is_refused():
    with pytest.raises(ProblemError, match="no problem has a right and a wrong solution"):
        CanaryLibrary([read_row(line(CONTEST, solutions={"language": [], "solution": []}))])
