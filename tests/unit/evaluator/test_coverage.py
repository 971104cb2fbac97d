"""A judge says nothing about problems that are unlike those it was measured on, and everything about their own kind."""

import gzip
import json
from random import Random

import pytest
from builders.data_sets import mbpp
from builders.evaluator import ToldJudge, build_evaluator, group
from builders.real_data import real_data
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.evaluator.canaries import CanaryKind, draw_canaries
from codezero.evaluator.evidence import JudgedCanary
from codezero.evaluator.reliability import Coverage, coverage_of, limits
from codezero.evaluator.types import Program
from codezero.problems.rows import read_row
from codezero.problems.synthetic.tasks import held_out, make_task, worked
from codezero.types import Problem, Status, Style


def canary(problem: Problem, kind: CanaryKind = CanaryKind.REFERENCE) -> JudgedCanary:
    program = Program(problem.question, "pass", (), problem.style is Style.STDIO, problem.entry_point)
    return JudgedCanary(problem.id, program, right=True, kind=kind)


def embedded(first: int, count: int) -> list[Problem]:
    return [make_task(Random(f"coverage {number}")).problem for number in range(first, first + count)]


def published() -> list[Problem]:
    folder = real_data("mbpp.jsonl", "HumanEval.jsonl.gz")
    problems = [read_row(line).problem for line in (folder / "mbpp.jsonl").read_bytes().splitlines()]
    with gzip.open(folder / "HumanEval.jsonl.gz") as rows:
        asked = [json.loads(row) for row in rows]
    return problems + [
        Problem(row["task_id"], row["prompt"], (), row["entry_point"], problems[0].source) for row in asked
    ]


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return coverage_of([canary(problem) for problem in embedded(0, 200)])


def test_nearly_all_of_its_own_kind_is_covered(coverage: Coverage) -> None:
    own = [*embedded(1000, 1000), *held_out(200, 1)]
    assert len(limits(coverage, own)) <= 0.05 * len(own)


def test_other_problems_are_not_and_the_reason_says_why(coverage: Coverage) -> None:
    others = [read_row(mbpp(number)).problem for number in range(20)]
    why = limits(coverage, others)
    assert set(why) == {problem.id for problem in others}
    assert all("words are new" in reason or "some" in reason for reason in why.values())


def test_no_problem_of_mbpp_or_human_eval_is_covered_by_the_embedded_ones(coverage: Coverage) -> None:
    problems = published()
    assert len(limits(coverage, problems)) >= 0.99 * len(problems)


def test_a_tenth_of_mbpp_covers_the_rest_of_it() -> None:
    problems = published()[:974]
    own = coverage_of([canary(problem) for problem in problems[::10]])
    rest = [problem for number, problem in enumerate(problems) if number % 10]
    assert len(limits(own, rest)) <= 0.08 * len(rest)


def test_programs_are_not_covered_by_functions_nor_anything_by_transplants(coverage: Coverage) -> None:
    problem = embedded(5, 1)[0]
    program = Problem(problem.id, problem.question, problem.tests, "", problem.source)
    assert limits(coverage, [program]) == {problem.id: "the judge was measured on no programs"}
    assert coverage_of([canary(problem, CanaryKind.TRANSPLANT) for problem in embedded(0, 100)]) == {}


def test_of_few_questions_nothing_is_known(coverage: Coverage) -> None:
    assert limits(coverage_of([canary(problem) for problem in embedded(0, 5)]), embedded(9, 3)) == {}


def test_an_attempt_at_another_kind_of_problem_is_unavailable_whatever_the_judge_thinks() -> None:
    with StaticGuard() as guard:
        canaries = draw_canaries(worked, 200, "1 start")
        right = {canary.code for canary in canaries if canary.right}
        judge = ToldJudge(lambda program: 1.0 if program.code in right else -1.0)
        evaluator = build_evaluator(judge, guard)
        evaluator.calibrate()
        judge.asked.clear()
        one, other = canaries[0], read_row(mbpp(1)).problem
        groups = [group(one.problem, fence(one.code)), group(other, fence(str(other.reference)))]
        own, foreign = evaluator.score(groups)
    assert own.verdicts[0].status is Status.JUDGED
    assert foreign.verdicts[0].status is Status.UNAVAILABLE and "words" in foreign.verdicts[0].reasons[0]
    assert other.question not in {program.question for program in judge.asked}


@given(st.text(max_size=2000), st.text(max_size=20))
def test_any_question_gets_an_answer(question: str, entry: str) -> None:
    problem = Problem("key", question, (), entry, embedded(0, 1)[0].source)
    covered = coverage_of([canary(each) for each in embedded(0, 30)])
    assert isinstance(limits(covered, [problem]), dict)
