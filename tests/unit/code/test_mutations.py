"""Mutants are other programs, of the same form; a transplant is the same program under another name."""

import ast
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.canonical import canonical
from codezero.code.mutations import MAX_MUTANTS, mutate_code, transplant
from codezero.problems.synthetic.tasks import make_task

RICH = """\
def helper(a, k=2):
    if not a or k > 3:
        return a[1:]
    total = 0
    for i in range(len(a)):
        total += a[i] * k - 1
    return total

def f(a):
    "f of a"
    return helper(a, 3) if len(a) > 2 and a[0] in (1, 2) else f(a[:-1])
"""


def test_every_kind_of_slip_is_made():
    made = "\n".join(mutate_code(RICH, Random(1), MAX_MUTANTS, entry="f"))
    for slip in (
        "k >= 3", "k < 3", "k=3", "helper(3, a)", "not a and k > 3", "a[i] * k + 1", "return k\n", "a[:]", "a[1:-1]",
        "len(a) > 2 or", "a[0] not in", "if a or k > 3", "total -=", "1 - a[i] * k", "not (not a or k > 3)",
    ):  # fmt: skip
        assert slip in made, slip


def test_mutants_parse_differ_and_keep_the_entry():
    random = Random(2)
    fruitful = 0
    for _ in range(60):
        problem = make_task(random).problem
        source, name = str(problem.reference), problem.entry_point
        made = mutate_code(source, random, 4, entry=name)
        fruitful += bool(made)
        assert len({canonical(one, name) for one in (*made, source)}) == len(made) + 1
        assert all(isinstance(ast.parse(one).body[0], ast.FunctionDef) and f"def {name}(" in one for one in made)
    assert fruitful > 45  # `s.upper()` has nothing to slip on


def test_the_same_seed_gives_the_same_mutants():
    assert mutate_code(RICH, Random(3), 5, entry="f") == mutate_code(RICH, Random(3), 5, entry="f")


def test_a_program_that_reads_stdin_is_mutated_too():
    source = "v = int(input())\nprint(v > 3)"
    assert source.replace(">", "<") in mutate_code(source, Random(1), 9, entry="")


@given(st.text(max_size=200), st.integers(0, 5))
def test_any_text_is_survived(text: str, count: int):
    assert len(mutate_code(text, Random(0), count, entry="f")) <= count
    assert transplant(text, "f", "g") is None or "g" in text + "g"


def test_a_transplant_is_renamed_everywhere_it_is_meant():
    moved = transplant(RICH, "f", "other_name")
    assert moved is not None
    assert canonical(moved.replace("other_name", "f"), "f") == canonical(RICH, "f")
    assert "else other_name(a[:-1])" in moved and '"""f of a"""' in moved


def test_a_local_of_the_same_name_stays():
    source = "def f(x):\n    g = lambda f: f + 1\n    return g(x) + x.f + len('f')"
    assert transplant(source, "f", "h") == source.replace("def f", "def h")


@pytest.mark.parametrize(("source", "old", "new"), [
    ("def f(x)", "f", "g"), ("def f(x):\n    return x", "missing", "g"), ("def f(x):\n    return x", "f", "class"),
    ("def f(x):\n    return x", "f", "a b"), ("def f(x):\n    return x", "f", "x"),
    ("def f(x):\n    return len(x)", "f", "len"), ("import math as g\ndef f(x):\n    return x", "f", "g"),
    ("x = 1", "", "g"),
])  # fmt: skip
def test_what_cannot_be_renamed_faithfully_is_not(source: str, old: str, new: str):
    assert transplant(source, old, new) is None
