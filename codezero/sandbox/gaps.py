"""Where Monty differs from CPython without raising anything: `mended` puts it right, `silent_gap` finds the rest.

Compared over some 50,000 expressions (operators, builtins, methods, formats, `re`, `math`, `itertools`), Monty 1.4 and
CPython differ silently in these: a set keeps the order of insertion; lazy values are lists; `round` to decimals rounds
ties of the decimal spelling; a group reference in front of a word character (`\\1_`) is lost in `re.sub`; `hasattr`
knows no methods; a few functions of `math` differ in the last digit. Not found here: a set or a generator expression
handed to a function of the code's own by a longer way, `$` in front of a last newline, `repr` of some floats above
1e15, and a lazy value whose later elements would raise or never end.
"""

import ast
import re
from collections.abc import Iterator

from codezero.code.parsing import UNPARSEABLE, parse_quietly

_LAZY = ("enumerate", "filter", "map", "reversed", "zip")
_MENDED = {
    name: f"{name} = lambda *args, {name}={name}, iter=iter, **named: iter({name}(*args, **named))" for name in _LAZY
} | {
    "round": """
def round(number, ndigits=None, round=round, float=float, type=type):
    if ndigits is None:
        return round(number)
    if type(number) is float and 0 <= ndigits <= 22:
        return float(f"{number:.{ndigits}f}")
    return round(number, ndigits)
"""
}
_MENTIONED = re.compile(rf"\b({'|'.join(_MENDED)})\b")

_SET_MAKERS = frozenset(("set", "frozenset"))
_SET_RESULTS = frozenset(("union", "intersection", "difference", "symmetric_difference"))
_SET_METHODS = frozenset(name for name in vars(set) if not name.startswith("_")) - {"pop"}
_ORDER_FREE = frozenset(("len", "set", "frozenset", "sum", "any", "all", "bool", "isinstance", "type"))
_ORDER_FREE_WITHOUT_KEY = frozenset(("sorted", "min", "max"))
_SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_LOOK_AT_LAZY = frozenset(
    ("next", "iter", "type", "isinstance", "str", "repr", "print", "bool", "len", "id", "callable")
)
_DIFFERENT = frozenset(("hasattr", "hash"))
_ROUNDS = 8
"""Names whose value is a name whose value .. is a set: no honest chain is longer."""
_LAST_DIGIT = frozenset(("cbrt", "erfc", "gamma", "lgamma"))
_REFERENCE_BEFORE_WORD = re.compile(r"\\[1-9]\w")


def mended(*texts: str) -> str:
    """Source to run first: the builtins that the texts name, as CPython has them."""
    names = {name for text in texts for name in _MENTIONED.findall(text)}
    return "\n".join(_MENDED[name] for name in sorted(names))


def silent_gap(code: str) -> str:
    """What Monty may silently get wrong in `code`, in a phrase; empty when nothing is known."""
    try:
        tree = parse_quietly(code)
    except UNPARSEABLE:
        return ""
    return next(_gaps(tree), "")


def _gaps(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    sets = _sets(nodes)
    modules = {node.name if isinstance(node, ast.alias) else getattr(node, "module", "") for node in nodes}
    for node in nodes:
        match node:
            case ast.GeneratorExp() if _is_kept(node, parents, own):
                yield "a generator is a list"
            case ast.Constant(value=str(text)) if "re" in modules and _REFERENCE_BEFORE_WORD.search(text):
                yield f"the reference {text[:20]!r} in a replacement"
            case ast.Call(func=ast.Name(id=name)) if name in _DIFFERENT - own:
                yield f"{name} is not as in CPython"
            case ast.Call(func=ast.Name(id="getattr"), args=[_, _, _]):
                yield "getattr is not as in CPython"
            case ast.Attribute(attr=name) | ast.alias(name=name) if name in _LAST_DIGIT:
                yield f"{name} differs in its last digit"
            case ast.Name(ctx=ast.Store()):
                pass
            case ast.expr() if node in sets and not _is_order_free(node, parents, sets):
                yield "the order of a set"
            case _:
                pass


def _is_kept(node: ast.GeneratorExp, parents: dict[ast.AST, ast.AST], own: set[str]) -> bool:
    """Is it more than used up where it stands?"""
    match parents[node]:
        case ast.Call(func=func):
            return func is node or (isinstance(func, ast.Name) and func.id in _LOOK_AT_LAZY | own)
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            return False
        case parent:
            return not isinstance(parent, (ast.For, ast.comprehension, ast.Starred))


def _sets(nodes: list[ast.AST]) -> set[ast.AST]:
    """The expressions whose value is a set, as far as names lead there."""
    assigned = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)]
    names, sets = set[str](), set[ast.AST]()
    for _ in range(_ROUNDS):
        for node in reversed(nodes):  # parts before what is made of them
            if _is_set(node, names, sets):
                sets.add(node)
        bound = [node for node in assigned if node.value in sets]
        targets = [target for node in bound for target in getattr(node, "targets", [getattr(node, "target", None)])]
        more = {target.id for target in targets if isinstance(target, ast.Name)} - names
        if not more:
            break
        names |= more
    return sets


def _is_set(node: ast.AST, names: set[str], sets: set[ast.AST]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id=name)):
            return name in _SET_MAKERS
        case ast.Call(func=ast.Attribute(value=base, attr=name)):
            return name in _SET_RESULTS or (name == "copy" and base in sets)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, _SET_OPERATORS) and any(side in sets or _is_view(side) for side in (left, right))
        case ast.IfExp(body=left, orelse=right):
            return left in sets or right in sets
        case ast.BoolOp(values=values):
            return not sets.isdisjoint(values)
        case ast.NamedExpr(value=value):
            return value in sets
        case _:
            return False


def _is_view(node: ast.expr) -> bool:
    """`d.keys()` and `d.items()`, which make sets of each other."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")


def _is_order_free(node: ast.expr, parents: dict[ast.AST, ast.AST], sets: set[ast.AST]) -> bool:
    """Does the place where a set stands not depend on its order?"""
    match parents[node]:
        case ast.Call():
            return _is_used_in_any_order(node, parents)
        case ast.Attribute(attr=name) as method:
            return name in _SET_METHODS and isinstance(parents[method], ast.Call)
        case ast.comprehension() as loop:
            result = parents[loop]
            return isinstance(result, ast.SetComp) or _is_used_in_any_order(result, parents)
        case ast.AugAssign(target=target):
            return target in sets
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Name) for target in targets)
        case ast.AnnAssign(target=target):
            return isinstance(target, ast.Name)
        case parent:
            return isinstance(parent, _ORDER_FREE_PLACES)


_ORDER_FREE_PLACES = (
    ast.Return, ast.Lambda, ast.Expr, ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.If, ast.While,
    ast.Assert, ast.NamedExpr,
)  # fmt: skip


def _is_used_in_any_order(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Is it an argument of a call whose value does not depend on its order?"""
    match parents[node]:
        case ast.Call(func=func, args=args) as call if node in args:
            name = getattr(func, "attr", getattr(func, "id", ""))
            if isinstance(func, ast.Attribute):
                return name in _SET_METHODS
            kept = name in ("list", "tuple") and _is_used_in_any_order(call, parents)
            return kept or name in _ORDER_FREE or (name in _ORDER_FREE_WITHOUT_KEY and not call.keywords)
        case _:
            return False
