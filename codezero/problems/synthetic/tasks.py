"""Synthetic problems in MBPP's form: infinite, seeded, five levels, each with a reference solution and three tests.

A fifth of the compositions is held out, so that an exam asks for programs that no training problem had. Tests are
chosen to tell the reference from programs that are nearly right.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from codezero.problems.synthetic import programs
from codezero.problems.synthetic.grammar import LEVELS
from codezero.problems.synthetic.programs import CALL_ERRORS, Spec, is_held_out, mutate, render, solution
from codezero.problems.synthetic.vocabulary import LETTERS
from codezero.types import Problem, Source, Standing, Worked, problem_id

_VERBS = (
    "get", "make", "find", "calc", "do", "run", "apply", "build",
    "solve", "compute", "check", "count", "pick", "take", "give", "form",
)  # fmt: skip
_NOUNS = (
    "value", "item", "list", "text", "number", "result", "data", "total",
    "score", "word", "part", "group", "order", "state", "output", "answer",
)  # fmt: skip
_TESTS = 3
_RIVALS = 5
"""Mutants the tests are chosen against."""
_TRIES = 6
"""Sets of tests drawn; the best is kept."""
_ACCEPT_EMPTY_AFTER = 40

Inputs = tuple[Any, ...]
Draw = Callable[[str, Random], Inputs]
"""Of inputs for the parameters, as a Spec names them."""
Case = tuple[Inputs, Any]
"""(arguments, expected value)."""


@dataclass(frozen=True, slots=True)
class SyntheticTask:
    problem: Problem
    spec: Spec
    cases: tuple[Case, ...]
    """What the problem's tests assert, as values."""


def make_task(random: Random, level: int | None = None, *, held_out: bool = False) -> SyntheticTask:
    """One task; the same state of `random` gives the same task. `level` None draws it uniformly from 1..5.

    held_out: of a composition that no training problem has.
    """
    level = random.choice(LEVELS) if level is None else level
    spec = programs.sample_spec(random, level)
    while is_held_out(spec) is not held_out:
        spec = programs.sample_spec(random, level)
    name = draw_name(random)
    question = programs.question_of(spec, name, random)
    cases = _choose_cases(spec, random)
    tests = tuple(f"assert {name}({', '.join(map(repr, inputs))}) == {expected!r}" for inputs, expected in cases)
    key, source, reference = problem_id(question, tests), Source.SYNTHETIC, render(spec, name)
    problem = Problem(key, question, tests, name, source, Standing.REFERENCE, level, reference=reference)
    return SyntheticTask(problem, spec, tuple(cases))


def held_out(count: int, seed: int) -> list[Problem]:
    """`count` distinct problems of held-out compositions, spread evenly over the levels; the same for the same seed."""
    random = Random(f"held out {seed}")
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        level = LEVELS[len(problems) % len(LEVELS)]
        problem = make_task(random, level, held_out=True).problem
        problems.setdefault(problem.id, problem)
    return list(problems.values())


def mutants(task: SyntheticTask, random: Random, count: int, style: Random | None = None) -> list[str]:
    """Up to `count` distinct wrong solutions, each failing at least one of the task's tests; in any style with `style`.

    Fewer are returned where the neighbourhood of a small program holds no more.
    """
    wrong: dict[Spec, None] = {}
    for _ in range(20 * count):
        if len(wrong) == count:
            break
        mutant = mutate(task.spec, random)
        if mutant not in wrong and _fails(solution(mutant), task.cases):
            wrong[mutant] = None
    return [render(mutant, task.problem.entry_point, style) for mutant in wrong]


def worked(random: Random) -> Worked:
    """A task with a right and a wrong solution, both in any style."""
    while True:
        task = make_task(random)
        style = Random(task.problem.id)
        wrong = mutants(task, random, 1, style)
        if wrong:
            return Worked(task.problem, (render(task.spec, task.problem.entry_point, style),), tuple(wrong))


def draw_name(random: Random) -> str:
    return f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}"


def _choose_cases(spec: Spec, random: Random) -> list[Case]:
    """The best of several draws: cases that rivals fail, and whose expected values are not all alike."""
    rivals = [solution(mutate(spec, random)) for _ in range(_RIVALS)]
    enough = _RIVALS + (0.2 if spec.kind == "pred" else 0.3)  # a predicate has only two values
    best: list[Case] = []
    best_merit = float("-inf")
    for _ in range(_TRIES):
        cases = draw_cases(spec, random)
        values = len({repr(expected) for _, expected in cases})
        merit = sum(_fails(rival, cases) for rival in rivals) + 0.1 * values - (5 if values < 2 else 0)
        if merit > best_merit:
            best, best_merit = cases, merit
        if merit >= enough:
            break
    return best


def draw_cases(spec: Spec, random: Random, count: int = _TESTS, draw: Draw | None = None) -> list[Case]:
    """Distinct cases on which the reference does not raise; an empty list or string only when little else comes.

    draw: of inputs in place of the usual ones, as long as enough cases come of them; what is empty is then a case too.
    """
    run = solution(spec)
    cases: list[Case] = []
    for number in itertools.count():
        early = number < _ACCEPT_EMPTY_AFTER
        inputs = (draw if draw and early else _draw_inputs)(spec.arguments, random)
        try:
            case = (inputs, run(*inputs))
        except CALL_ERRORS:
            continue
        if case in cases or (case[1] in ([], "") and early and not draw):
            continue
        cases.append(case)
        if len(cases) == count:
            break
    return cases


def _draw_inputs(arguments: str, random: Random) -> Inputs:
    match arguments:
        case "x":
            return (random.choice([random.randint(-9, 20), random.randint(0, 9), random.randint(-9, -1)]),)
        case "a, b":
            return (random.randint(-5, 20), random.randint(-5, 20))
        case "s":
            word = "".join(random.choice(LETTERS) for _ in range(random.randint(5, 7)))
            return (word if random.random() < 0.6 else word[:3].upper() + word[3:],)
        case _:
            return ([random.randint(-9, 9) for _ in range(random.randint(3, 5))],)


def _fails(run: Callable[..., Any], cases: Sequence[Case]) -> bool:
    """Would a program fail the assertions? `==`, as an assertion compares."""
    try:
        return any(run(*inputs) != expected for inputs, expected in cases)
    except CALL_ERRORS:
        return True
