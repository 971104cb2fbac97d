"""The Monty sandbox: honest outcomes, bombs contained, tricks that do not pass."""

from collections.abc import Iterator, Sequence

import pytest

from codezero.errors import SandboxError
from codezero.sandbox.base import MAX_BYTES, Job, Outcome
from codezero.sandbox.monty import MontySandbox

PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
TESTS = ("assert f(2) == 4", "assert f(-3) == -6")
RIGHT = "def f(x):\n    return x * 2"


def job(code: str, tests: Sequence[str]) -> Job:
    return Job(code, tuple(tests))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    with MontySandbox(seconds=0.5, memory_mib=32) as sandbox:
        yield sandbox


def test_right_code_passes_and_wrong_code_names_the_test(sandbox: MontySandbox) -> None:
    assert sandbox.run(job(RIGHT, TESTS)).outcome is PASS
    wrong = sandbox.run(job("def f(x):\n    return abs(x) * 2", TESTS))
    assert (wrong.outcome, wrong.reason) == (FAIL, "test 2 fails")


@pytest.mark.parametrize(("code", "reason"), [
    ("def f(x)\n    return x", "SyntaxError"), ("def f(x):\n    return y", "NameError"),
    ("def g(x):\n    return x * 2", "NameError"), ("def f(x):\n    x * 2", "test 1 fails"),
    ("def f(x):\n    return x.foo", "AttributeError"),
    ("def f(x):\n    raise NotImplementedError", "NotImplementedError"),
    ("def f(n):\n    return f(n + 1)", "RecursionError"), ("", "NameError"), ("\ud800", ""),
    ("a = [1]\nfor i in range(60): a = [a, a]\nreturn a", "SyntaxError: 'return' outside function"),
])  # fmt: skip
def test_the_codes_own_faults_fail(sandbox: MontySandbox, code: str, reason: str) -> None:
    _, execution = sandbox.run_many([job(RIGHT, TESTS), job(code, TESTS)])  # of which nothing is left
    assert execution.outcome is FAIL
    assert reason in execution.reason


@pytest.mark.parametrize("code", [
    "import heapq\n" + RIGHT, "import numpy as np\n" + RIGHT, "from math import nothing_of_that_name\n" + RIGHT,
    "def g():\n    yield 1\n" + RIGHT, "class A: pass\nclass B(A): pass\n" + RIGHT,
    "def f(x):\n    return int(memoryview(b'a')[0])", "import sys\nsys.setrecursionlimit(10)\n" + RIGHT,
    "import cmath\n" + RIGHT, "def f(x):\n    return x.__sizeof__()", "open('/etc/passwd').read()",
    "x = 1\ndel x\n" + RIGHT, "#" * MAX_BYTES + "\n" + RIGHT,
])  # fmt: skip
def test_what_the_sandbox_lacks_is_unknown_and_never_wrong(sandbox: MontySandbox, code: str) -> None:
    assert sandbox.run(job(code, TESTS)).outcome is UNKNOWN


@pytest.mark.parametrize(("body", "reason"), [
    ("while True: pass", "time limit"),
    ("while True:\n        try:\n            while True: pass\n        except BaseException: pass", "time limit"),
    ("import time\n    while True: time.sleep(1)", "time limit"), ("while True: print('x' * 1000)", "time limit"),
    ("return sum(range(10**12))", "time limit"), ("a = []\n    while True: a.append('x' * 100000)", "limit"),
    ("return 'a' * 10**11", "memory limit"), ("return 10 ** 10**8", "memory limit"),
    ("return sorted(range(10**9))", "limit"), ("def g(n): return g(n + 1)\n    return g(0)", "RecursionError"),
    ("a = [1]\n    for i in range(60): a = [a, a]\n    return a", "test 1 fails"),
    ("a = [1]\n    for i in range(60): a = [a, a]\n    return len(repr(a))", "limit"),
    ("return " + "(" * 5000 + "1" + ")" * 5000, "nested"),
    ("import re\n    return re.match(r'(a+)+$', 'a' * 40 + 'b')", ""),
])  # fmt: skip
def test_bombs_fail_in_a_function_and_at_the_top(sandbox: MontySandbox, body: str, reason: str) -> None:
    inside = sandbox.run(job(f"def f(x):\n    {body}", TESTS))
    assert (inside.outcome, reason in inside.reason) == (FAIL, True), inside
    if "return" not in body:
        outside = sandbox.run(job(body.replace("\n    ", "\n"), TESTS))
        assert (outside.outcome, reason in outside.reason) == (FAIL, True), outside
    assert sandbox.run(job(RIGHT, TESTS)).outcome is PASS  # and the next program is not harmed


@pytest.mark.parametrize("code", [
    "raise SystemExit", "def f(x):\n    raise SystemExit", "return", "def f(x): return 0\nreturn",
    "AssertionError = ValueError\ndef f(x): return 0", "def f(x): return 0\n'''",
    "def f(x): return 0\nif False: \\", "def f(x):\n    print('PASS')\n    return 0",
    "class X:\n    def __eq__(self, other): return True\ndef f(x): return X()",
    "class X: pass\nsetattr(X, '__' + 'eq__', lambda s, o: True)\ndef f(x): return X()",
    "X = type('X', (), {'__eq__': lambda s, o: True})\ndef f(x): return X()",
    "exec('cl' + 'ass X:\\n    def __eq__(self, other): return True')\ndef f(x): return X()",
    "\U0001d41exec('cl' + 'ass X:\\n    def __eq__(self, other): return True')\ndef f(x): return X()",
    "try:\n    assert False\nexcept AssertionError:\n    pass\ndef f(x): return None",
])  # fmt: skip
def test_tricks_do_not_pass(sandbox: MontySandbox, code: str) -> None:
    assert sandbox.run(job(code, TESTS)).outcome is not PASS


@pytest.mark.parametrize(("hack", "test"), [
    ("def sorted(x): return X()\nclass X:\n    def __eq__(s, o): return True\ndef f(x): return x",
        "assert sorted(f([2, 3])) == [1, 2]"),
    ("class X:\n    def __eq__(s, o): return True\ndef f(x): return [{1: X()}]", "assert f(1) == [{1: 5}]"),
    ("class X:\n    def __bool__(s): return True\ndef f(x): return X()", "assert f(1)"),
    ("class X:\n    def __eq__(s, o): return True\ndef f(x): return X()", "assert all(f(i) == i for i in [1, 2])"),
    ("class X:\n    def __eq__(s, o): return True\ndef f(x): return X()", "assert not (f(1) != 3 and f(1) != 4)"),
    ("class M:\n    def isclose(s, a, b): return True\nmath = M()\ndef f(x): return 0",
        "assert math.isclose(f(1), 3)"),
])  # fmt: skip
def test_tests_of_other_forms_are_not_fooled_either(sandbox: MontySandbox, hack: str, test: str) -> None:
    assert sandbox.run(job(hack, [test])).outcome is not PASS


@pytest.mark.parametrize("test", [
    "assert f(2) == 4, 'doubles'", "assert set([f(1), f(2)]) == {2, 4}", "assert not f(0)",
    "assert f(x=2) in (3, 4)", "assert [f(i) for i in range(3)] == [0, 2, 4]",
    "assert f('ab') == 'abab' and f([1]) == [1, 1]", "import math\nassert math.isclose(f(0.5), 1.0)",
    "xs = [1, 2]\nassert list(map(f, xs)) == [2, 4]",
    "def twice(g, v):\n    return g(g(v))\nassert twice(f, 3) == 12",
])  # fmt: skip
def test_assertions_of_many_forms_are_understood(sandbox: MontySandbox, test: str) -> None:
    assert sandbox.run(job(RIGHT, [test])).outcome is PASS
    assert sandbox.run(job("def f(x):\n    return None", [test.replace("not f(0)", "not not f(0)")])).outcome is FAIL


def test_a_helper_named_like_a_builtin_is_its_tests_too_as_in_python(sandbox: MontySandbox) -> None:
    code = "def max(a, b):\n    return a + b\ndef f(x):\n    return max(x, x)"
    assert sandbox.run(job(code, [*TESTS, "assert max(f(1), f(2)) == 6"])).outcome is PASS


@pytest.mark.parametrize("test", ["x = 1", "", "while True: assert f(1)", "assert f(", "return 1", "("])
def test_tests_that_cannot_be_used_are_unknown(sandbox: MontySandbox, test: str) -> None:
    assert sandbox.run(job(RIGHT, [test])).outcome is UNKNOWN
    assert sandbox.run(job(RIGHT, [])).outcome is UNKNOWN


def test_the_same_program_gets_the_same_outcome_although_it_draws_at_random(sandbox: MontySandbox) -> None:
    code = "import random\ndef f(x):\n    return random.random() < 0.5"
    outcomes = {sandbox.run(job(code, ["assert f(1)", "assert f(2)"])) for _ in range(10)}
    assert len(outcomes) == 1


def test_output_of_a_program_goes_nowhere(sandbox: MontySandbox, capfd: pytest.CaptureFixture[str]) -> None:
    assert sandbox.run(job("print('loud')\n" + RIGHT, TESTS)).outcome is PASS
    assert capfd.readouterr() == ("", "")


def test_a_closed_sandbox_starts_again_and_a_missing_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = MontySandbox()
    assert sandbox.run(job(RIGHT, TESTS)).outcome is PASS
    sandbox.close()
    sandbox.close()
    assert sandbox.run(job(RIGHT, TESTS)).outcome is PASS
    sandbox.close()
    monkeypatch.setenv("MONTY_BIN", "/nonexistent/monty")
    with pytest.raises(SandboxError):
        sandbox.run(job(RIGHT, TESTS))


@pytest.mark.parametrize(
    ("annotation", "decided"),
    [
        ("int", True), ("list[int]", True), ("dict[str, list[int]]", True), ("int | None", True), ("'Any'", True),
        ("tuple[int, ...]", True), ("List[int]", False), ("any", False), ("int | str", True), ("Node", False),
        ("list(int)", False), ("int[str]", False),
    ],
)  # fmt: skip
def test_monty_decides_only_what_its_unread_annotations_leave_certain(
    sandbox: MontySandbox, annotation: str, decided: bool
) -> None:
    code = f"def f(x: {annotation}) -> {annotation}:\n    return x * 2\nclass Node: pass"
    assert (sandbox.run(job(code, TESTS)).outcome is PASS) is decided


@pytest.mark.parametrize(("imported", "annotation", "decided"), [
    ("from typing import List", "List[int]", True), ("import typing", "typing.List[int]", False),
    ("from typing import Optional, Dict", "Optional[Dict[str, int]]", True),
    ("from typing import List", "List[int, int]", False), ("from typing import Dict", "Dict[int]", False),
    ("from __future__ import annotations", "List[int]", True),
])  # fmt: skip
def test_monty_takes_what_typing_gives(sandbox: MontySandbox, imported: str, annotation: str, decided: bool) -> None:
    executed = sandbox.run(job(f"{imported}\ndef f(x: {annotation}):\n    return x * 2", TESTS))
    assert (executed.outcome is PASS) is decided, executed


def test_a_function_is_not_main_in_monty_either(sandbox: MontySandbox) -> None:
    code = "def f(x): return x * 2\nif __name__ == '__main__':\n    print(f(int(input())))"
    assert sandbox.run(job(code, TESTS)).outcome is PASS
