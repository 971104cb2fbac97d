"""Rules for choices of lists: of single items, and of a list that may be empty."""

import ast

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.indices import is_sequence
from codezero.code.meaning.kinds import STR
from codezero.code.meaning.terms import Names, constant, listed, mentions, same


def _either_item(term: ast.IfExp, names: Names) -> ast.expr | None:
    """`[a] if p else [b]` is a list of a choice; what is the same of nothing needs no question for it."""
    match term:
        case ast.IfExp(test=test, body=ast.List(elts=[one]), orelse=ast.List(elts=[other])):
            return None if isinstance(one, ast.Starred) or isinstance(other, ast.Starred) else _single(test, one, other)
        case ast.IfExp(test=ast.Name(id=whole) as test) if is_sequence(test, names):
            nothing = ast.Constant("") if names.kind(test) == STR else ast.List([], ast.Load())
            return _of_nothing(term, whole, nothing, names)
        case _:
            return None


def _of_nothing(term: ast.IfExp, whole: str, nothing: ast.expr, names: Names) -> ast.expr | None:
    other = nothing if same(term.orelse, term.test) else term.orelse
    match term.body:
        case ast.Call(func=ast.Name(id="max" | "min"), args=[items], keywords=[]) as extreme:
            match items:
                case ast.GeneratorExp(generators=[ast.comprehension(iter=ast.Name(id=over), ifs=[])]):
                    pass
                case ast.Name(id=over):
                    pass
                case _:
                    return None
            plain = over == whole and not mentions(items, whole) > 1
            return ast.Call(extreme.func, [items], [ast.keyword("default", other)]) if plain else None
        case _:
            return term.body if same(_emptied(term.body, whole, nothing), other) else None


def _emptied(term: ast.expr, whole: str, nothing: ast.expr) -> ast.expr:
    """What becomes of a term where the list or text is empty, as far as that is seen at once."""
    match term:
        case ast.Name(id=bound) if bound == whole:
            return nothing
        case ast.ListComp(generators=[head, *_]) if same(_emptied(head.iter, whole, nothing), nothing):
            return ast.List([], ast.Load())
        case ast.Subscript(value=value, slice=ast.Slice()) | ast.Call(func=ast.Name(id="sorted"), args=[value]):
            inner = _items_of(value)
            return _emptied(inner, whole, nothing)
        case ast.Call(func=ast.Name(id="sum" | "len"), args=[value]):
            inner = _emptied(_items_of(value), whole, nothing)
            empty = (isinstance(inner, ast.List) and not inner.elts) or same(inner, nothing)
            return constant(0) if empty else term
        case _:
            return term


def _items_of(value: ast.expr) -> ast.expr:
    return listed(value.elt, value.generators) if isinstance(value, ast.GeneratorExp) else value


def _single(test: ast.expr, one: ast.expr, other: ast.expr) -> ast.expr:
    return ast.List([ast.IfExp(test, one, other)], ast.Load())


RULES: Rules = {ast.IfExp: (_either_item,)}
