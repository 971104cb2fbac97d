"""Tests rewritten so that the code under test cannot reach into its own examination.

The code runs first and may shadow a builtin, or return an object whose `__eq__` always says yes. So tests read builtins
through aliases taken before it ran, and what the code's functions return is inspected before the test compares it.
"""

import ast
import functools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from codezero.code.parsing import BUILTINS, UNPARSEABLE, parse_quietly
from codezero.errors import ProblemError, translated

TAG = f"_{secrets.token_hex(8)}"
"""Ends every name this module adds; code that was written elsewhere cannot guess it."""
FINISHED = f"finished{TAG}"
"""Set by the last line of the code feed: the code ran to its end."""

_SETUP = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef)

_PLAIN = f"plain{TAG}"
INSPECT = f"""
def {_PLAIN}(values, type=type, atoms=(int, float, complex, str, bool, bytes, range, type(None)),
             sequences=(list, tuple, set, frozenset), dict=dict, list=list):
    waiting, seen = list(values), 0
    while waiting and seen < 10000:
        value, seen = waiting.pop(), seen + 1
        kind = type(value)
        if kind in sequences:
            waiting.extend(value)
        elif kind is dict:
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif kind not in atoms:
            return False
    return not waiting
"""
"""Runs first where code may define its own equality: decides whether values are plain."""
TRUST = f"def {_PLAIN}(values): return True"
"""Runs first where it cannot; cheaper."""


@dataclass(frozen=True, slots=True)
class Script:
    """Tests as the two texts that surround the code. INSPECT or TRUST precedes them."""

    before: str
    """Runs before the code: takes what the tests need while nothing is shadowed."""
    after: str
    """Runs after it. Raises AssertionError("<TAG> N") where test N fails; its value is (all values plain?,)."""
    traced: bool
    """False: some comparison involves values that could not be inspected."""


@functools.lru_cache(maxsize=4096)
def examine(tests: tuple[str, ...]) -> Script:
    """The script of these tests. Raises ProblemError when one is not an assertion with optional set-up lines."""
    trees = [_read_plain(test, number) for number, test in enumerate(tests, start=1)]
    rewriter, lines = _Rewriter(read_as_builtins(trees)), list[str]()
    for number, tree in enumerate(trees, start=1):
        with translated(ProblemError, f"test {number} is nested too deeply", MemoryError, RecursionError, reason=False):
            rewriter.bound = bound_names(tree)
            lines += [rewriter.rewrite(statement, number) for statement in tree.body]
    aliases = [f"{name}{TAG} = {name}" for name in sorted(rewriter.aliased)]
    flags = [f"plain_{number}{TAG}" for number in range(rewriter.asserted)]
    return Script(
        before="\n".join(aliases),
        after="\n".join((FINISHED, *lines, f"({' and '.join(flags)},)")),
        traced=rewriter.traced,
    )


def read_test(test: str, number: int) -> ast.Module:
    """Raises ProblemError for what is no test; `number` is for its message."""
    with translated(ProblemError, f"test {number} cannot be read", *UNPARSEABLE):
        tree = parse_quietly(test)
    if not any(isinstance(node, ast.Assert | ast.Raise | ast.With) for node in ast.walk(tree)):
        raise ProblemError(f"test {number} asserts nothing")
    return tree


def _read_plain(test: str, number: int) -> ast.Module:
    """Assertions with optional set-up lines. Raises ProblemError for anything else."""
    tree = read_test(test, number)
    for statement in tree.body:
        if not isinstance(statement, (*_SETUP, ast.Assert)):
            raise ProblemError(f"test {number}: {type(statement).__name__} is neither an assertion nor set-up")
    if not any(isinstance(statement, ast.Assert) for statement in tree.body):
        raise ProblemError(f"test {number} asserts only inside something else")
    return tree


def read_as_builtins(trees: Sequence[ast.Module]) -> frozenset[str]:
    """The builtins; but a builtin that is the only name in all assertions (`assert sum(2, 3) == 1`) is the code's."""
    claims = (node for tree in trees for node in tree.body if isinstance(node, ast.Assert))
    names = {part.id for claim in claims for part in ast.walk(claim) if isinstance(part, ast.Name)}
    return BUILTINS - names if len(names) == 1 else BUILTINS


def bound_names(tree: ast.AST) -> set[str]:
    """Every name that something in the tree assigns, imports, defines or takes as a parameter."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
            case _:
                pass
    return names


def value_name(index: int) -> str:
    """Stands for what a call returned."""
    return f"value_{index}{TAG}"


@dataclass
class _Rewriter(ast.NodeTransformer):
    """Replaces builtins by their aliases and the outermost calls of the code's functions by parameters."""

    builtins: frozenset[str]
    aliased: set[str] = field(default_factory=set[str])
    asserted: int = 0
    traced: bool = True
    bound: set[str] = field(default_factory=set[str])
    """Names the test at hand binds itself."""
    calls: list[ast.expr] = field(default_factory=list[ast.expr])
    """Calls taken out of the assertion at hand."""
    outside: bool = False
    """Is the node outside every call taken out and every inner scope?"""

    def rewrite(self, statement: ast.stmt, number: int) -> str:
        """One statement of test `number` as lines that run in the sandbox."""
        if not isinstance(statement, ast.Assert):
            # What an assertion inside a function compares is never inspected.
            self.traced = self.traced and not any(isinstance(part, ast.Assert) for part in ast.walk(statement))
            return ast.unparse(self.generic_visit(statement))
        self.calls, self.outside = [], True
        test = ast.unparse(self.visit(statement.test))
        self.outside = False
        parameters = ", ".join(map(value_name, range(len(self.calls))))
        values = ", ".join(ast.unparse(call) for call in self.calls)
        flag, holds = f"plain_{self.asserted}{TAG}", f"holds{TAG}"
        self.asserted += 1
        check = f"(lambda {parameters}: ({_PLAIN}([{parameters}]), True if ({test}) else False))({values})"
        return f'{flag}, {holds} = {check}\nassert {holds}, "{TAG} {number}"'

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if self._is_builtin(node) and isinstance(node.ctx, ast.Load):
            self.aliased.add(node.id)
            return ast.Name(node.id + TAG, ast.Load())
        self.traced = self.traced and not self.outside
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not self.outside or not isinstance(node.func, ast.Name) or self._is_builtin(node.func):
            return self.generic_visit(node)
        self.calls.append(cast(ast.expr, self._inside(node)))
        return ast.Name(value_name(len(self.calls) - 1), ast.Load())

    def visit_scope(self, node: ast.AST) -> ast.AST:
        """Calls in here may depend on the scope's own names, so they stay; what they return is not inspected."""
        if self.outside:
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not self._is_builtin(part)}
            self.traced = self.traced and names <= bound_names(node)
        return self._inside(node)

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_scope

    def _inside(self, node: ast.AST) -> ast.AST:
        outside, self.outside = self.outside, False
        node = self.generic_visit(node)
        self.outside = outside
        return node

    def _is_builtin(self, name: ast.Name) -> bool:
        return name.id in self.builtins and name.id not in self.bound
