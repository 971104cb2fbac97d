"""Programs with state: wrong ones that are right for a few calls only, and right ones that keep what no call changes.

In the templates F is the function asked for, A its argument, GOOD what it should return of A, and BAD something else.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    question: str
    tests: tuple[str, ...]
    entry: str
    argument: str
    good: str
    bad: str

    @property
    def reference(self) -> str:
        return f"def {self.entry}({self.argument}):\n    return {self.good}"

    @property
    def arguments(self) -> list[Any]:
        return [ast.literal_eval(test[test.index("(") + 1 : test.index(") ==")]) for test in self.tests]

    def written(self, template: str) -> str:
        words = {"F": self.entry, "A": self.argument, "GOOD": self.good, "BAD": self.bad}
        return re.sub(r"\b(F|A|GOOD|BAD)\b", lambda found: words[found[0]], template).strip()


TASKS = (
    Task("Write a function give_number(x) that returns x minus 3.",
         ("assert give_number(1) == -2", "assert give_number(-9) == -12", "assert give_number(5) == 2"),
         "give_number", "x", "x - 3", "0"),
    Task("Write a function check_word(x) that returns True if x is a multiple of 5.",
         ("assert check_word(7) == False", "assert check_word(5) == True", "assert check_word(13) == False"),
         "check_word", "x", "x % 5 == 0", "None"),
    Task("Write a function find_part(s) that returns the first character of s.",
         ("assert find_part('RNCcaad') == 'R'", "assert find_part('CEIdo') == 'C'", "assert find_part('dc') == 'd'"),
         "find_part", "s", "s[0]", "''"),
    Task("Write a function make_data(nums) that returns the numbers in nums that are odd, sorted in ascending order.",
         ("assert make_data([6, 8, -7, -3]) == [-7, -3]", "assert make_data([-9, -6, 7, 9]) == [-9, 7, 9]",
          "assert make_data([-4, 3, -9, 1, -9]) == [-9, -9, 1, 3]"),
         "make_data", "nums", "sorted(n for n in nums if n % 2 == 1)", "[]"),
)  # fmt: skip


def _returns(before: str, body: str, good: str) -> str:
    """A program that returns GOOD where this holds."""
    steps = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{before}\ndef F(A):\n{steps}    return GOOD if {good} else BAD"


WRONG = {
    "a list of the module": _returns("calls = []", "calls.append(1)", "len(calls) <= 4"),
    "a default": (
        "def F(A, seen=[]):\n    seen.append(1)\n    if len(seen) > 5:\n        return BAD\n    return GOOD"),
    "a keyword's default": (
        "def F(A, *, seen={}):\n    seen['n'] = seen.get('n', 0) + 1\n    return GOOD if seen['n'] < 6 else BAD"),
    "a default of a helper": _returns("def tick(n=[0]):\n    n[0] += 1\n    return n[0]", "", "tick() < 6"),
    "a default of a lambda": _returns("tick = lambda pool=[1, 1, 1, 1]: pool and pool.pop()", "", "tick()"),
    "an iterator": (
        "pool = iter([1, 1, 1, 1])\ndef F(A):\n    if next(pool, 0):\n        return GOOD\n    return BAD"),
    "a loop over an iterator": (
        "pool = iter([1, 1, 1, 1])\ndef F(A):\n    for _ in pool:\n        return GOOD\n    return BAD"),
    "a generator expression": _returns("pool = (n < 5 for n in range(99))", "", "next(pool)"),
    "a generator": _returns(
        "def ticks():\n    for n in range(50):\n        yield n\nclock = ticks()", "", "next(clock) < 5"),
    "an endless generator": (
        "def ticks():\n    n = 0\n    while True:\n        yield n\n        n += 1\nclock = ticks()\ndef F(A):\n"
        "    return GOOD if next(clock) < 5 else BAD"),
    "itertools.count": _returns("from itertools import count\nclock = count()", "", "next(clock) < 5"),
    "itertools.repeat": _returns("import itertools\nfuel = itertools.repeat(1, 4)", "", "next(fuel, None)"),
    "itertools.cycle": _returns("from itertools import cycle\nturn = cycle([1, 1, 1, 1, 0])", "", "next(turn)"),
    "itertools.accumulate": _returns(
        "from itertools import accumulate\nclock = accumulate([1] * 60)", "", "next(clock) < 6"),
    "a map": _returns("clock = map(abs, range(60))", "", "next(clock) < 6"),
    "an enumeration": _returns("clock = enumerate([0] * 60)", "n, _ = next(clock)", "n < 6"),
    "a partial": _returns("from functools import partial\ntick = partial(next, iter([1, 1, 1, 1]), 0)", "", "tick()"),
    "a partial of a list": (
        "from functools import partial\ndef step(box):\n    box.append(1)\n    return len(box)\n"
        "tick = partial(step, [])\ndef F(A):\n    return GOOD if tick() < 6 else BAD"),
    "a method of what has no name": (
        "fuel = [1, 1, 1, 1]\nburn, fuel = fuel.pop, fuel\nleft = fuel\ndel_one = burn\ndef F(A):\n    try:\n"
        "        return GOOD if burn() else BAD\n    except IndexError:\n        return BAD"),
    "a method of an unnamed list": (
        "burn = [1, 1, 1, 1].pop\ndef F(A):\n    try:\n        burn()\n    except IndexError:\n"
        "        return BAD\n    return GOOD"),
    "an unnamed list's extend and a default": _returns(
        "def load(box=[]):\n    return box\nnote = load().extend", "note([1])", "len(load()) < 6"),
    "a global": _returns("calls = 0", "global calls\ncalls += 1", "calls < 5"),
    "a global that a walrus sets": _returns("calls = 0", "global calls", "(calls := calls + 1) < 5"),
    "a global that a loop sets": _returns(
        "calls = 0", "global calls\nfor calls in [calls + 1]:\n    pass", "calls < 5"),
    "a global that a helper sets": (
        "left = [1, 1, 1, 1]\ndef use():\n    global left\n    left = left[1:]\ndef F(A):\n    if not left:\n"
        "        return BAD\n    use()\n    return GOOD"),
    "a global of a match": _returns(
        "calls = 0", "global calls\nmatch calls + 1:\n    case calls:\n        pass", "calls < 5"),
    "a function that replaces itself": "def F(A):\n    global F\n    F = lambda A: BAD\n    return GOOD",
    "a function that a helper replaces": (
        "def early(A):\n    return GOOD\ndef swap():\n    global step\n    def step(A):\n        return BAD\n"
        "step = early\ndef F(A):\n    result = step(A)\n    swap()\n    return result"),
    "an attribute of the function": _returns("", "F.calls = getattr(F, 'calls', 0) + 1", "F.calls < 5"),
    "a closure's nonlocal": (
        "def made():\n    calls = 0\n    def solve(A):\n        nonlocal calls\n        calls += 1\n"
        "        return GOOD if calls < 5 else BAD\n    return solve\nF = made()"),
    "a closure's list": (
        "def made():\n    calls = []\n    def solve(A):\n        calls.append(A)\n"
        "        return GOOD if len(calls) < 5 else BAD\n    return solve\nF = made()"),
    "a closure's iterator": (
        "def made(pool):\n    def solve(A):\n        return GOOD if next(pool, 0) else BAD\n    return solve\n"
        "F = made(iter([1, 1, 1, 1]))"),
    "a decorator's counter": (
        "def limited(function):\n    calls = []\n    def solve(*args):\n        calls.append(1)\n"
        "        return function(*args) if len(calls) < 5 else BAD\n    return solve\n@limited\ndef F(A):\n"
        "    return GOOD"),
    "an attribute of a class": _returns("class Clock:\n    calls = 0", "Clock.calls += 1", "Clock.calls < 5"),
    "an object that is called": (
        "class Solve:\n    def __init__(self):\n        self.calls = 0\n    def __call__(self, A):\n"
        "        self.calls += 1\n        return GOOD if self.calls < 5 else BAD\nF = Solve()"),
    "a dict": _returns("calls = {'n': 0}", "calls['n'] += 1", "calls['n'] < 5"),
    "a dict that gains keys": _returns("seen = {}", "seen[len(seen)] = 1", "len(seen) < 5"),
    "a dict of dicts": _returns("calls = {'n': {'n': 0}}", "calls['n']['n'] += 1", "calls['n']['n'] < 5"),
    "a dict in a tuple": _returns("calls = ([0], 'x')", "calls[0][0] += 1", "calls[0][0] < 5"),
    "a Counter": _returns("from collections import Counter\ncalls = Counter()", "calls['n'] += 1", "calls['n'] < 5"),
    "a defaultdict": _returns(
        "from collections import defaultdict\ncalls = defaultdict(list)", "calls[0].append(1)", "len(calls[0]) < 5"),
    "a default that counts": (
        "from collections import defaultdict\nmade = []\ndef fresh():\n    made.append(1)\n    return len(made)\n"
        "table = defaultdict(fresh)\ndef F(A):\n    return GOOD if table[len(table)] < 5 else BAD"),
    "a set": _returns("seen = set()", "seen.add(len(seen))", "len(seen) < 5"),
    "a deque": (
        "from collections import deque\nfuel = deque([1, 1, 1, 1])\ndef F(A):\n    if fuel:\n"
        "        fuel.popleft()\n        return GOOD\n    return BAD"),
    "a deque that turns": _returns(
        "from collections import deque\nturn = deque([1, 1, 1, 1, 0])", "turn.rotate(-1)", "turn[-1]"),
    "a heap": _returns("import heapq\nfuel = [1, 2, 3, 4]", "", "fuel and heapq.heappop(fuel)"),
    "an insort": _returns("from bisect import insort\ncalls = []", "insort(calls, 1)", "len(calls) < 5"),
    "an item that is deleted": (
        "fuel = [1, 1, 1, 1]\ndef F(A):\n    if fuel:\n        del fuel[0]\n        return GOOD\n    return BAD"),
    "an alias": _returns("fuel = [0]\nsame = fuel", "mine = same\nmine += [1]", "len(fuel) < 6"),
    "a target that is state": _returns("calls = [0]", "for calls[0] in [calls[0] + 1]:\n    pass", "calls[0] < 5"),
    "what is swapped": _returns("a, b = [1], [0]", "a[0], b[0] = b[0], a[0]", "b[0]"),
    "what is emptied": (
        "state = [[], [1]]\ndef F(A):\n    if state[1]:\n        state[0].append(state[1].pop())\n"
        "        return GOOD\n    return BAD"),
    "an order that is reversed": _returns("order = [1, 0]", "order.reverse()", "order[1]"),
    "a comprehension with an effect": _returns("calls = []", "[calls.append(1) for calls2 in [1]]", "len(calls) < 5"),
    "a comprehension that hides the name": _returns(
        "calls = []", "calls.append(1) if [calls for calls in [1]] else 0", "len(calls) < 5"),
    "an inner function": _returns(
        "calls = []", "def note():\n    calls.append(1)\n    return len(calls)", "note() < 5"),
    "a function in a list": _returns(
        "calls = []\ndef tick():\n    calls.append(1)\n    return len(calls)\nsteps = [tick]", "", "steps[0]() < 5"),
    "a sort's key": _returns(
        "calls = []\ndef key(n):\n    calls.append(n)\n    return 0", "sorted([1], key=key)", "len(calls) < 5"),
    "a list that is kept from the call": _returns("kept = [None]", "before, kept[0] = kept[0], 1", "before is None"),
    "what the last call left": (
        "last = [None]\ndef F(A):\n    result = GOOD if last[0] != A else BAD\n    last[0] = A\n    return result"),
    "a cache by the wrong key": (
        "memo = {}\ndef F(A):\n    if 0 not in memo:\n        memo[0] = GOOD\n    return memo[0]"),
    "a cache that goes wrong when it is full": (
        "memo = {}\ndef F(A, memo=memo):\n    memo[len(memo)] = A\n    if len(memo) > 4:\n        return BAD\n"
        "    return GOOD"),
    "globals()": _returns("n = 0", "globals()['n'] += 1", "n < 5"),
    "defaults of the function": "def F(A, n=0):\n    F.__defaults__ = (n + 1,)\n    return GOOD if n < 5 else BAD",
    "what counts only now and then": _returns("calls = []", "if A == A:\n    calls.append(1)", "len(calls) < 5"),
    "what changes on a path": (
        "calls = []\ndef F(A):\n    if A:\n        calls.append(A)\n    return BAD if len(calls) > 3 else GOOD"),
    "an error that counts": (
        "calls = []\ndef F(A):\n    try:\n        calls.append(1)\n        return [GOOD][len(calls) // 5]\n"
        "    except IndexError:\n        return BAD"),
    "a second function's state": (
        "def outer():\n    calls = [0]\n    def tick():\n        calls[0] += 1\n        return calls[0]\n"
        "    return tick\ntick = outer()\ndef F(A):\n    return GOOD if tick() < 5 else BAD"),
    "a default of an inner function": _returns(
        "calls = []", "def inner(note=calls.append(1)):\n    pass", "len(calls) < 5"),
    "a list that is repeated in place": _returns(
        "table = [1]", "mine = table\nmine *= 1 + (len(mine) < 9)", "len(table) < 9"),
}  # fmt: skip
"""Right at the first call, and not for long."""
WRONG_BY_WHAT_IS_OUTSIDE = {
    "random": _returns("import random", "", "random.random() < 0.9"),
    "random.choice": "from random import choice\ndef F(A):\n    return choice([GOOD, GOOD, GOOD, BAD])",
    "a seeded generator": _returns("import random\ndice = random.Random(1)", "", "dice.random() < 0.9"),
    "time": _returns("import time", "", "time.time() % 1 < 0.9"),
    "time since it was loaded": _returns(
        "from time import perf_counter\nstart = perf_counter()", "", "perf_counter() - start < 0.5"),
    "the date": _returns("from datetime import datetime", "", "datetime.now().year < 2035"),
    "an id": _returns("", "", "id(object()) % 64"),
    "an attribute of a module": _returns("import math\nmath.calls = 0", "math.calls += 1", "math.calls < 5"),
    "what is built in": _returns(
        "import builtins", "builtins.calls = getattr(builtins, 'calls', 0) + 1", "builtins.calls < 5"),
}  # fmt: skip
"""Wrong by chance, by the time, or by what other programs of the process see as well."""
RIGHT = {
    "a number": _returns("STEP = 3", "offset = STEP - 3", "not offset"),
    "a list that is read": _returns("TABLE = [0, 1, 2]", "", "TABLE[1]"),
    "a tuple": _returns("KINDS = (1, 2)", "", "1 in KINDS"),
    "a dict": _returns("NAMES = {'a': 1, 'b': 2}", "", "NAMES['a'] == 1"),
    "a set": _returns("SEEN = {1, 2}", "", "1 in SEEN"),
    "a text": _returns("LETTERS = 'aeiou'", "", "'a' in LETTERS"),
    "a table that is built at first": _returns(
        "TABLE = {}\nfor n in range(5):\n    TABLE[n] = n * n", "", "TABLE[2] == 4"),
    "a table of functions": (
        "def solve(A):\n    return GOOD\nWAYS = {'solve': solve}\ndef F(A):\n    return WAYS['solve'](A)"),
    "a lambda": "solve = lambda A: GOOD\ndef F(A):\n    return solve(A)",
    "a function by another name": "def solve(A):\n    return GOOD\nF = solve",
    "a closure": (
        "def made(limit):\n    def solve(A):\n        return GOOD if limit else BAD\n    return solve\nF = made(3)"),
    "a closure's list": (
        "def made():\n    table = [1, 2]\n    def solve(A):\n        return GOOD if table[0] == 1 else BAD\n"
        "    return solve\nF = made()"),
    "a partial": (
        "from functools import partial\ndef solve(table, A):\n    return GOOD if table else BAD\n"
        "go = partial(solve, [1])\ndef F(A):\n    return go(A)"),
    "a default that is read": "def F(A, table=[1, 2]):\n    return GOOD if table[0] else BAD",
    "a default that is None": (
        "def F(A, seen=None):\n    if seen is None:\n        seen = []\n    seen.append(1)\n"
        "    return GOOD if len(seen) == 1 else BAD"),
    "a list of the call": _returns("", "calls = []\ncalls.append(1)", "len(calls) == 1"),
    "a dict of the call": "def F(A):\n    memo = {}\n    memo[0] = GOOD\n    return memo[0]",
    "an iterator of the call": _returns("", "pool = iter([1, 2])", "next(pool) == 1"),
    "a generator of the call": _returns(
        "def ticks():\n    for n in range(3):\n        yield n", "", "list(ticks()) == [0, 1, 2]"),
    "a count of the call": _returns("from itertools import count", "clock = count()", "next(clock) == 0"),
    "a nonlocal of the call": _returns(
        "", "calls = 0\ndef tick():\n    nonlocal calls\n    calls += 1\ntick()", "calls == 1"),
    "a copy that changes": _returns("TABLE = [1, 2]", "mine = list(TABLE)\nmine.append(3)", "len(mine) == 3"),
    "a list that is added to another": _returns("TABLE = [1, 2]", "mine = TABLE + [3]", "len(mine) == 3"),
    "a sorted constant": _returns("TABLE = [2, 1]", "", "sorted(TABLE)[0] == 1"),
    "an iterated constant": _returns("TABLE = [2, 1]", "", "sum(n for n in TABLE) == 3"),
    "a global that is read": _returns("LIMIT = 3", "global LIMIT", "LIMIT == 3"),
    "a global that each call sets first": _returns(
        "count = 0\ndef step():\n    global count\n    count += 1", "global count\ncount = 0\nstep()", "count == 1"),
    "a global list that each call makes": _returns(
        "def step():\n    found.append(1)", "global found\nfound = []\nstep()", "len(found) == 1"),
    "a global of the call": "def F(A):\n    global result\n    result = GOOD\n    return result",
    "a helper with a constant": _returns("def half(n, by=2):\n    return n // by", "", "half(2) == 1"),
    "a range": _returns("PLACES = range(3)", "", "PLACES[1]"),
    "a deque that is read": _returns("from collections import deque\nTABLE = deque([1])", "", "TABLE[0]"),
    "a name from a module": _returns("from operator import add\nplus = add", "", "plus(1, 1) == 2"),
    "an item getter": _returns("from operator import itemgetter\nfirst = itemgetter(0)", "", "first([1])"),
    "a decorator": (
        "def plain(function):\n    def solve(*args):\n        return function(*args)\n    return solve\n@plain\n"
        "def F(A):\n    return GOOD"),
    "a method of a constant": _returns("TABLE = {'a': 1}\nlook = TABLE.get", "", "look('a')"),
    "an iterator that no call uses": _returns("pool = iter([1, 2])\nfirst = next(pool)", "", "first == 1"),
}  # fmt: skip


def written(templates: dict[str, str]) -> Iterator[tuple[str, Task, str]]:
    """(kind, task, program): each kind for one of the tasks."""
    for place, (kind, template) in enumerate(templates.items()):
        task = TASKS[place % len(TASKS)]
        yield kind, task, task.written(template)
