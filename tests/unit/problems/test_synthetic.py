"""Synthetic problems: true references, failing mutants, disjoint splits, invertible questions."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.problems.synthetic import tasks as family
from codezero.problems.synthetic.grammar import KINDS
from codezero.problems.synthetic.tasks import LEVELS, SyntheticTask
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox


def tasks(seed: int, count: int, *, held_out: bool = False) -> list[SyntheticTask]:
    random = Random(seed)
    return [family.make_task(random, LEVELS[i % 5], held_out=held_out) for i in range(count)]


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
    made = [(task, code) for task in tasks(3, 200) for code in family.mutants(task, random, 2)]
    assert len(made) > 390
    assert all(code.startswith(f"def {task.problem.entry_point}({task.spec.arguments}):") for task, code in made)
    executed = sandbox.run_many([Job(code, task.problem.tests) for task, code in made])
    assert {execution.outcome for execution in executed} == {Outcome.FAIL}


def test_a_level_shares_no_program_with_another() -> None:
    random = Random(6)
    programs = {level: {family.render(family.sample_spec(random, level), "f") for _ in range(3000)} for level in LEVELS}
    for low in LEVELS:
        for high in range(low + 1, 6):
            assert not programs[low] & programs[high]


def test_no_held_out_program_is_ever_in_training() -> None:
    train = [task.spec for task in tasks(7, 4000)]
    exam = [task.spec for task in tasks(8, 2000, held_out=True)]
    assert not {family.signature(spec) for spec in train} & {family.signature(spec) for spec in exam}
    assert not {family.render(spec, "f") for spec in train} & {family.render(spec, "f") for spec in exam}


def test_the_exam_is_even_over_the_levels_distinct_and_fixed_by_its_seed() -> None:
    problems = family.held_out(100, seed=3)
    assert [sum(problem.level == level for problem in problems) for level in LEVELS] == [20] * 5
    assert len({problem.id for problem in problems}) == 100
    assert problems == family.held_out(100, seed=3) != family.held_out(100, seed=4)
    assert all(
        (parsed := family.parse_question(problem.question)) and family.is_held_out(parsed[1]) for problem in problems
    )


@given(st.randoms(use_true_random=False), st.sampled_from(LEVELS))
@settings(max_examples=300, deadline=None)
def test_a_question_reads_back_into_its_program(random: Random, level: int) -> None:
    spec = family.sample_spec(random, level)
    assert family.parse_question(family.question_of(spec, "make_value", random)) == ("make_value", spec)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_other_text_reads_as_nothing(text: str) -> None:
    assert family.parse_question(text) is None
    assert family.parse_question(f"Write a function f(x) that returns {text}!.") is None


def test_a_constant_outside_the_family_is_not_of_the_family() -> None:
    assert family.parse_question("Write a function f(x) that returns x plus 12.") is not None
    assert family.parse_question("Write a function f(x) that returns x plus 13.") is None
    assert family.parse_question("Write a function f(x) that returns x plus 12." + " " * 3000) is None
