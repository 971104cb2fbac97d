"""Calls are found wherever an assertion hides them, and in one spelling."""

import json

import pytest

from codezero.code.assertions import MAX_CASE, MAX_EXAMPLES, MAX_TESTS, Example, examples, parse_cases, parse_tests
from codezero.errors import ProblemError


def only(test: str, entry: str | None = None):
    (call,) = parse_tests([test], entry)[1]
    return call


def test_plain_equality():
    call = only("assert f([1,2], k = 3) == [3]")
    assert (call.npos, call.keywords, call.args, call.expected) == (1, ("k",), ("[1, 2]", "3"), "[3]")


@pytest.mark.parametrize(("test", "expected"), [
    ("assert set(f((3, 4), (5, 4))) == set((4,))", "(4,)"), ("assert sorted(f(3)) == [1, 2]", "[1, 2]"),
    ("assert math.isclose(f(3), 28.27, rel_tol=0.1)", "28.27"), ("assert abs(f(3) - 28.27) < 1e-6", "28.27"),
    ("assert not f(3)", "False"), ("assert f(3)", "True"), ("assert f(3) is None", "None"),
    ("self.assertEqual(f(3), -1)", "-1"), ("assert f(3) > 2", None), ("assert f(3)[0] == 2", None),
])  # fmt: skip
def test_expected_value(test: str, expected: str | None):
    assert only(test, "f").expected == expected


def test_the_entry_point_is_the_function_called_most_that_nobody_defines():
    tests = ["import math", "assert math.isclose(area(3), 28.27)", "assert round(area(2)) == 13"]
    assert parse_tests(tests)[0] == "area"


def test_an_imported_function_is_not_the_entry_point():
    assert parse_tests(["from math import isclose\nassert isclose(g(1), 2)"])[0] == "g"


def test_a_call_inside_a_unittest_class():
    text = "class T(TestCase):\n    def test(self):\n        self.assertEqual(f([1], k=2), [3])"
    assert only(text, "f").expected == "[3]"


def test_arguments_that_are_no_literals_are_unknown():
    assert only("assert f(x, 1) == 2", "f").args == (None, "1")


@pytest.mark.parametrize(
    "tests", [[], ["x = 1"], ["assert ("], ["assert len([1]) == 1"], ["assert f(1)"] * (MAX_TESTS + 1)]
)
def test_tests_that_call_nothing_are_refused(tests: list[str]):
    with pytest.raises(ProblemError):
        parse_tests(tests)


def test_the_entry_point_is_what_is_asserted_and_not_what_helps_to_call_it():
    built = "root = Node(1)\nroot.left = Node(2)\nassert height(root) == 2"
    assert parse_tests([built])[0] == "height"
    assert parse_tests(["assert longest([Pair(1, 2), Pair(3, 4)], 2) == 2"])[0] == "longest"
    assert parse_tests(["assert f(g(1)) == 1", "assert g(1) == g(1)", "assert f(2) == 1"])[0] == "f"


def test_a_builtin_is_the_entry_point_only_where_the_reference_defines_it():
    tests = ["assert sum(10, 4) == 6"]
    assert parse_tests(tests, reference="def sum(a, b):\n    return a - b")[0] == "sum"
    for reference in ("", "def f(a):\n    return a", "("):
        with pytest.raises(ProblemError):
            parse_tests(tests, reference=reference)


def test_hostile_tests_are_refused():
    with pytest.raises(ProblemError):
        parse_tests(["assert " + "-" * 1500 + "f(1)"] * 2 + ["assert f(" + "(" * 300 + ")" * 300 + ")"])


def test_claims_are_found_in_conjunctions_and_assert_true():
    calls = parse_tests(["assert f(1) == 2 and f(2) == 3", "self.assertTrue(f(4) == 5)"], "f")[1]
    assert [(call.expected, call.exact) for call in calls] == [("2", True), ("3", True), ("5", True)]


def case(given: str, wanted: str) -> str:
    return json.dumps({"input": given, "output": wanted})


@pytest.mark.parametrize(
    "tests",
    [
        [], ["3"], ["{}"], ["not json"], [case("1", "2")[:-1]], ['{"input": 1, "output": "2"}'], ["[" * 10_000],
        ['{"input": "1", "output": "2", "more": 1}'], [case("x" * MAX_CASE, "")], [case("", "")] * (MAX_TESTS + 1),
    ],
)  # fmt: skip
def test_cases_of_another_form_are_refused(tests: list[str]):
    with pytest.raises(ProblemError):
        parse_cases(tests)


def test_examples_of_calls_are_the_call_and_the_literal_it_must_equal():
    tests = ("assert f([1,2], k = 3) == [3]", "assert 4 == f(-2)", "assert f(1) == 1", "assert f(1) == 1")
    assert examples(tests, "f") == (Example("f([1, 2], k=3)", "[3]"), Example("f(-2)", "4"), Example("f(1)", "1"))


@pytest.mark.parametrize(
    "test",
    [
        "assert f(x) == 1", "assert f(*[1]) == 1", "assert f(**{'a': 1}) == 1", "assert f(1) > 0", "assert f(1)",
        "assert set(f(1)) == set((1,))", "assert abs(f(1) - 2.5) < 1e-6", "assert f(1) == g(2)", "assert (",
        f"assert f({'x' * 400!r}) == 1",
    ],
)  # fmt: skip
def test_what_a_test_does_not_say_is_no_example(test: str):
    assert examples((test,), "f") == ()


def test_examples_of_programs_are_few_and_short():
    tests = tuple(case(str(number), "y") for number in range(20))
    assert len(examples(tests, "")) == MAX_EXAMPLES
    assert examples((case("x" * 301, "y"), case("1\n", "2\n")), "") == (Example("1\n", "2\n"),)
    assert examples(("not json",), "") == ()
