"""Tests taken apart: the calls of the code on one side, what should come of them on the other.

The process that the code runs in gets the calls and nothing else. `assert sorted(f([3, 1])) == [1, 3]` becomes the call
`f([3, 1])` and the check `sorted(value_0) == [1, 3]`, which is evaluated elsewhere with the value that came back.
Set-up lines go to the side that uses them.
"""

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from codezero.errors import ProblemError
from codezero.sandbox.assertions import BUILTINS, TAG, bound_names, read_as_builtins, read_test, value_name


@dataclass(frozen=True, slots=True)
class AssertionStep:
    """One assertion, with the set-up lines before it."""

    setup: str
    """Runs where the code is, before the calls."""
    calls: dict[str, str]
    """Expressions over the code's functions, by what `check` calls their values."""
    check: str
    """Runs elsewhere: set-up lines, then an assertion that raises AssertionError("<TAG> <number of the test>")."""


@dataclass(frozen=True, slots=True)
class _Setup:
    """A line before an assertion."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]

    def constant(self) -> bool:
        """Is what it binds the same on both sides, whatever either does with it?"""
        match self.node:
            case ast.Assign(targets=[ast.Name()], value=value):
                return all(isinstance(node, _IMMUTABLE) for node in ast.walk(value))
            case node:
                return not isinstance(node, ast.Assign)


_IMMUTABLE = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context)


@dataclass(frozen=True, slots=True)
class _Claim:
    """An assertion taken apart."""

    number: int
    test: ast.expr
    calls: dict[str, ast.expr]


@functools.lru_cache(maxsize=4096)
def separate(tests: tuple[str, ...]) -> tuple[AssertionStep, ...]:
    """A step for each assertion, in order. Raises ProblemError when a test cannot be used or not be taken apart."""
    try:
        lines = list(_lines(tests))
        setups = [line for line in lines if isinstance(line, _Setup)]
        claims = [line for line in lines if isinstance(line, _Claim)]
        there = _needed(setups, _used(call for claim in claims for call in claim.calls.values()))
        here = _needed(setups, _used(claim.test for claim in claims))
        _refuse_shared(setups, here, there)
        return tuple(_steps(lines, here, there))
    except (MemoryError, RecursionError) as error:
        raise ProblemError("the tests are nested too deeply") from error


def _lines(tests: tuple[str, ...]) -> Iterator[_Setup | _Claim]:
    trees = [read_test(test, number) for number, test in enumerate(tests, start=1)]
    bound = {name for tree in trees for node in tree.body if not isinstance(node, ast.Assert) for name in _binds(node)}
    builtins, taken = read_as_builtins(trees), 0
    for number, tree in enumerate(trees, start=1):
        for node in tree.body:
            if isinstance(node, ast.Assert):
                hoister = _Hoister(number, builtins, bound, taken)
                test = cast(ast.expr, hoister.visit(node.test))
                taken += len(hoister.calls)
                yield _Claim(number, test, hoister.calls)
            else:
                yield _Setup(node, _binds(node), _used([node]) - (bound_names(node) - _binds(node)))


def _binds(node: ast.stmt) -> frozenset[str]:
    """Names a set-up line changes, `x` of `x[0] = 1` too."""
    if isinstance(node, ast.FunctionDef):
        return frozenset([node.name])
    if isinstance(node, ast.Assign):
        parts = (part for target in node.targets for part in ast.walk(target))
        return frozenset(part.id for part in parts if isinstance(part, ast.Name))
    return frozenset(bound_names(node))


def _used(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Names read in the nodes; those bound inside an expression, as by a comprehension, are harmless extras."""
    parts = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
    return frozenset(part.id for part in parts if isinstance(part.ctx, ast.Load))


def _needed(setups: list[_Setup], names: frozenset[str]) -> frozenset[str]:
    """The names, and all that what binds them uses."""
    while not (wider := names.union(*(setup.uses for setup in setups if setup.binds & names))) <= names:
        names = wider
    return names


def _refuse_shared(setups: list[_Setup], here: frozenset[str], there: frozenset[str]) -> None:
    """A name that both sides use has to mean the same on both, and must not carry an answer over."""
    bound = frozenset[str]().union(*(setup.binds for setup in setups))
    for setup in setups:
        if setup.binds & here and not setup.uses <= bound | BUILTINS:
            raise ProblemError("a set-up line that the assertion needs calls the code")
        if setup.binds & here & there and not setup.constant():
            raise ProblemError("the code could change what the assertion compares with")
    for name in here & there:
        assigned = [setup for setup in setups if name in setup.binds and isinstance(setup.node, ast.Assign)]
        if len(assigned) > 1:
            raise ProblemError(f"'{name[:50]}' is assigned more than once")


def _steps(lines: list[_Setup | _Claim], here: frozenset[str], there: frozenset[str]) -> Iterator[AssertionStep]:
    own, theirs = list[str](), list[str]()
    for line in lines:
        if isinstance(line, _Setup):
            text = ast.unparse(line.node)
            own += [text] if line.binds & here else []
            theirs += [text] if line.binds & there else []
            continue
        calls = {name: ast.unparse(call) for name, call in line.calls.items()}
        check = "\n".join([*own, f'assert ({ast.unparse(line.test)}), "{TAG} {line.number}"'])
        yield AssertionStep("\n".join(theirs), calls, check)
        own, theirs = [], []


@dataclass
class _Hoister(ast.NodeTransformer):
    """Takes out of an assertion what only the code can answer."""

    number: int
    builtins: frozenset[str]
    bound: set[str]
    """Names that set-up lines bind."""
    taken: int
    """Calls taken out of earlier assertions."""
    calls: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id=name)) if self._is_codes(name):
                return self._take(node)
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=name), *rest]) if (
                self._is_codes(name) and "map" not in self.bound and not any(map(self._asks_code, rest))
            ):
                return self._take(ast.Call(ast.Name("list", ast.Load()), [node], []))
            case _:
                return self.generic_visit(node)

    def visit_scope(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda) -> ast.AST:
        """Goes over whole where it only collects what calls return; a comparison in it would be the code's to forge."""
        if not self._asks_code(node):
            return node
        match node:
            case ast.ListComp(elt, loops) | ast.GeneratorExp(elt, loops) | ast.SetComp(elt, loops) if (
                isinstance(elt, ast.Call)
                and isinstance(elt.func, ast.Name)
                and self._is_codes(elt.func.id)
                and not any(loop.ifs or self._asks_code(loop.iter) for loop in loops)
            ):
                return self._take(ast.ListComp(elt, loops) if isinstance(node, ast.GeneratorExp) else node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                # the first iterable is evaluated outside the scope
                first = node.generators[0]
                first.iter = cast(ast.expr, self.visit(first.iter))
                if not self._asks_code(node):
                    return node
            case _:
                pass
        raise ProblemError(f"test {self.number} asks the code inside an inner scope")

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_scope

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if self._is_codes(node.id):
            raise ProblemError(f"test {self.number} uses '{node.id[:50]}' without calling it")
        return node

    def _take(self, node: ast.expr) -> ast.expr:
        name = value_name(self.taken + len(self.calls))
        self.calls[name] = node
        return ast.Name(name, ast.Load())

    def _is_codes(self, name: str) -> bool:
        return name not in self.bound and name not in self.builtins and not name.endswith(TAG)

    def _asks_code(self, node: ast.AST) -> bool:
        own = bound_names(node)
        return any(self._is_codes(name) and name not in own for name in _used([node]))
