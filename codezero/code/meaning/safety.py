"""When a program may not be read as terms: lists known by two names, and errors that would not be raised."""

import ast
from collections.abc import Iterator

from codezero.code.meaning.kinds import is_list, kind_of
from codezero.code.meaning.terms import Names, NotUnderstood, alpha, is_reverse, number
from codezero.code.parsing import names_bound, own_nodes

_ITERATORS = frozenset(("iter", "map", "filter", "zip", "enumerate", "reversed"))


def check_sharing(function: ast.FunctionDef, given: frozenset[str], names: Names) -> None:
    """Refuses a function in which a list that changes may be known by two names; `given` is known elsewhere."""
    nodes, changed = list(own_nodes(function)), set[str]()
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=bound)))):
                changed.add(bound)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=bound), attr="pop")):
                changed.add(bound)
            case ast.Subscript(value=ast.Name(id=bound), ctx=ast.Store()):
                changed.add(bound)
            case ast.AugAssign(target=ast.Name(id=bound), value=value):
                kind = kind_of(value, names.kinds)
                changed |= {bound} if is_list(kind) else set()
            case _:
                pass
    own = given | {argument.arg for argument in function.args.args} | names_bound(*function.body)
    if changed & given or changed - own or any(isinstance(node, ast.Global | ast.Nonlocal) for node in nodes):
        raise NotUnderstood("what changes elsewhere too")
    for node in nodes:
        if isinstance(node, ast.Assign):
            held = {each.id for each in _held(node.value)}
            bound = names_bound(*node.targets) if not isinstance(node.value, ast.List) else set[str]()
            if held & changed or (held and bound & changed):
                raise NotUnderstood("a list with two names")


def sure_failures(term: ast.expr) -> set[str]:
    """Of all that is evaluated whenever the term is."""
    own = set(failures(term))
    match term:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return own | sure_failures(test) | (sure_failures(body) & sure_failures(orelse))
        case ast.BoolOp(values=values):
            first = values[:1]
        case ast.ListComp(generators=heads) | ast.GeneratorExp(generators=heads):
            first = [heads[0].iter]
        case ast.Lambda() | ast.SetComp() | ast.DictComp():
            first = []
        case ast.Compare(left=left, comparators=[right, *_]):
            first = [left, right]
        case _:
            first = [each for each in ast.iter_child_nodes(term) if isinstance(each, ast.expr)]
    return own.union(*map(sure_failures, first))


def failures(term: ast.expr) -> Iterator[str]:
    """Why a term fails: as itself, and of the first or greatest item of nothing, for that there is none."""
    yield alpha(term)
    match term:
        case ast.Subscript(value=whole, slice=index) if number(index) in (0, -1):
            yield f"empty {_emptiness(whole)}"
        case ast.Call(func=ast.Name(id="max" | "min"), args=[whole], keywords=[]):
            yield f"empty {_emptiness(whole)}"
        case _:
            pass


def _emptiness(whole: ast.expr) -> str:
    """The same for terms of which one is empty where the other is."""
    match whole:
        case (
            ast.ListComp(generators=[ast.comprehension(iter=inner, ifs=[])])
            | ast.GeneratorExp(generators=[ast.comprehension(iter=inner, ifs=[])])
        ):
            return _emptiness(inner)
        case ast.ListComp(generators=heads) | ast.GeneratorExp(generators=heads):
            return alpha(ast.ListComp(ast.Constant(0), heads))
        case ast.Call(func=ast.Name(id="sorted" | "list" | "iter"), args=[inner]):
            return _emptiness(inner)
        case ast.Subscript(value=inner, slice=index) if is_reverse(index):
            return _emptiness(inner)
        case _:
            return alpha(whole)


def is_iterator(term: ast.expr) -> bool:
    match term:
        case ast.GeneratorExp():
            return True
        case ast.Call(func=ast.Name(id=called)):
            return called in _ITERATORS or called.startswith("itertools.")
        case _:
            return False


def _held(value: ast.expr | None) -> list[ast.Name]:
    """Variables that a value may be, or hold."""
    match value:
        case ast.Name():
            return [value]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [each for part in parts for each in _held(part)]
        case ast.IfExp(body=body, orelse=orelse):
            return [*_held(body), *_held(orelse)]
        case _:
            return []
