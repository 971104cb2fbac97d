"""The secret control: who answers for the tests is found out, and nobody else is."""

import ast
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.python_harness import holds

from codezero.errors import ProblemError
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.sandbox.bubblewrap import BubblewrapSandbox, TieredSandbox
from codezero.sandbox.control import TAG, Control, SiteCounts, control_of, far, other
from codezero.sandbox.monty import MontySandbox

PASS, FAIL = Outcome.PASS, Outcome.FAIL
TESTS = ("assert f(2) == 4", "assert f(-3) == -6", "assert f('ab') == 'abab'")
CHEATS = "passes tests that must fail"


@pytest.fixture(scope="module", params=[pytest.param("bubblewrap", marks=pytest.mark.slow), "tiers"])
def sandbox(request: pytest.FixtureRequest, jailed: None) -> Iterator[Sandbox]:
    with BubblewrapSandbox(seconds=2) as alone, TieredSandbox(MontySandbox(), alone) as tiers:
        yield alone if request.param == "bubblewrap" else tiers


LIAR = "def __eq__(s, o): return True\n    def __hash__(s): return hash(1)"
READER = """
import sys
def f(x):
    frame = sys._getframe(1)
    while '{0}' not in frame.f_code.co_filename: frame = frame.f_back
    return [c for c in frame.f_code.co_consts if type(c) is type(x) and c != x][-1]
"""
ANSWERING = {
    "equals all": f"class X:\n    {LIAR}\ndef f(x): return X()",
    "equals all, a number": f"class X(int):\n    {LIAR}\ndef f(x): return X()",
    "equals all, inside": f"class X:\n    {LIAR}\n    def __mul__(s, o): return s\ndef f(x): return X() * 2",
    "patches what counts": """
import builtins, sys
def f(x):
    frame = sys._getframe(1)
    for name, value in list(frame.f_globals.items()):
        if callable(value) and name != 'f' and name[:2] != '__':
            frame.f_globals[name] = lambda *a: True
""",
    "takes the lists": """
import gc
def f(x):
    for each in gc.get_objects():
        if type(each) is list and each and all(type(n) is int and n < 2 for n in each):
            each[:] = [1] * len(each)
    return type('X', (), {'__eq__': lambda s, o: True})()
""",
    "writes the report": """
import json, os
report = json.dumps({'held': [1] * 9, 'missed': [0] * 9}).encode()
for n in range(3, 64):
    try: os.pwrite(n, report, 0); os.ftruncate(n, len(report))
    except OSError: pass
os._exit(0)
""",
    "reads what is expected": READER.format("test"),
}


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in ANSWERING.items()])
def test_who_answers_for_the_tests_is_found_out(sandbox: Sandbox, code: str) -> None:
    execution = sandbox.run(Job(code, TESTS))
    assert execution.outcome is FAIL
    assert execution.cheats == (execution.reason == CHEATS)
    assert execution.cheats or "test" in execution.reason or "Error" in execution.reason


@pytest.mark.parametrize("test", [
    "for x, y in [(1, 2), (2, 4)]:\n    assert f(x) == y", "assert all(f(x) == x + x for x in range(9))",
    "assert f(2) in [4]", "assert {f(2)} == {4}", "assert not f(2) != 4",
    "def check(g, want):\n    right = g(2) == want\n    assert right\ncheck(f, 4)", "assert abs(f(2) - 4) < 1e-6",
    "import math\nassert math.isclose(f(2), 4)", "assert round(f(2), 3) == 4.0", "assert (f(2), 1) == (4, 1)",
])  # fmt: skip
def test_what_equals_everything_passes_no_form_of_test(sandbox: Sandbox, test: str) -> None:
    liar = f"""
class X(float):
    {LIAR}
    __sub__ = __rsub__ = __abs__ = __round__ = lambda s, *o: X(0)
    __lt__ = __le__ = lambda s, o: True
    def __ne__(s, o): return False
    def __iter__(s): return iter([s])
def f(x): return X(4)
"""
    assert sandbox.run(Job("def f(x): return x * 2", (test,))) == Execution(PASS)
    assert sandbox.run(Job(liar.replace("X(4)", "X(5)"), (test,))).outcome is FAIL


SHARED = [
    ("class S:\n    def __init__(s): s.items = []\n    def size(s): return len(s.items)",
     "s = S()\ns.items.append(1)\nassert s.size() == 1"),
    ("import random\ndef f(): return random.random()",
     "import random\nrandom.seed(3)\na = f()\nrandom.seed(3)\nassert a == f()"),
    ("class L(list): pass\ndef f(): return L([1])", "a = f()\na.append(2)\nassert a + [3] == [1, 2, 3]"),
    ("def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n        return n\n    return g",
     "g = f()\ng()\nassert g() == 2 and f()() == 1"),
    ("def f(): print('hi')",
     "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    f()\n"
     "assert out.getvalue() == 'hi\\n'"),
    ("class C:\n    n = 1\n    def g(s): return s.n", "C.n = 5\nassert C().g() == 5"),
    ("import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2", "assert C['A'] is C.A and len(C) == 2"),
    ("from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n"
     "    y: list = field(default_factory=list)",
     "from dataclasses import asdict, replace\nassert asdict(P(1)) == {'x': 1, 'y': []} and replace(P(1), x=2) > P(1)"),
    ("import functools\n@functools.total_ordering\nclass A:\n    def __init__(s, v): s.v = v\n"
     "    def __eq__(s, o): return s.v == o.v\n    def __lt__(s, o): return s.v < o.v",
     "assert A(2) >= A(1) and A(1) <= A(1)"),
    ("class V:\n    def __init__(s, x): s.x = x\n    def __eq__(s, o): return s.x == o.x",
     "import copy\na = V([1])\nb, c = copy.copy(a), copy.deepcopy(a)\na.x.append(2)\nassert b == a and c.x == [1]"),
    ("def f(file): return file.read().upper()", "import io\nassert f(io.StringIO('ab')) == 'AB'"),
    ("def f():\n    with open('/dev/stdout', 'a') as file: file.write('hi')", "assert f() is None"),
    ("class A:\n    def m(s): return 1\na = A()\ndef f(): return a.m", "assert f() == f() and f()() == 1"),
    ("def f(x): return [x]", "x = float('nan')\nassert f(x) == f(x)"),
    ("def f(n):\n    a = []\n    for _ in range(n): a = [a]\n    return a",
     "a, n = f(300), 0\nwhile a:\n    a, n = a[0], n + 1\nassert n == 300"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "test"), SHARED)
def test_values_are_shared_as_in_python(sandbox: Sandbox, code: str, test: str) -> None:
    assert holds(code, [test])
    assert sandbox.run(Job(code, (test,))) == Execution(PASS)


@pytest.mark.parametrize(("code", "test"), [
    ("xs = []\ndef f(): return xs", "f().append(1)\nassert f() == []"),
    ("def f(x, a=[]):\n    a.append(x)\n    return a", "f(1)\nassert f(2) == [2]"),
    ("def f(): return [float('nan')]", "assert f() == f()"),
    ("def f(a):\n    a.sort()\n    return a", "a = [2, 1]\nassert f(a) == [1, 2] and a == [2, 1]"),
    ("LIMIT = 1\ndef f(): return LIMIT", "LIMIT = 5\nassert f() == 1"),
    ("def f(x): return x\nraise SystemExit(0)", "assert f(1) == 1"),
    ("def f(x): raise AssertionError", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"),
])  # fmt: skip
def test_what_fails_in_python_fails(sandbox: Sandbox, code: str, test: str) -> None:
    assert not holds(code, [test])
    execution = sandbox.run(Job(code, (test, "assert 1")))
    assert execution.outcome is FAIL and not execution.cheats


def test_tests_without_a_condition_are_said_to_be_unguarded(sandbox: Sandbox) -> None:
    raises = "try:\n    f(1)\n    raise KeyError\nexcept ValueError:\n    pass"
    execution = sandbox.run(Job("def f(x): raise ValueError", (raises, "assert callable(f)")))
    assert execution == Execution(PASS, "1 of 2 tests are unguarded: no condition to change", unguarded=1)


def test_an_assertion_whose_failure_the_test_catches_stays_one(sandbox: Sandbox) -> None:
    test = "try:\n    assert f(1) == 2\nexcept AssertionError:\n    ok = True\nassert ok"
    assert sandbox.run(Job("def f(x): return 3", (test,))) == Execution(PASS)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner),
)


@given(literals, st.integers(0, 9))
def test_another_literal_is_of_the_same_type_and_differs(value: Any, seed: int) -> None:
    changed = other(value, Random(seed))
    assert changed != value and ast.literal_eval(repr(changed)) == changed
    assert value is None or type(changed) is type(value)


@given(st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6), st.integers(0, 9))
def test_a_number_far_away_is_not_nearly_the_same(value: float, seed: int) -> None:
    assert abs(far(value, Random(seed)) - value) >= 10


@given(literals, st.integers(0, 99))
def test_the_two_runs_of_a_pair_differ_in_literals_alone(value: Any, seed: int) -> None:
    _, first, second, *_ = control_of((f"x = f(1)\nassert x == {value!r}, 'why'",)).runs(Random(seed))
    trees = [ast.parse(run.tests[0].replace(TAG, "")) for run in (first, second)]
    for node in (part for tree in trees for part in ast.walk(tree) if isinstance(part, ast.Call)):
        node.args[1:] = []
    assert ast.dump(trees[0]) == ast.dump(trees[1])
    assert [a != b for a, b in zip(first.altered, second.altered, strict=True)] == [True, True]


def reported(control: Control, says: Sequence[bool]) -> Execution:
    """Of code that gives these answers at the sites of every run."""
    runs = list(control.runs())
    report = SiteCounts([*map(int, says), 0], [int(not each) for each in [*says, True]])
    return control.decide(zip(runs, [SiteCounts(), *([report] * (len(runs) - 1))], strict=True))


@pytest.mark.parametrize("says", [(True, True, True, True), (False, False, False, False), (True, False, True, True)])
def test_who_says_the_same_in_both_runs_is_always_found_out(says: tuple[bool, ...]) -> None:
    control = control_of(("assert f(1) == 1", "assert f(2) == 2"))
    assert all(reported(control, says).outcome is FAIL for _ in range(20))


@pytest.mark.parametrize("test", ["x = 1", "", "assert (", "\ud800", "assert " + "(" * 500 + "1" + ")" * 500])
def test_what_is_no_test_is_refused(test: str) -> None:
    with pytest.raises(ProblemError):
        control_of((test,))


@pytest.mark.parametrize("test", [
    "assert f(1) == (  # why\n    2\n), 'message'; assert f(2) == 4", "if f(1) == 2: assert f(2) == 4",
    "assert (y := f(1)) == 2 and y == 2", "assert f(1) == 2\r\nassert f(2) == 4\r",
    "s = f'{f(1) == 2}'\nassert s == 'True', f'{f(1) == 3}'", "assert 'ü' == 'ü' and f('ß') == 'ßß' and f(1) == 2",
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate([1]) == [1, 1]\n\ncheck(f)\n# end",
    "assert ((f(1) == 2) == (f(2) == 4)) == True", "class T:\n    v = f(1)\n    assert v == 2\nassert T.v == 2",
    "assert not (f(1)) == 3", "assert [f(x) == 2 * x for x in (1, 2)] == [True] * 2", "assert f(1) is not None",
    "assert f(2) == 0x4 == 4.0", "assert f('''a\nb''') == '''a\nba\nb'''",
])  # fmt: skip
def test_the_source_around_conditions_is_kept(sandbox: Sandbox, test: str) -> None:
    assert sandbox.run(Job("def f(x): return x * 2", (test,))) == Execution(PASS)
    wrong = "def f(x): return x * 3"
    assert (sandbox.run(Job(wrong, (test,))).outcome is PASS) == holds(wrong, [test])
