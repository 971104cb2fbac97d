import dataclasses
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from codezero.code.parsing import fence
from codezero.config import EvalsConfig, SolverConfig
from codezero.errors import RolloutError
from codezero.evals.exam import HeldOutExam
from codezero.evals.grading import SandboxGrader
from codezero.evals.task import EvalTask
from codezero.evaluator.evidence import compared, executed_metrics
from codezero.sandbox.monty import MontySandbox
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict, problem_id

RIGHT = fence("def double(n):\n    return 2 * n")
WRONG = fence("def double(n):\n    return n + 2")
UNDECIDED = fence("import numpy\ndef double(n):\n    return 2 * n")
NO_CODE = "I would rather not."


def problem(level: int | None = 1, name: str = "") -> Problem:
    question, tests = f"Double it. {level} {name}", ("assert double(3) == 6", "assert double(0) == 0")
    return Problem(problem_id(question, tests), question, tests, "double", Source.SYNTHETIC, level=level)


def task(problem: Problem) -> EvalTask:
    asked = f"Q: {problem.question}"
    return EvalTask(problem.id, asked, problem.tests, problem.entry_point, level=problem.level, source=problem)


@dataclass
class ScriptedSampler:
    """Gives the attempts it was told to, and remembers how it was asked."""

    attempts: Sequence[Sequence[str]]
    asked: list[dict[str, object]] = field(default_factory=list[dict[str, object]])

    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        **_: Any,
    ) -> list[list[Completion]]:
        self.asked.append({"prompts": tuple(prompts), "n": group_size, "t": temperature, "seed": generator_seed})
        attempts = [[Completion(text, (1,), (0.0,), True) for text in texts] for texts in self.attempts]
        return attempts[: len(prompts)]


class ScriptedJudge:
    """Believes what looks right; cannot tell where it is told so."""

    def __init__(self, believes: Sequence[str] = (RIGHT,), unavailable: Sequence[str] = ()) -> None:
        self.believes, self.unavailable = believes, unavailable
        self.peers: set[str] = set()
        self.witnessed: list[tuple[float, bool]] = []

    def verdict(self, text: str) -> Verdict:
        p = 0.9 if text in self.believes else 0.1
        status = Status.UNAVAILABLE if text in self.unavailable else Status.JUDGED
        return Verdict(p, p, 1.0, 1.0, 1.0, 1.0, status)

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        self.peers |= {group.peer_id for group in groups}
        return [ScoredGroup(g, tuple(self.verdict(c.text) for c in g.completions)) for g in groups]

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        pairs, orders = compared(scored, passed)
        self.witnessed += pairs
        return executed_metrics(pairs, orders)


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as running:
        yield running


def exam(
    sandbox: MontySandbox,
    attempts: Sequence[Sequence[str]],
    *,
    problems: Sequence[Problem] | None = None,
    judge: ScriptedJudge | None = None,
    every: int = 25,
    control: Sequence[Problem] = (),
) -> HeldOutExam:
    return HeldOutExam(
        EvalsConfig(samples=len(attempts[0]), every=every, seed=5, temperature=0.8),
        SolverConfig(),
        "a set",
        [task(each) for each in problems or [problem(1 + index % 5) for index in range(len(attempts))]],
        [task(each) for each in control],
        ScriptedSampler(attempts),
        SandboxGrader(sandbox),
        judge or ScriptedJudge(),
    )


def sit(exam: HeldOutExam, iteration: int = 0) -> Metrics:
    exam.begin(iteration)
    return exam.results(wait=True)


def test_figures_come_from_execution(sandbox: MontySandbox) -> None:
    measured = sit(exam(sandbox, [[RIGHT, WRONG], [WRONG, WRONG], [RIGHT, RIGHT]]))
    assert measured["eval/average_at_2"] == pytest.approx(0.5)
    assert measured["eval/pass_at_2"] == pytest.approx(2 / 3)
    assert measured["eval/ci_low"] <= 0.5 <= measured["eval/ci_high"]  # type: ignore[operator]
    assert measured["eval/pass_ci_low"] <= 2 / 3 <= measured["eval/pass_ci_high"]  # type: ignore[operator]
    assert [measured[f"eval/level_{level}"] for level in range(1, 6)] == [0.5, 0.0, 1.0, None, None]
    assert (measured["eval/source"], measured["eval/problems"], measured["eval/unknown_share"]) == ("executed", 3, 0.0)


def test_solutions_are_counted_once_for_each_spelling(sandbox: MontySandbox) -> None:
    other = RIGHT.replace("\n", "\n\n", 1)
    measured = sit(exam(sandbox, [[RIGHT, RIGHT, other, WRONG], [RIGHT, RIGHT, WRONG, WRONG], [WRONG] * 4]))
    assert measured["eval/distinct_solutions"] == pytest.approx(1.5)


def test_what_cannot_be_told_is_left_out_and_shown(sandbox: MontySandbox) -> None:
    measured = sit(exam(sandbox, [[RIGHT, UNDECIDED], [UNDECIDED, UNDECIDED]]))
    assert (measured["eval/average_at_2"], measured["eval/problems"], measured["eval/unknown_share"]) == (1.0, 1, 0.75)
    measured = sit(exam(sandbox, [[UNDECIDED, UNDECIDED]]))
    assert measured["eval/average_at_2"] is measured["eval/ci_low"] is measured["judge/auroc"] is None


def test_the_judge_is_held_against_the_same_attempts(sandbox: MontySandbox) -> None:
    judge = ScriptedJudge(believes=(RIGHT, WRONG))
    measured = sit(exam(sandbox, [[RIGHT, WRONG], [NO_CODE, UNDECIDED]], judge=judge))
    assert measured["judge/believed"] == pytest.approx((0.9 + 0.9 + 0.1) / 3)
    assert measured["judge/auroc"] == pytest.approx(0.75)
    assert (measured["judge/exam_within_auroc"], measured["judge/exam_within_auroc_pairs"]) == (0.5, 1)
    assert measured["judge/ece"] == pytest.approx((abs(1.8 - 1) + 0.1) / 3)
    assert measured["judge/false_positive_share"] == 0.5
    assert measured["judge/false_negative_share"] == 0.0
    assert judge.peers == {"exam"} and judge.witnessed == [(0.9, True), (0.9, False), (0.1, False)]


def test_a_verdict_that_is_unavailable_says_nothing(sandbox: MontySandbox) -> None:
    judge = ScriptedJudge(believes=(RIGHT,), unavailable=(WRONG,))
    measured = sit(exam(sandbox, [[RIGHT, WRONG]], judge=judge))
    assert measured["judge/believed"] == pytest.approx(0.9) and measured["eval/average_at_2"] == 0.5
    assert measured["judge/auroc"] is measured["judge/false_positive_share"] is None


def test_the_control_stands_beside_the_set_and_not_in_it(sandbox: MontySandbox) -> None:
    measured = sit(exam(sandbox, [[RIGHT, WRONG], [RIGHT, RIGHT]], control=[problem(name="control")]))
    assert (measured["eval/average_at_2"], measured["eval/control"]) == (0.75, 0.5)
    assert measured["eval/set"] == "a set" and measured["eval/problems"] == 2
    assert measured["eval/shares"] == "7ffe"


def test_every_sitting_asks_the_same(sandbox: MontySandbox) -> None:
    sat = exam(sandbox, [[RIGHT, WRONG], [WRONG, RIGHT]])
    first, second = sit(sat), sit(sat)
    del first["eval/seconds"], second["eval/seconds"]
    assert first == second
    sampler = sat.sampler
    assert isinstance(sampler, ScriptedSampler)
    assert sampler.asked[0] == sampler.asked[1]
    assert sampler.asked[0]["seed"] == 5 and "return" not in str(sampler.asked)  # no reference is shown
    assert sampler.asked[0]["prompts"][0] == "Q: Double it. 1 "  # type: ignore[index]


class HeldSampler(ScriptedSampler):
    """Draws when it may; `version` is that of the policy then."""

    def __init__(self, attempts: Sequence[Sequence[str]], failure: Exception | None = None) -> None:
        super().__init__(attempts)
        self.may, self.failure = threading.Event(), failure

    def sample(self, prompts: Sequence[str], **how: Any) -> list[list[Completion]]:
        assert self.may.wait(60)
        if self.failure:
            raise self.failure
        drawn = super().sample(prompts, **how)
        return [[dataclasses.replace(draw, version=number % 2) for number, draw in enumerate(row)] for row in drawn]


def test_an_exam_on_servers_goes_on_beside_training(sandbox: MontySandbox, pool: Executor) -> None:
    sampler = HeldSampler([[RIGHT, WRONG, WRONG]])
    sat = dataclasses.replace(exam(sandbox, sampler.attempts), sampler=sampler, pool=pool)
    sat.begin(25)
    assert sat.results(wait=False) == {}
    sat.begin(50)  # the one under way goes on instead
    sampler.may.set()
    measured = sat.results(wait=True)
    assert (measured["eval/iteration"], measured["eval/versions"]) == (25, 2)
    assert measured["eval/average_at_3"] == pytest.approx(1 / 3)
    assert len(sampler.asked) == 1 and sat.results(wait=True) == {}


@pytest.mark.parametrize("beside", [True, False])
def test_an_exam_that_fails_says_so_once(sandbox: MontySandbox, pool: Executor, beside: bool) -> None:
    sampler = HeldSampler([[RIGHT]], RolloutError("no server was fit"))
    sampler.may.set()
    sat = dataclasses.replace(exam(sandbox, sampler.attempts), sampler=sampler, pool=pool if beside else None)
    sat.begin(25)
    with pytest.raises(RolloutError):
        sat.results(wait=True)
    assert sat.results(wait=True) == {}
    sampler.failure = None
    assert sit(sat, 50)["eval/iteration"] == 50


def test_execution_is_not_held_against_itself(sandbox: MontySandbox) -> None:
    measured = sit(dataclasses.replace(exam(sandbox, [[RIGHT, WRONG]]), evaluator=None))
    assert measured["eval/average_at_2"] == 0.5
    assert not [key for key in measured if key.startswith("judge/")]


@pytest.mark.parametrize(
    ("every", "due"),
    [(25, [0, 5, 10, 25, 50]), (50, [0, 10, 20, 50]), (4, [*range(0, 51, 4)]), (1, [*range(51)]), (0, [])],
)
def test_due_early_at_first_and_then_regularly(sandbox: MontySandbox, every: int, due: list[int]) -> None:
    sat = exam(sandbox, [[RIGHT]], every=every)
    assert [iteration for iteration in range(51) if sat.due(iteration)] == due
