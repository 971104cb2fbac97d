"""What programs may call of Python's own: functions as they are where they ask nothing of their arguments but
operators, and a form of ours where they ask for more."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import bisect
import collections
import copy
import functools
import heapq
import itertools
import math
import operator
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from codezero.code.agreement.polynomials import NotUnderstood
from codezero.code.agreement.values import Bag, Number, Table, Tally, Text

MOST_ITEMS = 2048
"""Of a list, a range, or an iterator without an end."""
_METHODS: Mapping[type, str] = {
    list: "append clear copy count extend index insert pop remove reverse sort",
    tuple: "count index",
    collections.deque: "append appendleft clear extend pop popleft reverse rotate",
    Table: "get items keys setdefault update values",
    Tally: "get items keys values",
    Bag: "add",
    Text: "capitalize count endswith find index join lower removeprefix removesuffix replace split startswith swapcase "
    "title translate upper",
}
METHODS = {kind: frozenset(names.split()) for kind, names in _METHODS.items()}


def sized(value: Any) -> Any:
    """Raises NotUnderstood for what has grown too large."""
    if isinstance(value, int) and value.bit_length() > 256:
        raise NotUnderstood("a large number")
    if isinstance(value, list | tuple | range | collections.deque) and len(value) > MOST_ITEMS:
        raise NotUnderstood("a long list")
    return value


def limited(items: Iterable[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number == MOST_ITEMS:
            raise NotUnderstood("an endless iterator")
        yield item


def unordered(items: Any) -> Any:
    """For whoever does not ask in which order."""
    return items.members if isinstance(items, Bag) else items


def small(value: Any) -> Any:
    """An exponent or a shift. Raises NotUnderstood for a large one."""
    if isinstance(value, int) and not -128 <= value <= 128:
        raise NotUnderstood("a large number")
    return value


def whole(value: Any = 0) -> Any:
    """`int`"""
    if isinstance(value, Text):
        return int(value.known())
    if isinstance(value, float):
        raise NotUnderstood("infinity as a whole number")
    return value.__trunc__()


def _most(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values, **options: choose(*map(unordered, values), **options)


def _ord(value: Text) -> Any:
    (point,) = value.points
    return point


def _chosen(module: Any, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


def _limited_iterators() -> dict[str, Any]:
    return {
        "count": lambda start=0, step=1: limited(itertools.count(start, step)),
        "repeat": lambda value, *times: limited(itertools.repeat(value, *times)),
        "product": lambda *items, **options: limited(itertools.product(*items, **options)),
        "combinations": lambda items, size: limited(itertools.combinations(items, size)),
        "permutations": lambda items, *size: limited(itertools.permutations(items, *size)),
    }


def _reduce(function: Any, items: Any, *start: Any) -> Any:
    parts = [*start, *items]
    if not parts:
        raise ValueError("nothing to reduce")  # Python's TypeError would be taken for one of ours
    return functools.reduce(function, parts)


def _deque(items: Any = (), maxlen: Any = None) -> Any:
    return collections.deque(limited(items), maxlen)


def _deep(value: Any) -> Any:
    """Only containers change; what is in them is shared."""
    return [_deep(item) for item in value] if isinstance(value, list) else copy.copy(value)


NAMES: dict[str, Any] = {
    "True": True, "False": False, "None": None,
    "abs": abs, "len": len, "divmod": divmod, "iter": iter, "next": next, "enumerate": enumerate, "zip": zip,
    "map": map, "filter": filter, "reversed": reversed, "ord": _ord, "int": whole, "bool": bool,
    "range": lambda *ends: sized(range(*ends)),
    "all": lambda items: all(unordered(items)), "any": lambda items: any(unordered(items)),
    "sum": lambda items, start=0: sum(unordered(items), start), "max": _most(max), "min": _most(min),
    "sorted": lambda items, **options: sorted(unordered(items), **options),
    "list": lambda items=(): sized(list(limited(items))), "tuple": lambda items=(): tuple(limited(items)),
    "set": lambda items=(): Bag(unordered(items)), "frozenset": lambda items=(): Bag(unordered(items)),
    "dict": lambda items=(): Table(items), "pow": lambda *parts: sized(pow(*map(small, parts))),
    "print": lambda *_: None,
    **{error.__name__: error for error in
       (ValueError, IndexError, KeyError, StopIteration, ZeroDivisionError, Exception)},
}  # fmt: skip
TYPES: dict[Any, Callable[[Any], bool]] = {
    whole: lambda value: isinstance(value, int) or (isinstance(value, Number) and not value.real),
    bool: lambda value: isinstance(value, bool),
    NAMES["list"]: lambda value: isinstance(value, list),
    NAMES["tuple"]: lambda value: isinstance(value, tuple),
}
"""Of what a program can give `isinstance`: is a value one of them?"""
MODULES: dict[str, dict[str, Any]] = {
    "math": {"floor": math.floor, "ceil": math.ceil, "trunc": whole, "prod": math.prod, "inf": math.inf},
    "functools": {"reduce": _reduce, "partial": functools.partial},
    "itertools": _chosen(itertools, "accumulate chain compress dropwhile filterfalse islice pairwise starmap "
                         "takewhile zip_longest") | _limited_iterators(),
    "operator": _chosen(operator, "add sub neg pos abs lt le gt ge eq ne not_ truth itemgetter contains concat"),
    "collections": {"Counter": Tally, "OrderedDict": Table, "deque": _deque,
                    "defaultdict": lambda default=None: Table((), default)},
    "heapq": _chosen(heapq, "heapify heappush heappop heappushpop nlargest nsmallest merge"),
    "bisect": _chosen(bisect, "bisect bisect_left bisect_right insort insort_left insort_right"),
    "copy": {"copy": copy.copy, "deepcopy": _deep},
    "__future__": {"annotations": None}, "typing": dict.fromkeys(typing.__all__),
}  # fmt: skip
