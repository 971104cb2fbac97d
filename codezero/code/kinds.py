"""What kind of value a function is called with, as far as the literals of its tests show it.

A kind is a word: `int`, `bool`, `float`, `str`; `[int]`, a list of them; `[]`, an empty one; `any`.
"""

import ast
from collections.abc import Iterable
from functools import reduce

from codezero.code.assertions import calls_of

Kind = str
ANY, INT, BOOL, FLOAT, STR, NOTHING = "any", "int", "bool", "float", "str", ""
NUMBERS = (BOOL, INT, FLOAT)
"""A value of one is a value of the next, but that a `bool` is kept apart where all are."""


def list_of(element: Kind) -> Kind:
    return f"[{element}]"


def is_list(kind: Kind) -> bool:
    return kind.startswith("[")


def element(kind: Kind) -> Kind:
    """Of a list."""
    return kind[1:-1]


def join(one: Kind, other: Kind) -> Kind:
    """The kind of a value that is of either."""
    if one == other or NOTHING in (one, other):
        return one or other
    if is_list(one) and is_list(other):
        return list_of(join(element(one), element(other)))
    if one in NUMBERS and other in NUMBERS:
        return max(one, other, key=NUMBERS.index)
    return ANY


def joined(kinds: Iterable[Kind]) -> Kind:
    return reduce(join, kinds, NOTHING)


def argument_kinds(tests: tuple[str, ...], entry: str) -> tuple[Kind, ...]:
    """By position, over all calls; empty where a call is not of literals alone."""
    calls = calls_of(tests, entry) if entry else ()
    if not calls or any(None in call.args or call.keywords or not call.whole for call in calls):
        return ()
    if len({call.npos for call in calls}) > 1:
        return ()
    try:
        rows = [[_kind_of(ast.parse(str(arg), mode="eval").body) for arg in call.args] for call in calls]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(joined(column) or ANY for column in zip(*rows, strict=True))


def _kind_of(literal: ast.expr) -> Kind:
    match literal:
        case ast.Constant(value=value):
            return type(value).__name__ if isinstance(value, bool | int | float | str) else ANY
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _kind_of(operand)
        case ast.List(elts=parts):
            return list_of(joined(map(_kind_of, parts)))
        case _:
            return ANY
