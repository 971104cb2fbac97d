"""Synthetic problems in MBPP's form: infinite, seeded, five levels, each with a reference solution and three tests.

Programs are data (`Spec`): drawn at random, written as code by `render`, computed by `solution`, which composes the
operations' functions, and mutated; no text is ever evaluated. A fifth of the compositions is held out, so that an exam
asks for programs that no training problem had. Tests are chosen to tell the reference from programs nearly right."""

import contextlib
import functools
import re
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from codezero.problems.synthetic.grammar import KINDS, LETTERS, LEVELS, Atom, Op, ProgramKind, Slot
from codezero.types import Problem, Source, Standing, Worked, problem_id

_KIND_NAMES = {
    level: tuple(name for name, kind in KINDS.items() if kind.level == level for _ in range(kind.weight))
    for level in LEVELS
}


class Spec(NamedTuple):
    """A program: its kind and one operation for each of the kind's slots."""

    kind: str
    ops: tuple[Op, ...]

    @property
    def level(self) -> int:
        return KINDS[self.kind].level

    @property
    def arguments(self) -> str:
        return KINDS[self.kind].arguments


def sample_spec(random: Random, level: int) -> Spec:
    """A random program of `level`, from either side of the split."""
    name = random.choice(_KIND_NAMES[level])
    kind = KINDS[name]
    while True:
        ops = tuple(_draw(slot, random.choice(slot.names), random) for slot in kind.slots)
        alike = kind.differ and (ops[-1].name == ops[-2].name if kind.differ == "name" else ops[-1] == ops[-2])
        if not alike:
            return Spec(name, ops)


def _draw(slot: Slot, name: str, random: Random) -> Op:
    return Op(name, random.choice(slot.family[name].constants))


def signature(spec: Spec) -> str:
    """Key of the split: operation names where programs are composed, name and constant where not."""
    constant = f":{spec.ops[0].constant}" if len(spec.ops) == 1 else ""
    return f"{spec.kind}:{','.join(op.name for op in spec.ops)}{constant}"


def is_held_out(spec: Spec) -> bool:
    """Is the program kept from training? A single operation without a constant never is: nothing else teaches it."""
    if len(spec.ops) == 1 and spec.ops[0].constant is None:
        return False
    return zlib.crc32(signature(spec).encode()) % 5 == 0


def render(spec: Spec, name: str, style: Random | None = None) -> str:
    """The program as a function `name` of one return line; with `style` in one of the ways that it can be written."""
    body = f"return {expression(spec, style)}"
    if style is not None and style.random() < 0.1:  # then the result gets a name first
        body = f"result = {body[len('return ') :]}\n    return result"
    return f"def {name}({spec.arguments}):\n    {body}"


def expression(spec: Spec, style: Random | None = None) -> str:
    kind = KINDS[spec.kind]
    atoms = [slot.family[op.name] for slot, op in zip(kind.slots, spec.ops, strict=True)]

    def choose(part: Atom | ProgramKind) -> str:
        return part.code if style is None else style.choice((part.code, *part.others))

    codes = [choose(atom) for atom in atoms]
    parts = [code.format(v=kind.variable, k=op.constant) for code, op in zip(codes, spec.ops, strict=True)]
    body = choose(kind).format(*parts)
    if kind.outer is None:
        return body
    outer = codes[kind.outer]
    if len(atoms) == 2 and body == parts[0] and atoms[0].operator and "({v})" not in outer:
        body = f"({body})"
    return outer.format(v=body, k=spec.ops[kind.outer].constant)


@functools.lru_cache(maxsize=20_000)
def solution(spec: Spec) -> Callable[..., Any]:
    """The program as a function. Calling it raises one of `CALL_ERRORS` where the program would."""
    kind = KINDS[spec.kind]
    run = kind.build([_bind(slot.family[op.name].apply, op) for slot, op in zip(kind.slots, spec.ops, strict=True)])
    return (lambda *pair: run(pair)) if "," in kind.arguments else run


# what a program may raise on inputs or operations that do not fit (only mutants have such operations)
CALL_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _bind(apply: Callable[[Any, Any], Any], op: Op) -> Callable[[Any], Any]:
    return lambda value: apply(value, op.constant)


def mutate(spec: Spec, random: Random) -> Spec:
    """Another program with the same arguments: a step dropped, branches swapped, an operation or constant changed. It
    may compute the same on many inputs; whether tests tell the two apart is for the caller to find out."""
    while (mutant := _mutate_once(spec, random)) == spec:
        pass
    return mutant


def _mutate_once(spec: Spec, random: Random) -> Spec:
    kind, roll = KINDS[spec.kind], random.random()
    if kind.drops and roll < 0.25:
        name, kept = random.choice(kind.drops)
        return Spec(name, tuple(spec.ops[index] for index in kept))
    if kind.differ == "name or constant" and roll < 0.35:
        return spec._replace(ops=(*spec.ops[:-2], spec.ops[-1], spec.ops[-2]))
    index = random.randrange(len(spec.ops))
    slot, op = kind.slots[index], spec.ops[index]
    others = [constant for constant in slot.family[op.name].constants if constant != op.constant]
    if others and random.random() < 0.5:
        changed = Op(op.name, random.choice(others))
    else:
        name = random.choice([other for other in slot.swaps if other != op.name])
        fits = op.constant in slot.family[name].constants
        changed = Op(name, op.constant) if fits else _draw(slot, name, random)
    return spec._replace(ops=(*spec.ops[:index], changed, *spec.ops[index + 1 :]))


_QUESTION = re.compile(r"Write a function ([a-z_][a-z0-9_]*)\(([a-z, ]*)\) that ([^\n]+)\.", re.ASCII)


def question_of(spec: Spec, name: str, random: Random) -> str:
    """The program asked for in one of its wordings."""
    kind = KINDS[spec.kind]
    phrases = [
        random.choice(slot.phrases(op.name)).format(v=kind.variable, k=op.constant)
        for slot, op in zip(kind.slots, spec.ops, strict=True)
    ]
    return f"Write a function {name}({spec.arguments}) that {random.choice(kind.phrases).format(*phrases)}."


def parse_question(text: str) -> tuple[str, Spec] | None:
    """The inverse of `question_of`: (function name, program), or None when the text is not one of its wordings."""
    match = _QUESTION.fullmatch(text) if len(text) <= 2_000 else None
    if match is None:
        return None
    name, arguments, rest = match.groups()
    for kind_name, pattern in _patterns(arguments):
        phrases = pattern.fullmatch(rest)
        if phrases is not None:
            slots = KINDS[kind_name].slots
            words = [_lexicon(kind_name, index)[phrases[f"slot{index}"]] for index in range(len(slots))]
            return name, Spec(kind_name, tuple(words))
    return None


@functools.cache
def _lexicon(kind_name: str, index: int) -> dict[str, Op]:
    """Every phrase that can stand in a slot -> the operation it says."""
    kind, slot = KINDS[kind_name], KINDS[kind_name].slots[index]
    return {
        phrase.format(v=kind.variable, k=constant): Op(name, constant)
        for name in slot.names
        for phrase in slot.phrases(name)
        for constant in slot.family[name].constants
    }


@functools.cache
def _patterns(arguments: str) -> list[tuple[str, re.Pattern[str]]]:
    """(kind, pattern with a group `slotN` for each slot) for every wording of a kind with these arguments."""
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for name, kind in KINDS.items():
        for phrase in kind.phrases if kind.arguments == arguments else ():
            groups = [f"(?P<slot{at}>{'|'.join(map(re.escape, _lexicon(name, at)))})" for at in range(len(kind.slots))]
            literal = enumerate(re.split(r"\{(\d)\}", phrase))
            pattern = "".join(groups[int(part)] if place % 2 else re.escape(part) for place, part in literal)
            patterns.append((name, re.compile(pattern)))
    return patterns


_VERBS = (
    "get", "make", "find", "calc", "do", "run", "apply", "build",
    "solve", "compute", "check", "count", "pick", "take", "give", "form",
)  # fmt: skip
_NOUNS = (
    "value", "item", "list", "text", "number", "result", "data", "total",
    "score", "word", "part", "group", "order", "state", "output", "answer",
)  # fmt: skip
_RIVALS = 5  # mutants the tests are chosen against

Inputs = tuple[Any, ...]
Case = tuple[Inputs, Any]  # (arguments, expected value)


class SyntheticTask(NamedTuple):
    problem: Problem
    spec: Spec
    cases: tuple[Case, ...]  # what the problem's tests assert, as values


def make_task(random: Random, level: int | None = None, *, held_out: bool = False) -> SyntheticTask:
    """One task; the same state of `random` gives the same task. `level` None draws it uniformly from 1..5.

    held_out: of a composition that no training problem has."""
    level = random.choice(LEVELS) if level is None else level
    spec = sample_spec(random, level)
    while is_held_out(spec) is not held_out:
        spec = sample_spec(random, level)
    name = draw_name(random)
    question = question_of(spec, name, random)
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
    Fewer are returned where the neighbourhood of a small program holds no more."""
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
        if wrong := mutants(task, random, 1, style):
            return Worked(task.problem, (render(task.spec, task.problem.entry_point, style),), tuple(wrong))


def draw_name(random: Random) -> str:
    return f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}"


def _choose_cases(spec: Spec, random: Random) -> list[Case]:
    """The best of several draws: cases that rivals fail, and whose expected values are not all alike."""
    rivals = [solution(mutate(spec, random)) for _ in range(_RIVALS)]
    enough = _RIVALS + (0.2 if spec.kind == "pred" else 0.3)  # a predicate has only two values
    best, best_merit = list[Case](), float("-inf")
    for _ in range(6):
        cases = _draw_cases(spec, random)
        values = len({repr(expected) for _, expected in cases})
        merit = sum(_fails(rival, cases) for rival in rivals) + 0.1 * values - (5 if values < 2 else 0)
        if merit > best_merit:
            best, best_merit = cases, merit
        if merit >= enough:
            break
    return best


def _draw_cases(spec: Spec, random: Random) -> list[Case]:
    """Distinct cases on which the reference does not raise; an empty list or string only when little else comes."""
    run, cases, number = solution(spec), list[Case](), 0
    while len(cases) < 3:
        inputs = _draw_inputs(spec.arguments, random)
        with contextlib.suppress(*CALL_ERRORS):
            case = (inputs, run(*inputs))
            if case not in cases and (case[1] not in ([], "") or number >= 40):
                cases.append(case)
        number += 1
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
