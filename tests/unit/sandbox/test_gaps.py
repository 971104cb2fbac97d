"""Where Monty is not CPython: what it lacks is UNKNOWN, never wrong and never right by chance; CPython decides."""

import json
import logging
import re
from collections.abc import Iterator

import pytest

from codezero.errors import SandboxError
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.bubblewrap import BubblewrapSandbox, TieredSandbox, open_sandbox
from codezero.sandbox.gaps import silent_gap
from codezero.sandbox.monty import MontySandbox

PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
RIGHT_UNDER_CPYTHON = {
    "a method taken off a Counter": (
        "from collections import Counter\n"
        "def f(s):\n    c = Counter(s)\n    return max(c, key=c.get)", "assert f('abb') == 'b'"),
    "a method taken off a defaultdict": (
        "from collections import defaultdict\ndef f(s):\n    d = defaultdict(int)\n"
        "    for x in s:\n        d[x] += 1\n    return max(d, key=d.get)", "assert f('abb') == 'b'"),
    "an attribute of a match": ("import re\ndef f(s):\n    return re.search('b', s).re.pattern",
        "assert f('abc') == 'b'"),
    "the name of a function": ("def f():\n    return f.__name__", "assert f() == 'f'"),
    "a method of an int": ("def f(n):\n    return n.bit_length()", "assert f(5) == 3"),
    "a generator's next": ("def f(xs):\n    return next((x for x in xs if x > 1), 0)", "assert f([1, 2]) == 2"),
    "a generator kept": ("def f(xs):\n    g = (x for x in xs)\n    return list(g) + list(g)", "assert f([1]) == [1]"),
    "a list that grows by a tuple": ("def f(xs, t):\n    xs += t\n    return xs", "assert f([1], (2,)) == [1, 2]"),
    "a union of three": ("def f(a, b, c):\n    return a.union(b, c)", "assert f({1}, [2], [3]) == {1, 2, 3}"),
    "a set looked for in a set": ("def f(s):\n    return s in {frozenset([1])}", "assert f({1})"),
    "bytes of a list": ("def f(xs):\n    return bytes(xs)", "assert f([97]) == b'a'"),
    "an inverse modulo": ("def f(a, m):\n    return pow(a, -1, m)", "assert f(3, 7) == 5"),
    "an alias of a type": ("from typing import List\nT = List[int]\ndef f(x):\n    return x", "assert f(1) == 1"),
    "the order of a set": ("def f(xs):\n    return list(set(xs))", "assert f([3, 1, 2]) == [1, 2, 3]"),
    "the order of two sets": ("def f(a, b):\n    both = set(a) & set(b)\n    return tuple(both)",
        "assert f((3, 4, 5), (5, 4, 7)) == (4, 5)"),
    "the order of a set in a loop": (
        "def f(xs):\n    out = []\n    for x in set(xs):\n"
        "        out.append(x)\n    return out", "assert f([3, 1]) == [1, 3]"),
    "a reference before a word": ("import re\ndef f(s):\n    return re.sub('(a)(b)', r'\\1_\\2', s)",
        "assert f('ab') == 'a_b'"),
    "the length of an object": ("class S:\n    def __len__(self):\n        return 3\ndef f():\n    return len(S())",
        "assert f() == 3"),
    "the truth of an object": (
        "class S:\n    def __bool__(self):\n"
        "        return False\ndef f():\n    return 1 if S() else 2", "assert f() == 2"),
    "an attribute that is made up": (
        "class S:\n    def __getattr__(self, name):\n"
        "        return name\ndef f():\n    return S().x", "assert f() == 'x'"),
    "a method of a view": ("def f(d):\n    return d.values().__len__()", "assert f({1: 2}) == 1"),
    "the next of an iterator": ("def f(x):\n    return iter(x).__next__()", "assert f([4]) == 4"),
    "an attribute of a function": ("def f():\n    return f.__annotations__", "assert f() == {}"),
    "an int that is never iterated": ("def f(xs):\n    return any(len(list(x)) for x in xs)", "assert f([[1], 5])"),
    "the first that is found": ("def f(xs):\n    for x in map(list, xs):\n        return x",
        "assert f([[1], 5]) == [1]"),
    "the end that is never reached": ("def f(n):\n    return all(n % i for i in range(2, n))", "assert not f(10 ** 9)"),
    "an iterator that two share": ("def f(a, b):\n    i = iter(b)\n    return all(any(x == y for y in i) for x in a)",
        "assert f('ac', 'abc')"),
    "sets that a function returns": ("def g(xs):\n    return set(xs)\ndef f(xs):\n    return [x for x in g(xs)]",
        "assert f([3, 1]) == [1, 3]"),
    "sets in a dict": (
        "from collections import defaultdict\ndef f(x):\n"
        "    d = defaultdict(set)\n    d[0].update([3, 1])\n    return list(d[0])", "assert f(0) == [1, 3]"),
    "the order of a set in the test": ("def f(xs):\n    return list(xs)", "assert f({3, 1}) == [1, 3]"),
    "what Monty raised is caught": (
        "def f(x):\n    try:\n        return x.is_integer()\n"
        "    except Exception:\n        return False", "assert f(2.0)"),
    "a match before the last newline": ("import re\ndef f(s):\n    return bool(re.search('a$', s))",
        "assert f('a\\n')"),
    "an empty match behind another": ("import re\ndef f(s):\n    return re.sub('x*', '-', s)",
        "assert f('ax') == '-a--'"),
    "groups with a default": ("import re\ndef f(s):\n    return re.match('(a)(b)?', s).groups('')",
        "assert f('a') == ('a', '')"),
    "a range without an end": (
        "def f(n):\n    for i in range(1, 10 ** 30):\n"
        "        if i % n == 0:\n            return i", "assert f(7) == 7"),
    "hasattr": ("def f(x):\n    return hasattr(x, 'append')", "assert f([])"),
    "a copied set": ("def f(xs):\n    return [x for x in set(xs).copy()]", "assert f([3, 1]) == [1, 3]"),
    "a statement that is not listed": ("def f(x):\n    match x:\n        case 1:\n            return 2",
        "assert f(1) == 2"),
    "a format without a type": ("def f(x):\n    return f'{x:>3}'", "assert f('a') == '  a'"),
    "a member that is not listed": ("import math\ndef f(x):\n    return math.cbrt(x)", "assert f(8) == 2"),
}  # fmt: skip
MENDED = {
    "zip twice": ("def f(a, b):\n    z = zip(a, b)\n    return list(z) + list(z)", "assert f([1], [2]) == [(1, 2)]"),
    "next of a filter": ("def f(xs):\n    return next(filter(None, xs))", "assert f([0, 2]) == 2"),
    "a tie in decimals": ("def f(x):\n    return round(x, 2)", "assert f(2.675) == 2.67"),
    "a map in the test": ("def f(x):\n    return x", "m = map(str, [1])\nassert list(m) + list(m) == f(['1'])"),
    "a function called like a builtin": ("def sum(a, b):\n    return a - b", "assert sum(10, 4) == 6"),
}  # fmt: skip
WRONG_UNDER_CPYTHON = {
    "a map is no list": ("def f(xs):\n    return map(str, xs)", "assert f([1]) == ['1']"),
    "a zip is no list": ("def f(a):\n    return zip(a, a)", "assert f([1]) == [(1, 1)]"),
    "a name": ("def f(x):\n    return y", "assert f(1) == 1"),
    "a number is not iterated": ("def f(n):\n    return [d for d in n]", "assert f(12) == [1, 2]"),
    "a list and a tuple": ("def f(a, b):\n    return a + b", "assert f([1], (2,)) == [1, 2]"),
    "a method that is nowhere": ("def f(xs):\n    return xs.push(1)", "assert f([]) == [1]"),
    "None": ("def f(s):\n    return s.find('x').start()", "assert f('x') == 0"),
    "a view is no list": ("def f(d):\n    return d.keys().sort()", "assert f({}) == []"),
    "a number in a sum": ("def f(xs):\n    return sum(len(x) for x in xs)", "assert f([1]) == 1"),
    "arguments": ("def g(a):\n    return a\ndef f(x):\n    return g(x, x)", "assert f(1) == 1"),
    "a set that is sorted": ("def f(xs):\n    return sorted(set(xs))", "assert f([3, 1]) == [3, 1]"),
    "a builtin that is not redefined": ("def f(a, b):\n    return a + b", "assert sum(10, 4) == 14"),
}  # fmt: skip
ORDER_FREE = (
    "def f(xs):\n    return sorted(list(set(xs)))",
    "def f(xs):\n    seen = set()\n    for x in xs:\n        if x not in seen:\n            seen.add(x)\n"
    "    return sorted(x for x in seen)",
    "def f(xs):\n    return [x for x in range(9) if x in set(xs) & set(xs)]",
    "def f(xs):\n    a = {x for x in xs}\n    a |= {1}\n    return [1, 2, 3] if len(a.union(xs)) == 3 else []",
    "def f(xs):\n    total = sum(1 for _ in set(xs))\n    return list(range(1, total + 1))",
    "def f(xs):\n    a, b, c = sorted(xs)\n    return list(x for x in (a, b, c))",
)


@pytest.fixture(scope="module")
def monty() -> Iterator[MontySandbox]:
    with MontySandbox(seconds=1.0) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def both(jailed: None) -> Iterator[TieredSandbox]:
    with open_sandbox("auto") as sandbox:
        yield sandbox


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT_UNDER_CPYTHON)
def test_a_gap_is_unknown_and_cpython_decides(monty: MontySandbox, both: TieredSandbox, name: str) -> None:
    code, test = RIGHT_UNDER_CPYTHON[name]
    assert monty.run(Job(code, (test,))).outcome is UNKNOWN
    assert both.run(Job(code, (test,))).outcome is PASS


@pytest.mark.parametrize("name", MENDED)
def test_what_can_be_mended_passes_in_monty(monty: MontySandbox, name: str) -> None:
    code, test = MENDED[name]
    assert monty.run(Job(code, (test,))).outcome is PASS


@pytest.mark.parametrize("name", WRONG_UNDER_CPYTHON)
def test_what_is_wrong_stays_wrong(monty: MontySandbox, name: str) -> None:
    """Else an attempt that raises would be left out of every average."""
    code, test = WRONG_UNDER_CPYTHON[name]
    assert monty.run(Job(code, (test,))).outcome is FAIL


@pytest.mark.parametrize("code", ORDER_FREE)
def test_sets_and_generators_that_are_used_up_are_no_doubt(monty: MontySandbox, code: str) -> None:
    assert monty.run(Job(code, ("assert f([3, 1, 2]) == [1, 2, 3]",))).outcome is PASS


METHODS = """
add: S() + 1; radd: 1 + S(); sub: S() - 1; rsub: 1 - S(); mul: S() * 1; rmul: 1 * S(); truediv: S() / 1
rtruediv: 1 / S(); floordiv: S() // 1; mod: S() % 1; pow: S() ** 1; and: S() & 1; or: S() | 1; xor: S() ^ 1
lshift: S() << 1; rshift: S() >> 1; matmul: S() @ 1; getitem: S()[1]; call: S()(1); divmod: divmod(S(), 1)
neg: -S(); abs: abs(S()); int: int(S()); index: list(range(9))[S()]; invert: ~S(); rpow: 1 ** S(); pos: +S()
round: round(S())
"""


@pytest.mark.parametrize("method", re.split("[;\n]", METHODS.strip()))
def test_methods_of_classes_that_monty_calls_are_no_doubt(monty: MontySandbox, method: str) -> None:
    name, use = method.strip().split(": ")
    code = f"class S:\n    def __{name}__(self, *x):\n        return 7\ndef f():\n    return {use}"
    assert monty.run(Job(code, ("assert f() == 7",))).outcome is PASS


@pytest.mark.parametrize("code", [
    "x = set()\n" + "|".join("x" * 8000),
    "a0 = set()\n" + "\n".join(f"a{at} = a{at - 1}" for at in range(1200, 0, -1)),
    "x = set()\n" + " and ".join("x" * 2700), "set()" + ".copy()" * 2300, "-" * 16000 + "1", "(" * 8000, "\ud800",
    "",
])  # fmt: skip
def test_a_bomb_is_looked_through(code: str) -> None:
    assert silent_gap(code) == ""


def test_the_order_that_a_set_has_in_monty_alone_is_no_pass(monty: MontySandbox, both: TieredSandbox) -> None:
    job = Job("def f(xs):\n    return list(set(xs))", ("assert f([3, 1, 3]) == [3, 1]",))
    assert monty.run(job).outcome is UNKNOWN
    assert both.run(job).outcome is FAIL


def test_a_limit_and_an_exception_stand_alone_and_are_provisional(monty: MontySandbox) -> None:
    slow = monty.run(Job("def f(n):\n    return sum(i % 7 for i in range(10**8))", ("assert f(1)",)))
    raised = monty.run(Job("def f(n):\n    return n[0]", ("assert f(1)",)))
    wrong = monty.run(Job("def f(n):\n    return 0", ("assert f(1)",)))
    assert [one.outcome for one in (slow, raised, wrong)] == [FAIL] * 3
    assert slow.provisional and raised.provisional and not wrong.provisional


def test_a_provisional_failure_is_decided_by_cpython(both: TieredSandbox) -> None:
    slow = "def f(n):\n    n = 0\n    for i in range(3 * 10**6):\n        n += i % 7\n    return n"
    with TieredSandbox(MontySandbox(seconds=0.05), BubblewrapSandbox()) as hasty:
        assert hasty.run(Job(slow, ("assert f(1) == 8999994",))).outcome is PASS
        assert hasty.run(Job("def f(n):\n    return n[0]", ("assert f(1)",))).outcome is FAIL


def test_a_provisional_failure_stands_where_the_second_cannot_tell() -> None:
    class Silent(MontySandbox):
        def run(self, job: Job):  # type: ignore[override]
            return MontySandbox.run(self, Job("import heapq", job.tests))

    with TieredSandbox(MontySandbox(), Silent()) as tiers:
        assert tiers.run(Job("def f(n):\n    return n[0]", ("assert f(1)",))).outcome is FAIL


TESTS = ("assert f(2) == 4", "assert f(-3) == -6")
LACKING = "import heapq\ndef f(x): return x * 2"


def test_the_first_decides_and_the_second_is_not_even_started() -> None:
    class Dead(MontySandbox):
        def run(self, job: Job) -> None:  # type: ignore[override]
            raise AssertionError("asked")

    with TieredSandbox(MontySandbox(), Dead()) as tiers:
        executed = tiers.run_many([Job("def f(x): return x * 2", TESTS), Job("def f(x): return 0", TESTS)])
        assert [execution.outcome for execution in executed] == [Outcome.PASS, Outcome.FAIL]
        with pytest.raises(AssertionError, match="asked"):
            tiers.run(Job(LACKING, TESTS))


def test_the_second_tells_what_the_first_cannot(jailed: None) -> None:
    stdio = Job("import heapq\nprint(heapq.nsmallest(1, [2, 1]))", (json.dumps({"input": "", "output": "[1]"}),), True)
    with open_sandbox("auto") as auto, open_sandbox("bubblewrap") as bubblewrap, open_sandbox("monty") as monty:
        for job in (Job(LACKING, TESTS), stdio):
            assert auto.run(job).outcome is Outcome.PASS
            assert bubblewrap.run(job).outcome is Outcome.PASS
            assert monty.run(job).outcome is Outcome.UNKNOWN
        assert auto.run(Job("import numpy\ndef f(x): return 0", TESTS)).outcome is Outcome.UNKNOWN


def test_without_bubblewrap_auto_goes_on_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with caplog.at_level(logging.INFO, logger="codezero.sandbox.bubblewrap"), open_sandbox("auto") as auto:
        assert auto.run(Job("def f(x): return x * 2", TESTS)).outcome is Outcome.PASS
        assert auto.run(Job(LACKING, TESTS)).outcome is Outcome.UNKNOWN
    assert "bubblewrap" in caplog.text
    with pytest.raises(SandboxError, match="bubblewrap"):
        open_sandbox("bubblewrap")
