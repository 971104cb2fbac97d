"""Programs as people write them have one normal form; and no wrong one gets it, whatever is done to them."""

import ast
import copy
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from builders.natural_programs import PROGRAMS

from codezero.code.canonical import canonical

STYLES = [(kind, [code.strip() for code in codes.split("\n---\n")]) for kind, codes in PROGRAMS]
PAIRS = [(kind, codes[0], code) for kind, codes in STYLES for code in codes[1:]]


@pytest.mark.parametrize(("kind", "plain", "code"), PAIRS)
def test_what_means_the_same_is_spelt_the_same(kind: str, plain: str, code: str) -> None:
    assert canonical(code, "f", kinds=[kind]) == canonical(plain, "f", kinds=[kind])


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
@pytest.mark.parametrize("programs", [150, pytest.param(6000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_normal_form_does_what_its_program_does(programs: int) -> None:
    chance, compared = Random(programs), 0
    for _ in range(programs):
        kind, codes = chance.choice(STYLES)
        code = spoilt(chance.choice(codes), chance.randint(0, 3), chance)
        try:
            normal = canonical(code, "f", kinds=[kind])
        except SyntaxError:  # a break outside its loop
            continue
        if normal.count("\n") > 2:
            continue  # not understood, and so as it was written
        for value in arguments(kind, chance):
            done, reached = outcome(code, value), outcome(normal, value)
            if done is not None and reached is not None:
                assert done == reached, f"f({value!r}) of\n{code}\nand of\n{normal}"
                compared += 1
    assert compared > 4 * programs
