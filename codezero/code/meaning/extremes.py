"""Rules for the larger, the smaller and the distance of two values."""

import ast

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.kinds import INT, ORDERED, STR, WHOLE
from codezero.code.meaning.terms import Names, call, compare, number, order_of, same


def _bounded(term: ast.Compare, names: Names) -> ast.expr | None:
    """`max(x, 4) == x` is `x >= 4`."""
    for one, other in ((term.left, term.comparators[0]), (term.comparators[0], term.left)):
        match one:
            case ast.Call(func=ast.Name(id="max" | "min" as which), args=[a, b], keywords=[]) if isinstance(
                term.ops[0], ast.Eq
            ):
                rest = b if same(other, a) else a if same(other, b) else None
                if rest is not None and {names.kind(a), names.kind(b)} <= {*ORDERED}:
                    return compare(other, ast.GtE() if which == "max" else ast.LtE(), rest)
            case _:
                pass
    return None


def _extreme(term: ast.Call, names: Names) -> ast.expr | None:
    """`max(b, a)` is `max(a, b)`, and so is `max([a, b])`; `max(x, -x)` and `abs(b - a)` are magnitudes."""
    match term:
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=[first, second], keywords=[]):
            if not {names.kind(first), names.kind(second)} <= {*ORDERED}:
                return None
            if which == "max" and (_is_minus(first, second) or _is_minus(second, first)) and names.kind(first) == INT:
                return call("abs", second if isinstance(first, ast.UnaryOp) else first)
            return call(which, second, first) if order_of(first) > order_of(second) else None
        case ast.Call(
            func=ast.Name(id="max" | "min" as which),
            args=[ast.List(elts=[_, _, *_] as parts) | ast.Tuple(elts=[_, _, *_] as parts)],
            keywords=[],
        ) if not any(isinstance(each, ast.Starred) for each in parts):
            return call(which, *parts)
        case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=first, op=ast.Sub(), right=second)]):
            turned = number(second) is None and order_of(first) > order_of(second)
            whole = names.kind(first) in WHOLE and names.kind(second) in WHOLE
            return call("abs", ast.BinOp(second, ast.Sub(), first)) if turned and whole else None
        case ast.Call(func=ast.Name(id="abs"), args=[ast.UnaryOp(op=ast.USub(), operand=inner)]):
            return call("abs", inner) if names.kind(inner) in WHOLE else None
        case ast.Call(func=ast.Name(id="int"), args=[inner], keywords=[]) if names.kind(inner) == INT:
            return inner
        case ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]) if names.kind(inner) == STR:
            return inner
        case _:
            return None


def _is_minus(one: ast.expr, other: ast.expr) -> bool:
    return isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub) and same(one.operand, other)


def _either_difference(term: ast.Call, names: Names) -> ast.expr | None:
    """`max(a - b, b - a)` is `abs(a - b)`."""
    match term:
        case ast.Call(
            func=ast.Name(id="max"),
            args=[ast.BinOp(left=a, op=ast.Sub(), right=b) as first, ast.BinOp(left=c, op=ast.Sub(), right=d)],
            keywords=[],
        ) if same(a, d) and same(b, c) and names.kind(first) == INT:
            return call("abs", first)
        case _:
            return None


def _spread(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`max(a, b) - min(a, b)` is `abs(a - b)`."""
    match term:
        case ast.BinOp(
            left=ast.Call(func=ast.Name(id="max"), args=[a, b], keywords=[]),
            op=ast.Sub(),
            right=ast.Call(func=ast.Name(id="min"), args=[c, d], keywords=[]),
        ) if same(a, c) and same(b, d) and names.kind(a) in WHOLE and names.kind(b) in WHOLE:
            return call("abs", ast.BinOp(a, ast.Sub(), b))
        case _:
            return None


def _moved(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`max(x for x in xs) * 3` is `max(x * 3 for x in xs)`; so with what is added or taken away."""
    match term:
        case ast.BinOp(
            left=ast.Call(func=ast.Name(id="max" | "min" as which), args=[ast.GeneratorExp() as items], keywords=[]),
            op=ast.Add() | ast.Sub() | ast.Mult(),
            right=right,
        ) if (value := number(right)) is not None and names.kind(items.elt) in WHOLE:
            if isinstance(term.op, ast.Mult) and value < 1:
                return None
            return call(which, ast.GeneratorExp(ast.BinOp(items.elt, term.op, right), items.generators))
        case _:
            return None


RULES: Rules = {
    ast.Call: (_extreme, _either_difference),
    ast.BinOp: (_spread, _moved),
    ast.Compare: (_bounded,),
}
