"""What names mean in a program on one path: what is built in, what modules hold, and methods.

Python's own functions as they are where they ask nothing of their arguments but operators, and a form of ours where
they ask for more.
"""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from codezero.code.agreement.paths import Path
from codezero.code.agreement.polynomials import NotUnderstood, of_constant
from codezero.code.agreement.scopes import Kept
from codezero.code.agreement.values import RANGES, Bag, Number, Table, Tally, Text, maketrans

MOST_ITEMS, MOST_BITS, MOST_POWER = 2048, 256, 128
"""MOST_ITEMS: of a list, a range, or an iterator without an end."""
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


def _small(value: Any) -> Any:
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


def _str(value: Any = None) -> Text:
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


def _copied(value: Any, *, deep: bool = False) -> Any:
    if isinstance(value, list):
        return [_copied(item, deep=True) for item in value] if deep else list(value)
    if type(value) is Table and not deep:
        return Table(value, value.default)
    if value is None or isinstance(value, int | Number | Text):
        return value
    raise NotUnderstood("a copy")


def _isinstance(value: Any, kind: Any) -> bool:
    types: Mapping[Any, bool] = {
        _int: isinstance(value, int) or (isinstance(value, Number) and not value.real),
        bool: isinstance(value, bool), NAMES["list"]: isinstance(value, list), _str: isinstance(value, Text),
        NAMES["tuple"]: isinstance(value, tuple),
    }  # fmt: skip
    if kind not in types:
        raise NotUnderstood("isinstance")
    return types[kind]


def _chosen(module: Any, names: str, form: Callable[[Any], Any] = lambda function: function) -> dict[str, Any]:
    return {name: form(getattr(module, name)) for name in names.split()}


def _any_order(function: Any) -> Any:
    return lambda *items, **options: function(*map(_unordered, items), **options)


def _with_an_end(function: Any) -> Any:
    return lambda *args, **options: _limited(function(*args, **options))


NAMES: dict[str, Any] = {
    "True": True, "False": False, "None": None, "ord": _ord, "int": _int, "str": _str, "chr": _chr, "bool": bool,
    "abs": abs, "len": len, "divmod": divmod, "iter": iter, "next": next, "enumerate": enumerate, "zip": zip,
    "map": map, "filter": filter, "reversed": reversed, "sum": _sum, "isinstance": _isinstance,
    **{each.__name__: _any_order(each) for each in (all, any, max, min, sorted)},
    "range": lambda *ends: sized(range(*ends)),
    "list": lambda items=(): sized(list(_limited(items))), "tuple": lambda items=(): tuple(_limited(items)),
    "set": lambda items=(): Bag(_unordered(items)), "frozenset": lambda items=(): Bag(_unordered(items)),
    "dict": lambda items=(): Table(items), "pow": lambda *parts: sized(pow(*map(_small, parts))),
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
    "copy": {"copy": _copied, "deepcopy": functools.partial(_copied, deep=True)},
    "string": _chosen(string, "ascii_lowercase ascii_uppercase ascii_letters digits", Text.of),
    "__future__": {"annotations": None}, "typing": dict.fromkeys(typing.__all__),
}  # fmt: skip


class Library:
    """All of this for a program on one path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kept = list[Kept]()
        """What caches hold, and what it was made from."""
        self.names = NAMES | {"float": self._float}
        bounded = {name: functools.partial(self.arithmetic, getattr(operator, name))
                   for name in ("mul", "floordiv", "mod", "truediv")}  # fmt: skip
        self._modules = {"operator": bounded, "functools": dict.fromkeys(("cache", "lru_cache"), self._cached)}

    def module(self, name: str) -> Mapping[str, Any]:
        if name not in MODULES:
            raise NotUnderstood(name)
        return MODULES[name] | self._modules.get(name, {})

    def method(self, value: Any, name: str) -> Callable[..., Any]:
        if isinstance(value, Text) and name in RANGES:
            return lambda: value.asks(name)
        if value is _str and name == "maketrans":
            return maketrans
        if value is _str or value is NAMES["list"]:
            return lambda owner, *args: self.method(owner, name)(*args)
        if name in METHODS.get(type(value), "").split():
            return getattr(value, name)
        raise NotUnderstood(name)

    def arithmetic(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """A function of the module `operator`, within bounds."""
        if operation is operator.mul and isinstance(left, SEQUENCES) | isinstance(right, SEQUENCES):
            items, times = (left, right) if isinstance(left, SEQUENCES) else (right, left)
            if len(items) * times.__index__() > MOST_ITEMS:
                raise NotUnderstood("a long list")
        if operation is operator.truediv and isinstance(left, int) and isinstance(right, int):
            left = Number(self._path, of_constant(left))
        if operation in (operator.pow, operator.lshift) and isinstance(left, int):
            _small(right)
        return sized(operation(left, right))

    def _cached(self, function: Any = None, maxsize: Any = None) -> Callable[..., Any]:
        """Calls it each time: the same, as long as what it was made from stays as it is, and what it returned."""
        if not callable(function):
            return self._cached

        def call(*args: Any, **named: Any) -> Any:
            if any(isinstance(each, list | Table | deque) for each in (*args, *named.values())):
                raise Mistaken
            self.kept.append(Kept(function))
            result = function(*args, **named)
            self.kept.append(Kept(result))
            return result

        return call

    def _float(self, value: Any) -> Any:
        if not isinstance(value, Text):
            return Number(self._path, of_constant(value) if isinstance(value, int) else value.terms, real=True)
        if (known := value.known().strip().lower()) not in ("inf", "-inf"):
            raise NotUnderstood("a fraction")
        return float(known)
