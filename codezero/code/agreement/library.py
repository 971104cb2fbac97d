"""Variables and functions of a program, and its names: what is built in, what modules hold, and methods.

Python's own functions as they are where they ask nothing of their arguments but operators, and a form of ours where
they ask for more."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import ast
import bisect
import functools
import heapq
import itertools
import math
import operator
import string
import sys
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

from codezero.code.agreement.paths import NotUnderstood
from codezero.code.agreement.values import Bag, Table, Tally, Text
from codezero.code.parsing import declared, names, names_bound, own_nodes


class Variables:
    """The variables of a module, a call or a comprehension."""

    def __init__(
        self, around: "Variables | None", own: frozenset[str] = frozenset(), *, comprehension: bool = False
    ) -> None:
        """`own`: names that are local from the start; a look at one that is not set yet is not understood."""
        self.around, self.own, self.comprehension = around, own, comprehension
        self.variables: dict[str, Any] = {}
        self.outer: frozenset[str] = frozenset()  # declared `nonlocal` or `global`
        self.yielded: list[Any] = []

    def lookup(self, name: str, builtins: Mapping[str, Any]) -> Any:
        scope: Variables | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            if name in scope.own:
                raise NotUnderstood("a variable before it is set")
            scope = scope.around
        if name not in builtins:
            raise NotUnderstood(name)
        return builtins[name]

    def peek(self, name: str) -> Any:
        """None: it is not set."""
        if name in self.variables or self.around is None:
            return self.variables.get(name)
        return self.around.peek(name)

    def assign(self, name: str, value: Any) -> None:
        scope = self
        if name in self.outer and self.around is not None:
            scope = self.around.function()
            while name not in scope.variables and scope.around is not None:
                scope = scope.around.function()
        scope.variables[name] = value

    def function(self) -> "Variables":
        """The scope in which `:=` sets."""
        return self if not self.comprehension or self.around is None else self.around.function()


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """One of the program's, as a value that Python's own functions can call."""

    args: ast.arguments
    body: list[ast.stmt]
    scope: Variables
    defaults: Sequence[Any]
    follow: Callable[["Function", Sequence[Any], Mapping[str, Any]], Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.follow(self, args, named)

    def reached(self) -> list[Any]:
        """Values that a call can find: by name, and as defaults."""
        inside, own = names_in(*self.body), {node.arg for node in ast.walk(self.args) if isinstance(node, ast.arg)}
        free = sorted(inside.every - inside.own - own)
        return [*self.defaults, *map(self.scope.peek, free)]

    def bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters and their values. Raises TypeError."""
        names, rest = [each.arg for each in self.args.args], self.args.vararg
        values = dict(zip(names[len(names) - len(self.defaults) :], self.defaults, strict=True))
        given = dict(zip(names, args, strict=False))
        values |= {**given, **named}
        if set(values) != set(names) or given.keys() & named.keys() or (len(args) > len(names) and rest is None):
            raise TypeError("arguments")
        return values if rest is None else values | {rest.arg: args[len(names) :]}


class BodyNames(NamedTuple):
    """In a function's body; `every` also in functions inside it."""

    own: frozenset[str]
    outer: frozenset[str]
    every: frozenset[str]
    yields: bool


@lru_cache(maxsize=64)
def names_in(*body: ast.stmt) -> BodyNames:
    nodes = list(own_nodes(ast.Module([*body], [])))
    leaves = [node for node in nodes if isinstance(node, ast.Name | ast.Global | ast.Nonlocal)]
    own, outer, every = names_bound(*leaves) - declared(*leaves), declared(*leaves), names(*body) | declared(*body)
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)
    return BodyNames(frozenset(own), frozenset(outer), frozenset(every), yields)


def parts(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """The value and all that it holds. Raises NotUnderstood for an iterator, whose rest cannot be looked at."""
    if isinstance(value, Iterator):
        raise NotUnderstood("an iterator that outlives a call")
    yield value
    if id(value) not in seen:
        seen[id(value)] = value
        for part in _held(value):
            yield from parts(part, seen)
        yield parts  # the end of what it holds


def _held(value: Any) -> Iterable[Any]:
    match value:
        case Function():
            return value.reached()
        case list() | tuple() | deque():
            return value
        case Table():
            return chain([value.default], *value.items())
        case Bag():
            return value.members
        case partial():
            return [value.func, value.args, *value.keywords.values()]
        case _:
            cells = getattr(value, "__closure__", None) or ()
            return [getattr(value, "__self__", None), *(cell.cell_contents for cell in cells)]


MOST_ITEMS, MOST_BITS, MOST_POWER = 2048, 256, 128  # MOST_ITEMS: of a list, a range, or an iterator without an end
SEQUENCES = (list, tuple, deque)
METHODS: Mapping[type, str] = {
    list: "append clear copy count extend index insert pop remove reverse sort",
    tuple: "count index",
    deque: "append appendleft clear extend pop popleft reverse rotate",
    Table: "get items keys setdefault update values",
    Tally: "get items keys values",
    Bag: "add",
    Text: "count endswith find index join lower removeprefix replace split startswith swapcase title translate upper",
}


class Mistaken(ArithmeticError):
    """A TypeError of the program, which it cannot catch by its name."""


def sized(value: Any) -> Any:
    """Raises NotUnderstood for what has grown too large."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise NotUnderstood("a large number")
    if isinstance(value, list | tuple | range | deque) and len(value) > MOST_ITEMS:
        raise NotUnderstood("a long list")
    return value


def _limited(items: Iterable[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number == MOST_ITEMS:
            raise NotUnderstood("an endless iterator")
        yield item


def _unordered(items: Any) -> Any:
    """For whoever does not ask in which order."""
    return items.members if isinstance(items, Bag) else items


def small(value: Any) -> Any:
    """An exponent or a shift. Raises NotUnderstood for a large one."""
    if isinstance(value, int) and not -MOST_POWER <= value <= MOST_POWER:
        raise NotUnderstood("a large number")
    return value


def _int(value: Any = 0) -> Any:
    if isinstance(value, Text):
        return int(value.known())
    if isinstance(value, float):
        raise NotUnderstood("infinity as a whole number")
    return value.__trunc__()


def as_text(value: Any = None) -> Text:
    if isinstance(value, Text):
        return value
    if value is None or type(value) is int or isinstance(value, bool):
        return Text.of("" if value is None else str(value))
    raise NotUnderstood("a number as text")


def _chr(value: Any) -> Text:
    if not 0 <= value <= sys.maxunicode:
        raise ValueError("chr() arg not in range")
    return Text([value])


def _ord(value: Text) -> Any:
    if len(value) != 1:
        raise Mistaken
    return value.points[0]


def _sum(items: Any, start: Any = 0) -> Any:
    if isinstance(start, Text):
        raise Mistaken
    return sum(_unordered(items), start)


def _reduce(function: Any, items: Any, *start: Any) -> Any:
    if not (parts := [*start, *items]):
        raise Mistaken
    return functools.reduce(function, parts)


def _chosen(module: Any, names: str, form: Callable[[Any], Any] = lambda function: function) -> dict[str, Any]:
    return {name: form(getattr(module, name)) for name in names.split()}


def _any_order(function: Any) -> Any:
    return lambda *items, **options: function(*map(_unordered, items), **options)


def _with_an_end(function: Any) -> Any:
    return lambda *args, **options: _limited(function(*args, **options))


NAMES: dict[str, Any] = {
    "True": True, "False": False, "None": None, "ord": _ord, "int": _int, "str": as_text, "chr": _chr, "bool": bool,
    "abs": abs, "len": len, "divmod": divmod, "iter": iter, "next": next, "enumerate": enumerate, "zip": zip,
    "map": map, "filter": filter, "reversed": reversed, "sum": _sum,
    **{each.__name__: _any_order(each) for each in (all, any, max, min, sorted)},
    "range": lambda *ends: sized(range(*ends)),
    "list": lambda items=(): sized(list(_limited(items))), "tuple": lambda items=(): tuple(_limited(items)),
    "set": lambda items=(): Bag(_unordered(items)), "frozenset": lambda items=(): Bag(_unordered(items)),
    "dict": lambda items=(): Table(items), "pow": lambda *parts: sized(pow(*map(small, parts))),
    "print": lambda *_: None,
    **{error.__name__: error for error in
       (ValueError, IndexError, KeyError, StopIteration, ZeroDivisionError, Exception)},
}  # fmt: skip
MODULES: dict[str, dict[str, Any]] = {
    "math": {"floor": math.floor, "ceil": math.ceil, "trunc": _int, "prod": math.prod, "inf": math.inf},
    "functools": {"reduce": _reduce, "partial": functools.partial},
    "itertools": _chosen(itertools, "accumulate chain compress dropwhile filterfalse islice pairwise starmap "
                         "takewhile zip_longest")
                 | _chosen(itertools, "count repeat product combinations permutations", _with_an_end),
    "operator": _chosen(operator, "add sub neg pos abs lt le gt ge eq ne not_ truth itemgetter contains concat"),
    "collections": {"Counter": Tally, "OrderedDict": lambda items=(): Table(items),
                    "deque": lambda items=(), maxlen=None: deque(_limited(items), maxlen),
                    "defaultdict": lambda default=None: Table((), default)},
    "heapq": _chosen(heapq, "heapify heappush heappop heappushpop nlargest nsmallest merge"),
    "bisect": _chosen(bisect, "bisect bisect_left bisect_right insort insort_left insort_right"),
    "string": _chosen(string, "ascii_lowercase ascii_uppercase ascii_letters digits", Text.of),
    "__future__": {"annotations": None}, "typing": dict.fromkeys(typing.__all__),
}  # fmt: skip
