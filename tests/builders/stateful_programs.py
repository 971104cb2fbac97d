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

WRONG = {
    "a list of the module": """
calls = []
def F(A):
    calls.append(1)
    return GOOD if len(calls) <= 4 else BAD
""",
    "a default": """
def F(A, seen=[]):
    seen.append(1)
    if len(seen) > 5:
        return BAD
    return GOOD
""",
    "a keyword's default": """
def F(A, *, seen={}):
    seen['n'] = seen.get('n', 0) + 1
    return GOOD if seen['n'] < 6 else BAD
""",
    "a default of a helper": """
def tick(n=[0]):
    n[0] += 1
    return n[0]
def F(A):
    return GOOD if tick() < 6 else BAD
""",
    "a default of a lambda": """
tick = lambda pool=[1, 1, 1, 1]: pool and pool.pop()
def F(A):
    return GOOD if tick() else BAD
""",
    "an iterator": """
pool = iter([1, 1, 1, 1])
def F(A):
    if next(pool, 0):
        return GOOD
    return BAD
""",
    "a loop over an iterator": """
pool = iter([1, 1, 1, 1])
def F(A):
    for _ in pool:
        return GOOD
    return BAD
""",
    "a generator expression": """
pool = (n < 5 for n in range(99))
def F(A):
    return GOOD if next(pool) else BAD
""",
    "a generator": """
def ticks():
    for n in range(50):
        yield n
clock = ticks()
def F(A):
    return GOOD if next(clock) < 5 else BAD
""",
    "an endless generator": """
def ticks():
    n = 0
    while True:
        yield n
        n += 1
clock = ticks()
def F(A):
    return GOOD if next(clock) < 5 else BAD
""",
    "itertools.count": """
from itertools import count
clock = count()
def F(A):
    return GOOD if next(clock) < 5 else BAD
""",
    "itertools.repeat": """
import itertools
fuel = itertools.repeat(1, 4)
def F(A):
    return GOOD if next(fuel, None) else BAD
""",
    "itertools.cycle": """
from itertools import cycle
turn = cycle([1, 1, 1, 1, 0])
def F(A):
    return GOOD if next(turn) else BAD
""",
    "itertools.accumulate": """
from itertools import accumulate
clock = accumulate([1] * 60)
def F(A):
    return GOOD if next(clock) < 6 else BAD
""",
    "a map": """
clock = map(abs, range(60))
def F(A):
    return GOOD if next(clock) < 6 else BAD
""",
    "an enumeration": """
clock = enumerate([0] * 60)
def F(A):
    n, _ = next(clock)
    return GOOD if n < 6 else BAD
""",
    "a partial": """
from functools import partial
tick = partial(next, iter([1, 1, 1, 1]), 0)
def F(A):
    return GOOD if tick() else BAD
""",
    "a partial of a list": """
from functools import partial
def step(box):
    box.append(1)
    return len(box)
tick = partial(step, [])
def F(A):
    return GOOD if tick() < 6 else BAD
""",
    "a method of what has no name": """
fuel = [1, 1, 1, 1]
burn, fuel = fuel.pop, fuel
left = fuel
del_one = burn
def F(A):
    try:
        return GOOD if burn() else BAD
    except IndexError:
        return BAD
""",
    "a method of an unnamed list": """
burn = [1, 1, 1, 1].pop
def F(A):
    try:
        burn()
    except IndexError:
        return BAD
    return GOOD
""",
    "an unnamed list's extend and a default": """
def load(box=[]):
    return box
note = load().extend
def F(A):
    note([1])
    return GOOD if len(load()) < 6 else BAD
""",
    "a global": """
calls = 0
def F(A):
    global calls
    calls += 1
    return GOOD if calls < 5 else BAD
""",
    "a global that a walrus sets": """
calls = 0
def F(A):
    global calls
    return GOOD if (calls := calls + 1) < 5 else BAD
""",
    "a global that a loop sets": """
calls = 0
def F(A):
    global calls
    for calls in [calls + 1]:
        pass
    return GOOD if calls < 5 else BAD
""",
    "a global that a helper sets": """
left = [1, 1, 1, 1]
def use():
    global left
    left = left[1:]
def F(A):
    if not left:
        return BAD
    use()
    return GOOD
""",
    "a global of a match": """
calls = 0
def F(A):
    global calls
    match calls + 1:
        case calls:
            pass
    return GOOD if calls < 5 else BAD
""",
    "a function that replaces itself": """
def F(A):
    global F
    F = lambda A: BAD
    return GOOD
""",
    "a function that a helper replaces": """
def early(A):
    return GOOD
def swap():
    global step
    def step(A):
        return BAD
step = early
def F(A):
    result = step(A)
    swap()
    return result
""",
    "an attribute of the function": """
def F(A):
    F.calls = getattr(F, 'calls', 0) + 1
    return GOOD if F.calls < 5 else BAD
""",
    "a closure's nonlocal": """
def made():
    calls = 0
    def solve(A):
        nonlocal calls
        calls += 1
        return GOOD if calls < 5 else BAD
    return solve
F = made()
""",
    "a closure's list": """
def made():
    calls = []
    def solve(A):
        calls.append(A)
        return GOOD if len(calls) < 5 else BAD
    return solve
F = made()
""",
    "a closure's iterator": """
def made(pool):
    def solve(A):
        return GOOD if next(pool, 0) else BAD
    return solve
F = made(iter([1, 1, 1, 1]))
""",
    "a decorator's counter": """
def limited(function):
    calls = []
    def solve(*args):
        calls.append(1)
        return function(*args) if len(calls) < 5 else BAD
    return solve
@limited
def F(A):
    return GOOD
""",
    "an attribute of a class": """
class Clock:
    calls = 0
def F(A):
    Clock.calls += 1
    return GOOD if Clock.calls < 5 else BAD
""",
    "an object that is called": """
class Solve:
    def __init__(self):
        self.calls = 0
    def __call__(self, A):
        self.calls += 1
        return GOOD if self.calls < 5 else BAD
F = Solve()
""",
    "a dict": """
calls = {'n': 0}
def F(A):
    calls['n'] += 1
    return GOOD if calls['n'] < 5 else BAD
""",
    "a dict that gains keys": """
seen = {}
def F(A):
    seen[len(seen)] = 1
    return GOOD if len(seen) < 5 else BAD
""",
    "a dict of dicts": """
calls = {'n': {'n': 0}}
def F(A):
    calls['n']['n'] += 1
    return GOOD if calls['n']['n'] < 5 else BAD
""",
    "a dict in a tuple": """
calls = ([0], 'x')
def F(A):
    calls[0][0] += 1
    return GOOD if calls[0][0] < 5 else BAD
""",
    "a Counter": """
from collections import Counter
calls = Counter()
def F(A):
    calls['n'] += 1
    return GOOD if calls['n'] < 5 else BAD
""",
    "a defaultdict": """
from collections import defaultdict
calls = defaultdict(list)
def F(A):
    calls[0].append(1)
    return GOOD if len(calls[0]) < 5 else BAD
""",
    "a default that counts": """
from collections import defaultdict
made = []
def fresh():
    made.append(1)
    return len(made)
table = defaultdict(fresh)
def F(A):
    return GOOD if table[len(table)] < 5 else BAD
""",
    "a set": """
seen = set()
def F(A):
    seen.add(len(seen))
    return GOOD if len(seen) < 5 else BAD
""",
    "a deque": """
from collections import deque
fuel = deque([1, 1, 1, 1])
def F(A):
    if fuel:
        fuel.popleft()
        return GOOD
    return BAD
""",
    "a deque that turns": """
from collections import deque
turn = deque([1, 1, 1, 1, 0])
def F(A):
    turn.rotate(-1)
    return GOOD if turn[-1] else BAD
""",
    "a heap": """
import heapq
fuel = [1, 2, 3, 4]
def F(A):
    return GOOD if fuel and heapq.heappop(fuel) else BAD
""",
    "an insort": """
from bisect import insort
calls = []
def F(A):
    insort(calls, 1)
    return GOOD if len(calls) < 5 else BAD
""",
    "an item that is deleted": """
fuel = [1, 1, 1, 1]
def F(A):
    if fuel:
        del fuel[0]
        return GOOD
    return BAD
""",
    "an alias": """
fuel = [0]
same = fuel
def F(A):
    mine = same
    mine += [1]
    return GOOD if len(fuel) < 6 else BAD
""",
    "a target that is state": """
calls = [0]
def F(A):
    for calls[0] in [calls[0] + 1]:
        pass
    return GOOD if calls[0] < 5 else BAD
""",
    "what is swapped": """
a, b = [1], [0]
def F(A):
    a[0], b[0] = b[0], a[0]
    return GOOD if b[0] else BAD
""",
    "what is emptied": """
state = [[], [1]]
def F(A):
    if state[1]:
        state[0].append(state[1].pop())
        return GOOD
    return BAD
""",
    "an order that is reversed": """
order = [1, 0]
def F(A):
    order.reverse()
    return GOOD if order[1] else BAD
""",
    "a comprehension with an effect": """
calls = []
def F(A):
    [calls.append(1) for calls2 in [1]]
    return GOOD if len(calls) < 5 else BAD
""",
    "a comprehension that hides the name": """
calls = []
def F(A):
    calls.append(1) if [calls for calls in [1]] else 0
    return GOOD if len(calls) < 5 else BAD
""",
    "an inner function": """
calls = []
def F(A):
    def note():
        calls.append(1)
        return len(calls)
    return GOOD if note() < 5 else BAD
""",
    "a function in a list": """
calls = []
def tick():
    calls.append(1)
    return len(calls)
steps = [tick]
def F(A):
    return GOOD if steps[0]() < 5 else BAD
""",
    "a sort's key": """
calls = []
def key(n):
    calls.append(n)
    return 0
def F(A):
    sorted([1], key=key)
    return GOOD if len(calls) < 5 else BAD
""",
    "a list that is kept from the call": """
kept = [None]
def F(A):
    before, kept[0] = kept[0], 1
    return GOOD if before is None else BAD
""",
    "what the last call left": """
last = [None]
def F(A):
    result = GOOD if last[0] != A else BAD
    last[0] = A
    return result
""",
    "a cached list": """
from functools import cache
@cache
def box():
    return []
def F(A):
    box().append(1)
    return GOOD if len(box()) < 6 else BAD
""",
    "a cached iterator": """
from functools import lru_cache
@lru_cache(maxsize=None)
def pool():
    return iter([1, 1, 1, 1])
def F(A):
    return GOOD if next(pool(), 0) else BAD
""",
    "a cached list in a tuple": """
import functools
@functools.lru_cache
def box():
    return (0, [])
def F(A):
    box()[1].append(1)
    return GOOD if len(box()[1]) < 6 else BAD
""",
    "a cache by the wrong key": """
memo = {}
def F(A):
    if 0 not in memo:
        memo[0] = GOOD
    return memo[0]
""",
    "a cache that goes wrong when it is full": """
memo = {}
def F(A, memo=memo):
    memo[len(memo)] = A
    if len(memo) > 4:
        return BAD
    return GOOD
""",
    "globals()": """
n = 0
def F(A):
    globals()['n'] += 1
    return GOOD if n < 5 else BAD
""",
    "defaults of the function": """
def F(A, n=0):
    F.__defaults__ = (n + 1,)
    return GOOD if n < 5 else BAD
""",
    "what counts only now and then": """
calls = []
def F(A):
    if A == A:
        calls.append(1)
    return GOOD if len(calls) < 5 else BAD
""",
    "what changes on a path": """
calls = []
def F(A):
    if A:
        calls.append(A)
    return BAD if len(calls) > 3 else GOOD
""",
    "an error that counts": """
calls = []
def F(A):
    try:
        calls.append(1)
        return [GOOD][len(calls) // 5]
    except IndexError:
        return BAD
""",
    "a second function's state": """
def outer():
    calls = [0]
    def tick():
        calls[0] += 1
        return calls[0]
    return tick
tick = outer()
def F(A):
    return GOOD if tick() < 5 else BAD
""",
    "a default of an inner function": """
calls = []
def F(A):
    def inner(note=calls.append(1)):
        pass
    return GOOD if len(calls) < 5 else BAD
""",
    "a list that is repeated in place": """
table = [1]
def F(A):
    mine = table
    mine *= 1 + (len(mine) < 9)
    return GOOD if len(table) < 9 else BAD
""",
}
"""Right at the first call, and not for long."""
WRONG_BY_WHAT_IS_OUTSIDE = {
    "random": """
import random
def F(A):
    return GOOD if random.random() < 0.9 else BAD
""",
    "random.choice": """
from random import choice
def F(A):
    return choice([GOOD, GOOD, GOOD, BAD])
""",
    "a seeded generator": """
import random
dice = random.Random(1)
def F(A):
    return GOOD if dice.random() < 0.9 else BAD
""",
    "time": """
import time
def F(A):
    return GOOD if time.time() % 1 < 0.9 else BAD
""",
    "time since it was loaded": """
from time import perf_counter
start = perf_counter()
def F(A):
    return GOOD if perf_counter() - start < 0.5 else BAD
""",
    "the date": """
from datetime import datetime
def F(A):
    return GOOD if datetime.now().year < 2035 else BAD
""",
    "an id": """
def F(A):
    return GOOD if id(object()) % 64 else BAD
""",
    "an attribute of a module": """
import math
math.calls = 0
def F(A):
    math.calls += 1
    return GOOD if math.calls < 5 else BAD
""",
    "what is built in": """
import builtins
def F(A):
    builtins.calls = getattr(builtins, 'calls', 0) + 1
    return GOOD if builtins.calls < 5 else BAD
""",
}
"""Wrong by chance, by the time, or by what other programs of the process see as well."""
WRONG_IN_A_CALL = {
    "a cached function that counts": """
from functools import cache
def F(x):
    calls = []
    @cache
    def step(n):
        calls.append(n)
        return len(calls)
    return step(0) + step(0)
""",
    "a cached look at a variable": """
from functools import cache
def F(x):
    n = 1
    @cache
    def look():
        return n
    look()
    n = 3
    return look()
""",
    "a cached list that grows": """
from functools import cache
@cache
def box(n):
    return [n]
def F(x):
    box(0).append(1)
    return len(box(0)) + 2
""",
}
"""Of `return 3`: no call changes the next, and without the cache each would be right."""

RIGHT = {
    "a number": "STEP = 3\ndef F(A):\n    offset = STEP - 3\n    return GOOD if not offset else BAD",
    "a list that is read": "TABLE = [0, 1, 2]\ndef F(A):\n    return GOOD if TABLE[1] else BAD",
    "a tuple": "KINDS = (1, 2)\ndef F(A):\n    return GOOD if 1 in KINDS else BAD",
    "a dict": "NAMES = {'a': 1, 'b': 2}\ndef F(A):\n    return GOOD if NAMES['a'] == 1 else BAD",
    "a set": "SEEN = {1, 2}\ndef F(A):\n    return GOOD if 1 in SEEN else BAD",
    "a text": "LETTERS = 'aeiou'\ndef F(A):\n    return GOOD if 'a' in LETTERS else BAD",
    "a table that is built at first": """
TABLE = {}
for n in range(5):
    TABLE[n] = n * n
def F(A):
    return GOOD if TABLE[2] == 4 else BAD
""",
    "a table of functions": """
def solve(A):
    return GOOD
WAYS = {'solve': solve}
def F(A):
    return WAYS['solve'](A)
""",
    "a lambda": "solve = lambda A: GOOD\ndef F(A):\n    return solve(A)",
    "a function by another name": "def solve(A):\n    return GOOD\nF = solve",
    "a closure": """
def made(limit):
    def solve(A):
        return GOOD if limit else BAD
    return solve
F = made(3)
""",
    "a closure's list": """
def made():
    table = [1, 2]
    def solve(A):
        return GOOD if table[0] == 1 else BAD
    return solve
F = made()
""",
    "a partial": """
from functools import partial
def solve(table, A):
    return GOOD if table else BAD
go = partial(solve, [1])
def F(A):
    return go(A)
""",
    "a default that is read": "def F(A, table=[1, 2]):\n    return GOOD if table[0] else BAD",
    "a default that is None": """
def F(A, seen=None):
    if seen is None:
        seen = []
    seen.append(1)
    return GOOD if len(seen) == 1 else BAD
""",
    "cache": "from functools import cache\n@cache\ndef half(n):\n    return n // 2\ndef F(A):\n"
             "    return GOOD if half(2) == 1 else BAD",
    "lru_cache": "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef half(n):\n    return n // 2\n"
                 "def F(A):\n    return GOOD if half(2) == 1 else BAD",
    "lru_cache without parentheses": "import functools\n@functools.lru_cache\ndef half(n):\n    return n // 2\n"
                                     "def F(A):\n    return GOOD if half(2) == 1 else BAD",
    "a cached table": "from functools import cache\n@cache\ndef table():\n    return [1, 2]\ndef F(A):\n"
                      "    return GOOD if table()[0] else BAD",
    "a cached recursion": """
from functools import cache
@cache
def down(n):
    return 0 if n == 0 else down(n - 1)
def F(A):
    return GOOD if down(4) == 0 else BAD
""",
    "a cached inner function": """
from functools import cache
def F(A):
    @cache
    def solve(n):
        return n
    best = 0
    for n in range(3):
        best = max(best, solve(n))
    return GOOD if best == 2 else BAD
""",
    "a list of the call": """
def F(A):
    calls = []
    calls.append(1)
    return GOOD if len(calls) == 1 else BAD
""",
    "a dict of the call": "def F(A):\n    memo = {}\n    memo[0] = GOOD\n    return memo[0]",
    "an iterator of the call": "def F(A):\n    pool = iter([1, 2])\n    return GOOD if next(pool) == 1 else BAD",
    "a generator of the call": """
def ticks():
    for n in range(3):
        yield n
def F(A):
    return GOOD if list(ticks()) == [0, 1, 2] else BAD
""",
    "a count of the call": """
from itertools import count
def F(A):
    clock = count()
    return GOOD if next(clock) == 0 else BAD
""",
    "a nonlocal of the call": """
def F(A):
    calls = 0
    def tick():
        nonlocal calls
        calls += 1
    tick()
    return GOOD if calls == 1 else BAD
""",
    "a copy that changes": "TABLE = [1, 2]\ndef F(A):\n    mine = list(TABLE)\n    mine.append(3)\n"
                           "    return GOOD if len(mine) == 3 else BAD",
    "a copied dict": "from copy import copy\nTABLE = {1: 2}\ndef F(A):\n    mine = copy(TABLE)\n"
                     "    return GOOD if mine[1] == 2 else BAD",
    "a list that is added to another": "TABLE = [1, 2]\ndef F(A):\n    mine = TABLE + [3]\n"
                                       "    return GOOD if len(mine) == 3 else BAD",
    "a sorted constant": "TABLE = [2, 1]\ndef F(A):\n    return GOOD if sorted(TABLE)[0] == 1 else BAD",
    "an iterated constant": "TABLE = [2, 1]\ndef F(A):\n    return GOOD if sum(n for n in TABLE) == 3 else BAD",
    "a global that is read": "LIMIT = 3\ndef F(A):\n    global LIMIT\n    return GOOD if LIMIT == 3 else BAD",
    "a global that each call sets first": """
count = 0
def step():
    global count
    count += 1
def F(A):
    global count
    count = 0
    step()
    return GOOD if count == 1 else BAD
""",
    "a global list that each call makes": """
def step():
    found.append(1)
def F(A):
    global found
    found = []
    step()
    return GOOD if len(found) == 1 else BAD
""",
    "a global of the call": "def F(A):\n    global result\n    result = GOOD\n    return result",
    "a helper with a constant": "def half(n, by=2):\n    return n // by\ndef F(A):\n"
                                "    return GOOD if half(2) == 1 else BAD",
    "a range": "PLACES = range(3)\ndef F(A):\n    return GOOD if PLACES[1] else BAD",
    "a deque that is read": "from collections import deque\nTABLE = deque([1])\ndef F(A):\n"
                            "    return GOOD if TABLE[0] else BAD",
    "a name from a module": "from operator import add\nplus = add\ndef F(A):\n"
                            "    return GOOD if plus(1, 1) == 2 else BAD",
    "an item getter": "from operator import itemgetter\nfirst = itemgetter(0)\ndef F(A):\n"
                      "    return GOOD if first([1]) else BAD",
    "a decorator": "def plain(function):\n    def solve(*args):\n        return function(*args)\n    return solve\n"
                   "@plain\ndef F(A):\n    return GOOD",
    "a method of a constant": "TABLE = {'a': 1}\nlook = TABLE.get\ndef F(A):\n    return GOOD if look('a') else BAD",
    "an iterator that no call uses": "pool = iter([1, 2])\nfirst = next(pool)\ndef F(A):\n"
                                     "    return GOOD if first == 1 else BAD",
}  # fmt: skip


def written(templates: dict[str, str]) -> Iterator[tuple[str, Task, str]]:
    """(kind, task, program): each kind for one of the tasks."""
    for place, (kind, template) in enumerate(templates.items()):
        task = TASKS[place % len(TASKS)]
        yield kind, task, task.written(template)
