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

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip

Known = dict[int, Any]
"""Values by id of the node: an expression inside an expression is looked at once."""


def fold(node: ast.AST, known: Known) -> Any:
    """The value of constants, displays of them, f-strings and small sums of them; else UNKNOWN."""
    if id(node) not in known:
        known[id(node)] = _bounded(_fold(node, known))
    return known[id(node)]


def _bounded(value: Any) -> Any:
    if isinstance(value, int):
        return value if abs(value) < 10**_MOST_DIGITS else UNKNOWN
    if isinstance(value, Sized):
        return value if len(value) <= _MOST_ITEMS else UNKNOWN
    return value


def _fold(node: ast.AST, known: Known) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = fold(operand, known)
            return -value if isinstance(value, int | float) else UNKNOWN
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            values = [fold(part, known) for part in parts]
            if any(value is UNKNOWN for value in values):
                return UNKNOWN
            return values if isinstance(node, ast.List) else tuple(values)
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(fold(left, known), op, fold(right, known))
        case ast.JoinedStr(values=parts):
            texts = [_text(part, known) for part in parts]
            return UNKNOWN if any(text is UNKNOWN for text in texts) else "".join(texts)
        case _:
            return UNKNOWN


def _combine(left: Any, op: ast.operator, right: Any) -> Any:
    kinds: set[type] = {type(left), type(right)}
    numbers = kinds <= _NUMBERS
    match op:
        case ast.Add() if numbers or (len(kinds) == 1 and kinds <= _SEQUENCES):
            return left + right
        case ast.Sub() if numbers:
            return left - right
        case ast.Mult() if numbers:
            return left * right
        case _:
            return UNKNOWN


def _text(part: ast.expr, known: Known) -> Any:
    if isinstance(part, ast.Constant):
        return part.value
    if isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1:
        value = fold(part.value, known)
        return str(value) if isinstance(value, str | int) else UNKNOWN
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
        case ast.BoolOp(op=op, values=values):
            return _junction([truth(value) for value in values], isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _comparison(left, op, right)
        case _:
            return _combined_truth(node)


def _combined_truth(node: ast.expr) -> bool | None:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand)
            return None if inner is None else not inner
        case ast.IfExp(body=body, orelse=orelse):
            first, second = truth(body), truth(orelse)
            return first if first == second else None
        case ast.Call(func=ast.Name(id="bool"), args=[only], keywords=[]):
            return truth(only)
        case ast.BinOp() | ast.UnaryOp():
            value = fold(node, {})
            return None if value is UNKNOWN else bool(value)
        case _:
            return None


def _junction(parts: list[bool | None], decisive: bool) -> bool | None:
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
    first, second = fold(left, {}), fold(right, {})
    if first is UNKNOWN or second is UNKNOWN:
        return None
    if isinstance(op, ast.Eq | ast.NotEq) or (isinstance(first, int | float) and isinstance(second, int | float)):
        compare = _COMPARISONS.get(type(op))
        return None if compare is None else compare(first, second)
    return None
