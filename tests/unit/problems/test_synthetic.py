"""Synthetic problems: true references, failing mutants, disjoint splits, invertible questions."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.code.parsing import fence
from codezero.problems.synthetic.grammar import KINDS
from codezero.problems.synthetic.programs import parse_question, question_of, sample_spec, signature
from codezero.problems.synthetic.tasks import (
    LEVELS,
    SyntheticTask,
    held_out,
    is_held_out,
    make_task,
    mutants,
    render,
)
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.types import Source, Standing, problem_id


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    with MontySandbox() as sandbox:
        yield sandbox


def tasks(seed: int, count: int, *, held_out: bool = False) -> list[SyntheticTask]:
    random = Random(seed)
    return [make_task(random, LEVELS[i % 5], held_out=held_out) for i in range(count)]


@pytest.mark.parametrize("held_out", [False, True])
def test_every_reference_passes_its_tests_when_executed(sandbox: MontySandbox, held_out: bool) -> None:
    made = [task.problem for task in tasks(1, 400, held_out=held_out)]
    assert {problem.reference is not None and len(problem.tests) for problem in made} == {3}
    executed = sandbox.run_many([Job(problem.reference or "", problem.tests) for problem in made])
    assert {execution.outcome for execution in executed} == {Outcome.PASS}


def test_every_kind_of_program_is_among_the_executed_ones() -> None:
    seen = {task.spec.kind for side in (False, True) for task in tasks(1, 400, held_out=side)}
    assert seen == set(KINDS)


def test_mutants_keep_the_name_and_fail_the_tests_when_executed(sandbox: MontySandbox) -> None:
    random = Random(2)
    made = [(task, code) for task in tasks(3, 200) for code in mutants(task, random, 2)]
    assert len(made) > 390
    assert all(code.startswith(f"def {task.problem.entry_point}({task.spec.arguments}):") for task, code in made)
    executed = sandbox.run_many([Job(code, task.problem.tests) for task, code in made])
    assert {execution.outcome for execution in executed} == {Outcome.FAIL}


def test_a_level_shares_no_program_with_another() -> None:
    random = Random(6)
    programs = {level: {render(sample_spec(random, level), "f") for _ in range(3000)} for level in LEVELS}
    for low in LEVELS:
        for high in range(low + 1, 6):
            assert not programs[low] & programs[high]


def test_no_held_out_program_is_ever_in_training() -> None:
    train = [task.spec for task in tasks(7, 4000)]
    exam = [task.spec for task in tasks(8, 2000, held_out=True)]
    assert not {signature(spec) for spec in train} & {signature(spec) for spec in exam}
    assert not {render(spec, "f") for spec in train} & {render(spec, "f") for spec in exam}


def test_the_same_seed_makes_the_same_tasks_and_another_does_not() -> None:
    assert tasks(9, 50) == tasks(9, 50)
    assert tasks(9, 50) != tasks(10, 50)


def test_the_exam_is_even_over_the_levels_distinct_and_fixed_by_its_seed() -> None:
    problems = held_out(100, seed=3)
    assert [sum(problem.level == level for problem in problems) for level in LEVELS] == [20] * 5
    assert len({problem.id for problem in problems}) == 100
    assert problems == held_out(100, seed=3) != held_out(100, seed=4)
    assert all((parsed := parse_question(problem.question)) and is_held_out(parsed[1]) for problem in problems)


def test_a_problem_says_what_it_is() -> None:
    problem = make_task(Random(0), 3).problem
    assert (problem.source, problem.standing, problem.level) == (Source.SYNTHETIC, Standing.REFERENCE, 3)
    assert problem.id == problem_id(problem.question, problem.tests)
    assert problem.question.startswith(f"Write a function {problem.entry_point}(")
    assert all(test.startswith(f"assert {problem.entry_point}(") for test in problem.tests)
    assert fence(problem.reference or "").startswith("```python\ndef ")


@given(st.randoms(use_true_random=False), st.sampled_from(LEVELS))
@settings(max_examples=300, deadline=None)
def test_a_question_reads_back_into_its_program(random: Random, level: int) -> None:
    spec = sample_spec(random, level)
    assert parse_question(question_of(spec, "make_value", random)) == ("make_value", spec)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_other_text_reads_as_nothing(text: str) -> None:
    assert parse_question(text) is None
    assert parse_question(f"Write a function f(x) that returns {text}!.") is None


def test_a_constant_outside_the_family_is_not_of_the_family() -> None:
    assert parse_question("Write a function f(x) that returns x plus 12.") is not None
    assert parse_question("Write a function f(x) that returns x plus 13.") is None
    assert parse_question("Write a function f(x) that returns x plus 12." + " " * 3000) is None
