"""Blocks of statements: what in them can never run, and whether it may go."""

import ast
from collections.abc import Iterator, Sequence
from typing import cast

from codezero.code.syntax import FunctionNode, names_bound, names_loaded

_FIELDS = ("body", "orelse", "finalbody")
_PRESENT = (
    ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.NamedExpr,
)  # fmt: skip


def blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The blocks directly inside a statement or handler, with the field each stands in."""
    for field in _FIELDS:
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield field, cast("list[ast.stmt]", block)


def live(statements: list[ast.stmt], owner: ast.AST, field: str) -> list[ast.stmt]:
    """A block without what follows its end and without needless `pass`."""
    last = next((index for index, statement in enumerate(statements) if _ends(statement)), None)
    if last is not None and (isinstance(owner, ast.Module) or droppable(statements[last + 1 :])):
        statements = statements[: last + 1]
    kept = [statement for statement in statements if not isinstance(statement, ast.Pass)]
    return kept or ([ast.Pass()] if _required(owner, field) else [])


def droppable(statements: Sequence[ast.stmt]) -> bool:
    """May statements that never run go? Not if their mere presence has an effect: a yield, or a name made local."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    inner = names_bound(*(node.target for node in nodes if isinstance(node, ast.comprehension)))
    return names_bound(*statements) <= inner and not any(isinstance(node, _PRESENT) for node in nodes)


def _ends(statement: ast.stmt) -> bool:
    match statement:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="sys" | "os"), attr="exit" | "_exit"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="exit" | "quit"))):
            return True
        case _:
            return False


def _required(owner: ast.AST, field: str) -> bool:
    if field == "finalbody":
        return isinstance(owner, ast.Try | ast.TryStar) and not owner.handlers
    return field == "body" and not isinstance(owner, ast.Module)


def without_unused_functions(function: FunctionNode) -> bool:
    """Take inner functions that nobody mentions out of `function`, in place; True when one went."""
    declared = {
        name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
    }
    inner = [node for node in function.body if isinstance(node, FunctionNode)]
    used = names_loaded(*(node for node in function.body if not isinstance(node, FunctionNode))) | declared
    waiting = {id(node): (node, names_loaded(node) - {node.name}) for node in inner}
    while True:
        fresh = [key for key, (node, _) in waiting.items() if node.name in used or node.decorator_list]
        if not fresh:
            break
        for key in fresh:
            used |= waiting.pop(key)[1]
    if not waiting:
        return False
    function.body = live([node for node in function.body if id(node) not in waiting], function, "body")
    return True
