"""Statements in a plainer form: loops that change a list where it is, count what they append, or stop once it is long
enough; cuts of lists; cases as branches."""

import ast
import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from codezero.code.meaning.expressions import Values
from codezero.code.meaning.kinds import INT, STR, element, is_list
from codezero.code.meaning.statements import as_for, assigned, jumps
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    call,
    constant,
    mentions,
    name,
    negation,
    number,
    part,
    same,
)

_OLD = "@old"
"""The list before a loop that changes its items."""


def plain_loop(statement: ast.For, values: Values, names: Names) -> ast.For:
    """The same loop, in the form that `folds.py` knows, or as it is."""
    statement = _removing(_stops_when_full(statement), values, names)
    return _item_by_item(_without_counter(statement, values), values, names)


def _joined_branches(statement: ast.stmt) -> ast.stmt:
    """`if p: xs[i] = a else: xs[i] = b` as one assignment; without `else` the item may stay as it is."""
    match statement:
        case ast.If(test=test, body=[one], orelse=others):
            first, second = _joined_branches(one), [_joined_branches(each) for each in others]
        case _:
            return statement
    match first, second:
        case ast.Assign(targets=[ast.Subscript() as place], value=a), [ast.Assign(targets=[other], value=b)]:
            same_place = ast.dump(place) == ast.dump(other)
        case ast.Assign(targets=[ast.Subscript() as place], value=a), []:
            same_place, b = True, part(place.value, place.slice)
        case _:
            return statement
    return ast.Assign([place], ast.IfExp(test, a, b)) if same_place else statement


def _item_by_item(statement: ast.For, values: Values, names: Names) -> ast.For:
    """A loop over all indices of a list that sets each item by what it was: over the items, into a new list."""
    match statement:
        case ast.For(target=ast.Name(id=index), iter=ast.Call(func=ast.Name(id="range"), args=[length])):
            item = "@item"
            match length:
                case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=bound)]):
                    pass
                case _:
                    return statement
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=index), ast.Name(id=item)]),
            iter=ast.Call(func=ast.Name(id="enumerate"), args=[ast.Name(id=bound)]),
        ):
            pass
        case _:
            return statement
    if bound not in values or not is_list(names.kind(values[bound])) or statement.orelse:
        return statement
    *before, last = statement.body
    match _joined_branches(last):
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=changed), slice=ast.Name(id=at))], value=value):
            pass
        case _:
            return statement
    items = _Items(bound, index, item)
    steps, made = [items.visit(copy.deepcopy(each)) for each in before], items.visit(copy.deepcopy(value))
    apart = not any(mentions(each, bound) for each in (*steps, made)) and not assigned(steps) & {index, item}
    if changed != bound or at != index or not apart or any(map(jumps, steps)):
        return statement
    values[_OLD], values[bound] = values[bound], ast.List([], ast.Load())
    added = ast.Expr(ast.Call(ast.Attribute(name(bound), "append", ast.Load()), [made], []))
    pair = ast.Tuple([ast.Name(index, ast.Store()), ast.Name(item, ast.Store())], ast.Store())
    return ast.For(pair, call("enumerate", name(_OLD)), [*steps, added], [])


class _Items(ast.NodeTransformer):
    """Puts the item in the place of `xs[i]`, where it is read."""

    def __init__(self, bound: str, index: str, item: str) -> None:
        self.bound, self.index, self.item = bound, index, item

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(value=ast.Name(id=whole), slice=ast.Name(id=at), ctx=ast.Load()) if (
                whole == self.bound and at == self.index
            ):
                return name(self.item)
            case _:
                return cast(ast.expr, self.generic_visit(node))


def _removing(statement: ast.For, values: Values, names: Names) -> ast.For:
    """`for x in xs: if p: out.remove(x)` of a copy of `xs`: appends the others to an empty list. Equal items go or stay
    together, as `p` is of the item alone."""
    match statement:
        case ast.For(
            target=ast.Name(id=item),
            iter=ast.Name(id=whole) as iterated,
            body=[
                ast.If(
                    test=test,
                    body=[
                        ast.Expr(
                            value=ast.Call(
                                func=ast.Attribute(value=ast.Name(id=bound), attr="remove"), args=[ast.Name(id=gone)]
                            )
                        )
                    ],
                    orelse=[],
                )
            ],
            orelse=[],
        ) if bound in values and gone == item and not mentions(test, bound, whole):
            listed = values.get(whole, iterated)
        case _:
            return statement
    if bound == whole or not same(values[bound], listed) or element(names.kind(listed)) not in (INT, STR):
        return statement
    values[bound] = ast.List([], ast.Load())
    kept = ast.Expr(ast.Call(ast.Attribute(name(bound), "append", ast.Load()), [name(item)], []))
    return ast.For(statement.target, iterated, [ast.If(negation(test), [kept], [])], [])


def _stops_when_full(statement: ast.For) -> ast.For:
    """`out.append(x)` and `if len(out) == 3: break` behind it: as a break before the next item."""
    if sum(isinstance(node, ast.Break) for node in ast.walk(statement)) != 1 or statement.orelse:
        return statement
    found = _without_last_break(statement.body)
    if found is None:
        return statement
    test, body = found
    return ast.For(statement.target, statement.iter, [ast.If(test, [ast.Break()], []), *body], [])


def _without_last_break(body: Sequence[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]] | None:
    """The test of the break, and the block without it."""
    match body:
        case [
            *before,
            ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=bound), attr="append"))) as added,
            ast.If(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=asked)]),
                    ops=[ast.Eq() | ast.GtE()],
                    comparators=[most],
                ) as test,
                body=[ast.Break()],
                orelse=[],
            ),
        ] if bound == asked and (number(most) or 0) > 0 and not any(mentions(each, bound) for each in before):
            return test, [*before, added]
        case [*before, ast.If(test=outer, body=inner, orelse=[])]:
            found = _without_last_break(inner)
            if found is None or any(mentions(each, *_names(found[0])) for each in (*before, outer)):
                return None
            return found[0], [*before, ast.If(outer, found[1], [])]
        case _:
            return None


def _names(term: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(term) if isinstance(node, ast.Name)]


def _without_counter(statement: ast.For, values: Values) -> ast.For:
    """Of a number that grows by one with each `append` to a list, from nothing on: the list's length."""
    block = _counting_block(statement.body)
    if block is None:
        return statement
    counter, bound = block
    begun = values.get(bound)
    begins = number(values.get(counter)) == 0 and isinstance(begun, ast.List) and not begun.elts
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    changed = [node.id for node in nodes if isinstance(node.ctx, ast.Store)].count(counter)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Attribute)]
    appends = sum(isinstance(node.value, ast.Name) and node.value.id == bound for node in calls)
    if not begins or changed != 1 or appends != 1:
        return statement
    del values[counter]
    body = [_Counted(counter, bound).visit(copy.deepcopy(each)) for each in statement.body]
    return ast.For(statement.target, statement.iter, body, statement.orelse)


def _counting_block(body: Sequence[ast.stmt]) -> tuple[str, str] | None:
    """(counter, list) of `out.append(x)` and `n += 1` beside each other."""
    for one, other in pairwise(body):
        for added, step in ((one, other), (other, one)):
            match added, step:
                case (
                    ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=bound), attr="append"), args=[value])),
                    ast.AugAssign(target=ast.Name(id=counter), op=ast.Add(), value=ast.Constant(value=1)),
                ) if not mentions(value, counter):
                    return counter, bound
                case _:
                    pass
    for each in body:
        if isinstance(each, ast.If) and (found := _counting_block(each.body) or _counting_block(each.orelse)):
            return found
    return None


class _Counted(ast.NodeTransformer):
    """Puts a list's length in the place of its counter."""

    def __init__(self, counter: str, bound: str) -> None:
        self.counter, self.bound = counter, bound

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | None:
        counts = isinstance(node.target, ast.Name) and node.target.id == self.counter
        return None if counts else self.generic_visit(node)  # pyright: ignore[reportReturnType]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return call("len", name(self.bound)) if node.id == self.counter else node


def cut(statement: ast.Delete) -> ast.Assign | None:
    """`del xs[2:]` as `xs = xs[:2]`."""
    match statement.targets:
        case [
            ast.Subscript(value=ast.Name(id=bound), slice=ast.Slice(lower=ast.expr() as lower, upper=None, step=None))
        ]:
            kept = ast.Slice(None, lower, None)
        case [
            ast.Subscript(value=ast.Name(id=bound), slice=ast.Slice(lower=None, upper=ast.expr() as upper, step=None))
        ]:
            kept = ast.Slice(upper, None, None)
        case _:
            return None
    limit = kept.lower or kept.upper
    return ast.Assign([ast.Name(bound, ast.Store())], part(name(bound), kept)) if number(limit) is not None else None


def shortened(statement: ast.While, values: Values, names: Names) -> ast.Assign | None:
    """`while len(out) > 2: out.pop()` as a slice."""
    match statement:
        case ast.While(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=bound)]), ops=[ast.Gt()], comparators=[most]
            ),
            body=[ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=popped), attr="pop"), args=args))],
            orelse=[],
        ) if (
            bound == popped
            and (limit := number(most) or 0) > 0
            and [number(each) for each in args] in ([], [0])
            and bound in values
            and is_list(names.kind(values[bound]))
        ):
            kept = ast.Slice(constant(-limit), None, None) if args else ast.Slice(None, constant(limit), None)
            return ast.Assign([ast.Name(bound, ast.Store())], part(name(bound), kept))
        case _:
            return None


def as_if(statement: ast.Match) -> ast.If:
    """Of cases that are constants or anything."""
    if not statement.cases:
        raise NotUnderstood("match")
    first, *rest = statement.cases
    others: list[ast.stmt] = [as_if(ast.Match(statement.subject, rest))] if rest else []
    match first:
        case ast.match_case(pattern=ast.MatchValue(value=value), guard=None):
            return ast.If(ast.Compare(statement.subject, [ast.Eq()], [value]), first.body, others)
        case ast.match_case(pattern=ast.MatchSingleton(value=value), guard=None):
            return ast.If(ast.Compare(statement.subject, [ast.Is()], [ast.Constant(value)]), first.body, others)
        case ast.match_case(pattern=ast.MatchAs(pattern=None, name=None), guard=guard):
            return ast.If(guard or ast.Constant(True), first.body, others)
        case _:
            raise NotUnderstood("match")


def plainer(statement: ast.stmt, values: Values, names: Names) -> list[ast.stmt] | None:
    """In other statements; None where it is plain."""
    match statement:
        case ast.Match():
            return [as_if(statement)]
        case ast.While():
            return [shortened(statement, values, names) or as_for(statement, values, names)]
        case ast.For(orelse=[_, *_]) if not any(isinstance(each, ast.Break) for each in ast.walk(statement)):
            return [ast.For(statement.target, statement.iter, statement.body, []), *statement.orelse]
        case ast.Delete() if (kept := cut(statement)) is not None:
            return [kept]
        case _:
            return None
