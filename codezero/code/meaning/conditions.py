"""Rules for comparisons and negations, and what a value counts for as a condition."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from codezero.code.meaning.kinds import ANY, BOOL, ORDERED, STR, WHOLE, cannot_fail, has_length, is_list
from codezero.code.meaning.terms import Names, call, compare, constant, is_true, negation, number, order_of, same

Rule = Callable[[Any, Names], ast.expr | None]


Rules = Mapping[type[ast.AST], tuple[Rule, ...]]


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq, ast.NotEq: ast.NotEq, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE,
}  # fmt: skip


_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def opposite(term: ast.expr, names: Names) -> ast.expr | None:
    """A comparison that is true where this one is false."""
    match term:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            ordered = not isinstance(op, _ORDER) or {names.kind(left), names.kind(right)} <= {*ORDERED}
            return compare(left, _OPPOSITE[type(op)](), right) if ordered else None
        case ast.UnaryOp(op=ast.Not(), operand=operand) if names.kind(operand) == BOOL:
            return operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case _:
            return None


def are_opposite(one: ast.expr, other: ast.expr, names: Names) -> bool:
    """Is one true exactly where the other is not? As both are spelt after all rules."""
    turned = opposite(one, names)
    match turned, one:
        case None, _:
            return False
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]), _ if halved(left):
            turned = compare(left, ast.Eq(), constant(1 - (number(right) or 0)))
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]), _ if (value := number(right)) is not None:
            turned = compare(left, ast.Gt(), constant(value - 1))
        case ast.Compare(left=left, ops=[ast.LtE()], comparators=[right]), _:
            value = number(right)
            turned = compare(right, ast.GtE(), left) if value is None else compare(left, ast.Lt(), constant(value + 1))
        case _:
            pass
    return same(turned, other)


def as_test(term: ast.expr) -> ast.expr:
    """What counts of a term as a condition: `bool(x)`, `not not x`, `len(x) > 0` and `x != ""` say what `x` says."""
    match term:
        case ast.Call(func=ast.Name(id="bool"), args=[inner], keywords=[]):
            return as_test(inner)
        case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
            return as_test(inner)
        case ast.IfExp(test=test, body=body, orelse=orelse) if is_true(body, True) and is_true(orelse, False):
            return as_test(test)
        case _:
            return term


def condition(term: ast.expr, names: Names) -> ast.expr:
    """A condition as a comparison, where what is tested is a number, and as the value itself where it has a length."""
    term = as_test(term)
    if names.kind(term) in WHOLE and names.kind(term) != BOOL:
        return compare(term, ast.NotEq(), constant(0))
    match term:
        case ast.Call(func=ast.Name(id="len"), args=[inner]) if has_length(names.kind(inner)):
            return inner
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            plain = condition(inner, names)
            return term if plain is inner else opposite(plain, names) or negation(plain)
        case ast.BoolOp(op=op, values=parts):
            plain = [condition(each, names) for each in parts]
            return term if all(map(lambda a, b: a is b, plain, parts)) else ast.BoolOp(op, plain)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _emptiness(left, op, right, names) or term
        case _:
            return term


def _emptiness(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Names) -> ast.expr | None:
    match left:
        case ast.Call(func=ast.Name(id="len"), args=[inner]) if has_length(names.kind(inner)):
            known: dict[tuple[type[ast.cmpop], int | None], bool] = {
                (ast.Eq, 0): True, (ast.Lt, 1): True, (ast.LtE, 0): True, (ast.Gt, 0): False, (ast.NotEq, 0): False
            }  # fmt: skip
            empty = known.get((type(op), number(right)))
        case _:
            inner, kind = left, names.kind(left)
            nothing = isinstance(right, ast.List) and not right.elts and is_list(kind)
            nothing |= isinstance(right, ast.Constant) and right.value == "" and kind == STR
            empty = isinstance(op, ast.Eq) if nothing and isinstance(op, ast.Eq | ast.NotEq) else None
    return None if empty is None else negation(inner) if empty else inner


def _not(term: ast.UnaryOp, names: Names) -> ast.expr | None:
    if not isinstance(term.op, ast.Not):
        return None
    inner = condition(term.operand, names)
    turned = opposite(inner, names)
    if turned is not None:
        return turned
    match inner:
        case ast.BoolOp(op=op, values=parts):
            return ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), [negation(each) for each in parts])
        case ast.Call(func=ast.Name(id="any" | "all" as which), args=[ast.GeneratorExp(elt=elt, generators=heads)]):
            if which == "all":
                return call("any", ast.GeneratorExp(negation(elt), heads))
        case _:
            pass
    return None if inner is term.operand else negation(inner)


def _compared(term: ast.Compare, names: Names) -> ast.expr | None:
    if len(term.ops) > 1:
        operands = [term.left, *term.comparators]
        if not all(cannot_fail(each, names.kinds) for each in operands[1:-1]):
            return None
        pairs = zip(operands, term.ops, operands[1:], strict=False)
        return ast.BoolOp(ast.And(), [compare(left, op, right) for left, op, right in pairs])
    left, op, right = term.left, term.ops[0], term.comparators[0]
    nothing = isinstance(right, ast.Constant) and right.value is None
    if nothing and names.kind(left) != ANY and isinstance(op, ast.Is | ast.IsNot) and cannot_fail(left, names.kinds):
        return ast.Constant(isinstance(op, ast.IsNot))
    if isinstance(right, ast.Constant) and isinstance(right.value, bool) and names.kind(left) == BOOL:
        if isinstance(op, ast.Eq | ast.Is):
            return left if right.value else negation(left)
        if isinstance(op, ast.NotEq | ast.IsNot):
            return negation(left) if right.value else left
    if type(op) in _TURNED and _comes_after(left, op, right, names):
        return compare(right, _TURNED[type(op)](), left)
    return _whole(left, op, right, names)


def _comes_after(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Names) -> bool:
    """Should the sides be turned? Constants stand right; else the greater stands left, equals by their text."""
    if _is_constant(left) or _is_constant(right):
        return _is_constant(left) and not _is_constant(right)
    if isinstance(op, ast.Eq | ast.NotEq):
        return order_of(left) > order_of(right)
    return isinstance(op, ast.Lt | ast.LtE)


def _is_constant(term: ast.expr) -> bool:
    return isinstance(term, ast.Constant) or number(term) is not None


def _whole(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Names) -> ast.expr | None:
    """`x >= 4` is `x > 3` of whole numbers, and `x % 2 != 0` is `x % 2 == 1`."""
    value = number(right)
    if value is None or names.kind(left) not in WHOLE:
        return None
    match op:
        case _ if (known := _of_remainder(left, op, value)) is not None:
            return known
        case ast.GtE():
            return compare(left, ast.Gt(), constant(value - 1))
        case ast.LtE():
            return compare(left, ast.Lt(), constant(value + 1))
        case ast.NotEq() if value in (0, 1) and halved(left):
            return compare(left, ast.Eq(), constant(1 - value))
        case _:
            return _shifted(left, op, value)


def _of_remainder(left: ast.expr, op: ast.cmpop, value: int) -> ast.expr | None:
    """What is left of a division is neither below zero nor above the divisor."""
    match left:
        case ast.BinOp(op=ast.Mod(), right=by) if (most := number(by) or 0) > 0:
            pass
        case _:
            return None
    match op:
        case ast.Gt() if value < 0:
            return ast.Constant(True)
        case ast.Lt() if value >= most:
            return ast.Constant(True)
        case ast.Gt() if value == 0:
            return compare(left, ast.NotEq(), constant(0))
        case ast.Lt() if value == 1:
            return compare(left, ast.Eq(), constant(0))
        case _:
            return None


def halved(term: ast.expr) -> bool:
    return isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mod) and number(term.right) == 2


def _shifted(left: ast.expr, op: ast.cmpop, value: int) -> ast.expr | None:
    """`x - 3 > 0` is `x > 3`, `-x < 0` is `x > 0` and `a - b > 0` is `a > b`."""
    match left:
        case ast.UnaryOp(op=ast.USub(), operand=inner) if type(op) in _TURNED and number(left) is None:
            return compare(inner, _TURNED[type(op)](), constant(-value))
        case ast.BinOp(left=inner, op=ast.Add() | ast.Sub(), right=ast.Constant(value=int(by))) if type(op) in _TURNED:
            return compare(inner, op, constant(value - by if isinstance(left.op, ast.Add) else value + by))
        case ast.BinOp(left=inner, op=ast.Sub(), right=other) if value == 0 and type(op) in _TURNED:
            return compare(inner, op, other)
        case ast.BinOp(left=inner, op=ast.Sub(), right=other) if value == -1 and isinstance(op, ast.Gt):
            return compare(inner, ast.GtE(), other)
        case _:
            return None


def _truth(term: ast.Call, names: Names) -> ast.expr | None:
    match term:
        case ast.Call(func=ast.Name(id="bool"), args=[inner], keywords=[]):
            plain = condition(inner, names)
            return plain if names.kind(plain) == BOOL else None if plain is inner else call("bool", plain)
        case ast.Call(func=ast.Name(id="any" | "all" as which), args=[ast.GeneratorExp(elt=elt, generators=heads)]):
            plain = condition(elt, names)
            return None if plain is elt else call(which, ast.GeneratorExp(plain, heads))
        case ast.Call(func=ast.Name(id="isinstance")):
            return None
        case _:
            return None


RULES: Rules = {ast.UnaryOp: (_not,), ast.Compare: (_compared,), ast.Call: (_truth,)}
