"""Functions that call themselves on what is left of a list or text, as the fold that they are."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codezero.code.meaning.conditions import as_test
from codezero.code.meaning.folds import fold
from codezero.code.meaning.kinds import STR, element, is_list
from codezero.code.meaning.simplify import simplify
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    constant,
    each_part,
    generator,
    mentions,
    name,
    number,
    part,
    same,
    substitute,
    text_of,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Walk:
    """How a function that calls itself goes through a list or text: one of its arguments is what is left of it, or an
    index into it."""

    whole: ast.expr
    at: int
    """The argument's position."""
    first: ast.expr
    """The item that is looked at."""
    rest: ast.expr
    """The argument of the next call."""
    ends: ast.expr
    step: ast.expr
    backwards: bool = False


def recursion(term: ast.expr, own: str, given: Sequence[ast.Name], args: Sequence[ast.expr], names: Names) -> ast.expr:
    """`term`: what a function of `given` returns, in which `own` stands for itself; `args`: of the first call."""
    values = {each.id: arg for each, arg in zip(given, args, strict=True)}
    if not mentions(term, own):
        return substitute(term, values, names)
    for walk in _walks(term, given, args, names):
        whole = walk.whole if walk.whole not in given else args[walk.at]
        item = name(names.fresh(element(names.kind(whole))))
        own_part = part(walk.whole, ast.Slice(None, constant(1), None))  # of what is not empty
        single = item if names.kind(whole) == STR else ast.List([item], ast.Load())
        step = _replaced(walk.step, {text_of(walk.first): item, text_of(own_part): single})
        head = generator(item, whole, [])
        folded = _tail(walk, step, own, given, args, head, names) or _nested(walk, step, own, given, head, names)
        if folded is not None and not mentions(folded, own, given[walk.at].id):
            return simplify(substitute(folded, values, names), names)
    raise NotUnderstood("recursion")


def _walks(term: ast.expr, given: Sequence[ast.Name], args: Sequence[ast.expr], names: Names) -> Iterator[_Walk]:
    if not isinstance(term, ast.IfExp):
        return
    test, one, other = as_test(term.test), term.body, term.orelse
    for at, each in enumerate(given):
        kind = names.kind(each)
        if same(test, each) and (kind == STR or is_list(kind)):
            if same(other, each):
                other = ast.Constant("") if kind == STR else ast.List([], ast.Load())
            first, last = part(each, constant(0)), part(each, constant(-1))
            yield _Walk(each, at, first, part(each, ast.Slice(constant(1), None, None)), other, one)
            yield _Walk(each, at, last, part(each, ast.Slice(None, constant(-1), None)), other, one, backwards=True)
        if number(args[at]) != 0:
            continue
        match test:
            case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[whole]), ops=[ast.Gt()], comparators=[index]):
                ends, step = other, one
            case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[whole]), ops=[ast.Eq()], comparators=[index]):
                ends, step = one, other
            case ast.Compare(left=index, ops=[ast.Eq()], comparators=[ast.Call(func=ast.Name(id="len"), args=[whole])]):
                ends, step = one, other
            case _:
                continue
        if same(index, each):
            yield _Walk(whole, at, part(whole, each), ast.BinOp(each, ast.Add(), constant(1)), ends, step)


def _tail(
    walk: _Walk,
    step: ast.expr,
    own: str,
    given: Sequence[ast.Name],
    args: Sequence[ast.expr],
    head: ast.comprehension,
    names: Names,
) -> ast.expr | None:
    """Of a function that returns its own next call: what its other argument has become at the end."""
    updates = [_next(step, own, at, walk, given) for at in range(len(given))]
    changed = [at for at, each in enumerate(updates) if at != walk.at and (each is None or not same(each, given[at]))]
    if len(changed) != 1 or (update := updates[changed[0]]) is None or walk.backwards:
        return None
    hole = given[changed[0]].id
    done = fold(args[changed[0]], simplify(update, names), hole, head, names)
    return substitute(walk.ends, {hole: done}, names)


def _next(step: ast.expr, own: str, at: int, walk: _Walk, given: Sequence[ast.Name]) -> ast.expr | None:
    """The argument at `at` of the next call, wherever the step ends; None where it ends otherwise."""
    match step:
        case ast.IfExp(test=test, body=body, orelse=orelse) if not mentions(test, own):
            one, other = (_next(each, own, at, walk, given) for each in (body, orelse))
            return None if one is None or other is None else one if same(one, other) else ast.IfExp(test, one, other)
        case ast.Call(func=ast.Name(id=called), args=args) if called == own and len(args) == len(given):
            return args[at] if same(args[walk.at], walk.rest) and not mentions(step, own) > 1 else None
        case _:
            return None


def _nested(
    walk: _Walk, step: ast.expr, own: str, given: Sequence[ast.Name], head: ast.comprehension, names: Names
) -> ast.expr | None:
    """Of a function that makes something of its own next call."""
    rest = name(names.fresh(names.kind(walk.ends)))
    args = [walk.rest if at == walk.at else each for at, each in enumerate(given)]
    again = ast.Call(name(own), args, [])
    update = simplify(_replaced(step, {text_of(again): rest}), names)
    if mentions(update, own) or mentions(walk.ends, own, given[walk.at].id):
        return None
    return fold(walk.ends, update, rest.id, head, names, from_right=not walk.backwards)


def _replaced(term: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    value = values.get(text_of(term))
    return value or each_part(term, lambda inner: _replaced(inner, values))
