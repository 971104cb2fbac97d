"""Evaluators and canaries for tests: real ones, and judges that are told what to say."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from codezero.code.canonical import canonical, stated_parameters
from codezero.code.worker import StaticGuard
from codezero.config import EvaluatorConfig
from codezero.evaluator.calibration import Canary, CanaryKind
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.evidence import Auditor
from codezero.evaluator.reliability import ReliabilityMonitor
from codezero.evaluator.types import Judge, Program, Reading
from codezero.problems.synthetic.tasks import make_task, mutants, worked
from codezero.types import Completion, Problem, RolloutGroup, Source, problem_id


def known(count: int, seed: int, *, held_out: bool = False) -> list[Canary]:
    """References and mutants that really fail, in equal number."""
    random = Random(seed)
    made: list[Canary] = []
    while len(made) < count:
        task = make_task(random, held_out=held_out)
        for wrong in mutants(task, random, 1):
            made.append(Canary(task.problem, str(task.problem.reference), right=True, kind=CanaryKind.REFERENCE))
            made.append(Canary(task.problem, wrong, right=False))
    return made


def spelt(canary: Canary) -> str:
    """As a judge reads it."""
    entry, question = canary.problem.entry_point, canary.problem.question
    return canonical(canary.code, entry, parameters=stated_parameters(question, entry))


def build_monitor(
    judge: Judge, guard: StaticGuard, *, auditor: Auditor | None = None, identity: str = "test", **settings: Any
) -> ReliabilityMonitor:
    made = EvaluatorConfig(**{"canaries": 200, "canaries_per_iteration": 0, **settings})
    return ReliabilityMonitor(judge, guard, worked, made, identity=identity, seed=1, auditor=auditor)


def build_evaluator(judge: Judge, guard: StaticGuard, **settings: Any) -> FrozenEvaluator:
    return FrozenEvaluator(build_monitor(judge, guard, **settings))


def problem(question: str, entry: str, *tests: str) -> Problem:
    return Problem(problem_id(question, tests), question, tests, entry, Source.SYNTHETIC)


def group(of: Problem, *texts: str, finished: bool = True, peer: str = "peer") -> RolloutGroup:
    completions = tuple(Completion(text, (1,), (0.0,), finished) for text in texts)
    return RolloutGroup(of, completions, peer, round=0, policy_step=0)


class ToldJudge:
    """Says what `rule` says of a program; counts the questions."""

    names: tuple[str, ...] = ("score",)

    def __init__(self, rule: Callable[[Program], float | None]) -> None:
        self.rule = rule
        self.asked: list[Program] = []

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        self.asked += programs
        return [Reading((self.rule(program),)) for program in programs]

    def forget(self) -> None:
        """Remembers nothing."""


FILTER = problem(
    "Write a function pick_item(nums) that returns the numbers in nums that are greater than 3.",
    "pick_item",
    "assert pick_item([1, 5, 7]) == [5, 7]",
    "assert pick_item([4, 2, 9]) == [4, 9]",
    "assert pick_item([6, 3]) == [6]",
)
RIGHT = "def pick_item(nums):\n    return [x for x in nums if x > 3]"
WRONG = "def pick_item(nums):\n    return [x for x in nums if x < 3]"
