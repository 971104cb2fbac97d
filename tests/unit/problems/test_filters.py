"""What is refused and why; whatever is sent, nothing crashes and nothing unusable passes."""

import ast
import dataclasses
from random import Random

import pytest
from builders.data_sets import contests, mbpp
from builders.problems import proposed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codezero.problems.filters import CURATED, PROPOSED, REMEMBERED, FilterReason, Novelty, NoveltyState, inspect
from codezero.problems.rows import read_row
from codezero.problems.synthetic.tasks import LEVELS, make_task
from codezero.types import Problem, Source, Standing

GOOD = proposed(3)


def changed(**changes: object) -> Problem:
    return dataclasses.replace(GOOD, **changes)  # pyright: ignore[reportArgumentType]


def program(*pairs: tuple[str, str]) -> Problem:
    cases = [{"input": given, "output": wanted} for given, wanted in pairs]
    tests = {"input": [case["input"] for case in cases], "output": [case["output"] for case in cases]}
    row = {"description": "Read n.", "public_tests": tests, "solutions": {"language": [], "solution": []}}
    return read_row(row).problem


def test_what_is_good_passes():
    assert inspect(GOOD, PROPOSED) is None
    assert inspect(read_row(mbpp(4)).problem, CURATED) is None
    assert inspect(program(("1", "2"), ("2", "3")), CURATED) is None
    levels = [make_task(Random(f"{level} {number}"), level).problem for level in LEVELS for number in range(20)]
    claimed = [dataclasses.replace(problem, standing=Standing.CLAIMED) for problem in levels]
    assert [inspect(problem, PROPOSED) for problem in claimed] == [None] * 100


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (changed(question="  "), FilterReason.LENGTH),
        (changed(question="f " * 1001), FilterReason.LENGTH),
        (changed(tests=("assert f(1) == 1",)), FilterReason.FEW_TESTS),
        (changed(tests=("assert f(1) == 1",) * 3), FilterReason.FEW_TESTS),
        (changed(tests=tuple(f"assert f({n}) == 1" for n in range(17))), FilterReason.LENGTH),
        (changed(tests=("assert f(1) == 1", f"assert f(2) == '{'x' * 500}'")), FilterReason.LENGTH),
        (changed(question="Return f(x)\u202e."), FilterReason.CHARACTERS),
        (changed(question="Return f(x)\x00."), FilterReason.CHARACTERS),
        (changed(question="Return f(x)\ud800."), FilterReason.CHARACTERS),
        (changed(tests=("assert f(1) ==", "assert f(2) == 2")), FilterReason.TESTS),
        (changed(tests=("import os; assert f(1)", "assert f(2) == 2")), FilterReason.TESTS),
        (changed(tests=("assert f(1) == " + "-" * 480 + "1", "assert f(2)")), None),
        (changed(entry_point="print"), FilterReason.ENTRY),
        (changed(entry_point="class"), FilterReason.ENTRY),
        (changed(entry_point="f;x"), FilterReason.ENTRY),
        (changed(question="Return the answer."), FilterReason.UNNAMED),
        (changed(tests=("assert f(1) == 1", "assert g(2) == 2")), FilterReason.UNCALLED),
        (changed(tests=("assert f(1) == 1", "assert f == 2")), FilterReason.UNCALLED),
        (changed(tests=("assert f(1) == 1", "assert f(1) == 2")), FilterReason.CONTRADICTION),
        (changed(tests=("assert f(1) == {1, 2}", "assert f(1) == {2, 1}")), None),
        (changed(tests=("assert f(1)", "assert not f(1)")), FilterReason.CONTRADICTION),
        (changed(tests=("assert f(1) == 1", "assert (f := int)(2) == 2 and f(2)")), FilterReason.LEAK),
        (changed(question="Write f like this:\ndef f(x):\n    return x + 1\nNow you."), FilterReason.LEAK),
        (changed(question="Write it: `def f(x): return x + 1`, please."), FilterReason.LEAK),
        (changed(question="Write it:\n```python\n  f = lambda x: x\n```\nplease do it."), FilterReason.LEAK),
        (changed(question="Complete def f(x): so that it is right."), None),
        (changed(question='Complete\n\ndef f(x):\n    """Doubles."""\n'), None),
        (changed(question='Complete\n\ndef f(x):\n    import math\n    """Doubles."""\n'), None),
        (
            changed(reference="def g(y): return y * 3 + 100", question="Do f: def g(y):  return y*3 + 100"),
            FilterReason.LEAK,
        ),
        (changed(level=6), FilterReason.LEVEL),
        (changed(level=5, question="Return f(x)."), FilterReason.LEVEL),
        (changed(level=1, question="f " * 130), FilterReason.LEVEL),
        (dataclasses.replace(make_task(Random(1), 1).problem, level=5), FilterReason.LEVEL),
        (program(("1", "2"), ("1 ", "2")), FilterReason.FEW_TESTS),
        (program(("1", "2"), ("1 ", "3")), FilterReason.CONTRADICTION),
        (program(("1", "2")), FilterReason.FEW_TESTS),
    ],
    ids=lambda value: None if isinstance(value, Problem) else str(value),
)
def test_every_fault_has_its_reason(problem: Problem, reason: FilterReason | None):
    bounds = PROPOSED if problem.source is Source.PROPOSER else CURATED
    refusal = inspect(problem, bounds)
    assert (refusal and refusal.reason) is reason, refusal
    assert refusal is None or refusal.detail


def renamed(problem: Problem, name: str) -> Problem:
    tests = tuple(test.replace(problem.entry_point, name) for test in problem.tests)
    question = problem.question.replace(problem.entry_point, name)
    return dataclasses.replace(problem, question=question, tests=tests, entry_point=name, id=name)


def test_a_repeat_is_known_by_its_tests_or_by_its_question_whatever_the_function_is_called():
    novelty, first = Novelty(), read_row(mbpp(1)).problem
    assert novelty.add(first) is None
    assert novelty.add(renamed(first, "other")) == "tests"
    swapped = dataclasses.replace(first, tests=tuple(reversed(first.tests)), question="Something else, quite short.")
    assert novelty.add(swapped) == "tests"
    harder = dataclasses.replace(first, tests=("assert solve_1(70) == 71", "assert solve_1(80) == 81"))
    assert novelty.add(renamed(harder, "third")) == "question"
    assert novelty.add(read_row(mbpp(2)).problem) is None


def test_the_memory_stays_small_and_can_be_kept():
    novelty = Novelty()
    assert [novelty.add(read_row(mbpp(number)).problem) for number in range(REMEMBERED + 9)] == [None] * (
        REMEMBERED + 9
    )
    state = novelty.state()
    again = Novelty(state)
    assert again.state() == state and len(state.tests) == REMEMBERED
    for one in (novelty, again):
        assert one.add(read_row(mbpp(3)).problem) is None  # forgotten
        assert one.add(read_row(mbpp(REMEMBERED + 8)).problem) == "tests"
    assert novelty.state() == again.state()
    with pytest.raises(ValueError, match="one signature"):
        NoveltyState(["a"], b"")


def test_rows_of_code_contests_are_usable_or_refused_by_name():
    usable = [inspect(read_row(row).problem, CURATED) for index, row in enumerate(contests(50)) if index % 10 != 3]
    assert usable == [None] * 45


SCRAPS = st.sampled_from([
    "assert f(", "assert f(1) == 1", "assert f(2) == 2", "def f(x):\n    return 1", "(" * 190, "-" * 400,
    "\x00", "\u202e", "\ud800", "f", "assert not f(1)", "[" * 120 + "1" + "]" * 120, "{}:" * 90,
    "assert f(**{}) == {[]}", "\\", "'", "\n", '{"input": "1", "output": "2"}', "0x" + "f" * 300, "9" * 450,
    "lambda:" * 60, "assert f(1, *a) == {1: [2]}", "\ufb01", "",
])  # fmt: skip
TEXTS = st.lists(SCRAPS | st.text(max_size=12), max_size=3).map("".join)


@given(
    question=TEXTS | st.just(GOOD.question) | TEXTS.map(lambda text: GOOD.question + text),
    tests=st.lists(TEXTS | SCRAPS | st.sampled_from(GOOD.tests), max_size=4),
    entry=st.sampled_from(["f", "f", "f", "", "print", "\ufb01", "a b", "\ud800"]),
    level=st.sampled_from([2, None, 1, 5, 0, -1, 10**30]),
)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_no_mangled_proposal_crashes_or_passes_without_two_tests(
    question: str, tests: list[str], entry: str, level: int | None
):
    problem = changed(question=question, tests=tuple(tests), entry_point=entry, level=level)
    if inspect(problem, PROPOSED) is None:
        assert len({test for test in tests if parses(test, entry)}) >= 2
        assert Novelty().add(problem) is None


def parses(test: str, entry: str) -> bool:
    if not entry:
        return test.startswith('{"input"')
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(test)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
