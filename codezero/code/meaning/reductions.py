"""Rules for what becomes of many items: sums, extremes, counts and sorting."""

import ast

from codezero.code.meaning.conditions import Rules, are_opposite
from codezero.code.meaning.indices import is_sequence
from codezero.code.meaning.iteration import applied, plain_items
from codezero.code.meaning.kinds import BOOL, ORDERED, WHOLE, cannot_fail, element, is_list
from codezero.code.meaning.terms import (
    Names,
    call,
    compare,
    constant,
    generator,
    is_reverse,
    listed,
    name,
    negation,
    number,
    same,
    substitute,
)  # fmt: skip

_OVER_ITEMS = ("sum", "max", "min", "any", "all", "sorted", "set", "tuple", "list")


_UNORDERED = ("sum", "max", "min", "any", "all", "sorted", "len", "set")


def _reduced(term: ast.Call, names: Names) -> ast.expr | None:
    """A reduction's argument: a generator, of items in any order where the order does not matter."""
    match term:
        case ast.Call(func=ast.Name(id=which), args=[inner], keywords=keywords) if (
            which in _UNORDERED or which in _OVER_ITEMS
        ):
            pass
        case _:
            return None
    plain = plain_items(inner)
    if which == "len" and not is_sequence(plain, names):
        return None  # what has no length until it is a list
    if which in _UNORDERED and not keywords:
        plain = _unordered(plain, which, names)
    brackets = which == "len" or bool(keywords)
    if isinstance(plain, ast.ListComp) and which in ("any", "all") and not cannot_fail(plain, names.kinds):
        return None  # of a list all is evaluated
    if isinstance(plain, ast.ListComp) and not brackets:
        plain = ast.GeneratorExp(plain.elt, plain.generators)
    elif isinstance(plain, ast.GeneratorExp) and brackets:
        plain = listed(plain.elt, plain.generators)
    if isinstance(plain, ast.GeneratorExp) and which != "list":
        head = plain.generators[0]
        sole = len(plain.generators) == 1 and not head.ifs and same(plain.elt, head.target)
        if sole and is_sequence(head.iter, names):
            plain = head.iter
    return None if plain is inner or same(plain, inner) else ast.Call(term.func, [plain], keywords)


def _unordered(term: ast.expr, which: str, names: Names) -> ast.expr:
    match term:
        case ast.BinOp(left=one, op=ast.Add(), right=other) if _ordered_by_value(which, term, names):
            return (None if which == "len" else _halves(one, other, names)) or term
        case ast.Subscript(value=inner, slice=index) if is_reverse(index) and _ordered_by_value(which, inner, names):
            return _unordered(plain_items(inner), which, names)
        case ast.Call(func=ast.Name(id="sorted"), args=[inner], keywords=[]) if _ordered_by_value(which, inner, names):
            return _unordered(plain_items(inner), which, names)
        case ast.ListComp(elt=elt, generators=[head]) | ast.GeneratorExp(elt=elt, generators=[head]):
            plain = (
                _unordered(plain_items(head.iter), which, names) if which in ("sum", "max", "min", "len") else head.iter
            )
            if plain is head.iter:
                return term
            return type(term)(elt, [generator(head.target, plain, head.ifs)])
        case _:
            return term


def _ordered_by_value(which: str, items: ast.expr, names: Names) -> bool:
    """Equal items cannot be told apart, so that their order does not show."""
    return element(names.kind(items)) in ORDERED


def _counted(term: ast.Call, names: Names) -> ast.expr | None:
    """`sum(1 for x in xs if p)` and `sum(p for x in xs)` as `len([x for x in xs if p])`; a choice of 0 as a filter."""
    match term:
        case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=elt, generators=[head])], keywords=[]):
            pass
        case _:
            return _length(term, names)
    item = head.target
    if (
        isinstance(elt, ast.UnaryOp)
        and isinstance(elt.op, ast.USub)
        and names.kind(elt) in WHOLE
        and number(elt) is None
    ):
        return ast.UnaryOp(ast.USub(), call("sum", ast.GeneratorExp(elt.operand, [head])))
    match elt:
        case ast.Call(func=ast.Name(id="int"), args=[inner]) if names.kind(inner) == BOOL:
            elt = inner
        case _:
            pass
    if names.kind(elt) == BOOL:
        return call("len", listed(item, [generator(item, head.iter, [*head.ifs, elt])])) if _is_name(item) else None
    if number(elt) == 1 and _is_name(item):
        return call("len", listed(item, [head]))
    match elt:
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=[zero, value]) if number(zero) == 0:
            test = compare(value, ast.Gt() if which == "max" else ast.Lt(), constant(0))
            return call("sum", ast.GeneratorExp(value, [generator(item, head.iter, [*head.ifs, test])]))
        case ast.IfExp(test=test, body=body, orelse=orelse) if number(orelse) == 0:
            return call("sum", ast.GeneratorExp(body, [generator(item, head.iter, [*head.ifs, test])]))
        case ast.IfExp(test=test, body=body, orelse=orelse) if number(body) == 0:
            return call("sum", ast.GeneratorExp(orelse, [generator(item, head.iter, [*head.ifs, negation(test)])]))
        case _:
            return None


def _is_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name)


def _length(term: ast.Call, names: Names) -> ast.expr | None:
    match term:
        case ast.Call(func=ast.Attribute(value=inner, attr="__len__"), args=[]):
            return call("len", inner)
        case ast.Call(func=ast.Name(id="len"), args=[ast.ListComp(elt=elt, generators=[head])]) if _is_name(
            head.target
        ):
            if not same(elt, head.target) and cannot_fail(elt, names.kinds):
                return call("len", listed(head.target, [head]))
            return None
        case _:
            return None


def _sorted(term: ast.Call, names: Names) -> ast.expr | None:
    """Of numbers and texts: the key `-x` is `reverse=True`; keys and flags that change nothing go."""
    match term:
        case ast.Call(func=ast.Name(id="sorted"), args=[inner], keywords=[_, *_] as keywords):
            pass
        case _:
            return None
    if element(names.kind(inner)) not in ORDERED:
        return None
    options = {each.arg: each.value for each in keywords}
    backwards = options.get("reverse")
    if backwards is not None and not isinstance(backwards, ast.Constant):
        return None
    down = bool(isinstance(backwards, ast.Constant) and backwards.value)
    if "key" in options:
        item = names.fresh(element(names.kind(inner)))
        key = applied(options["key"], name(item), names)
        match key:
            case ast.Name(id=kept) if kept == item:
                pass
            case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=kept)) if kept == item and names.kinds[item] in WHOLE:
                down = not down
            case _:
                return None
    elif down:
        return None
    return ast.Call(term.func, [inner], [ast.keyword("reverse", ast.Constant(True))] if down else [])


def _folded(term: ast.Call, names: Names) -> ast.expr | None:
    """`sum(xs, 0)` is `sum(xs)`; a sum of lists that begins with `[]` is one comprehension."""
    match term:
        case ast.Call(func=ast.Name(id="sum"), args=[inner, begin], keywords=[]) if number(begin) == 0:
            return call("sum", inner)
        case ast.Call(
            func=ast.Name(id="sum"), args=[ast.GeneratorExp() | ast.ListComp() as inner, ast.List(elts=[])]
        ) if is_list(names.kind(inner.elt)):
            item = names.fresh(element(names.kind(inner.elt)))
            return listed(name(item), [*inner.generators, generator(name(item), inner.elt, [])])
        case _:
            return None


def _united(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`sum(a for x in xs if p) + sum(b for x in xs if not p)` is a sum of choices."""
    match term:
        case ast.BinOp(
            left=ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp() as one]),
            op=ast.Add(),
            right=ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp() as other]),
        ):
            both = _halves(one, other, names)
            return None if both is None else call("sum", both)
        case _:
            return None


def _halves(one: ast.expr, other: ast.expr, names: Names) -> ast.GeneratorExp | None:
    """Two comprehensions over the same items, of which the second takes those that the first leaves."""
    match one, other:
        case (
            (
                ast.GeneratorExp(elt=a, generators=[ast.comprehension(target=ast.Name(id=x), iter=whole, ifs=[p])])
                | ast.ListComp(elt=a, generators=[ast.comprehension(target=ast.Name(id=x), iter=whole, ifs=[p])])
            ),
            (
                ast.GeneratorExp(elt=b, generators=[ast.comprehension(target=ast.Name(id=y), iter=again, ifs=[q])])
                | ast.ListComp(elt=b, generators=[ast.comprehension(target=ast.Name(id=y), iter=again, ifs=[q])])
            ),
        ) if same(whole, again):
            b, q = (substitute(each, {y: name(x)}, names) for each in (b, q))
            if are_opposite(p, q, names):
                return ast.GeneratorExp(ast.IfExp(p, a, b), [generator(name(x), whole, [])])
        case _:
            pass
    return None


def _negated(term: ast.UnaryOp, names: Names) -> ast.expr | None:
    """`-min(-x for x in xs)` is `max(xs)`."""
    match term:
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.Call(
                func=ast.Name(id="max" | "min" as which),
                args=[ast.GeneratorExp(elt=ast.UnaryOp(op=ast.USub(), operand=elt), generators=heads)],
                keywords=[],
            ),
        ) if names.kind(elt) in WHOLE:
            return call("min" if which == "max" else "max", ast.GeneratorExp(elt, heads))
        case _:
            return None


def _marked(term: ast.Call, names: Names) -> ast.expr | None:
    """`[p for x in xs].count(True)` is `len([x for x in xs if p])`."""
    match term:
        case ast.Call(
            func=ast.Attribute(value=ast.ListComp(elt=elt, generators=[head]), attr="count"),
            args=[ast.Constant(value=True)],
        ) if names.kind(elt) == BOOL and _is_name(head.target):
            return call("len", listed(head.target, [generator(head.target, head.iter, [*head.ifs, elt])]))
        case ast.Call(func=ast.Attribute(value=inner, attr="copy"), args=[]) if is_list(names.kind(inner)):
            return inner
        case _:
            return None


RULES: Rules = {
    ast.Call: (_folded, _counted, _reduced, _sorted, _marked),
    ast.UnaryOp: (_negated,),
    ast.BinOp: (_united,),
}
