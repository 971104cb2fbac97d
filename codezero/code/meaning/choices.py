"""Rules for what depends on a condition: choices, conjunctions and filters.

Wherever two spellings remain, a condition is positive: `a if x % 2 == 0 else b`, not the other way round.
"""

import ast
from typing import Any

from codezero.code.meaning.conditions import Rules, condition, halved, opposite
from codezero.code.meaning.kinds import BOOL, ORDERED, WHOLE, cannot_fail
from codezero.code.meaning.terms import (
    Names,
    call,
    compare,
    constant,
    is_true,
    negation,
    number,
    order_of,
    part,
    same,
    text_of,
)  # fmt: skip


def _chosen(term: ast.IfExp, names: Names) -> ast.expr | None:
    test, body, orelse = condition(term.test, names), term.body, term.orelse
    if isinstance(test, ast.Constant):
        return body if test.value else orelse
    if same(body, orelse) and cannot_fail(test, names.kinds):
        return body
    if _is_turned(test, names) and (turned := opposite(test, names)) is not None:
        return ast.IfExp(turned, orelse, body)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.IfExp(test.operand, orelse, body)
    if names.kind(test) == BOOL and (flag := _flag(test, body, orelse, names)) is not None:
        return flag
    if (nested := _nested(test, body, orelse)) is not None:
        return nested
    return None if test is term.test else ast.IfExp(test, body, orelse)


def _is_turned(test: ast.expr, names: Names) -> bool:
    """Of a condition and its opposite, the one that is not used before a choice."""
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            odd = halved(left) and isinstance(op, ast.Eq) and number(right) == 1 and names.kind(left) in WHOLE
            below = isinstance(op, ast.Lt) and number(right) is not None
            return odd or below or isinstance(op, ast.NotEq | ast.GtE | ast.LtE | ast.NotIn | ast.IsNot)
        case _:
            return False


def _flag(test: ast.expr, body: ast.expr, orelse: ast.expr, names: Names) -> ast.expr | None:
    """`True if p else q` and the like; `p` is True or False."""
    if is_true(body, True):
        return test if is_true(orelse, False) else _either(ast.Or(), test, orelse, names)
    if is_true(body, False):
        return negation(test) if is_true(orelse, True) else _either(ast.And(), negation(test), orelse, names)
    if is_true(orelse, False):
        return _either(ast.And(), test, body, names)
    if is_true(orelse, True):
        return _either(ast.Or(), negation(test), body, names)
    return None


def _either(op: ast.boolop, test: ast.expr, other: ast.expr, names: Names) -> ast.expr | None:
    return ast.BoolOp(op, [test, other]) if names.kind(other) == BOOL else None


def _nested(test: ast.expr, body: ast.expr, orelse: ast.expr) -> ast.expr | None:
    """`a if p else (a if q else b)` is `a if p or q else b`; the same condition is not asked twice."""
    match orelse:
        case ast.IfExp(test=inner, body=again, orelse=other) if same(body, again):
            return ast.IfExp(ast.BoolOp(ast.Or(), [test, inner]), body, other)
        case ast.IfExp(test=inner, orelse=other) if same(test, inner):
            return ast.IfExp(test, body, other)
        case _:
            pass
    match body:
        case ast.IfExp(test=inner, body=again, orelse=other) if same(orelse, other):
            return ast.IfExp(ast.BoolOp(ast.And(), [test, inner]), again, orelse)
        case ast.IfExp(test=inner, body=again) if same(test, inner):
            return ast.IfExp(test, again, orelse)
        case _:
            return None


def _extreme(term: ast.IfExp, names: Names) -> ast.expr | None:
    """`a if a > b else b` is `max(a, b)`, and `x if x > 0 else -x` is `abs(x)`; of values that are ordered."""
    match term.test:
        case ast.Compare(left=left, ops=[ast.Gt()], comparators=[right]):
            pass
        case _:
            return None
    if not {names.kind(left), names.kind(right)} <= {*ORDERED}:
        return None
    if same(term.body, left) and same(term.orelse, right):
        return call("max", left, right)
    if same(term.body, right) and same(term.orelse, left):
        return call("min", left, right)
    value = number(right)
    if names.kind(left) not in WHOLE or value not in (0, -1):
        return _difference(term, left, right, names)
    match term.body, term.orelse:
        case _, ast.UnaryOp(op=ast.USub(), operand=inner) if same(term.body, left) and same(inner, left):
            return call("abs", left)
        case _:
            return None


def _difference(term: ast.IfExp, left: ast.expr, right: ast.expr, names: Names) -> ast.expr | None:
    """`a - b if a > b else b - a`."""
    match term.body, term.orelse:
        case ast.BinOp(left=a, op=ast.Sub(), right=b), ast.BinOp(left=c, op=ast.Sub(), right=d):
            least = number(right)
            bounded = same(b, right) or (least is not None and number(b) in (least, least + 1))
            crossed = same(a, d) and same(b, c) and same(a, left) and bounded
            return call("abs", term.body) if crossed and names.kind(term.body) in WHOLE else None
        case _:
            return None


def _combined(term: ast.BoolOp, names: Names) -> ast.expr | None:
    """Flat, without what is said twice; in the order of the text where no part can fail."""
    parts = [inner for each in term.values for inner in _flat(each, term.op)]
    if all(names.kind(each) == BOOL for each in parts):
        decisive = isinstance(term.op, ast.Or)
        parts = [each for each in parts if not is_true(each, not decisive)]
        if any(is_true(each, decisive) for each in parts[:1]) or not parts:
            return ast.Constant(decisive if parts else not decisive)
        if isinstance(term.op, ast.And):
            parts = _narrowed(parts, names)
        if all(cannot_fail(each, names.kinds) for each in parts):
            parts = list({text_of(each): each for each in parts}.values())
            parts.sort(key=order_of)
    if len(parts) == 1:
        return parts[0]
    return None if [*map(id, parts)] == [*map(id, term.values)] else ast.BoolOp(term.op, parts)


def _narrowed(parts: list[ast.expr], names: Names) -> list[ast.expr]:
    """`x > 2 and x < 4` is `x == 3` of whole numbers."""
    for one in parts:
        for other in parts:
            match one, other:
                case (
                    ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]),
                    ast.Compare(left=more, ops=[ast.GtE()], comparators=[less]),
                ) if {text_of(left), text_of(right)} == {text_of(more), text_of(less)}:
                    rest = [each for each in parts if each is not one and each is not other]
                    return [*rest, compare(more, ast.Gt(), less)]
                case (
                    ast.Compare(left=left, ops=[ast.NotEq()], comparators=[value]),
                    ast.Compare(left=again, ops=[ast.Gt() | ast.Lt() as op], comparators=[bound]),
                ) if _are_one(left, again, names) and (edge := number(bound)) is not None and _is_number(value):
                    beyond = ((number(value) or 0) - edge) * _inward(op)
                    if beyond <= 0:
                        return [each for each in parts if each is not one]
                    if beyond == 1:
                        rest = [each for each in parts if each is not one and each is not other]
                        return [*rest, compare(left, op, value)]
                case (
                    ast.Compare(left=left, ops=[ast.Gt()], comparators=[least]),
                    ast.Compare(left=again, ops=[ast.Lt()], comparators=[most]),
                ) if _are_one(left, again, names) and (low := number(least)) is not None and number(most) == low + 2:
                    rest = [each for each in parts if each is not one and each is not other]
                    return [*rest, compare(left, ast.Eq(), constant(low + 1))]
                case _:
                    pass
    return parts


def _are_one(left: ast.expr, again: ast.expr, names: Names) -> bool:
    return same(left, again) and names.kind(left) in WHOLE


def _is_number(term: ast.expr) -> bool:
    return number(term) is not None


def _inward(op: ast.cmpop) -> int:
    return 1 if isinstance(op, ast.Gt) else -1


def _flat(term: ast.expr, op: ast.boolop) -> list[ast.expr]:
    return term.values if isinstance(term, ast.BoolOp) and type(term.op) is type(op) else [term]


def _picked(term: ast.Subscript, names: Names) -> ast.expr | None:
    """`(b, a)[p]`, `{True: a, False: b}[p]` and `[a, b][x % 2]`, where neither can fail."""
    index = term.slice
    match index:
        case ast.Call(func=ast.Name(id="int"), args=[inner]) if names.kind(inner) == BOOL:
            return part(term.value, inner)
        case _:
            pass
    odd = halved(index) and names.kind(index) in WHOLE
    if names.kind(index) != BOOL and not odd:
        return None
    arms = _arms(term.value)
    if arms is None or not all(cannot_fail(each, names.kinds) for each in arms):
        return None
    test = compare(index, ast.Eq(), constant(1)) if odd else index
    return ast.IfExp(test, arms[1], arms[0])


def _arms(choice: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """What stands for False and for True."""
    match choice:
        case ast.Tuple(elts=[other, chosen]) | ast.List(elts=[other, chosen]):
            return other, chosen
        case ast.Dict(keys=[ast.Constant(value=first), ast.Constant(value=second)], values=[one, two]):
            if (first, second) in ((False, True), (0, 1)):
                return one, two
            return (two, one) if (first, second) in ((True, False), (1, 0)) else None
        case _:
            return None


def _got(term: ast.Call, names: Names) -> ast.expr | None:
    """`{True: a}.get(p, b)`."""
    match term:
        case ast.Call(
            func=ast.Attribute(value=ast.Dict(keys=[ast.Constant(value=bool(key))], values=[value]), attr="get"),
            args=[index, default],
        ) if names.kind(index) == BOOL and cannot_fail(value, names.kinds) and cannot_fail(default, names.kinds):
            return ast.IfExp(index, value, default) if key else ast.IfExp(index, default, value)
        case _:
            return None


def _member(term: ast.Compare, _: Names) -> ast.expr | None:
    """`x in (1,)` is `x == 1`."""
    match term:
        case ast.Compare(
            ops=[ast.In() | ast.NotIn() as op],
            comparators=[ast.Tuple(elts=[only]) | ast.List(elts=[only])],
        ) if isinstance(only, ast.Constant):
            return compare(term.left, ast.Eq() if isinstance(op, ast.In) else ast.NotEq(), only)
        case _:
            return None


def _filters(term: Any, names: Names) -> ast.expr | None:
    """Conditions of a comprehension: each on its own, in the order of their text where none can fail."""
    changed, heads = False, list[ast.comprehension]()
    for head in term.generators:
        parts = [inner for each in head.ifs for inner in _flat(condition(each, names), ast.And())]
        parts = [each for each in parts if not is_true(each, True)]
        if all(cannot_fail(each, names.kinds) for each in parts):
            parts = sorted({text_of(each): each for each in parts}.values(), key=order_of)
        joined: list[ast.expr] = parts if len(parts) < 2 else [ast.BoolOp(ast.And(), parts)]
        same_as_before = len(joined) == len(head.ifs) and all(map(same, joined, head.ifs))
        changed |= not same_as_before
        heads.append(ast.comprehension(head.target, head.iter, joined, 0))
    return type(term)(term.elt, heads) if changed else None


RULES: Rules = {
    ast.IfExp: (_chosen, _extreme),
    ast.BoolOp: (_combined,),
    ast.Subscript: (_picked,),
    ast.Call: (_got,),
    ast.Compare: (_member,),
    ast.ListComp: (_filters,),
    ast.GeneratorExp: (_filters,),
}
