"""Jail, Monty and CPython on the same generated programs: no verdict differs, and the jail decides them all."""

import ast
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest
from builders.natural_programs import PROGRAMS
from oracles.python_harness import holds

from codezero.code.mutations import mutate_code
from codezero.problems.synthetic.tasks import render, sample_spec, solution
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.bubblewrap import BubblewrapSandbox
from codezero.sandbox.monty import MontySandbox

SAMPLES: dict[str, list[object]] = {"[int]": [[], [3, -1, 4, 4], [7]], "str": ["", "aBc d", "zz"], "int": [0, 7, -12]}


def returned(form: str) -> Callable[[str], str]:
    """What the function returns, in another form."""

    def change(code: str) -> str:
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Return) and node.value is not None:
                node.value = ast.parse(form.format(ast.unparse(node.value)), mode="eval").body
        return ast.unparse(tree)

    return change


def annotated(annotation: str) -> Callable[[str], str]:
    return lambda code: code.replace("):", f") -> {annotation}:", 1)


RETURNED = (
    *("(v for v in [{}])", "map(abs, [{}])", "iter([{}])", "({},)", "[{}]", "str({})", "repr({})", "None",
        "(lambda: {})"),
    *("zip([{}], [1])", "{{1: {}}}.values()", "dict(a={})", "enumerate([{}])", "object()", "float('nan')", "({} or 0)"),
    *("not_defined({})", "print({})", "int(bool({}))"),
)  # fmt: skip
ANNOTATED = (
    *("int", "List[int]", "'List[int]'", "list[int]", "Optional[int]", "int | None", "any", "None", "list[int, int]"),
    "1 + 1",
)
AROUND = {
    "plain": "{}", "guard": "{}\nif __name__ == '__main__':\n    print(f(input()))", "reads": "{}\nx = input()",
    "prints": "{}\nprint('x' * 1000)", "exits": "{}\nimport sys\nsys.exit()", "raises": "{}\nraise ValueError('x')",
    "asserts": "{}\nassert False", "deletes": "{}\ndel f", "hides": "{}\nf = 3",
    "hides a builtin": "def len(x): return 0\n{}", "lambda": "{}\ng = f\nf = lambda *a: g(*a)",
    "generator": "{}\ng = f\ndef f(*a):\n    yield g(*a)", "async": "{}\ng = f\nasync def f(*a):\n    return g(*a)",
    "cached": "{}\nimport functools\ng = f\n@functools.lru_cache\ndef f(x): return g(x)",
    "counts": "{}\nn = 0\ng = f\ndef f(*a):\n    global n\n    n += 1\n    return g(*a) if n < 3 else n",
    "class": "{}\nclass C:\n    def __init__(self, v): self.v = v\ng = f\ndef f(*a): return C(g(*a)).v",
    "sleeps": "{}\nimport time\ntime.sleep(0.01)",
    "recurses": "{}\ng = f\ndef d(n): return n and d(n - 1)\ndef f(*a):\n    d(900)\n    return g(*a)",
    "recurses deeper": "{}\ndef d(n): return n and d(n - 1)\nd(1100)", "long number": "{}\nx = str(10 ** 5000)",
    "walrus": "{}\nif (n := f) is not None: f = n", "match": "{}\nmatch 3:\n    case 3: pass\n    case _: f = None",
    "library": "from collections import Counter, deque\nimport heapq, itertools, math, re, string\n{}",
    "lacks": "from collections import NoSuchName\n{}", "file": "open('input.txt')\n{}",
    "changes": "{}\ng = f\ndef f(x):\n    y = g(x)\n    x.append(9) if isinstance(x, list) else 0\n    return y",
}  # fmt: skip
TWISTS: list[Callable[[str], str]] = [
    *map(returned, RETURNED), *map(annotated, ANNOTATED),
    *(lambda code, text=text: text.replace("{}", code) for text in AROUND.values()),
    lambda code: "from typing import List\n" + annotated("List[int]")(code),
    lambda code: "from typing import List\n" + annotated("List[int, int]")(code),
    lambda code: "from __future__ import annotations\n" + annotated("List[int]")(code),
]  # fmt: skip
TESTS = (
    "assert f({0!r}) == {1!r}", "assert not f({0!r}) != {1!r}", "x = {0!r}\ny = f(x)\nassert y == {1!r} and x == {0!r}",
    "assert [f({0!r})] == [{1!r}]", "assert isinstance(f({0!r}), type({1!r}))", "assert str(f({0!r})) == {2!r}",
)  # fmt: skip


def generated() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(code, tests), endlessly."""
    random = Random(3)
    natural = [(kind, code) for kind, codes in PROGRAMS for code in codes]
    while True:
        if random.random() < 0.5:
            spec = sample_spec(random, random.randint(1, 5))
            code, compute, given = render(spec, "f", random), solution(spec), [[3, -1, 4, 4], [], [7, 2]]
            if "(s" in code or "text" in code.splitlines()[0]:
                given = ["aBc d", "", "zz"]
        else:
            kind, code = random.choice(natural)
            space: dict[str, Callable[[object], object]] = {}
            exec(code, space)  # our own
            compute, given = space["f"], SAMPLES.get(kind, [])
        values = []
        for value in given:
            try:
                values.append((value, compute(*([list(value)] if isinstance(value, list) else [value]))))
            except (TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError):
                continue
        mutant = random.choice([code, *mutate_code(code, random, 3, entry="f")])
        twist = random.choice(TWISTS)
        tests = tuple(random.choice(TESTS).format(value, wanted, str(wanted)) for value, wanted in values)
        if tests:
            yield twist(mutant), tests


@pytest.fixture(scope="module")
def sandboxes(jailed: None) -> Iterator[tuple[BubblewrapSandbox, MontySandbox]]:
    with BubblewrapSandbox(seconds=4) as bubblewrap, MontySandbox(seconds=4) as monty:
        yield bubblewrap, monty


def differences(sandboxes: tuple[BubblewrapSandbox, MontySandbox], count: int) -> Iterator[str]:
    for code, tests in islice(generated(), count):
        truth = Outcome.PASS if holds(code, tests) else Outcome.FAIL
        jailed, interpreted = (sandbox.run(Job(code, tests)) for sandbox in sandboxes)
        told = interpreted.outcome is not Outcome.UNKNOWN and not interpreted.provisional  # what Monty alone decides
        if jailed.outcome is not truth or (told and interpreted.outcome is not truth):
            yield f"CPython: {truth}\njail: {jailed}\nMonty: {interpreted}\n{code}\n" + "\n".join(tests)


@pytest.mark.slow
def test_no_verdict_differs_from_pythons(sandboxes: tuple[BubblewrapSandbox, MontySandbox]) -> None:
    assert list(differences(sandboxes, 60)) == []


@pytest.mark.long
def test_no_verdict_of_many_differs_from_pythons(sandboxes: tuple[BubblewrapSandbox, MontySandbox]) -> None:
    assert list(differences(sandboxes, 1500)) == []
