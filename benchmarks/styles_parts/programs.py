"""Problems, right programs in other styles, and wrong ones of the same size; what is right or wrong was executed.

A right one passes the problem's tests and agrees with the reference on more inputs, a wrong one fails a test. Monty
decides all of it (foreign code runs nowhere else); what it cannot decide, and what no test tells from the reference, is
left out and counted.
"""

import ast
import difflib
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from random import Random
from typing import Any

from market_parts.value_games import returned

from codezero.code.assertions import parse_tests
from codezero.code.mutations import mutate_code
from codezero.code.parsing import UNPARSEABLE, literal, parse_quietly
from codezero.errors import ProblemError, translated
from codezero.problems.rows import MAX_ROW, read_row
from codezero.problems.synthetic.grammar import LEVELS
from codezero.problems.synthetic.programs import CALL_ERRORS, solution
from codezero.problems.synthetic.tasks import Inputs, SyntheticTask, draw_cases, make_task, mutants
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.system.lines import json_lines
from codezero.types import Problem
from styles_parts.rewriting import Kind, rewrites, two_at_once

MIXED = "two at once"
"""The kind of programs in which two others are seen."""
INPUTS = 12
"""Fewest on which a program has to agree with the reference."""
TRIES, MIXES, MUTANTS, SLIPS = 8, 4, 4, 6
"""Rewrites of a kind that are executed until one is right, and of two kinds; mutants of each program, and of the
problem itself."""
FORMS = 40
"""Inputs that are made of those of a foreign problem's tests."""
SECONDS = 0.3
"""For one program: a mutant that loops for ever is common."""
EDGES: dict[str, Sequence[Inputs]] = {
    "x": [(value,) for value in (0, 1, -1, 2, -2, 7, 100, -100)],
    "a, b": [(0, 0), (3, 3), (-2, 5), (5, -2), (-4, -4), (1, 0)],
    "s": [("",), ("a",), ("ab",), ("aba",), ("ABC",), ("mNo",), ("to be",)],
    "nums": [([],), ([0],), ([5],), ([-3],), ([2, 2, 2],), ([-1, -4],), ([1, 2],), (list(range(-6, 10)),)],
}


@dataclass(frozen=True)
class Study:
    """A problem with what decides about programs for it."""

    problem: Problem
    reference: str
    more: tuple[str, ...]
    """Assertions on further inputs."""
    slips: tuple[str, ...] = ()
    """Programs for a problem that is nearly this one."""

    @property
    def level(self) -> str:
        return "mbpp" if self.problem.level is None else str(self.problem.level)


@dataclass(frozen=True)
class Program:
    kind: str
    code: str
    distance: int
    """Tokens that differ from the reference."""


@dataclass(frozen=True)
class Pair:
    right: Program
    wrong: Program


def synthetic(count: int, seed: int) -> list[Study]:
    """Held-out problems, spread evenly over the levels; the same for the same seed."""
    random, made = Random(f"styles {seed}"), dict[str, Study]()
    while len(made) < count:
        task = make_task(random, LEVELS[len(made) % len(LEVELS)], held_out=True)
        slips = tuple(mutants(task, random, SLIPS))
        made.setdefault(task.problem.id, Study(task.problem, str(task.problem.reference), _more(task, random), slips))
    return list(made.values())


def _more(task: SyntheticTask, random: Random) -> tuple[str, ...]:
    cases, run = draw_cases(task.spec, random, INPUTS), solution(task.spec)
    for inputs in EDGES[task.spec.arguments]:
        try:
            cases.append((inputs, run(*inputs)))
        except CALL_ERRORS:
            continue
    name = task.problem.entry_point
    return tuple(f"assert {name}({', '.join(map(repr, inputs))}) == {expected!r}" for inputs, expected in cases)


def mbpp(path: Path, count: int, seed: int, sandbox: MontySandbox, left: Counter[str]) -> Iterator[Study]:
    """Up to `count` rows of MBPP that the sandbox can decide about, in an order of the seed. Raises ProblemError."""
    with translated(ProblemError, f"{path} cannot be read", OSError, ValueError), path.open("rb") as file:
        rows = [line for line in json_lines(file, MAX_ROW) if line.strip()]
    if not rows:
        raise ProblemError(f"{path} has no rows")
    read: list[Problem] = []
    for number, row in enumerate(rows, start=1):
        with translated(ProblemError, f"{path}: row {number} is not one of MBPP", ProblemError):
            read.append(read_row(row).problem)
    Random(f"styles {seed}").shuffle(read)
    for problem in read:
        study = _foreign(problem, sandbox)
        if isinstance(study, str):
            left[f"problems: {study}"] += 1
            continue
        count -= 1
        yield study
        if count == 0:
            return


def _foreign(problem: Problem, sandbox: MontySandbox) -> Study | str:
    """What the reference returns on its tests' inputs and small changes of them; or why that cannot be known."""
    code, name = (problem.reference or "").replace("\r\n", "\n").strip("\n"), problem.entry_point
    if not code or not name:
        return "no reference function"
    known = {call.args for call in parse_tests(problem.tests, name)[1] if call.whole and call.npos == len(call.args)}
    given = [args for args in known if None not in args]
    changed = [
        f"{name}({', '.join(args)})" for args in _changed([[str(arg) for arg in args] for args in sorted(given)])
    ]
    values = returned(sandbox, code, changed) if changed else []
    wanted = [(call, value) for call, value in zip(changed, values, strict=True) if value and _is_plain(value)]
    if len(wanted) < INPUTS:
        return "fewer inputs than are needed"
    study = Study(problem, code, tuple(f"assert {call} == {value}" for call, value in wanted))
    outcome = sandbox.run(Job(code, problem.tests + study.more)).outcome
    return study if outcome is Outcome.PASS else "the sandbox does not confirm the reference"


def _is_plain(value: str) -> bool:
    try:
        return literal(ast.parse(value, mode="eval").body) is not None
    except UNPARSEABLE:
        return False


def _changed(calls: Sequence[Sequence[str]]) -> list[list[str]]:
    """The calls' arguments, then each with one argument changed; the first FORMS."""
    changed = [
        [*call[:at], repr(other), *call[at + 1 :]]
        for call, at in product(calls, range(max(map(len, calls), default=0)))
        if at < len(call)
        for other in _others(ast.literal_eval(call[at]))
    ]
    distinct = {tuple(call): list(call) for call in chain(calls, changed)}
    return list(distinct.values())[:FORMS]


def _others(value: Any) -> list[Any]:
    """Values near a value, of its type."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1, 0, 2 * value]
        case float():
            return [value + 1, -value]
        case str():
            return [value[::-1], value[1:], value + value[:1], value.upper()]
        case list() | tuple():
            return [value[::-1], value[1:], value[:-1], value * 2]
        case _:
            return []


# ------------------------------------------------------------------ right and wrong ones


class Workshop:
    """Makes pairs for problems. left: how many programs were left out, by reason, is added to it."""

    def __init__(self, sandbox: MontySandbox, kinds: Mapping[str, Kind], seed: int, left: Counter[str]) -> None:
        self._sandbox, self._kinds, self._seed, self._left = sandbox, kinds, seed, left

    def pairs(self, study: Study) -> list[Pair]:
        """Each right program with a wrong one that differs from the reference by as many tokens, or nearly."""
        random = Random(f"styles {self._seed} {study.problem.id}")
        right = list(self.right(study, random))
        waiting = list(self.wrong(study, right, random)) if right else []
        made: list[Pair] = []
        for each in random.sample(right, len(right)):
            if not waiting:
                self._left["right: without a wrong one"] += 1
                continue
            nearest = min(waiting, key=lambda one: (abs(one.distance - each.distance), one.kind != each.kind))
            waiting.remove(nearest)
            made.append(Pair(each, nearest))
        return made

    def right(self, study: Study, random: Random) -> Iterator[Program]:
        """At most one of a kind, each with a text of its own."""
        try:
            seen = {plain(study.reference)}
            made = {name: rewrites(kind, study.reference) for name, kind in self._kinds.items()}
        except UNPARSEABLE:
            self._left["problems: the reference cannot be read"] += 1
            return
        made[MIXED] = list(two_at_once(self._kinds.values(), study.reference, random, MIXES))
        for name, codes in made.items():
            for code in random.sample(codes, min(TRIES, len(codes))):
                if (form := plain(code)) in seen:
                    self._left["right: the same text"] += 1
                    continue
                outcome = self._sandbox.run(Job(code, study.problem.tests + study.more)).outcome
                if outcome is Outcome.PASS:
                    seen.add(form)
                    yield Program(name, code, distance(study.reference, code))
                    break
                undecided = outcome is Outcome.UNKNOWN
                self._left[f"right: {'the sandbox cannot tell' if undecided else 'not equal to the reference'}"] += 1

    def wrong(self, study: Study, right: Sequence[Program], random: Random) -> Iterator[Program]:
        """Mutants of the reference and of the right programs, so that style gives nothing away."""
        entry, seen = study.problem.entry_point, set[str]()
        origins = [Program("reference", study.reference, 0), *right]
        made = [
            (origin.kind, code) for origin in origins for code in mutate_code(origin.code, random, MUTANTS, entry=entry)
        ]
        for kind, code in [*made, *(("reference", code) for code in study.slips)]:
            if (form := plain(code)) in seen:
                continue
            seen.add(form)
            if why := self._not_wrong(study, code):
                self._left[f"wrong: {why}"] += 1
            else:
                yield Program(kind, code, distance(study.reference, code))

    def _not_wrong(self, study: Study, code: str) -> str:
        match self._sandbox.run(Job(code, study.problem.tests)).outcome:
            case Outcome.FAIL:
                return ""
            case Outcome.UNKNOWN:
                return "the sandbox cannot tell"
            case Outcome.PASS:
                more = self._sandbox.run(Job(code, study.more)).outcome
                return "not told apart by the tests" if more is Outcome.FAIL else "equal to the reference"


def plain(code: str) -> str:
    """Without what says nothing. Raises UNPARSEABLE."""
    return ast.unparse(parse_quietly(code))


def distance(one: str, other: str) -> int:
    """Tokens to replace, insert or delete."""
    matcher = difflib.SequenceMatcher(None, _tokens(one), _tokens(other), autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


def _tokens(source: str) -> list[str]:
    return [token.string for token in tokenize.generate_tokens(io.StringIO(ast.unparse(ast.parse(source))).readline)]
