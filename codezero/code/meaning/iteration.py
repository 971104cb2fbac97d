"""Rules for what is made item by item: maps, filters, comprehensions and lists."""

import ast
from functools import partial

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.indices import by_index, is_sequence
from codezero.code.meaning.kinds import BOOL, STR, cannot_fail, element, is_list
from codezero.code.meaning.safety import sure_failures
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    alpha,
    call,
    constant,
    generator,
    is_reverse,
    listed,
    name,
    negation,
    number,
    parameters,
    part,
    reverse,
    same,
    substitute,
    target_names,
)  # fmt: skip


def applied(function: ast.expr, item: ast.expr, names: Names) -> ast.expr:
    if isinstance(function, ast.Lambda):
        own = parameters(function)
        if len(own) != 1:
            raise NotUnderstood("arguments")
        return substitute(function.body, {own[0]: item}, names)
    if isinstance(function, ast.Constant):
        raise NotUnderstood("no function")
    if isinstance(function, ast.Name) and function.id.startswith("str."):
        return call(ast.Attribute(item, function.id[4:], ast.Load()))
    return call(function, item)


def _functional(term: ast.Call, names: Names) -> ast.expr | None:
    """`map`, `filter` and their like as generators."""
    match term:
        case ast.Call(func=ast.Name(id="map"), args=[function, iterated], keywords=[]):
            item = names.fresh(element(names.kind(iterated)))
            return ast.GeneratorExp(applied(function, name(item), names), [generator(name(item), iterated, [])])
        case ast.Call(func=ast.Name(id="filter" | "itertools.filterfalse" as which), args=[function, iterated]):
            item = names.fresh(element(names.kind(iterated)))
            plain = isinstance(function, ast.Constant) and function.value is None
            test: ast.expr = name(item) if plain else applied(function, name(item), names)
            test = test if which == "filter" else negation(test)
            return ast.GeneratorExp(name(item), [generator(name(item), iterated, [test])])
        case ast.Call(func=ast.Name(id="reversed"), args=[iterated]) if is_sequence(iterated, names):
            return call("iter", reverse(iterated))
        case ast.Call(
            func=ast.Name(id="itertools.compress"), args=[iterated, ast.ListComp() | ast.GeneratorExp() as signs]
        ):
            return _compressed(iterated, signs)
        case (
            ast.Call(func=ast.Name(id="itertools.chain.from_iterable"), args=[iterated])
            | ast.Call(func=ast.Name(id="itertools.chain"), args=[ast.Starred(value=iterated)])
        ):
            inner = names.fresh(element(names.kind(iterated)))
            item = names.fresh(element(names.kinds[inner]))
            heads = [generator(name(inner), iterated, []), generator(name(item), name(inner), [])]
            return ast.GeneratorExp(name(item), heads)
        case ast.Call(func=ast.Name(id="itertools.islice"), args=[iterated, stop]) if (number(stop) or -1) > 0:
            if isinstance(iterated, ast.GeneratorExp) and cannot_fail(iterated, names.kinds):
                iterated = listed(iterated.elt, iterated.generators)
            return call("iter", part(iterated, ast.Slice(None, stop, None))) if is_sequence(iterated, names) else None
        case ast.Call(func=ast.Name(id=str(function)), args=[first, *args]) if function.startswith("str."):
            method = ast.Call(ast.Attribute(first, function[4:], ast.Load()), args, term.keywords)
            return method if names.kind(first) == STR else None
        case _:
            return None


def _compressed(iterated: ast.expr, signs: ast.ListComp | ast.GeneratorExp) -> ast.expr | None:
    match signs.generators:
        case [ast.comprehension(target=ast.Name() as item, iter=whole, ifs=[])] if same(whole, iterated):
            return ast.GeneratorExp(item, [generator(item, whole, [signs.elt])])
        case _:
            return None


def plain_items(iterated: ast.expr) -> ast.expr:
    """What yields the same items."""
    match iterated:
        case ast.Call(func=ast.Name(id="iter" | "list" | "tuple"), args=[inner], keywords=[]):
            return plain_items(inner)
        case ast.Tuple(elts=parts) if not any(isinstance(each, ast.Starred) for each in parts):
            return ast.List(parts, ast.Load())
        case _:
            return iterated


def _collected(term: ast.Call, names: Names) -> ast.expr | None:
    """`list(..)` of what is a list already or is made item by item."""
    match term:
        case ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            return ast.List([], ast.Load())
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            plain = plain_items(inner)
            if isinstance(plain, ast.GeneratorExp):
                return listed(plain.elt, plain.generators)
            if is_list(names.kind(plain)) and is_sequence(plain, names):
                return plain
            return None if plain is inner else call("list", plain)
        case _:
            return None


def _starred(term: ast.List, names: Names) -> ast.expr | None:
    """`[*xs]`, and `[*xs, 1]` as a sum."""
    if not any(isinstance(each, ast.Starred) for each in term.elts):
        return None
    parts = [
        call("list", each.value) if isinstance(each, ast.Starred) else ast.List([each], ast.Load())
        for each in term.elts
    ]
    total = parts[0]
    for each in parts[1:]:
        total = ast.BinOp(total, ast.Add(), each)
    return total


def _concatenated(term: ast.BinOp, names: Names) -> ast.expr | None:
    if not isinstance(term.op, ast.Add) or not is_list(names.kind(term.left)) or not is_list(names.kind(term.right)):
        return None
    match term.left, term.right:
        case ast.List(elts=[]), other:
            return other
        case other, ast.List(elts=[]):
            return other
        case ast.List(elts=first), ast.List(elts=second):
            return ast.List([*first, *second], ast.Load())
        case _:
            return None


def _comprehension(term: ast.ListComp | ast.GeneratorExp, names: Names) -> ast.expr | None:
    """One over another is one; over indices, over items; backwards, reversed."""
    head = term.generators[0]
    if isinstance(head.iter, ast.List) and not head.iter.elts and isinstance(term, ast.ListComp):
        return ast.List([], ast.Load())
    plain = plain_items(head.iter)
    if plain is not head.iter:
        return type(term)(term.elt, [generator(head.target, plain, head.ifs), *term.generators[1:]])
    if isinstance(plain, ast.ListComp | ast.GeneratorExp) and isinstance(head.target, ast.Name):
        return _fused(term, plain, head.target.id, names)
    if (plainer := by_index(term, names) or _of_one(term, names) or _zipped(term, names)) is not None:
        return plainer
    if len(term.generators) > 1 or not isinstance(head.target, ast.Name):
        return None
    if isinstance(term, ast.ListComp):
        if not head.ifs and same(term.elt, head.target) and is_list(names.kind(plain)) and is_sequence(plain, names):
            return plain
        match plain:
            case ast.Subscript(value=inner, slice=index) if is_reverse(index) and is_sequence(inner, names):
                return reverse(listed(term.elt, [generator(head.target, inner, head.ifs)]))
            case ast.Call(func=ast.Name(id="sorted"), args=[inner]) if same(term.elt, head.target) and head.ifs:
                kept = listed(term.elt, [generator(head.target, inner, head.ifs)])
                return ast.Call(name("sorted"), [kept], plain.keywords)
            case _:
                pass
    return None


def _fused(
    term: ast.ListComp | ast.GeneratorExp, inner: ast.ListComp | ast.GeneratorExp, item: str, names: Names
) -> ast.expr | None:
    head, last = term.generators[0], inner.generators[-1]
    lazy = isinstance(term, ast.GeneratorExp) and isinstance(inner, ast.ListComp)
    asked = head.ifs[0] if head.ifs else term.generators[1].iter if term.generators[1:] else term.elt
    first = substitute(asked, {item: inner.elt}, names)
    sure = not lazy and alpha(inner.elt) in sure_failures(first)
    if not sure and not cannot_fail(inner.elt, names.kinds):
        return None  # it would be evaluated less often
    ifs = [substitute(each, {item: inner.elt}, names) for each in head.ifs]
    ends = generator(last.target, last.iter, [*last.ifs, *ifs])
    rest = [
        generator(
            each.target,
            substitute(each.iter, {item: inner.elt}, names),
            [substitute(one, {item: inner.elt}, names) for one in each.ifs],
        )
        for each in term.generators[1:]
    ]
    return type(term)(substitute(term.elt, {item: inner.elt}, names), [*inner.generators[:-1], ends, *rest])


def _of_one(term: ast.ListComp | ast.GeneratorExp, names: Names) -> ast.expr | None:
    """`for y in [e]` names `e`; `for y in ([e] if p else [])` does so where `p`."""
    for at, head in enumerate(term.generators):
        found = _one(head.iter, names) if at and isinstance(head.target, ast.Name) else None
        if found is None or not cannot_fail(found[0], names.kinds):
            continue
        values, before = {target_names(head.target)[0]: found[0]}, term.generators[at - 1]
        filled = partial(substitute, values=values, names=names)
        ifs = [*found[1], *map(filled, head.ifs)]
        later = [
            generator(
                each.target, substitute(each.iter, values, names), [substitute(x, values, names) for x in each.ifs]
            )
            for each in term.generators[at + 1 :]
        ]
        earlier = generator(before.target, before.iter, [*before.ifs, *ifs])
        return type(term)(filled(term.elt), [*term.generators[: at - 1], earlier, *later])
    return None


def _zipped(term: ast.ListComp | ast.GeneratorExp, names: Names) -> ast.expr | None:
    """Over items and what is made of each of them, `zip(xs, [p for x in xs])`: over the items."""
    head = term.generators[0]
    match head.target, head.iter:
        case (
            ast.Tuple(elts=[ast.Name(id=one), ast.Name(id=other)]),
            ast.Call(func=ast.Name(id="zip"), args=[first, second]),
        ):
            pass
        case _:
            return None
    for item, made, whole, other_items in ((one, other, first, second), (other, one, second, first)):
        items = plain_items(other_items)
        if not isinstance(items, ast.ListComp | ast.GeneratorExp):
            continue
        match items.elt, items.generators:
            case elt, [ast.comprehension(target=ast.Name(id=bound), iter=again, ifs=[])] if same(
                again, whole
            ) and cannot_fail(elt, names.kinds):
                values = {made: substitute(elt, {bound: name(item)}, names)}
                names.kinds[item] = element(names.kind(whole))
                filled = partial(substitute, values=values, names=names)
                heads = [generator(name(item), whole, list(map(filled, head.ifs))), *term.generators[1:]]
                return type(term)(filled(term.elt), heads)
            case _:
                pass
    return None


def _one(iterated: ast.expr, names: Names) -> tuple[ast.expr, list[ast.expr]] | None:
    """The one item, and the conditions on which there is one."""
    match plain_items(iterated):
        case ast.List(elts=[only]) if not isinstance(only, ast.Starred):
            return only, []
        case ast.Call(func=ast.Name(id="range"), args=[times]) if (times_kind := _as_bool(times, names)) is not None:
            return constant(0), [times_kind]
        case ast.IfExp(test=test, body=ast.List(elts=[only]), orelse=ast.List(elts=[])):
            return only, [test]
        case ast.IfExp(test=test, body=ast.List(elts=[]), orelse=ast.List(elts=[only])):
            return only, [negation(test)]
        case _:
            return None


def _as_bool(term: ast.expr, names: Names) -> ast.expr | None:
    """The condition that a term of True or False, perhaps as a number, is."""
    match term:
        case ast.Call(func=ast.Name(id="int"), args=[inner]) if names.kind(inner) == BOOL:
            return inner
        case _:
            return term if names.kind(term) == BOOL else None


RULES: Rules = {
    ast.Call: (_functional, _collected),
    ast.List: (_starred,),
    ast.BinOp: (_concatenated,),
    ast.ListComp: (_comprehension,),
    ast.GeneratorExp: (_comprehension,),
}
