"""Calls are found wherever an assertion hides them, and in one spelling."""

import pytest

from codezero.code.tests import MAX_TESTS, parse_tests
from codezero.errors import ProblemError


def only(test: str, entry: str | None = None):
    (call,) = parse_tests([test], entry).calls
    return call


def test_plain_equality():
    call = only("assert f([1,2], k = 3) == [3]")
    assert (call.npos, call.keywords, call.args, call.expected) == (1, ("k",), ("[1, 2]", "3"), "[3]")


def test_equality_the_other_way_round():
    assert only("assert 4 == f(2)").expected == "4"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("assert set(f((3, 4), (5, 4))) == set((4,))", "(4,)"),
        ("assert sorted(f(3)) == [1, 2]", "[1, 2]"),
        ("assert math.isclose(f(3), 28.27, rel_tol=0.1)", "28.27"),
        ("assert abs(f(3) - 28.27) < 1e-6", "28.27"),
        ("assert not f(3)", "False"),
        ("assert f(3)", "True"),
        ("assert f(3) is None", "None"),
        ("self.assertEqual(f(3), -1)", "-1"),
        ("assert f(3) > 2", None),
        ("assert f(3)[0] == 2", None),
    ],
)
def test_expected_value(test: str, expected: str | None):
    assert only(test, "f").expected == expected


def test_the_entry_point_is_the_function_called_most_that_nobody_defines():
    tests = ["import math", "assert math.isclose(area(3), 28.27)", "assert round(area(2)) == 13"]
    assert parse_tests(tests).entry_point == "area"


def test_an_imported_function_is_not_the_entry_point():
    assert parse_tests(["from math import isclose\nassert isclose(g(1), 2)"]).entry_point == "g"


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


def test_hostile_tests_are_refused():
    with pytest.raises(ProblemError):
        parse_tests(["assert " + "-" * 1500 + "f(1)"] * 2 + ["assert f(" + "(" * 300 + ")" * 300 + ")"])
