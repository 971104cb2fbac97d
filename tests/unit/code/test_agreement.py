"""Programs as people write them are known to return the same; and no wrong one is, whatever is done to them."""

import ast
import copy
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest
from builders.natural_programs import PROGRAMS
from builders.stateful_programs import RIGHT, WRONG, WRONG_BY_WHAT_IS_OUTSIDE, written

from codezero.code.agreement import SURE_LENGTH, agree
from codezero.code.assertions import ANY, FLOAT, INT, STR, argument_kinds, list_of
from codezero.code.canonical import canonical

NUMBERS = list_of(INT)


def lines(*written: str, of: str = "nums") -> str:
    return f"def f({of}):\n" + "\n".join(f"    {line}" for line in written)


@pytest.mark.parametrize(("kind", "codes"), PROGRAMS)
def test_what_means_the_same_agrees(kind: str, codes: list[str]) -> None:
    assert not [code for code in codes if not agree(code, codes[0], "f", [kind])]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (INT, ["return nums // 7"], ["return (nums - nums % 7) // 7"]),
        (INT, ["return nums // 7"], ["return int(nums / 7) - (nums < 0 and nums % 7 != 0)"]),
        (INT, ["return nums * nums % 5"], ["return [0, 1, 4, 4, 1][nums % 5]"]),
        (INT, ["return nums % 4 == 0"], ["return nums % 2 == 0 and nums // 2 % 2 == 0"]),
        (INT, ["return abs(nums)"],
            ["match nums:", "    case n if n < 0:", "        return -n", "    case n:", "        return n"]),
        (INT, ["return max(nums, 3)"], ["return nums * (nums > 3) + 3 * (not nums > 3)"]),
        (NUMBERS, ["return sorted(nums)"],
            ["import heapq", "heapq.heapify(nums)", "return [heapq.heappop(nums) for _ in range(len(nums))]"]),
        (NUMBERS, ["return sum(x for x in nums if x % 5 == 0)"],
            ["t = sum(nums)", "for x in nums:", "    if x % 5:", "        t -= x", "return t"]),
        (NUMBERS, ["return len([x for x in nums if x > 0])"],
            ["from collections import Counter", "return Counter('p' if x > 0 else 'q' for x in nums)['p']"]),
        (NUMBERS, ["return nums[-3:]"],
            ["from collections import deque", "w = deque(maxlen=3)", "for x in nums:", "    w.append(x)",
            "return list(w)"]),
        (NUMBERS, ["return nums[::-1]"], ["return [] if not nums else f(nums[1:]) + [nums[0]]"]),
        (NUMBERS, ["return [x for x in nums if x < 1]"],
            ["it, out = iter(nums), []", "while True:", "    try:", "        x = next(it)",
            "    except StopIteration:", "        return out", "    if not x >= 1:", "        out.append(x)"]),
        (NUMBERS, ["return max(nums)"],
            ["def g():", "    for x in nums:", "        if all(x >= y for y in nums):", "            yield x",
            "return next(g())"]),
        (STR, ["return nums.replace('e', '').upper()"], ["return ''.join(c.upper() for c in nums if c != 'e')"]),
        (STR, ["return nums[4:]"], ["from itertools import islice", "return ''.join(islice(nums, 4, None))"]),
        (STR, ["return nums.replace('t', '')"], ["return nums.translate(str.maketrans('', '', 't'))"]),
        (STR, ["return nums.count('t')"],
            ["hits, at = 0, nums.find('t')", "while at != -1:", "    hits, at = hits + 1, nums.find('t', at + 1)",
            "return hits"]),
    ],
)  # fmt: skip
def test_other_ways_agree(kind: str, one: list[str], other: list[str]) -> None:
    assert agree(lines(*other), lines(*one), "f", [kind])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (INT, ["return nums // 7"], ["return int(nums / 7)"]),
        (INT, ["return nums % 2 == 1"], ["return nums % 2"]),  # equal, and of another type
        (INT, ["return nums / 2 * 2"], ["return nums"]),
        (INT, ["return nums * nums"], ["return nums * abs(nums)"]),
        (NUMBERS, ["return sorted(nums)"],
            ["for i in range(len(nums) - 1):", "    if nums[i] > nums[i + 1]:",
            "        nums[i], nums[i + 1] = nums[i + 1], nums[i]", "return nums"]),
        (NUMBERS, ["return nums[:5]"], ["return nums[:6]"]),
        (NUMBERS, ["return max(nums)"], ["best = 0", "for x in nums:", "    best = max(best, x)", "return best"]),
        (NUMBERS, ["return [x for x in nums if x > 6]"], ["return [x for x in nums if x >= 6]"]),
        (NUMBERS, ["return list(nums)"], ["return tuple(nums)"]),
        (NUMBERS, ["return nums"], ["return list(dict.fromkeys(nums))"]),
        (NUMBERS, ["return nums"], ["return list(set(nums))"]),
        (NUMBERS, ["return nums"], ["a = b = list(nums)", "b.append(1)", "return a"]),
        (NUMBERS, ["return len(nums)"], ["return len(set(nums))"]),
        (STR, ["return nums.upper()"], ["return nums.lower()"]),
        (STR, ["return nums[::-1]"], ["return nums"]),
        (STR, ["return nums.replace('e', '')"], ["return nums.replace('e', '', 1)"]),
        (STR, ["return 9"], ["return nums.find('', 9)"]),
        (STR, ["return nums"], ["return sum(list(nums), '')"]),
        (NUMBERS, ["return False"], ["return {1: 2} == {1: 2}"]),
        (NUMBERS, ["return [7]"], ["return {7: 1}.keys()"]),
        (NUMBERS, ["return 1"], ["from collections import Counter", "return sum(Counter({1: 5}).values())"]),
        (NUMBERS, ["return max(nums) if nums else 0"],
            ["from functools import reduce", "try:", "    return reduce(max, nums)", "except ValueError:",
            "    return 0"]),
    ],
)  # fmt: skip
def test_what_differs_somewhere_does_not_agree(kind: str, one: list[str], other: list[str]) -> None:
    assert not agree(lines(*other), lines(*one), "f", [kind])


@pytest.mark.parametrize("written", [
    ["return eval('nums')"], ["return nums.__class__(nums)"], ["return ().__class__.__bases__[0].__subclasses__()"],
    ["import os", "return nums"], ["while True:", "    pass"], ["return [0] * 10**9"],
    ["return sum(range(10**12))"], ["x = 2", "while True:", "    x *= x"], ["x = [1]", "while True:", "    x += x"],
    ["x = 'a'", "while True:", "    x += x"], ["return f(nums)"],
    ["from itertools import count", "return list(count())"],
    ["from itertools import product", "return sum(1 for _ in product(range(2000), repeat=9))"],
    ["return 2 ** 10 ** 9"], ["return 1 << 10 ** 9"], ["return max(map(lambda x: 9 ** 9 ** 9, nums))"],
    ["return '{0.__class__}'.format(nums)"],
])  # fmt: skip
def test_what_is_dangerous_or_endless_is_not_understood(written: list[str]) -> None:
    assert not agree(lines(*written), lines("return nums"), "f", [NUMBERS])
    assert not agree(lines(*written), lines(*written), "f", [NUMBERS])


def test_nothing_is_known_where_the_own_solution_raises_or_kinds_are_missing() -> None:
    plain = lines("return nums")
    assert agree(plain, lines("return 1 // 0"), "f", [NUMBERS]) is None
    assert agree(plain, plain, "f", []) is None
    assert agree(plain, plain, "f", [FLOAT]) is None
    assert agree(lines("return '<STR>'"), lines("return '<STR>'"), "f", [NUMBERS]) is None


def test_what_cannot_be_followed_is_told_apart_from_what_differs() -> None:
    unclear = lines("return sum(int(bin(x)[-1]) for x in nums)")
    assert agree(unclear, lines("return sum(x % 2 for x in nums)"), "f", [NUMBERS]) is None
    assert agree(lines("return nums[1:]"), lines("return nums"), "f", [NUMBERS]) is False


def test_kinds_follow_from_literal_arguments() -> None:
    tests = ("assert f([1, -2], 'a') == 1", "assert f([], 'b') == 2", "assert f([True], '') == 3")
    assert argument_kinds(tests, "f") == (NUMBERS, STR)
    assert argument_kinds(("assert f([1.5, 2]) == 1",), "f") == (list_of(FLOAT),)
    assert argument_kinds(("assert f(None) == 1",), "f") == (ANY,)
    assert argument_kinds(("assert f(g(1)) == 1",), "f") == ()


# ---- what outlives a call


def agrees(code: str, reference: str, entry: str, kinds: tuple[str, ...]) -> bool | None:
    return agree(canonical(code, entry), reference, entry, kinds)


def test_state_that_outlives_a_call_is_not_believed_and_constants_are() -> None:
    known: dict[str, list[tuple[str, bool | None]]] = {}
    for name, templates in {"wrong": WRONG | WRONG_BY_WHAT_IS_OUTSIDE, "right": RIGHT}.items():
        for kind, task, code in written(templates):
            kinds = argument_kinds(task.tests, task.entry)
            known.setdefault(name, []).append((kind, agrees(code, task.reference, task.entry, kinds)))
    assert not [kind for kind, answer in known["wrong"] if answer]
    assert not [kind for kind, answer in known["right"] if not answer]
    assert len(known["wrong"]) >= 70 and len(known["right"]) >= 30


@pytest.mark.parametrize(("templates", "right"), [(WRONG, False), (RIGHT, True)])
def test_these_programs_are_what_they_say(templates: dict[str, str], right: bool) -> None:
    for kind, task, code in written(templates):
        namespace: dict[str, Any] = {}
        exec(code, namespace)
        exec(task.reference.replace(task.entry, "reference"), namespace)
        results: list[bool] = []
        for argument in (each for each in [*task.arguments] * 12 for _ in range(2)):
            with suppress(Exception):
                results.append(namespace[task.entry](argument) == namespace["reference"](argument))
        assert results[0] and all(results) is right, kind


# ---- whatever is done to them

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
FUNCTIONS = ("max", "min", "sum", "len", "sorted")


Ways = list[Callable[[], Any]]


def changes(node: ast.AST, chance: Random) -> Ways:
    """Ways to spoil a node: a block may get longer or lose its order."""
    return statement_changes(node, chance) if isinstance(node, ast.stmt) else expression_changes(node, chance)


def expression_changes(node: ast.AST, chance: Random) -> Ways:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return [lambda: ast.Constant(value + chance.choice((-1, 1, 2)))]
        case ast.Compare(left=left, ops=[_], comparators=others):
            return [lambda: ast.Compare(left, [chance.choice(COMPARISONS)()], others)]
        case ast.BinOp(left=left, right=right):
            return [lambda: ast.BinOp(left, chance.choice(OPERATORS)(), right)]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in FUNCTIONS:
            return [lambda: ast.Call(ast.Name(chance.choice(FUNCTIONS), ast.Load()), args, keywords)]
        case ast.Slice(lower=lower, upper=upper, step=step):
            by = chance.choice((None, ast.Constant(2), ast.UnaryOp(ast.USub(), ast.Constant(1))))
            return [lambda: ast.Slice(lower, upper, by), lambda: ast.Slice(upper, lower, step)]
        case ast.IfExp(test=test, body=one, orelse=other):
            return [lambda: ast.IfExp(test, other, one)]
        case _:
            return []


def statement_changes(node: ast.stmt, chance: Random) -> Ways:
    match node:
        case ast.Break() | ast.Continue():
            return [lambda: chance.choice((ast.Break(), ast.Continue(), ast.Pass()))]
        case ast.AugAssign(target=target, value=value):
            return [lambda: ast.AugAssign(target, chance.choice(OPERATORS)(), value)]
        case ast.If(test=test, body=body, orelse=orelse):
            turned = ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
            return [lambda: ast.If(test, orelse or [ast.Pass()], body), lambda: turned, lambda: [node, *body]]
        case ast.Expr():
            return [lambda: [node, copy.deepcopy(node)], ast.Pass]
        case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
            return [lambda: ast.For(target, iterated, body[::-1], orelse)]
        case _:
            return []


class Spoiler(ast.NodeTransformer):
    """Changes one of the nodes that can be changed."""

    def __init__(self, chance: Random, tree: ast.AST) -> None:
        self.chance = chance
        self.left = chance.randint(1, max(1, sum(bool(changes(node, chance)) for node in ast.walk(tree))))

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        ways = changes(node, self.chance)
        self.left -= bool(ways)
        return self.chance.choice(ways)() if ways and self.left == 0 else node


def spoilt(code: str, times: int, chance: Random) -> str:
    for _ in range(times):
        tree = ast.parse(code)
        code = ast.unparse(ast.fix_missing_locations(Spoiler(chance, tree).visit(tree)))
    return code


class Endless(BaseException):
    """No Exception: a program may catch those."""


@contextmanager
def limit(seconds: float) -> Generator[None]:
    def ring(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(code: str, value: object) -> str | None:
    """What `f(value)` is; "error" where it raises one; None where it does not end. Only for this file's programs."""
    namespace: dict[str, Any] = {}
    try:
        with limit(0.5):
            exec(code, namespace)
            return repr(namespace["f"](copy.deepcopy(value)))
    except Endless:
        return None
    except Exception:  # noqa: BLE001 - whatever a spoilt program raises
        return "error"


def arguments(kind: str, chance: Random) -> list[Any]:
    numbers = [[chance.randint(-12, 12) for _ in range(chance.randint(0, 7))] for _ in range(10)]
    match kind:
        case "int":
            return [chance.randint(-12, 12) for _ in range(14)]
        case "str":
            return ["", "a", "ab", *("".join(map(chr, (97 + abs(n) for n in line))) for line in numbers)]
        case _:
            return [[], [1], [2, 2], [5, 10, 15, 20, 25], *numbers]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("programs", [200, pytest.param(6000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_those_that_agree_return_the_same(programs: int) -> None:
    """Surely so for the lengths of which every path is followed, and nearly always for longer ones."""
    chance, agreed, apart, longer = Random(programs), 0, 0, list[bool]()
    for _ in range(programs):
        kind, codes = chance.choice(PROGRAMS)
        other = spoilt(chance.choice(codes), chance.randint(0, 2), chance)
        code = spoilt(other if chance.random() < 0.5 else chance.choice(codes), chance.randint(0, 2), chance)
        if not agree(code, other, "f", [kind]):
            apart += 1
            continue
        agreed += 1
        for value in arguments(kind, chance):
            done, reached = outcome(other, value), outcome(code, value)
            if done in (None, "error") or reached is None:
                continue
            if isinstance(value, int) or len(value) <= SURE_LENGTH:
                assert done == reached, f"f({value!r}) of\n{code}\nand of\n{other}"
            else:
                longer.append(done == reached)
    assert min(agreed, apart) > programs // 20
    assert sum(longer) > 0.99 * len(longer)
