"""What a verifier may write, what is made of it, and what it is shown."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import ProblemError
from codezero.sandbox.base import ALL_HOLD, Job, Outcome, failed, unknown
from codezero.sandbox.monty import MontySandbox
from codezero.solver.cases import feedback, read_cases, verifier_prompt
from codezero.types import Problem, Source

CALL = Problem("0" * 64, "Double x.", ("assert f(1) == 2",), "f", Source.MBPP)
LINES = json.dumps({"input": "2\n1 2\n", "output": "3\n"})
STDIO = Problem("1" * 64, "Add.", (LINES,), "", Source.CODE_CONTESTS)
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


def written(*cases: tuple[Any, Any]) -> str:
    return f"```json\n{json.dumps([{'input': given, 'output': wanted} for given, wanted in cases])}\n```"


@given(LITERALS, LITERALS)
def test_literals_become_the_assertion_that_they_mean(argument: object, value: object) -> None:
    (test,) = read_cases(CALL, written((repr(argument), repr(value))), 1)
    assert test == f"assert f({argument!r}) == {value!r}"


@given(st.text(), st.text())
def test_whatever_a_case_holds_it_is_a_test_or_refused(argument: str, value: str) -> None:
    try:
        (test,) = read_cases(CALL, written((argument, value)), 1)
    except ProblemError:
        return
    with MontySandbox() as sandbox:
        assert sandbox.run(Job("def f(*x):\n    raise ValueError", (test,))).outcome is not Outcome.PASS


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"```json\n{text}\n```"):
        with pytest.raises(ProblemError):
            read_cases(CALL, whole, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no whole ```json block"),
        ("```json\n[]", "no whole ```json block"),
        ("```json\n[1]\n```", "no list of input and output"),
        (written(("1", "2")), "1 cases, and 2 were asked for"),
        (written(("1", "2 or True"), ("1", "2")), "not made of Python's literals"),
        (written(("1", "f(1)"), ("1", "2")), "not made of Python's literals"),
        (written(("1) == 1 or (1", "2"), ("1", "2")), "not made of Python's literals"),
        (written(("1", "2" * 3000), ("1", "2")), "longer than 2000"),
        (written(("1", "[" * 1500), ("1", "2")), "not made of Python's literals"),
        ("```json\n" + "[" * 60_000 + "\n```", "no list"),
    ],
)
def test_cases_that_cannot_be_used_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ProblemError, match=why):
        read_cases(CALL, text, 2)


def test_the_last_block_counts_and_its_first_cases() -> None:
    text = f"{written(('1', '1'))}\nNo:\n{written(('1', '2'), ('3', '6'), ('4', '8'))}"
    assert read_cases(CALL, text, 2) == ("assert f(1) == 2", "assert f(3) == 6")


def test_a_programs_cases_are_text_and_have_as_many_lines_as_the_true_ones() -> None:
    (test,) = read_cases(STDIO, written(("1\n5", "5")), 1)
    assert json.loads(test) == {"input": "1\n5", "output": "5"}
    with pytest.raises(ProblemError, match="this program reads several"):
        read_cases(STDIO, written(("1 5", "5")), 1)


def test_a_verifier_sees_the_program_and_not_the_examples() -> None:
    question = "Add the numbers of each line, as many as come.\n\nExample 1:\n1 2\n3\n\nConstraints:\nat most 5"
    problem = Problem("2" * 64, question, (LINES,), "", Source.CODE_CONTESTS)
    shown = verifier_prompt(problem, "print(3)", 2)
    assert "1 2" not in shown and "Constraints:\nat most 5" in shown and "print(3)" in shown and "2 test cases" in shown


def test_a_question_that_is_mostly_examples_stays_whole() -> None:
    problem = Problem("3" * 64, "Add.\nExamples\n" + "1 2\n3\n" * 20, (LINES,), "", Source.CODE_CONTESTS)
    assert "1 2\n3" in verifier_prompt(problem, "", 2)


def test_feedback_names_each_case_and_what_came_of_it() -> None:
    tests = ("assert f(1) == 2", "assert f(2) == 4")
    text = feedback(tests, [ALL_HOLD, failed("ValueError: no")])
    assert "f(1) == 2: passes" in text and "f(2) == 4: ValueError: no" in text


def test_what_the_sandbox_cannot_tell_sends_nothing_back() -> None:
    assert feedback(("assert f(1) == 2",), [unknown("no such module")]) == ""
