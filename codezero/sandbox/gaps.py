"""Where Monty differs from CPython without raising anything: `mended` puts it right, `silent_gap` finds the rest.

Compared over some 70,000 expressions and 240 programs, Monty 1.4 and CPython differ silently in these: a set keeps the
order of insertion; lazy values are lists; `round` to decimals rounds ties of the decimal spelling; `re` loses a group
reference in front of a word character (`\\1_`), an empty match behind another, and `$` in front of a last newline;
`hasattr` knows no methods; a few functions of `math` differ in the last digit; some methods of classes are never
called. What is lazy is computed to its end, so an exception or a limit may come from elements that CPython never
reaches. Code that catches exceptions catches what Monty raises of its own too. A NaN in a list equals itself, and a
method never does. Not found here: a set or a generator expression handed to a function of the code's own by a longer
way, `repr` of some floats above 1e15, and a width for `None` in a format. CPython evaluates annotations where a
function or class is defined, Monty never: their names have to be builtins, or bound at module level above, and what is
subscripted a generic type with as many parameters as it takes.
"""

import ast
import builtins
import itertools
import re
from collections.abc import Iterator
from typing import Literal

from codezero.code.dead_code import plain_targets
from codezero.code.parsing import (
    BUILTINS,
    UNPARSEABLE,
    FunctionNode,
    called,
    dotted,
    names,
    names_bound,
    own_nodes,
    parse_quietly,
)
from codezero.sandbox.base import ALL_HOLD, Execution, Outcome

_LAZY = ("enumerate", "filter", "map", "reversed", "zip")
_MENDED = {
    name: f"{name} = lambda *args, {name}={name}, iter=iter, **named: iter({name}(*args, **named))" for name in _LAZY
} | {
    "round": """
def round(number, ndigits=None, round=round, float=float, type=type):
    if ndigits is None:
        return round(number)
    if type(number) is float and 0 <= ndigits <= 22:
        return float(f"{number:.{+ndigits}f}")
    return round(number, ndigits)
"""
}
_MENTIONED = re.compile(rf"\b({'|'.join(_MENDED)})\b")

_SETS = frozenset(("set()", "frozenset()", ".union()", ".intersection()", ".difference()", ".symmetric_difference()"))
"""Calls whose value is a set; those of functions are written `name()`, those of methods `.name()`."""
_SET_METHODS = frozenset(name for name in vars(set) if not name.startswith("_")) - {"pop"}
_SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_ORDER_FREE = frozenset(
    ("len", "set", "frozenset", "sum", "any", "all", "bool", "isinstance", "type", "sorted", "min", "max")
)
"""Calls whose value does not depend on the order of their argument, unless they have a key."""
_ORDER_FREE_PLACES = (ast.Return, ast.Lambda, ast.Expr, ast.Compare, ast.UnaryOp, ast.If, ast.While, ast.Assert)
_ROUNDS = 8
"""Names whose value is a name whose value .. is a set: no honest chain is longer."""
_LOOK_AT_LAZY = frozenset(
    ("next", "iter", "type", "isinstance", "str", "repr", "print", "bool", "len", "id", "callable")
)
_TO_THE_END = frozenset(
    ("sum", "list", "tuple", "set", "frozenset", "sorted", "max", "min", "dict", "Counter", "join", "extend", "update")
)
_LAST_DIGIT = frozenset(("cbrt", "erfc", "gamma", "lgamma"))
_METHODS = frozenset((
    "init", "post_init", "iter", "next", "getitem", "setitem", "delitem", "contains", "call", "enter", "exit", "hash",
    "str", "repr", "int", "float", "index", "abs", "neg", "pos", "invert", "round", "eq", "lt", "gt", "le", "ge", "add",
    "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow", "matmul", "divmod",
    "and", "or", "xor", "lshift", "rshift",
))  # fmt: skip
"""Of classes, those that Monty calls, and those whose lack it reports."""
_OWN_READING = re.compile(r"\\[1-9]\w|^(?>(?:\\?.|\[[^]]*\]|\([^()]*\))[*?]\??)++\Z|\|\Z")
"""A reference before a word, or a pattern whose every part may be missing."""

_Parents = dict[ast.AST, ast.AST]


def mended(*texts: str) -> str:
    """Source to run first: the builtins that the texts name, as CPython has them."""
    mentioned = {name for text in texts for name in _MENTIONED.findall(text)}
    return "\n".join(_MENDED[name] for name in sorted(mentioned))


def silent_gap(code: str, shown: Execution = ALL_HOLD) -> str:
    """What Monty may silently get wrong in `code`, behind which its tests may stand, in a phrase; empty when nothing
    is known. `shown`: what came of running it there."""
    try:
        tree = parse_quietly(code)
    except UNPARSEABLE:
        return ""
    nodes = list(ast.walk(tree))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    own = {node.name for node in nodes if isinstance(node, FunctionNode | ast.ClassDef)}
    fails = shown.outcome is Outcome.FAIL and not shown.reason.endswith(" limit")
    if fails and any(isinstance(node, ast.ExceptHandler) and dotted(node.type) != "EOFError" for node in nodes):
        return "the code may catch what only Monty raises"
    lazy = _lazy_gaps(nodes, parents, own, shown.provisional)
    if shown.outcome is Outcome.PASS and (annotation := _doubtful_annotation(nodes, tree)):
        return f"the annotation {annotation} is not evaluated"
    gaps = itertools.chain(_gaps(nodes, parents, own), _set_gaps(nodes, parents), lazy, _pattern_gaps(nodes, parents))
    return next(gaps, "")


def _gaps(nodes: list[ast.AST], parents: _Parents, own: set[str]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) if name[:2] == name[-2:] == "__" and isinstance(
                parents[node], ast.ClassDef
            ):
                if name.strip("_") not in _METHODS:
                    yield f"no {name} of a class is called"
            case ast.Call(func=ast.Name(id="hasattr" | "hash" as name)) if name not in own:
                yield f"{name} is not as in CPython"
            case ast.Call(func=ast.Name(id="getattr"), args=[_, _, _]):
                yield "getattr is not as in CPython"
            case ast.Attribute(attr=name) | ast.alias(name=name) if name in _LAST_DIGIT:
                yield f"{name} differs in its last digit"
            case ast.Attribute(attr="nan") | ast.alias(name="nan"):
                yield "a NaN in a list equals itself"
            case ast.Constant(value=str(text)) if text.strip(" +-").lower() == "nan":
                yield "a NaN in a list equals itself"
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in own and called(parents[node]) != dotted(node):
                yield f"the method {name} is a value"
            case _:
                pass


def _pattern_gaps(nodes: list[ast.AST], parents: _Parents) -> Iterator[str]:
    constants = [node for node in nodes if isinstance(node, ast.Constant) and not isinstance(parents[node], ast.Expr)]
    texts = [node.value for node in constants if isinstance(node.value, str)]
    lines = any("\n" in text for text in texts)
    if any(isinstance(node, ast.alias) and node.name == "re" for node in nodes):
        odd = (text for text in texts if _OWN_READING.search(text) or (lines and "$" in text))
        yield from (f"the pattern or replacement {text[:20]!r}" for text in odd)


def _lazy_gaps(nodes: list[ast.AST], parents: _Parents, own: set[str], raised: bool) -> Iterator[str]:
    iterators = names(*(node.targets[0] for node in nodes if isinstance(node, ast.Assign) and _is_lazy(node.value)))
    for node in filter(_is_lazy, nodes):
        demand = _demand(node, parents, own)
        match node:
            case ast.GeneratorExp() if demand == "none":
                yield "a generator is a list"
            case ast.GeneratorExp(generators=[ast.comprehension(iter=ast.Name(id=name)), *_]) if name in iterators:
                yield "a generator uses an iterator up"
            case _ if demand != "all" and raised:
                yield "what is lazy is computed to its end"
            case _:
                pass


def _set_gaps(nodes: list[ast.AST], parents: _Parents) -> Iterator[str]:
    sets = _sets(nodes)
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id="defaultdict" | "map"), args=[ast.Name(id="set" | "frozenset"), *_]):
                yield "the order of a set"
            case _ if node in sets and not _is_order_free(node, parents, sets):
                yield "the order of a set"
            case _:
                pass


def _is_lazy(node: ast.AST) -> bool:
    return isinstance(node, ast.GeneratorExp) or called(node) in (*_LAZY, "iter")


def _demand(node: ast.AST, parents: _Parents, own: set[str]) -> Literal["all", "some", "none"]:
    """Which elements of the lazy `node` are asked for where it stands; none: it is kept, or looked at itself."""
    match parents[node]:
        case ast.Call(func=func) as call if func is not node:
            name = getattr(func, "attr", getattr(func, "id", ""))
            if isinstance(func, ast.Name) and name in _LAZY:
                return _demand(call, parents, own)
            looked_at = isinstance(func, ast.Name) and name in _LOOK_AT_LAZY | own
            return "none" if looked_at else "all" if name in _TO_THE_END else "some"
        case ast.For() as loop:
            leaves = any(isinstance(part, ast.Break | ast.Return | ast.Raise) for part in ast.walk(loop))
            return "some" if leaves else "all"
        case ast.comprehension() as part:
            outer = parents[part]
            return _demand(outer, parents, own) if isinstance(outer, ast.GeneratorExp) else "all"
        case ast.Assign(targets=[ast.Tuple() | ast.List()]) | ast.Starred():
            return "all"
        case _:
            return "none"


def _sets(nodes: list[ast.AST]) -> set[ast.AST]:
    """The expressions whose value is a set, as far as names lead there."""
    bound, known, sets = list(_bound(nodes)), set[str](_SETS), set[ast.AST]()
    for _ in range(_ROUNDS):
        for node in reversed(nodes):  # parts before what is made of them
            if _is_set(node, known, sets):
                sets.add(node)
        more = {name for name, value in bound if value in sets} - known
        if not more:
            break
        known |= more
    return sets


def _bound(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names with a value each; a function with what it returns, under the names of its calls."""
    for node in nodes:
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                call, value = ("()", value.body) if isinstance(value, ast.Lambda) else ("", value)
                yield from ((f"{name}{call}", value) for name in names(*plain_targets(node)))
            case ast.FunctionDef(name=name):
                returned = [part.value for part in own_nodes(node) if isinstance(part, ast.Return) and part.value]
                yield from ((f"{dot}{name}()", value) for value in returned for dot in ("", "."))
            case _:
                pass


def _is_set(node: ast.AST, known: set[str], sets: set[ast.AST]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name, ctx=ast.Load()):
            return name in known
        case ast.Call(func=ast.Name(id=name)):
            return f"{name}()" in known
        case ast.Call(func=ast.Attribute(value=base, attr=name)):
            return f".{name}()" in known or (name == "copy" and base in sets)
        case ast.BinOp(left=left, op=op, right=right):
            views = {"keys", "items"} & {getattr(getattr(side, "func", None), "attr", "") for side in (left, right)}
            return isinstance(op, _SET_OPERATORS) and bool(left in sets or right in sets or views)
        case ast.IfExp(body=left, orelse=right):
            return left in sets or right in sets
        case ast.BoolOp(values=values):
            return not sets.isdisjoint(values)
        case ast.NamedExpr(value=value):
            return value in sets
        case _:
            return False


def _is_order_free(node: ast.AST, parents: _Parents, sets: set[ast.AST]) -> bool:
    """Does the place where a set, or what is collected of it in its order, stands not depend on that order?"""
    match parents[node]:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _SET_METHODS
        case ast.Call(func=ast.Name(id="list" | "tuple")) as call:
            return isinstance(parents[call], ast.Call) and _is_order_free(call, parents, sets)
        case ast.Call(func=func, keywords=keywords):
            return getattr(func, "id", "") in _ORDER_FREE and not keywords
        case ast.Attribute(attr=name) as method:
            return name in _SET_METHODS and isinstance(parents[method], ast.Call)
        case ast.comprehension() as loop:
            node = parents[loop]
            in_call = isinstance(parents[node], ast.Call)
            return isinstance(node, ast.SetComp) or (in_call and _is_order_free(node, parents, sets))
        case ast.AugAssign(op=op):
            return isinstance(op, _SET_OPERATORS)
        case ast.Assign() | ast.AnnAssign() as assignment:
            return bool(plain_targets(assignment))
        case parent:
            return parent in sets or isinstance(parent, _ORDER_FREE_PLACES)


_BUILTIN_GENERIC = frozenset(("list", "tuple", "set", "frozenset", "dict", "type"))
_ONE = frozenset((
    "List", "Set", "FrozenSet", "Deque", "Sequence", "MutableSequence", "Iterable", "Iterator", "Collection", "Type",
    "Container", "Optional", "AbstractSet", "MutableSet", "Counter", "KeysView", "ValuesView",
))  # fmt: skip
_TWO = frozenset(("Dict", "DefaultDict", "OrderedDict", "Mapping", "MutableMapping", "ItemsView"))
_TYPING = _ONE | _TWO | {"Tuple", "Union", "Callable"}


def _doubtful_annotation(nodes: list[ast.AST], tree: ast.Module) -> str:
    """The text of one that may raise, or that names what is not there yet; empty when all are as they should be."""
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        return ""
    bound = dict(_module_names(tree))
    local = {part for node in nodes if isinstance(node, FunctionNode) for part in ast.walk(node)}
    for annotation in _evaluated(nodes, local):
        if not _Reader(bound, annotation.lineno).fits(annotation):
            return ast.unparse(annotation)[:40]
    return ""


def _evaluated(nodes: list[ast.AST], local: set[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        match node:
            case ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case (
                ast.FunctionDef(returns=ast.expr() as annotation)
                | ast.AsyncFunctionDef(returns=ast.expr() as annotation)
            ):
                yield annotation
            case ast.AnnAssign(annotation=annotation, target=target) if node not in local or not isinstance(
                target, ast.Name
            ):
                yield annotation
            case _:
                pass


def _module_names(tree: ast.Module) -> Iterator[tuple[str, tuple[int, str]]]:
    """Names of the module, the line after which they are there, and what they are: class, value or generic type."""
    for node in tree.body:
        line = node.end_lineno or node.lineno
        match node:
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                for alias in aliases:
                    typed = module in ("typing", "collections.abc") and alias.name in _TYPING
                    yield alias.asname or alias.name, (line, alias.name if typed else "class")
            case ast.Import(names=aliases):
                yield from ((alias.asname or alias.name.partition(".")[0], (line, alias.name)) for alias in aliases)
            case ast.ClassDef(name=name):
                yield name, (line, "class")
            case ast.FunctionDef(name=name):
                yield name, (line, "value")
            case _:
                yield from ((name, (line, "value")) for name in names_bound(node))


class _Reader:
    """Of one annotation, at its line."""

    def __init__(self, bound: dict[str, tuple[int, str]], line: int) -> None:
        self._bound, self._line = bound, line

    def fits(self, node: ast.expr) -> bool:
        """Does it evaluate, to whatever?"""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self._kind(name) != ""
            case _:
                return self._is_type(node)

    def _kind(self, name: str) -> str:
        line, kind = self._bound.get(name, (0, "class" if name in BUILTINS else ""))
        return kind if line < self._line else ""

    def _is_type(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=None):
                return True
            case ast.Constant(value=str(text)):
                return text.isidentifier()
            case ast.Name(id=name):
                return self._kind(name) not in ("", "value")
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return self._kind(module) == "typing" and name in _TYPING | {"Any"}
            case ast.Subscript(value=base, slice=given):
                parts = given.elts if isinstance(given, ast.Tuple) else [given]
                return self._takes(self._generic(base), parts)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                sides = (left, right)
                texts = any(isinstance(side, ast.Constant) and side.value is not None for side in sides)
                return not texts and isinstance(left, ast.Name | ast.Subscript) and all(map(self._is_class, sides))
            case _:
                return False

    def _is_class(self, node: ast.expr) -> bool:
        """May it stand beside `|`? A function, such as `any`, may not."""
        function = isinstance(node, ast.Name) and not isinstance(getattr(builtins, node.id, type), type)
        return self._is_type(node) and not function

    def _generic(self, base: ast.expr) -> str:
        match base:
            case ast.Name(id=name):
                kind = self._kind(name)
                return name if name in _BUILTIN_GENERIC and name not in self._bound else kind
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name if self._kind(module) == "typing" else ""
            case _:
                return ""

    def _takes(self, generic: str, parts: list[ast.expr]) -> bool:
        if generic == "Callable":
            arguments = parts[0].elts if isinstance(parts[0], ast.List) else []
            dots = isinstance(parts[0], ast.Constant) and parts[0].value is ...
            return (
                len(parts) == 2
                and (dots or isinstance(parts[0], ast.List))
                and all(map(self._is_type, [*arguments, parts[1]]))
            )
        if (
            generic in ("Tuple", "tuple")
            and len(parts) == 2
            and isinstance(parts[1], ast.Constant)
            and parts[1].value is ...
        ):
            parts = parts[:1]
        count = 1 if generic in _ONE else 2 if generic in _TWO else len(parts)
        known = generic in _TYPING or generic in _BUILTIN_GENERIC
        return known and len(parts) == count and all(map(self._is_type, parts))
