"""Honest solutions pass: no quarantine, no certain failure, nothing undefined."""

# ruff: noqa: E501  # programs as data

import json
from random import Random

import pytest

from codezero.code.parsing import fence
from codezero.code.report import StaticReport, StaticRequest, check
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
    "memo": (
        "from functools import lru_cache\n\n@lru_cache(maxsize=None)\ndef fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\ndef f(n):\n    return fib(n)",
        ("assert f(10) == 55", "assert f(20) == 6765"),
    ),
    "decorated entry": (
        "import functools\n@functools.cache\ndef f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)",
        ("assert f(10) == 55", "assert f(7) == 13"),
    ),
    "cache by hand": ("def f(x, seen={}):\n    if x not in seen:\n        seen[x] = x * x\n    return seen[x]", ("assert f(5) == 25", "assert f(12) == 144")),
    "heap": (
        "import heapq\ndef f(nums, n):\n    return heapq.nlargest(n, nums)",
        ("assert f([25, 35, 22, 85], 3) == [85, 35, 25]", "assert f([25, 35, 22, 85], 2) == [85, 35]"),
    ),
    "regex": (
        "import re\ndef f(text):\n    if re.search(r'^[a-z]+_[a-z]+$', text):\n        return 'Found a match!'\n"
        "    return 'Not matched!'",
        ("assert f('aab_cbbbc') == 'Found a match!'", "assert f('aab_Abbbc') == 'Not matched!'"),
    ),
    "generator": (
        "def f(nums):\n    def evens():\n        for x in nums:\n            if x % 2 == 0:\n                yield x\n"
        "    return list(evens())",
        ("assert f([1, 2, 3, 4]) == [2, 4]", "assert f([7]) == []"),
    ),
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
    "linked list": (
        "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n        self.next = next\n\n"
        "def f(values):\n    head = None\n    for v in values:\n        head = Node(v, head)\n    out = []\n"
        "    while head:\n        out.append(head.value)\n        head = head.next\n    return out",
        ("assert f([1, 2, 3]) == [3, 2, 1]", "assert f([5, 6]) == [6, 5]"),
    ),
    "vowels": (
        "def f(s):\n    return sum(1 for c in s.lower() if c in 'aeiou')",
        ("assert f('hello') == 2", "assert f('aeiou') == 5", "assert f('xyz') == 0"),
    ),
    "grades": (
        "def f(score):\n    if score >= 90:\n        return 'A'\n    elif score >= 80:\n        return 'B'\n    return 'F'",
        ("assert f(95) == 'A'", "assert f(83) == 'B'", "assert f(12) == 'F'"),
    ),
    "base cases": (
        "def f(n):\n    if n == 0:\n        return 1\n    if n == 1:\n        return 3\n    return 2 * f(n - 1) + f(n - 2)",
        ("assert f(0) == 1", "assert f(1) == 3", "assert f(5) == 99"),
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
    "permutations": (
        "def f(nums):\n    if len(nums) == 0:\n        return [[]]\n    out = []\n    for i in range(len(nums)):\n"
        "        for rest in f(nums[:i] + nums[i + 1:]):\n            out.append([nums[i]] + rest)\n    return out",
        ("assert f([1, 2]) == [[1, 2], [2, 1]]", "assert f([7]) == [[7]]"),
    ),
    "alias": ("def helper(xs):\n    return sorted(xs)[0]\n\nf = helper", ("assert f([3, 2]) == 2", "assert f([9, 5]) == 5")),
    "callable": ("f = sorted", ("assert f([3, 2]) == [2, 3]", "assert f([9, 5]) == [5, 9]")),
    "cached later": (
        "import functools\ndef f(n):\n    return n * 3\nf = functools.lru_cache(None)(f)",
        ("assert f(5) == 15", "assert f(7) == 21"),
    ),
    "exceptions": (
        "def f(a, b):\n    try:\n        return a / b\n    except ZeroDivisionError:\n        return None",
        ("assert f(6, 4) == 1.5", "assert f(1, 0) is None"),
    ),
    "wrapped": ("def f(a, b):\n    return tuple(set(a) & set(b))", ("assert set(f((3, 4), (4, 5))) == set((4,))", "assert set(f((1, 2), (2, 9))) == set((2,))")),
    "counter": (
        "from collections import Counter, defaultdict\ndef f(words):\n    c = Counter(words)\n    d = defaultdict(list)\n"
        "    for w, n in c.items():\n        d[n].append(w)\n    return max(c, key=c.__getitem__)",
        ("assert f(['a', 'b', 'a']) == 'a'", "assert f(['x', 'y', 'y']) == 'y'"),
    ),
    "matrix": (
        "def f(m):\n    return [list(row) for row in zip(*m)]",
        ("assert f([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]", "assert f([[5]]) == [[5]]"),
    ),
    "deep": (
        "import sys\nsys.setrecursionlimit(10000)\ndef f(n):\n    return n + f(n - 1) if n else 0",
        ("assert f(5) == 15", "assert f(10) == 55"),
    ),
    "annotated": (
        "from typing import List, Optional\n\ndef f(xs: List[int], k: Optional[int] = None) -> List[int]:\n"
        "    k = k or 2\n    result: List[int] = xs[-k:] + xs[:-k]\n    return result",
        ("assert f([1, 2, 3, 4]) == [3, 4, 1, 2]", "assert f([1, 2, 3], 1) == [3, 1, 2]"),
    ),
}  # fmt: skip

PROGRAMS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "plain": ("n = int(input())\nprint(n * (n + 1) // 2)", (("10\n", "55\n"), ("4\n", "10\n"))),
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
    "yes or no": (
        "s = input()\nif s == s[::-1]:\n    print('YES')\nelse:\n    print('NO')",
        (("abba\n", "YES\n"), ("abc\n", "NO\n")),
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
