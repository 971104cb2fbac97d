"""What an expression is worth where that can be said without running anything: `fold` and `truth`."""

import ast
import operator
from collections.abc import Callable, Sized
from typing import Any

UNKNOWN: Any = object()
"""`fold` could not tell. Compare with `is`."""

_MOST_DIGITS = 40
_MOST_ITEMS = 4_096

_NUMBERS: set[type] = {int, float, bool}
_SEQUENCES: set[type] = {str, bytes, list, tuple}

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_DISPLAYS: dict[type[ast.AST], Callable[[list[Any]], Any]] = {ast.List: list, ast.Tuple: tuple, ast.JoinedStr: "".join}

Known = dict[int, Any]
"""Values by id of the node: an expression inside an expression is looked at once."""


def fold(node: ast.AST, known: Known) -> Any:
    """The value of constants, displays of them, f-strings and small sums of them; else UNKNOWN."""
    if id(node) not in known:
        value = _fold(node, known)
        large = abs(value) >= 10**_MOST_DIGITS if isinstance(value, int) else False
        long = len(value) > _MOST_ITEMS if isinstance(value, Sized) else False
        known[id(node)] = UNKNOWN if large or long else value
    return known[id(node)]


def _fold(node: ast.AST, known: Known) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = fold(operand, known)
            return -value if isinstance(value, int | float) else UNKNOWN
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.JoinedStr(values=parts):
            values = [fold(part, known) for part in parts]
            return UNKNOWN if any(value is UNKNOWN for value in values) else _DISPLAYS[type(node)](values)
        case ast.FormattedValue(value=part, conversion=-1, format_spec=None):
            value = fold(part, known)
            return str(value) if isinstance(value, str | int) else UNKNOWN
        case ast.BinOp(op=op):
            sides = fold(node.left, known), fold(node.right, known)
            kinds: set[type] = set(map(type, sides))
            joined = isinstance(op, ast.Add) and len(kinds) == 1 and kinds <= _SEQUENCES
            fitting = type(op) in _OPERATORS and (joined or kinds <= _NUMBERS)
            return _OPERATORS[type(op)](*sides) if fitting else UNKNOWN
        case _:
            return UNKNOWN


def truth(node: ast.expr) -> bool | None:
    """Is it always true, always false, or (None) neither or not known?"""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return None if any(isinstance(part, ast.Starred) for part in parts) else bool(parts)
        case ast.Dict(keys=keys):
            return None if None in keys else bool(keys)
        case ast.Lambda():
            return True
        case ast.JoinedStr(values=parts):
            return True if any(isinstance(part, ast.Constant) and part.value for part in parts) else None
        case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            value = fold(node, {})
            return None if value is UNKNOWN else bool(value)
        case _:
            return _combined_truth(node)


def _combined_truth(node: ast.expr) -> bool | None:
    match node:
        case ast.BoolOp(op=op, values=values):
            parts, decisive = [truth(value) for value in values], isinstance(op, ast.Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            sides = fold(left, {}), fold(right, {})
            ordered = isinstance(op, ast.Eq | ast.NotEq) or all(isinstance(side, int | float) for side in sides)
            known = ordered and not any(side is UNKNOWN for side in sides)
            return _OPERATORS[type(op)](*sides) if known else None
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand)
            return None if inner is None else not inner
        case ast.IfExp(body=body, orelse=orelse):
            first, second = truth(body), truth(orelse)
            return first if first == second else None
        case ast.Call(func=ast.Name(id="bool"), args=[only], keywords=[]):
            return truth(only)
        case _:
            return None
