"""Jail, Monty and CPython on the same generated programs: no verdict differs, and the jail decides them all."""

import ast
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest
from builders.natural_programs import PROGRAMS
from oracles.python_harness import holds

from codezero.code.mutations import mutate_code
from codezero.problems.synthetic.programs import render, sample_spec, solution
from codezero.sandbox import jail
from codezero.sandbox.base import Execution, Job, Outcome
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


TWISTS: dict[str, Callable[[str], str]] = {
    "plain": lambda code: code,
    **{form: returned(form) for form in (
        "(v for v in [{}])", "map(abs, [{}])", "iter([{}])", "({},)", "[{}]", "str({})", "repr({})", "None", "(lambda: {})",
        "zip([{}], [1])", "{{1: {}}}.values()", "dict(a={})", "enumerate([{}])", "object()", "float('nan')", "({} or 0)",
        "not_defined({})", "print({})", "int(bool({}))",
    )},
    **{f"-> {form}": annotated(form) for form in (
        "int", "List[int]", "'List[int]'", "list[int]", "Optional[int]", "int | None", "any", "None", "list[int, int]", "1 + 1",
    )},
    "typing": lambda code: "from typing import List\n" + annotated("List[int]")(code),
    "typing wrong": lambda code: "from typing import List\n" + annotated("List[int, int]")(code),
    "guard": lambda code: code + "\nif __name__ == '__main__':\n    print(f(input()))",
    "reads": lambda code: code + "\nx = input()",
    "prints": lambda code: code + "\nprint('x' * 1000)",
    "exits": lambda code: code + "\nimport sys\nsys.exit()",
    "raises": lambda code: code + "\nraise ValueError('x')",
    "asserts": lambda code: code + "\nassert False",
    "deletes": lambda code: code + "\ndel f",
    "hides": lambda code: code + "\nf = 3",
    "hides a builtin": lambda code: "def len(x): return 0\n" + code,
    "lambda": lambda code: code + "\ng = f\nf = lambda *a: g(*a)",
    "generator": lambda code: code + "\ng = f\ndef f(*a):\n    yield g(*a)",
    "async": lambda code: code + "\ng = f\nasync def f(*a):\n    return g(*a)",
    "cached": lambda code: code + "\nimport functools\ng = f\n@functools.lru_cache\ndef f(x): return g(x)",
    "counts": lambda code: code + "\nn = 0\ng = f\ndef f(*a):\n    global n\n    n += 1\n    return g(*a) if n < 3 else n",
    "class": lambda code: code + "\nclass C:\n    def __init__(self, v): self.v = v\n    def __len__(self): return 2\ng = f\n"
    "def f(*a): return C(g(*a)).v",
    "sleeps": lambda code: code + "\nimport time\ntime.sleep(0.01)",
    "recurses": lambda code: code + "\ng = f\ndef d(n): return n and d(n - 1)\ndef f(*a):\n    d(900)\n    return g(*a)",
    "recurses deeper": lambda code: code + "\ndef d(n): return n and d(n - 1)\nd(1100)",
    "pops": lambda code: code + "\ng = f\ndef f(x):\n    y = g(x)\n    x.append(9) if isinstance(x, list) else 0\n    return y",
    "long number": lambda code: code + "\nx = str(10 ** 5000)",
    "future": lambda code: "from __future__ import annotations\n" + annotated("List[int]")(code),
    "walrus": lambda code: code + "\nif (n := f) is not None: f = n",
    "match": lambda code: code + "\nmatch 3:\n    case 3: pass\n    case _: f = None",
    "library": lambda code: "from collections import Counter, deque\nimport heapq, itertools, math, re, string\n" + code,
    "lacks": lambda code: "from collections import NoSuchName\n" + code,
    "file": lambda code: "open('input.txt')\n" + code,
}  # fmt: skip
TESTS = (
    "assert f({0!r}) == {1!r}",
    "assert not f({0!r}) != {1!r}",
    "x = {0!r}\ny = f(x)\nassert y == {1!r} and x == {0!r}",
    "assert [f({0!r})] == [{1!r}]",
    "assert isinstance(f({0!r}), type({1!r}))",
    "assert str(f({0!r})) == {2!r}",
)


def generated() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(code, tests), endlessly."""
    random = Random(3)
    natural = [(kind, text.strip()) for kind, texts in PROGRAMS for text in texts.split("---")]
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
        twist = TWISTS[random.choice(list(TWISTS))]
        tests = tuple(random.choice(TESTS).format(value, wanted, str(wanted)) for value, wanted in values)
        if tests:
            yield twist(mutant), tests


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[tuple[BubblewrapSandbox, MontySandbox]]:
    if reason := jail.why_not():
        pytest.skip(reason)
    with BubblewrapSandbox(seconds=4) as bubblewrap, MontySandbox(seconds=4) as monty:
        yield bubblewrap, monty


def differences(sandboxes: tuple[BubblewrapSandbox, MontySandbox], count: int) -> Iterator[str]:
    for code, tests in islice(generated(), count):
        truth = Outcome.PASS if holds(code, tests) else Outcome.FAIL
        jailed, interpreted = (sandbox.run(Job(code, tests)) for sandbox in sandboxes)
        if jailed.outcome is not truth or (
            interpreted.outcome not in (truth, Outcome.UNKNOWN) and not provisional(interpreted)
        ):
            yield f"CPython: {truth}\njail: {jailed}\nMonty: {interpreted}\n{code}\n" + "\n".join(tests)


def provisional(execution: Execution) -> bool:
    """A failure that Monty leaves to the jail."""
    return execution.provisional


def test_no_verdict_differs_from_pythons(sandboxes: tuple[BubblewrapSandbox, MontySandbox]) -> None:
    assert list(differences(sandboxes, 60)) == []


@pytest.mark.slow
def test_no_verdict_of_many_differs_from_pythons(sandboxes: tuple[BubblewrapSandbox, MontySandbox]) -> None:
    assert list(differences(sandboxes, 1500)) == []
