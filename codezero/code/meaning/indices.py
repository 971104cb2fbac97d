"""Rules for comprehensions that go by an index: over items where that says the same."""

import ast

from codezero.code.meaning.kinds import INT, STR, element, is_list
from codezero.code.meaning.terms import (
    Names,
    call,
    constant,
    each_part,
    generator,
    mentions,
    name,
    number,
    part,
    reverse,
    same,
)  # fmt: skip


def is_sequence(term: ast.expr, names: Names) -> bool:
    kind = names.kind(term)
    return (kind == STR or is_list(kind)) and not isinstance(term, ast.GeneratorExp) and not _is_range(term)


def _is_range(term: ast.expr) -> bool:
    return isinstance(term, ast.Call) and isinstance(term.func, ast.Name) and term.func.id in ("range", "iter")


def by_index(term: ast.ListComp | ast.GeneratorExp, names: Names) -> ast.expr | None:
    """Over `range(len(xs))` with `xs[i]` alone, over `range(.., -1, -1)`, and over `enumerate` without the index."""
    head = term.generators[0]
    match head.target, head.iter:
        case ast.Name(id=index), ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
            if len(term.generators) > 1:
                return None
            found = _whole_range(args)
            if found is None:
                return _some_indices(term, index, args, names)
            whole, backwards = _of_length(term, index, found[0]), found[1]
            item = names.fresh(element(names.kind(whole)))
            elt, *ifs = [_items(each, index, whole, name(item)) for each in (term.elt, *head.ifs)]
            if not backwards and mentions(elt, index):
                elt, *ifs = [_from_end(each, index, whole, name(item)) for each in (term.elt, *head.ifs)]
                backwards = True
            if mentions(elt, index) or any(mentions(each, index) for each in ifs) or not is_sequence(whole, names):
                return None
            return type(term)(elt, [generator(name(item), reverse(whole) if backwards else whole, ifs)])
        case ast.Name(), ast.Call(func=ast.Name(id="reversed"), args=[ast.Call(func=ast.Name(id="range")) as indices]):
            forward = by_index(type(term)(term.elt, [generator(head.target, indices, head.ifs)]), names)
            match forward:
                case ast.ListComp(generators=[only]) | ast.GeneratorExp(generators=[only]):
                    return type(term)(forward.elt, [generator(only.target, reverse(only.iter), only.ifs)])
                case _:
                    return None
        case ast.Tuple(elts=[ast.Name(id=index), ast.Name(id=item)]), ast.Call(
            func=ast.Name(id="enumerate"), args=[whole]
        ):
            return _enumerated(term, index, item, whole, names)
        case _:
            return None


def _some_indices(
    term: ast.ListComp | ast.GeneratorExp, index: str, args: list[ast.expr], names: Names
) -> ast.expr | None:
    """Over `range(min(2, len(xs)))` and `range(2, len(xs))`: a slice."""
    match args:
        case [ast.Call(func=ast.Name(id="min"), args=[one, other])]:
            length, bound = (one, other) if number(other) is not None else (other, one)
            limits = (None, bound)
        case [bound, length]:
            limits = (bound, None)
        case _:
            return None
    match length:
        case ast.Call(func=ast.Name(id="len"), args=[whole]) if (number(bound) or 0) > 0 and is_sequence(whole, names):
            whole = _of_length(term, index, whole)
            items = part(whole, ast.Slice(limits[0], limits[1], None))
        case _:
            return None
    item = names.fresh(element(names.kind(whole)))
    head = term.generators[0]
    elt, *ifs = [_items(each, index, whole, name(item)) for each in (term.elt, *head.ifs)]
    left = mentions(elt, index) or any(mentions(each, index) for each in ifs)
    return None if left else type(term)(elt, [generator(name(item), items, ifs)])


def _whole_range(args: list[ast.expr]) -> tuple[ast.expr, bool] | None:
    """The sequence whose indices these are, and whether they run backwards."""
    match args:
        case [ast.Call(func=ast.Name(id="len"), args=[whole])]:
            return whole, False
        case [begin, ast.Call(func=ast.Name(id="len"), args=[whole])] if number(begin) == 0:
            return whole, False
        case [begin, ast.Call(func=ast.Name(id="len"), args=[whole]), step] if number(begin) == 0 and number(step) == 1:
            return whole, False
        case [
            ast.BinOp(left=ast.Call(func=ast.Name(id="len"), args=[whole]), op=ast.Sub(), right=ast.Constant(value=1)),
            end, step,
        ] if number(end) == number(step) == -1:  # fmt: skip
            return whole, True
        case _:
            return None


def _of_length(term: ast.ListComp | ast.GeneratorExp, index: str, counted: ast.expr) -> ast.expr:
    """The list whose items are taken, where `counted`, which is as long, has others."""
    for node in ast.walk(term):
        match node, counted:
            case ast.Subscript(
                value=ast.ListComp(generators=heads) as whole, slice=ast.Name(id=at)
            ), ast.ListComp() if at == index and same(
                ast.ListComp(constant(0), heads), ast.ListComp(constant(0), counted.generators)
            ):
                return whole
            case _:
                pass
    return counted


def _items(term: ast.expr, index: str, whole: ast.expr, item: ast.Name) -> ast.expr:
    """`xs[i]` as the item."""
    match term:
        case ast.Subscript(value=value, slice=ast.Name(id=at)) if at == index and same(value, whole):
            return item
        case _:
            pass
    return each_part(term, lambda inner: _items(inner, index, whole, item))


def _from_end(term: ast.expr, index: str, whole: ast.expr, item: ast.Name) -> ast.expr:
    """`xs[-1 - i]`, `xs[-(i + 1)]` and `xs[len(xs) - 1 - i]` as the item."""
    match term:
        case ast.Subscript(value=value, slice=at) if same(value, whole) and mentions(at, index) == 1:
            i, length, one = name(index), call("len", whole), constant(1)
            ways = (
                ast.BinOp(constant(-1), ast.Sub(), i),
                ast.UnaryOp(ast.USub(), ast.BinOp(i, ast.Add(), one)),
                ast.BinOp(ast.UnaryOp(ast.USub(), i), ast.Sub(), one),
                ast.BinOp(ast.BinOp(length, ast.Sub(), one), ast.Sub(), i),
                ast.BinOp(ast.BinOp(length, ast.Sub(), i), ast.Sub(), one),
                ast.BinOp(length, ast.Sub(), ast.BinOp(i, ast.Add(), one)),
            )
            return item if any(same(at, each) for each in ways) else term
        case _:
            return each_part(term, lambda inner: _from_end(inner, index, whole, item))


def _enumerated(
    term: ast.ListComp | ast.GeneratorExp, index: str, item: str, whole: ast.expr, names: Names
) -> ast.expr | None:
    head = term.generators[0]
    names.kinds[item], names.kinds[index] = element(names.kind(whole)), INT
    elt, *tests = [_items(each, index, whole, name(item)) for each in (term.elt, *head.ifs)]
    uses = mentions(elt, index) + sum(mentions(each, index) for each in term.generators[1:])
    if uses or not is_sequence(whole, names):
        return None
    cuts = [each for each in tests if mentions(each, index)]
    if cuts:
        match cuts:
            case [ast.Compare(left=ast.Name(id=bound), ops=[ast.Lt()], comparators=[stop])] if bound == index:
                bounds = (None, number(stop))
            case [ast.Compare(left=ast.Name(id=bound), ops=[ast.Gt()], comparators=[stop])] if bound == index:
                value = number(stop)
                bounds = (None if value is None else value + 1, None)
            case _:
                return None
        kept = next((value for value in bounds if value is not None), 0)
        if kept < 1:
            return None
        limits = [None if value is None else constant(value) for value in bounds]
        whole = part(whole, ast.Slice(limits[0], limits[1], None))
    ifs = [each for each in tests if not mentions(each, index)]
    return type(term)(elt, [generator(name(item), whole, ifs), *term.generators[1:]])
