"""Tests taken apart: the code's side is told nothing of the answers; values come back as they were."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.errors import ProblemError
from codezero.sandbox.assertions import TAG
from codezero.sandbox.base import Outcome
from codezero.sandbox.bubblewrap import render
from codezero.sandbox.jail_main import MAX_DEPTH, NotPlain, encode
from codezero.sandbox.monty import MontySandbox
from codezero.sandbox.separation import separate

HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.integers(-9, 9).map(range)
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=8,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.sets(HASHABLE) | st.dictionaries(HASHABLE, inner),
    max_leaves=20,
)
NAMES: dict[str, Any] = {kind.__name__: kind for kind in (float, complex, set, frozenset, range)}


@pytest.fixture(scope="module")
def monty() -> Iterator[MontySandbox]:
    with MontySandbox() as monty:
        yield monty


@given(VALUES)
def test_a_value_comes_back_as_source_of_the_same_value(value: object) -> None:
    again = eval(render(encode(value)), {"__builtins__": NAMES})  # our own source of our own value
    assert type(again) is type(value)
    assert again == value


@given(st.floats() | st.complex_numbers())
def test_a_number_comes_back_to_the_last_bit(value: complex) -> None:
    assert repr(eval(render(encode(value)), {"__builtins__": NAMES})) == repr(value)


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats(), lambda inner: st.lists(inner)))
def test_what_was_not_encoded_here_is_refused_or_is_a_value(forged: object) -> None:
    try:
        source = render(forged)
    except ProblemError:
        return
    eval(source, {"__builtins__": NAMES})  # nothing but literals and the five names: anything else raises NameError


@pytest.mark.parametrize(
    "forged",
    [
        ["int", "1); import os; (1"],
        ["int", "__import__('os')"],
        ["float", "1); f("],
        ["complex", "1", "x"],
        ["bytes", "zz"],
        ["range", "1", "2", "f()"],
        ["dict", ["a"]],
        ["lambda", None],
        ["list", {"a": 1}],
        {"a": 1},
        [],
        1,
        [["list"]],
    ],
)
def test_forged_values_never_become_source(forged: object) -> None:
    with pytest.raises(ProblemError):
        render(forged)


def test_what_is_not_plain_is_not_told() -> None:
    endless: list[object] = []
    endless.append(endless)
    wide = [1]
    for _ in range(50):
        wide = [wide, wide]  # type: ignore[list-item]
    odd = type("Odd", (int,), {"__eq__": lambda self, other: True, "__hash__": int.__hash__})
    for value in (object(), print, endless, wide, odd(3), "\ud800", (i for i in ()), math):
        with pytest.raises(NotPlain):
            encode(value)
    deep: list[object] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    render(encode(deep))


def test_subclasses_that_keep_equality_count_as_what_they_are() -> None:
    from collections import Counter, OrderedDict, defaultdict, namedtuple
    from enum import IntEnum

    point = namedtuple("point", "x y")
    number = IntEnum("number", "one two")
    assert encode([point(1, 2), Counter("a"), OrderedDict(a=1), defaultdict(int, a=1), number(1)]) == encode(
        [(1, 2), {"a": 1}, {"a": 1}, {"a": 1}, 1]
    )


@pytest.mark.parametrize(
    ("test", "calls"),
    [
        ("assert f(2) == 4", ["f(2)"]),
        ("assert sorted(f([3, 1])) == [1, 3]", ["f([3, 1])"]),
        ("import math\nassert math.isclose(f(1), 777.0)", ["f(1)"]),
        ("assert f(f(2)) == 777 and not g(x=1)", ["f(f(2))", "g(x=1)"]),
        ("want = 777\nassert f(1) == want", ["f(1)"]),
        ("given = [1]\nassert f(given) == 777", ["f(given)"]),
        ("assert list(map(f, [1, 2])) == [777, 4]", ["list(map(f, [1, 2]))"]),
        ("assert [f(i) for i in range(2)] == [777, 2]", ["[f(i) for i in range(2)]"]),
        ("assert set(f(i) for i in range(2)) == {777}", ["[f(i) for i in range(2)]"]),
        ("assert all(v > 777 for v in f(1))", ["f(1)"]),
        ("n = 3\nassert f(n) == n * 777", ["f(n)"]),
        ("def near(a, b):\n    return abs(a - b) < 777\nassert near(f(1), 2)", ["f(1)"]),
    ],
)
def test_the_codes_side_gets_the_calls_and_never_the_answers(test: str, calls: list[str]) -> None:
    (step,) = separate((test,))
    assert list(step.calls.values()) == calls
    assert "777" not in step.setup + "".join(step.calls.values())
    assert "f(" not in step.check.replace("def near(", "")


@pytest.mark.parametrize(
    "test",
    [
        "assert all(f(i) == i for i in [1])",
        "assert [f(i) for i in [1, 2] if f(i) != i] == []",
        "assert (lambda g: g(1) == 1)(f)",
        "assert (lambda: f(1) == 1)()",
        "assert {i: f(i) for i in [1]} == {1: 1}",
        "def check(x):\n    return f(x) == 1\nassert check(1)",
        "ok = f(1) == 1\nassert ok",
        "xs = [2, 1]\nassert f(xs) == sorted(xs)",
        "x = 1\nassert f(x) == 2\nx = 2\nassert f(x) == x",
        "assert f.__name__ == 'f'",
        "assert sorted([1], key=f) == [1]",
        "for i in [1]:\n    assert f(i)",
        "x = 1",
        "assert " + "(" * 500,
    ],
)
def test_what_cannot_be_taken_apart_is_said(test: str) -> None:
    with pytest.raises(ProblemError):
        separate((test,))


def test_set_up_lines_of_one_test_serve_the_next_and_values_have_names_of_their_own() -> None:
    first, second = separate(("import math\nn = 4\nassert f(n) == math.sqrt(n)", "assert f(n) + f(1) == 3"))
    assert first.setup == "n = 4"
    assert len({*first.calls, *second.calls}) == 3
    assert second.setup == ""


@settings(max_examples=50, deadline=None)
@given(st.lists(HASHABLE.filter(lambda value: value == value), max_size=5))
def test_the_check_holds_in_the_other_interpreter_too(monty: MontySandbox, value: list[object]) -> None:
    source = render(encode(value))
    checked = monty.check(f"a = {source}\nb = {source}\nassert a == b, '{TAG} 1'")
    assert checked.outcome is not Outcome.FAIL
