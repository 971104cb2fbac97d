"""Terms: expressions of which every variable is bound once, so that they can be moved and copied.

A term is an `ast.expr` in which comprehension variables and parameters of lambdas have fresh names (`Names.fresh`), and
what is imported stands under its full name (`operator.add`), which no variable can have.
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from codezero.code.meaning.kinds import ANY, Kind, kind_of

_FRESH = re.compile(r"'_\d+'")
MOST_STEPS = 4_000
"""Terms that are looked at for one program; past them it is not understood."""
MOST_NODES = 400
"""Of one term."""
Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
_N = TypeVar("_N", bound=ast.AST)


class NotUnderstood(ValueError):
    """The program says something that is not looked into; it stays as it is."""


class Names:
    """The kinds of all variables, and the steps that are left."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self._steps, self._given = 0, 0

    def step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NotUnderstood("too long")

    def fresh(self, kind: Kind = ANY) -> str:
        self._given += 1
        name = f"_{self._given}"
        self.kinds[name] = kind
        return name

    def kind(self, term: ast.expr) -> Kind:
        return kind_of(term, self.kinds)


def name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def constant(value: object) -> ast.expr:
    """A number below zero as it is parsed."""
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)  # pyright: ignore[reportArgumentType]


def call(function: str | ast.expr, *args: ast.expr) -> ast.Call:
    return ast.Call(name(function) if isinstance(function, str) else function, list(args), [])


def compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.Compare:
    return ast.Compare(left, [op], [right])


def negation(term: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), term)


def listed(elt: ast.expr, generators: list[ast.comprehension]) -> ast.ListComp:
    return ast.ListComp(elt, generators)


def generator(target: ast.expr, iterated: ast.expr, ifs: list[ast.expr]) -> ast.comprehension:
    return ast.comprehension(target, iterated, ifs, 0)


def part(term: ast.expr, index: ast.expr) -> ast.Subscript:
    return ast.Subscript(term, index, ast.Load())


def reverse(term: ast.expr) -> ast.expr:
    return part(term, ast.Slice(None, None, constant(-1)))


def is_reverse(node: ast.expr) -> bool:
    match node:
        case ast.Slice(lower=None, upper=None, step=step):
            return number(step) == -1
        case _:
            return False


def number(term: ast.expr | None) -> int | None:
    """The whole number that a term is."""
    match term:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(value, bool):
            return -value
        case _:
            return None


def is_true(term: ast.expr, value: bool) -> bool:
    return isinstance(term, ast.Constant) and term.value is value


def text_of(term: ast.AST) -> str:
    return ast.dump(term)


def order_of(term: ast.AST) -> str:
    """By which terms are sorted: fresh names are all alike."""
    return _FRESH.sub("'_'", ast.dump(term))


def same(one: ast.AST, other: ast.AST) -> bool:
    """Are they the same but for the names of what is bound inside them?"""
    if one is other:
        return True
    first, second = text_of(one), text_of(other)
    if first == second or type(one) is not type(other):
        return first == second
    return ("comprehension(" in first or "Lambda(" in first) and alpha(one) == alpha(other)


def alpha(term: ast.AST) -> str:
    """Its text with what is bound inside numbered in order."""
    own = {f"'{each}'": f"'@{at}'" for at, each in enumerate(dict.fromkeys(_bound(term)))}
    text = text_of(term)
    return _FRESH.sub(lambda match: own.get(match[0], match[0]), text) if own else text


def mentions(term: ast.AST, *wanted: str) -> int:
    """How often one of the variables stands in the term."""
    return sum(isinstance(node, ast.Name) and node.id in wanted for node in ast.walk(term))


def target_names(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def each_part(node: _N, change: Callable[[Any], Any]) -> _N:
    """A copy with every expression directly inside changed."""
    done = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            setattr(done, field, change(value))
        elif isinstance(value, list):
            setattr(done, field, [_part(item, change) for item in value])  # pyright: ignore[reportUnknownVariableType]
    return done


def _part(item: Any, change: Callable[[Any], Any]) -> Any:
    match item:
        case ast.expr():
            return change(item)
        case ast.keyword() | ast.comprehension():
            return each_part(item, change)
        case _:
            return item


def substitute(term: ast.expr, values: dict[str, ast.expr], names: Names) -> ast.expr:
    """A copy with values for variables; what is bound in a value gets names of its own in every place."""
    names.step()
    if isinstance(term, ast.Name):
        value = values.get(term.id)
        return term if value is None else with_fresh_names(value, names)
    return each_part(term, lambda inner: substitute(inner, values, names))


def with_fresh_names(term: ast.expr, names: Names) -> ast.expr:
    bound = list(dict.fromkeys(_bound(term)))
    if not bound:
        return term
    renamed = {old: names.fresh(names.kinds.get(old, ANY)) for old in bound}
    done = copy.deepcopy(term)
    for node in ast.walk(done):
        if isinstance(node, ast.Name):
            node.id = renamed.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = renamed.get(node.arg, node.arg)
    return done


def _bound(term: ast.AST) -> Iterator[str]:
    for node in ast.walk(term):
        if isinstance(node, ast.comprehension):
            yield from target_names(node.target)
        elif isinstance(node, ast.arg):
            yield node.arg


def parameters(function: ast.FunctionDef | ast.Lambda) -> list[str]:
    """Raises NotUnderstood for a function that takes more than positional arguments."""
    args = function.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
        raise NotUnderstood("parameters")
    return [argument.arg for argument in args.args]


def arguments_of(named: Sequence[str], defaults: Sequence[ast.expr] = ()) -> ast.arguments:
    return ast.arguments([], [ast.arg(each) for each in named], None, [], [], None, list(defaults))


def without_walrus(node: ast.expr) -> ast.expr:
    """A copy with the variable where it is bound: for what its value is known."""
    if isinstance(node, ast.NamedExpr):
        return name(node.target.id)
    return each_part(node, without_walrus)
