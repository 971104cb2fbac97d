"""What names mean in a program on one path: `catalogue.py`, and what makes numbers and texts of that path."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import itertools
import operator
import string
import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from codezero.code.agreement.catalogue import METHODS, MODULES, MOST_ITEMS, NAMES, TYPES, sized, small
from codezero.code.agreement.paths import Path
from codezero.code.agreement.polynomials import NotUnderstood, of_constant
from codezero.code.agreement.scopes import Kept
from codezero.code.agreement.values import RANGES, Number, Table, Text, maketrans

BOUNDED = ("mul", "floordiv", "mod", "truediv")
"""Of the module `operator`."""
SEQUENCES = (list, tuple, deque)
LETTERS = ("ascii_lowercase", "ascii_uppercase", "ascii_letters", "digits")


class Library:
    """By name, what is built in and what modules hold, for a program on one path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kept = list[Kept]()
        """What caches hold, and what it was made from."""
        self._modules: dict[str, dict[str, Any]] = {
            "operator": {name: partial(self.arithmetic, getattr(operator, name)) for name in BOUNDED},
            "functools": dict.fromkeys(("cache", "lru_cache"), self._cached),
        }
        own: dict[str, Any] = {"str": self._str, "float": self._float, "chr": self._chr}
        self.names: dict[str, Any] = NAMES | own
        types = TYPES | {own["str"]: lambda value: isinstance(value, Text)}
        self.names |= {"isinstance": lambda value, kind: types[kind](value)}

    def module(self, name: str) -> Mapping[str, Any]:
        if name == "string":
            return {each: Text.of(self._path, getattr(string, each)) for each in LETTERS}
        if name not in MODULES:
            raise NotUnderstood(name)
        return MODULES[name] | self._modules.get(name, {})

    def method(self, value: Any, name: str) -> Callable[..., Any]:
        if isinstance(value, Text) and name in RANGES:
            return lambda: value.asks(name)
        if value is self.names["str"] and name == "maketrans":
            return maketrans
        if value is self.names["str"] or value is self.names["list"]:
            return lambda owner, *args: self.method(owner, name)(*args)
        if value is itertools.chain and name == "from_iterable":
            return itertools.chain.from_iterable
        if name in METHODS.get(type(value), ()):
            method = getattr(value, name)
            return (lambda items=(): method(list(items))) if name == "extend" else method
        raise NotUnderstood(name)

    def arithmetic(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """A function of the module `operator`, within bounds."""
        if operation is operator.mul and isinstance(left, SEQUENCES) | isinstance(right, SEQUENCES):
            items, times = (left, right) if isinstance(left, SEQUENCES) else (right, left)
            if len(items) * times.__index__() > MOST_ITEMS:
                raise NotUnderstood("a long list")
        if operation is operator.truediv and isinstance(left, int) and isinstance(right, int):
            left = Number(self._path, of_constant(int(left)))
        if operation in (operator.pow, operator.lshift) and isinstance(left, int):
            small(right)
        return sized(operation(left, right))

    def _cached(self, function: Any = None, maxsize: Any = None) -> Callable[..., Any]:
        """Calls it each time: the same, as long as what it was made from stays as it is, and what it returned."""
        if not callable(function):
            return self._cached

        def call(*args: Any, **named: Any) -> Any:
            if any(isinstance(each, list | Table | deque) for each in (*args, *named.values())):
                raise TypeError("unhashable")
            self.kept.append(Kept(function))
            result = function(*args, **named)
            self.kept.append(Kept(result))
            return result

        return call

    def _float(self, value: Any) -> Any:
        if isinstance(value, Text):
            if (known := value.known().strip().lower()) not in ("inf", "-inf"):
                raise NotUnderstood("a fraction")
            return float(known)
        terms = value.terms if isinstance(value, Number) else of_constant(int(value))
        return Number(self._path, terms, real=True)

    def _str(self, value: Any = None) -> Text:
        if isinstance(value, Text):
            return value
        if value is None or type(value) is int or isinstance(value, bool):
            return Text.of(self._path, "" if value is None else str(value))
        raise NotUnderstood("a number as text")

    def _chr(self, value: Any) -> Text:
        if not 0 <= value <= sys.maxunicode:
            raise ValueError("chr() arg not in range")
        return Text(self._path, [value])
