"""Honest solutions pass: no quarantine, no certain failure, nothing undefined."""

# ruff: noqa: E501  # programs as data

import json
from random import Random

import pytest
from builders.real_data import real_data

from codezero.code.parsing import fence
from codezero.code.report import StaticReport, StaticRequest, check
from codezero.problems.rows import read_row
from codezero.problems.synthetic.tasks import LEVELS, make_task

CALLED: dict[str, tuple[str, tuple[str, ...]]] = {
    "roman": (
        "def f(n):\n    val = [1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1]\n"
        "    syb = ['M', 'CM', 'D', 'CD', 'C', 'XC', 'L', 'XL', 'X', 'IX', 'V', 'IV', 'I']\n    out = ''\n"
        "    for v, s in zip(val, syb):\n        while n >= v:\n            out += s\n            n -= v\n    return out",
        ("assert f(1) == 'I'", "assert f(50) == 'L'", "assert f(4) == 'IV'"),
    ),
    "months": (
        "def f(month, day):\n    if month in ('January', 'February', 'March'):\n        season = 'winter'\n"
        "    elif month in ('April', 'May', 'June'):\n        season = 'spring'\n"
        "    elif month in ('July', 'August', 'September'):\n        season = 'summer'\n    else:\n"
        "        season = 'autumn'\n    if month == 'March' and day > 19:\n        season = 'spring'\n    return season",
        ("assert f('January', 4) == 'winter'", "assert f('October', 28) == 'autumn'", "assert f('June', 6) == 'spring'"),
    ),
    "decorated entry": (
        "import functools\n@functools.cache\ndef f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)",
        ("assert f(10) == 55", "assert f(7) == 13"),
    ),
    "cache by hand": ("def f(x, seen={}):\n    if x not in seen:\n        seen[x] = x * x\n    return seen[x]", ("assert f(5) == 25", "assert f(12) == 144")),
    "class with equality": (
        "class P:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def __eq__(self, other):\n"
        "        if not isinstance(other, P):\n            return NotImplemented\n"
        "        return (self.x, self.y) == (other.x, other.y)\n    def __hash__(self):\n"
        "        return hash((self.x, self.y))\n\ndef f(points):\n    return len({P(x, y) for x, y in points})",
        ("assert f([(1, 2), (1, 2), (3, 4)]) == 2", "assert f([(5, 5)]) == 1"),
    ),
    "equality by loop": (
        "class V:\n    def __init__(self, parts):\n        self.parts = parts\n    def __eq__(self, other):\n"
        "        for a, b in zip(self.parts, other.parts):\n            if a != b:\n                return False\n"
        "        return True\n\ndef f(a, b):\n    return V(a) == V(b)",
        ("assert f([1], [1]) == True", "assert f([1], [2]) == False"),
    ),
    "heap items": (
        "import heapq\nclass Item:\n    def __init__(self, n):\n        self.n = n\n    def __lt__(self, other):\n"
        "        return self.n > other.n\ndef f(nums):\n    h = [Item(n) for n in nums]\n    heapq.heapify(h)\n"
        "    return heapq.heappop(h).n",
        ("assert f([3, 9, 4]) == 9", "assert f([1, 8]) == 8"),
    ),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass(order=True)\nclass Pair:\n    a: int\n    b: int\n"
        "def f(rows):\n    best = max(Pair(*row) for row in rows)\n    return (best.a, best.b)",
        ("assert f([(5, 24), (15, 25)]) == (15, 25)", "assert f([(5, 24), (5, 39)]) == (5, 39)"),
    ),
    "error text": (
        "def f(n):\n    if n < 3:\n        raise ValueError('f(3) is 7 and f(5) is 31, below 3 there is nothing')\n"
        "    return 2 ** n - 1",
        ("assert f(3) == 7", "assert f(5) == 31"),
    ),
    "examples in the docstring": (
        "def f(n):\n    '''\n    >>> f(3)\n    7\n    >>> f(5)\n    31\n    '''\n    return 2 ** n - 1",
        ("assert f(3) == 7", "assert f(5) == 31"),
    ),
    "demonstration": (
        "def f(n):\n    return 2 ** n - 1\n\nprint(f(3))  # 7\nprint(f(5))  # 31\nassert f(3) == 7\nassert f(5) == 31",
        ("assert f(4) == 15", "assert f(6) == 63"),
    ),
    "phone keys": (
        "from itertools import product\ndef f(d):\n    keys = {'2': 'abc', '3': 'def', '4': 'ghi', '5': 'jkl'}\n"
        "    return [''.join(p) for p in product(*(keys[c] for c in d))]",
        ("assert f('2') == ['a', 'b', 'c']", "assert f('3') == ['d', 'e', 'f']"),
    ),
    "alias": ("def helper(xs):\n    return sorted(xs)[0]\n\nf = helper", ("assert f([3, 2]) == 2", "assert f([9, 5]) == 5")),
    "callable": ("f = sorted", ("assert f([3, 2]) == [2, 3]", "assert f([9, 5]) == [5, 9]")),
    "cached later": (
        "import functools\ndef f(n):\n    return n * 3\nf = functools.lru_cache(None)(f)",
        ("assert f(5) == 15", "assert f(7) == 21"),
    ),
    "deep": (
        "import sys\nsys.setrecursionlimit(10000)\ndef f(n):\n    return n + f(n - 1) if n else 0",
        ("assert f(5) == 15", "assert f(10) == 55"),
    ),
}  # fmt: skip

PROGRAMS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "main": (
        "import sys\n\ndef main():\n    data = sys.stdin.read().split()\n    n = int(data[0])\n"
        "    print(max(map(int, data[1:n + 1])))\n\nif __name__ == '__main__':\n    main()",
        (("3\n1 9 4\n", "9\n"), ("2\n31 30\n", "31\n")),
    ),
    "fast input": (
        "import sys\ninput = sys.stdin.readline\ndef solve():\n    a, b = map(int, input().split())\n"
        "    sys.stdout.write(str(a + b) + '\\n')\nfor _ in range(int(input())):\n    solve()",
        (("1\n40 2\n", "42\n"), ("1\n7 8\n", "15\n")),
    ),
    "until the end": (
        "while True:\n    try:\n        a = int(input())\n    except EOFError:\n        break\n    print(a * 2)",
        (("21\n", "42\n"), ("30\n", "60\n")),
    ),
    "leaves early": (
        "import sys\nn = int(input())\nif n % 2:\n    print(-1)\n    sys.exit()\nprint(n // 2)",
        (("3\n", "-1\n"), ("84\n", "42\n")),
    ),
    "threads": (
        "import sys, threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(2**27)\ndef main():\n"
        "    n = int(input())\n    def down(k):\n        return k + down(k - 1) if k else 0\n    print(down(n))\n"
        "threading.Thread(target=main).start()",
        (("10\n", "55\n"), ("4\n", "10\n")),
    ),
    "own stdin": (
        "import io, os, sys\nsys.stdin = io.StringIO(os.read(0, os.fstat(0).st_size).decode())\n"
        "print(sum(map(int, sys.stdin.read().split())))",
        (("10 2\n", "12\n"), ("4 9\n", "13\n")),
    ),
    "no input": ("print(sum(range(101)))", (("\n", "5050\n"),)),
    "modulus": (
        "MOD = 1000000007\nn = int(input())\nx = 1\nfor i in range(n):\n    x = x * 26 % MOD\nprint(x)",
        (("1\n", "26\n"), ("2\n", "676\n")),
    ),
}


def passes(report: StaticReport) -> bool:
    sound = report.returns_value and not report.stub and not report.degenerate and not report.undefined_names
    return sound and not report.certain_failure and not report.quarantine and report.canonical is not None


@pytest.mark.parametrize("name", CALLED)
def test_an_honest_function_passes(name: str):
    code, tests = CALLED[name]
    report = check(StaticRequest(fence(code), tests, "f", "Write a function."))
    assert passes(report), report


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_honest_program_passes(name: str):
    code, cases = PROGRAMS[name]
    tests = tuple(json.dumps({"input": given, "output": wanted}) for given, wanted in cases)
    report = check(StaticRequest(fence(code), tests, "", "Read and write."))
    assert passes(report) and not report.banned, report
    assert report.examples and report.hardcode_ratio == 0


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_references_of_mbpp_pass(every: int):
    failed: list[str] = []
    for line in (real_data("mbpp.jsonl") / "mbpp.jsonl").read_bytes().splitlines()[::every]:
        problem = read_row(line).problem
        request = StaticRequest(fence(problem.reference or ""), problem.tests, problem.entry_point, problem.question)
        failed += [] if passes(check(request)) else [problem.entry_point]
    assert len(failed) <= 2, failed  # an unbound name, and a call of itself behind the return


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_references_of_every_level_pass(level: int):
    random = Random(level)
    reports = [
        check(StaticRequest(fence(str(one.reference)), one.tests, one.entry_point, one.question))
        for one in (make_task(random, level).problem for _ in range(300))
    ]
    assert sum(map(passes, reports)) >= 0.98 * len(reports)
    assert all(report.examples for report in reports)
