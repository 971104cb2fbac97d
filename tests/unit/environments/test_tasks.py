"""An environment of one's own: what is derived is the same everywhere, and what a rule cannot score is not wrong."""

import subprocess
import sys

import pytest
from builders.environments import Sums, attempts, item, right, sums
from hypothesis import given
from hypothesis import strategies as st

from codezero.environments.code import CodeEnvironment
from codezero.environments.tasks import Task
from codezero.errors import ConfigError, EvaluatorError, OwnCodeError, ProblemError
from codezero.evals.grading import EvaluatorGrader
from codezero.evals.task import task_of
from codezero.evaluator.base import ScoredEvaluator
from codezero.problems.filters import Novelty, Screen
from codezero.proposer.proposer import DerivedProposer
from codezero.types import Item, Status, is_exam_question

WHERE = """
from builders.environments import sums
environment = sums()
print(environment.digest, environment.generate("a").id, [p.id for p in environment.held_out(5, 1)])
"""


def test_another_process_derives_the_same() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", WHERE], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed,
            "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1] != ""


@given(st.integers(1, 5), st.integers(0, 2**31 - 1))
def test_every_place_has_one_problem(level: int, index: int) -> None:
    environment = sums()
    problem = environment.derive(item(environment, level, index))
    assert problem.item == item(environment, level, index) and problem.level == level
    assert environment.withholds(problem) == is_exam_question(problem.question)
    assert environment.score(problem, right(problem)) == 1.0


@pytest.mark.parametrize(
    ("level", "index"), [(0, 1), (6, 1), (1, -1), (1, 2**31)], ids=["low", "high", "before", "behind"]
)
def test_a_place_that_is_not_there_is_refused(level: int, index: int) -> None:
    environment = sums()
    with pytest.raises(ProblemError):
        environment.derive(item(environment, level, index))


def test_another_version_or_environment_is_not_believed() -> None:
    here = sums()
    for other in (sums(version="2"), sums(name="minus"), sums(size=64), sums(levels=(1, 2))):
        assert other.digest != here.digest
        with pytest.raises(ProblemError):
            here.derive(item(other))
        assert here.fault(other.derive(item(other))) is not None
    assert here.fault(CodeEnvironment().generate("a")) is not None


def test_what_the_exam_draws_is_never_generated_nor_proposed() -> None:
    environment = sums(size=64, levels=(1,))  # there are 100 questions, some of them at several places
    asked = {problem.question for problem in environment.held_out(30, 0)}
    writer = DerivedProposer(environment, peer_id="me", seed=0)
    drawn = [environment.generate(str(number)) for number in range(300)] + writer.propose([1, 2, 3, 4, 5] * 20)
    assert len(asked) > 3 and not asked & {problem.question for problem in drawn}
    assert not any(environment.withholds(problem) for problem in drawn)


def test_a_proposal_has_the_level_that_was_asked_for_or_the_nearest() -> None:
    assert [problem.level for problem in DerivedProposer(sums(), peer_id="me", seed=0).propose([5, 1])] == [5, 1]
    few = DerivedProposer(sums(levels=(2, 4)), peer_id="me", seed=0)
    assert [problem.level for problem in few.propose([1, 5])] == [2, 4]
    assert [problem.level for problem in DerivedProposer(sums(levels=(3,)), peer_id="me", seed=0).propose([1])] == [
        None
    ]


def test_a_stranger_s_problem_passes_once_and_a_held_out_one_never() -> None:
    environment = sums()
    screen, withheld = Screen(environment), Novelty()
    problem = environment.generate("a")
    assert screen.refuse(problem) is None and screen.refuse(problem) is not None
    assert screen.withholds(environment.held_out(1, 0)[0])
    withheld.add(problem)  # the exam asks the same question from another place
    assert Screen(environment, withheld=withheld).withholds(problem)
    assert Screen(environment).refuse(CodeEnvironment().generate("a")) is not None


def test_the_score_is_the_reward_and_every_part() -> None:
    environment = sums()
    problem = environment.generate("a")
    (scored,) = ScoredEvaluator(environment).score([attempts(problem, right(problem), "0.5")])
    assert [verdict.reward for verdict in scored.verdicts] == [1.0, 0.0]
    assert all(verdict.status is Status.JUDGED and verdict.correctness == verdict.reward for verdict in scored.verdicts)


def test_an_answer_that_breaks_the_rule_costs_only_itself() -> None:
    environment = sums()
    problem = environment.generate("a")
    evaluator = ScoredEvaluator(environment)
    (scored,) = evaluator.score([attempts(problem, "crash", right(problem), "unknown")])
    assert [verdict.trainable for verdict in scored.verdicts] == [False, True, False]
    assert evaluator.metrics()["judge/unavailable_share"] == 2 / 3
    with pytest.raises(EvaluatorError, match="a mistake"):
        evaluator.score([attempts(problem, "crash", "crash")])


def test_a_rule_that_leaves_does_not_end_the_process() -> None:
    def leave(*_: object) -> None:
        sys.exit(0)

    with pytest.raises(OwnCodeError, match="its score left with"):
        environment = sums(score=leave)
        ScoredEvaluator(environment).score([attempts(environment.generate("a"), "0.5")])
    with pytest.raises(OwnCodeError, match="item 0 of level 1 left with"):
        sums(task=leave)


def test_a_score_out_of_bounds_is_no_reward() -> None:
    for wrong in (1.5, float("nan"), "much"):
        environment = sums(score=lambda task, answer, wrong=wrong: wrong)
        (scored,) = ScoredEvaluator(environment).score([attempts(environment.generate("a"), "x")])
        assert not scored.verdicts[0].trainable


def test_an_exam_passes_full_scores_alone() -> None:
    environment = sums(score=lambda task, answer: float(answer))
    problem = environment.generate("a")
    task, group = task_of(problem, environment.prompt), attempts(problem, "1", "0.9", "crash")
    (grades,) = EvaluatorGrader(ScoredEvaluator(environment)).grade([task], [group.completions])
    assert [grade.passed for grade in grades] == [True, False, None]


@pytest.mark.parametrize(
    "change",
    [{"name": "code"}, {"name": "A b"}, {"levels": (0,)}, {"levels": ()}, {"size": 7}, {"size": 2**31 + 1}],
    ids=str,
)
def test_a_taskset_that_cannot_be_used_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="environment"):
        sums(**change)


def test_a_task_that_fails_is_a_problem_that_is_not_there() -> None:
    class Broken(Sums):
        def task(self, level: int, index: int) -> Task:
            if index > 1:
                raise RecursionError("endless")
            return super().task(level, index)

    from codezero.environments.tasks import TaskEnvironment

    environment = TaskEnvironment(Broken())
    with pytest.raises(ProblemError, match="endless"):
        environment.derive(item(environment, 1, 5))
    long = sums(task=lambda level, index: Task("x" * (20_000 if index > 1 else 1)))
    with pytest.raises(ProblemError, match="characters"):
        long.derive(Item(long.name, long.digest, 1, 5))


def test_places_that_fail_are_passed_over_and_nothing_to_learn_from_is_said() -> None:
    def seldom(level: int, index: int) -> Task:
        return Sums().task(level, index) if index % 3 or index < 2 else 1 / 0  # type: ignore[return-value]

    environment = sums(task=seldom, size=60)
    assert len({environment.generate(str(number)).question for number in range(50)}) > 20
    same = sums(task=lambda level, index: Task("held out" if is_exam_question("held out") else "What is 1 + 2?"))
    side = is_exam_question(same.derive(item(same)).question)
    assert len(same.held_out(3, 0)) == side
    if side:
        with pytest.raises(ProblemError, match="nothing to learn"):
            same.generate("a")


def test_a_place_or_an_answer_that_never_ends_costs_its_sender_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codezero.environments.tasks.SECONDS", 0.2)

    def endless(level: int, index: int) -> Task:
        while index > 5:
            pass
        return Sums().task(level, index)

    environment = sums(task=endless)
    with pytest.raises(ProblemError, match="not done"):
        environment.derive(item(environment, 1, 6))
    assert environment.derive(item(environment, 1, 5))

    def stubborn(task: Task, answer: str) -> float:
        while answer == "trap":
            pass
        return 1.0

    environment = sums(score=stubborn)
    (scored,) = ScoredEvaluator(environment).score([attempts(environment.generate("a"), "trap", "7")])
    assert [verdict.trainable for verdict in scored.verdicts] == [False, True]
