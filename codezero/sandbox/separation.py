"""Tests taken apart: the calls of the code on one side, what should come of them on the other.

The process that the code runs in gets the calls and nothing else. `assert sorted(f([3, 1])) == [1, 3]` becomes the call
`f([3, 1])` and the check `sorted(value_0) == [1, 3]`, which is evaluated elsewhere with the value that came back.
Set-up lines go to the side that uses them.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from codezero.code.parsing import BUILTINS, names, names_loaded
from codezero.errors import ProblemError, translated
from codezero.sandbox.assertions import TAG, bound_names, read_as_builtins, read_test, value_name


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
    node: ast.stmt
    binds: set[str]
    uses: set[str]

    def constant(self) -> bool:
        """Is what it binds the same on both sides, whatever either does with it?"""
        match self.node:
            case ast.Assign(targets=[ast.Name()], value=value):
                return all(isinstance(node, _IMMUTABLE) for node in ast.walk(value))
            case node:
                return not isinstance(node, ast.Assign)


_IMMUTABLE = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context)


@functools.lru_cache(maxsize=4096)
def separate(tests: tuple[str, ...]) -> tuple[AssertionStep, ...]:
    """A step for each assertion, in order. Raises ProblemError when a test cannot be used or not be taken apart."""
    with translated(ProblemError, "the tests are nested too deeply", MemoryError, RecursionError, reason=False):
        lines = list(_lines(tests))
        setups = [line for line in lines if isinstance(line, _Setup)]
        claims = [line for line in lines if isinstance(line, _Claim)]
        there = _needed(setups, names_loaded(*(call for claim in claims for call in claim.calls.values())))
        here = _needed(setups, names_loaded(*(claim.test for claim in claims)))
        _refuse_shared(setups, here, there)
        return tuple(_steps(lines, here, there))


def _lines(tests: tuple[str, ...]) -> "Iterator[_Setup | _Claim]":
    trees = [read_test(test, number) for number, test in enumerate(tests, start=1)]
    bound = {name for tree in trees for node in tree.body if not isinstance(node, ast.Assert) for name in _binds(node)}
    builtins, taken = read_as_builtins(trees), 0
    for number, tree in enumerate(trees, start=1):
        for node in tree.body:
            if isinstance(node, ast.Assert):
                claim = _Claim(number, node.test, builtins, bound, taken)
                taken += len(claim.calls)
                yield claim
            else:
                yield _Setup(node, _binds(node), names_loaded(node) - (bound_names(node) - _binds(node)))


def _binds(node: ast.stmt) -> set[str]:
    """Names a set-up line changes, `x` of `x[0] = 1` too."""
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    return names(*node.targets) if isinstance(node, ast.Assign) else bound_names(node)


def _needed(setups: list[_Setup], wanted: set[str]) -> set[str]:
    """These names, and all that what binds them uses. Names bound inside an expression are harmless extras."""
    while not (wider := wanted.union(*(setup.uses for setup in setups if setup.binds & wanted))) <= wanted:
        wanted = wider
    return wanted


def _refuse_shared(setups: list[_Setup], here: set[str], there: set[str]) -> None:
    """A name that both sides use has to mean the same on both, and must not carry an answer over."""
    bound = BUILTINS.union(*(setup.binds for setup in setups))
    for setup in setups:
        if setup.binds & here and not setup.uses <= bound:
            raise ProblemError("a set-up line that the assertion needs calls the code")
        if setup.binds & here & there and not setup.constant():
            raise ProblemError("the code could change what the assertion compares with")
    for name in here & there:
        assigned = [setup for setup in setups if name in setup.binds and isinstance(setup.node, ast.Assign)]
        if len(assigned) > 1:
            raise ProblemError(f"'{name[:50]}' is assigned more than once")


def _steps(lines: "list[_Setup | _Claim]", here: set[str], there: set[str]) -> Iterator[AssertionStep]:
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
class _Claim(ast.NodeTransformer):
    """An assertion, out of which it takes what only the code can answer."""

    number: int
    test: ast.expr
    builtins: frozenset[str]
    bound: set[str]
    """Names that set-up lines bind."""
    taken: int
    """Calls taken out of earlier assertions."""
    calls: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])

    def __post_init__(self) -> None:
        self.test = cast(ast.expr, self.visit(self.test))

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
        return any(self._is_codes(name) and name not in own for name in names_loaded(node))
