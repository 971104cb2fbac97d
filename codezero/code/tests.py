"""Assertions -> the calls they make. Says how a solution will be called without running anything.

Calls are found anywhere inside an assertion, because real tests wrap them: `set(f(..)) == set(..)`,
`math.isclose(f(x), y)`, `self.assertEqual(f(x), y)`.
"""

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.code.syntax import literal, parse
from codezero.errors import ProblemError

MAX_TESTS = 200
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the entry point."""

    npos: int
    """Positional arguments; a starred one counts as none."""
    keywords: tuple[str, ...]
    args: tuple[str | None, ...]
    """Positional then keyword arguments in literal spelling; None where one is not a literal."""
    expected: str | None
    """The literal it is compared with; None when the assertion says something else about it."""


@dataclass(frozen=True, slots=True)
class Example:
    """One test as data: what goes in and what must come out."""

    input: str
    """`f(1, 2)`, or what stands on stdin."""
    output: str
    """`3`, or what must stand on stdout."""


@dataclass(frozen=True, slots=True)
class TestCalls:
    """What the tests of a problem call."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    entry_point: str
    calls: tuple[Call, ...]


def parse_tests(tests: Sequence[str], entry_point: str | None = None) -> TestCalls:
    """The calls in `tests`; without `entry_point` it is the undefined function named most often.

    Raises ProblemError when a test does not parse or nothing is called: such a problem cannot be used.
    """
    if len(tests) > MAX_TESTS:
        raise ProblemError(f"more than {MAX_TESTS} tests")
    trees: list[ast.Module] = []
    for number, test in enumerate(tests, 1):
        tree, why = parse(test)
        if tree is None:
            raise ProblemError(f"test {number}: {why}")
        trees.append(tree)
    name = entry_point or _most_called(trees)
    calls = tuple(call for tree in trees for call in _calls(tree, name))
    if not calls:
        raise ProblemError(f"no test calls {name or 'a function'}")
    return TestCalls(name, calls)


def _most_called(trees: Sequence[ast.Module]) -> str:
    known = set(_BUILTINS)
    counts: Counter[str] = Counter()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                known |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                counts[node.func.id] += 1
    return next((name for name, _ in counts.most_common() if name not in known), "")


def _calls(tree: ast.Module, name: str) -> Iterator[Call]:
    expected = {id(call): value for node in ast.walk(tree) for call, value in _claims(node, name)}
    for node in ast.walk(tree):
        if _is_call(node, name):
            assert isinstance(node, ast.Call)
            plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            yield Call(
                len(plain),
                tuple(keyword.arg for keyword in node.keywords if keyword.arg),
                tuple(literal(value) for value in (*plain, *(keyword.value for keyword in node.keywords))),
                expected.get(id(node)),
            )


def _claims(node: ast.AST, name: str) -> Iterator[tuple[ast.Call, str]]:
    """(call, literal it must equal) for one statement or unittest call."""
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right])):
            yield from _equal(left, right, name)
        case ast.Assert(test=ast.Compare(left=ast.Call(args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]))):
            yield from _equal(left, right, name)  # abs(f(x) - 3.14) < 1e-6
        case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call)) if _is_call(call, name):
            yield call, "False"
        case ast.Assert(test=ast.Call() as call) if _is_call(call, name):
            yield call, "True"
        case ast.Assert(test=ast.Call(args=[left, right, *_])):
            yield from _equal(left, right, name)  # isclose(f(x), y)
        case ast.Call(func=ast.Attribute(attr=attribute), args=[left, right, *_]) if attribute.startswith("assert"):
            yield from _equal(left, right, name)
        case _:
            pass


def _equal(left: ast.expr, right: ast.expr, name: str) -> Iterator[tuple[ast.Call, str]]:
    for side, other in ((left, right), (right, left)):
        if _is_call(side, name):
            value = literal(other)
            if value is not None:
                yield side, value  # pyright: ignore[reportReturnType]
        elif isinstance(side, ast.Call) and len(side.args) == 1:
            # set(f(..)) == set((4, 5)) and sorted(f(..)) == [4, 5] alike
            inner = other.args[0] if isinstance(other, ast.Call) and len(other.args) == 1 else other
            value = literal(inner)
            if _is_call(side.args[0], name) and value is not None:
                yield side.args[0], value  # pyright: ignore[reportReturnType]


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
