"""Loops and recursions that build one value item by item, as the comprehension or reduction that they are.

`hole` is the variable that stands for the value so far; an update is a term over it and the loop's variable.
"""

import ast
from collections.abc import Callable
from typing import TypeGuard

from codezero.code.meaning.conditions import as_test
from codezero.code.meaning.kinds import BOOL, STR, WHOLE, cannot_fail, is_list
from codezero.code.meaning.simplify import simplify
from codezero.code.meaning.statements import FOUND, NEVER
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    call,
    constant,
    generator,
    is_reverse,
    is_true,
    listed,
    mentions,
    name,
    negation,
    number,
    part,
    reverse,
    same,
    substitute,
)  # fmt: skip

FULL = "full"
"""End of a loop: the list itself is long enough."""
Found = tuple[ast.expr, ast.expr]
"""(condition, value)."""


def fold(
    begin: ast.expr,
    update: ast.expr,
    hole: str,
    head: ast.comprehension,
    names: Names,
    *,
    end: str = NEVER,
    from_right: bool = False,
) -> ast.expr:
    """The value after all iterations. `end`: where a break ends the loop, FULL or as `statements.ends_early` has it.
    `from_right`: the last item comes first, as in a recursion. Raises NotUnderstood."""
    if not mentions(update, hole) or (isinstance(update, ast.Name) and update.id == hole):
        return _unchanged(begin, update, hole)
    kind = names.kinds.get(hole, "")
    if kind == BOOL and (flag := _flag(begin, update, hole, head, names, end)) is not None:
        return flag
    if end in (NEVER, FULL) and (limited := _limited(begin, update, hole, head, names)) is not None:
        return limited
    if end != NEVER:
        raise NotUnderstood("break")
    update, ifs = _guarded(_factored(update, hole, names), hole)
    inner = generator(head.target, head.iter, [*head.ifs, *ifs])
    folded = (
        _joined(begin, update, hole, inner, names, from_right)
        if is_list(kind) or kind == STR
        else _summed(begin, update, hole, inner)
        if kind in WHOLE
        else None
    )
    folded = folded or _extreme(begin, update, hole, inner, names)
    if folded is None or mentions(folded, hole):
        raise NotUnderstood("a loop that is no fold")
    return folded


def _unchanged(begin: ast.expr, update: ast.expr, hole: str) -> ast.expr:
    if isinstance(update, ast.Name) and update.id == hole:
        return begin
    raise NotUnderstood("the last iteration alone")


def _flag(
    begin: ast.expr, update: ast.expr, hole: str, head: ast.comprehension, names: Names, end: str
) -> ast.expr | None:
    match update:
        case ast.IfExp(test=test, body=value, orelse=ast.Name(id=kept)) if kept == hole:
            pass
        case ast.IfExp(test=inner, body=ast.Name(id=kept), orelse=value) if kept == hole:
            test = negation(inner)
        case ast.BoolOp(op=ast.Or(), values=[ast.Name(id=kept), test]) if kept == hole:
            value = ast.Constant(True)
        case ast.BoolOp(op=ast.And(), values=[ast.Name(id=kept), inner]) if kept == hole:
            test, value = negation(inner), ast.Constant(False)
        case _:
            return None
    asked = isinstance(update, ast.BoolOp) or end == FOUND or cannot_fail(test, names.kinds)
    if mentions(test, hole) or not isinstance(value, ast.Constant) or not asked:
        return None  # `any` asks no further once it is true
    found = call("any", ast.GeneratorExp(test, [head]))
    return found if is_true(value, True) and is_true(begin, False) else ast.IfExp(found, value, begin)


def _factored(update: ast.expr, hole: str, names: Names) -> ast.expr:
    """`hole + a if p else hole + b` is `hole + (a if p else b)`."""
    match update:
        case ast.IfExp(test=test, body=ast.BinOp() as one, orelse=ast.BinOp() as other) if not mentions(test, hole):
            one, other = _as_sum(one), _as_sum(other)
            if type(one.op) is type(other.op):
                if same(one.left, other.left) and mentions(one.left, hole):
                    arms = ast.IfExp(test, one.right, other.right)
                    return simplify(ast.BinOp(one.left, one.op, arms), names)
                if same(one.right, other.right) and mentions(one.right, hole):
                    return simplify(ast.BinOp(ast.IfExp(test, one.left, other.left), one.op, one.right), names)
        case _:
            pass
    return update


def _as_sum(term: ast.BinOp) -> ast.BinOp:
    """`h - 3` as `h + -3`."""
    value = number(term.right) if isinstance(term.op, ast.Sub) else None
    return term if value is None else ast.BinOp(term.left, ast.Add(), constant(-value))


def _guarded(update: ast.expr, hole: str) -> tuple[ast.expr, list[ast.expr]]:
    """An update that sometimes leaves the value as it is: what it is else, and when, as far as the value does not
    decide that."""
    ifs: list[ast.expr] = []
    while isinstance(update, ast.IfExp):
        if same(update.orelse, name(hole)):
            parts = update.test.values if _is_and(update.test) else [update.test]
            bound = [each for each in parts if mentions(each, hole)]
            ifs += [as_test(each) for each in parts if each not in bound]
            if bound:
                return ast.IfExp(
                    bound[0] if len(bound) == 1 else ast.BoolOp(ast.And(), bound), update.body, update.orelse
                ), ifs
            update = update.body
        elif same(update.body, name(hole)) and not mentions(update.test, hole):
            ifs.append(negation(update.test))
            update = update.orelse
        else:
            break
    return update, ifs


def _is_and(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


def _joined(
    begin: ast.expr, update: ast.expr, hole: str, head: ast.comprehension, names: Names, from_right: bool
) -> ast.expr | None:
    """Lists and texts that grow at one end."""
    match update:
        case ast.BinOp(left=ast.Name(id=kept), op=ast.Add(), right=added) if kept == hole:
            at_end = True
        case ast.BinOp(left=added, op=ast.Add(), right=ast.Name(id=kept)) if kept == hole:
            at_end = False
        case _:
            return None
    text = names.kinds.get(hole) == STR
    in_order = at_end is not from_right
    if text:
        if not in_order and not _is_item(added, head):
            return None
        items = call(ast.Attribute(ast.Constant(""), "join", ast.Load()), ast.GeneratorExp(added, [head]))
    else:
        match added:
            case ast.List(elts=[only]) if not isinstance(only, ast.Starred):
                items = listed(only, [head])
            case ast.ListComp(elt=elt, generators=inner) if in_order:
                items = listed(elt, [head, *inner])
            case _ if in_order and is_list(names.kind(added)):
                item = names.fresh()
                items = listed(name(item), [head, generator(name(item), added, [])])
            case _:
                return None
    items = items if in_order else reverse(items)
    return ast.BinOp(begin, ast.Add(), items) if at_end else ast.BinOp(items, ast.Add(), begin)


def _is_item(term: ast.expr, head: ast.comprehension) -> bool:
    return same(term, head.target)


def _summed(begin: ast.expr, update: ast.expr, hole: str, head: ast.comprehension) -> ast.expr | None:
    match update:
        case ast.BinOp(left=ast.Name(id=kept), op=ast.Add(), right=added) if kept == hole:
            pass
        case ast.BinOp(left=added, op=ast.Add(), right=ast.Name(id=kept)) if kept == hole:
            pass
        case ast.BinOp(left=ast.Name(id=kept), op=ast.Sub(), right=taken) if kept == hole:
            return ast.BinOp(begin, ast.Sub(), call("sum", ast.GeneratorExp(taken, [head])))
        case _:
            return None
    total = call("sum", ast.GeneratorExp(added, [head]))
    return total if number(begin) == 0 else ast.BinOp(begin, ast.Add(), total)


def _limited(begin: ast.expr, update: ast.expr, hole: str, head: ast.comprehension, names: Names) -> ast.expr | None:
    """A list that takes items while it is short: `if len(out) < 2: out.append(x)`. What would not be evaluated any
    more must not fail."""
    update, guards = _guarded(update, hole)
    match update:
        case ast.IfExp(
            test=ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[short]), ops=[op], comparators=[most]),
            body=one,
            orelse=other,
        ) if same(short, name(hole)) and isinstance(op, ast.Lt | ast.Gt | ast.Eq | ast.NotEq):
            grows, stays = (one, other) if isinstance(op, ast.Lt | ast.NotEq) else (other, one)
            limit = (number(most) or 0) + isinstance(op, ast.Gt)
        case _:
            return None
    grows, more = _guarded(grows, hole)
    guards += more
    letters = names.kind(head.iter) == STR and _adds(grows, lambda added: _is_item(added, head))
    begins = same(begin, ast.Constant("")) and letters
    if same(begin, ast.List([], ast.Load())):
        begins = _adds(grows, lambda added: isinstance(added, ast.List) and len(added.elts) == 1)
    if not same(stays, name(hole)) or limit < 1 or not begins:
        return None
    inner = generator(head.target, head.iter, [*head.ifs, *guards])
    match _joined(begin, grows, hole, inner, names, from_right=False):
        case ast.BinOp(left=ast.Subscript(value=items, slice=index)) if is_reverse(index):  # they are put in front
            limited = reverse(part(items, ast.Slice(None, constant(limit), None)))
        case ast.BinOp(right=items):
            limited = part(items, ast.Slice(None, constant(limit), None))
        case _:
            return None
    return limited if cannot_fail(items.args[0] if isinstance(items, ast.Call) else items, names.kinds) else None


def _adds(term: ast.expr, what: Callable[[ast.expr], bool]) -> bool:
    """Is it a sum of which one part is such?"""
    return isinstance(term, ast.BinOp) and isinstance(term.op, ast.Add) and (what(term.left) or what(term.right))


def _extreme(begin: ast.expr, update: ast.expr, hole: str, head: ast.comprehension, names: Names) -> ast.expr | None:
    """The largest or smallest, begun with the first: `begin` must be what the first item gives."""
    match update:
        case ast.IfExp(
            test=ast.BoolOp(
                op=ast.Or(),
                values=[
                    ast.Compare(left=ast.Name(id=kept), ops=[ast.Is()], comparators=[ast.Constant(value=None)]),
                    ast.Compare(left=item, ops=[ast.Gt() | ast.GtE() | ast.Lt() | ast.LtE() as op], comparators=[last]),
                ],
            ),
            body=best,
            orelse=ast.Name(id=other),
        ) if kept == other == hole and isinstance(begin, ast.Constant) and begin.value is None:
            above = isinstance(op, ast.Gt | ast.GtE) is not same(item, name(hole))
            if not same(best, last if same(item, name(hole)) else item):
                return None
            items = call("max" if above else "min", ast.GeneratorExp(best, [head]))
            items.keywords = [ast.keyword("default", begin)]
            return items
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=[ast.Name(id=kept), item]) if kept == hole:
            pass
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=[item, ast.Name(id=kept)]) if kept == hole:
            pass
        case _:
            return None
    items = simplify(ast.GeneratorExp(item, [head]), names)  # over the items where it is over indices
    if not isinstance(items, ast.GeneratorExp) or len(items.generators) > 1:
        return None
    item, head = items.elt, items.generators[0]
    if head.ifs or not isinstance(head.target, ast.Name):
        return None
    for whole in (head.iter, _tailed(head.iter)):
        if whole is not None:
            first = simplify(substitute(item, {head.target.id: part(whole, constant(0))}, names), names)
            if same(first, simplify(begin, names)):
                return call(which, ast.GeneratorExp(item, [generator(head.target, whole, [])]))
    return None


def _tailed(iterated: ast.expr) -> ast.expr | None:
    """`xs` of `xs[1:]`."""
    match iterated:
        case ast.Subscript(value=value, slice=ast.Slice(lower=ast.Constant(value=1), upper=None, step=None)):
            return value
        case _:
            return None


def searched(term: ast.expr, following: str, head: ast.comprehension) -> Found | None:
    """A loop's body that returns a value on a condition; neither may go on differently."""
    match term:
        case ast.IfExp(test=test, body=value, orelse=ast.Name(id=kept)) if kept == following:
            pass
        case ast.IfExp(test=inner, body=ast.Name(id=kept), orelse=value) if kept == following:
            test = negation(inner)
        case _:
            return None
    own = [node.id for node in ast.walk(head.target) if isinstance(node, ast.Name)]
    return None if mentions(value, following, *own) or mentions(test, following) else (test, value)
