"""Values that cross between two jails: plain data is copied, all else is numbered for `jail_link.py` to mirror.

codezero itself calls nothing here: a bare Python 3.8 or newer runs this file in a jail. A message is JSON. Containers
stand flat in its table, so that nothing nests and what is met twice stays one; whole numbers and floats are texts in
hexadecimal.
"""

# pyright: strict, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import collections
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

MAX_ITEMS, MAX_DEPTH = 200_000, 250
"""Values in one message, and containers within each other."""
_DANGEROUS = frozenset((
    "eval", "exec", "compile", "open", "input", "__import__", "breakpoint", "globals", "locals", "vars", "getattr",
    "setattr", "delattr", "exit", "quit",
))  # fmt: skip
"""Builtins that an answer cannot name on the side of the tests, where a text that it returns would become source."""
MODULES = frozenset((
    "builtins", "math", "cmath", "collections", "itertools", "functools", "re", "string", "decimal", "fractions",
    "datetime", "heapq", "bisect", "statistics", "copy", "json",
))  # fmt: skip
"""Modules that each side has as its own: what one of their functions says is not the answer's word."""
_SPELLED: dict[tuple[str, str], Callable[[Any], list[str]]] = {
    ("builtins", "int"): lambda value: [hex(value)],
    ("builtins", "float"): lambda value: [value.hex()],
    ("builtins", "complex"): lambda value: [value.real.hex(), value.imag.hex()],
    ("builtins", "bytes"): lambda value: [value.hex()],
    ("builtins", "range"): lambda value: [hex(part) for part in (value.start, value.stop, value.step)],
    ("decimal", "Decimal"): lambda value: [str(value)],
    ("fractions", "Fraction"): lambda value: [hex(value.numerator), hex(value.denominator)],
    ("datetime", "date"): lambda value: [hex(part) for part in value.timetuple()[:3]],
    ("datetime", "datetime"): lambda value: [hex(part) for part in (*value.timetuple()[:6], value.microsecond)],
    ("datetime", "time"): lambda value: [
        hex(part) for part in (value.hour, value.minute, value.second, value.microsecond)
    ],
    ("datetime", "timedelta"): lambda value: [hex(part) for part in (value.days, value.seconds, value.microseconds)],
}
"""Immutable values by module and type, as texts; whole numbers in hexadecimal, which has no limit of digits."""
_TEXTS = {"float": float.fromhex, "bytes": bytes.fromhex, "Decimal": str}
"""How a text of them is read; else as hexadecimal."""
_ABOUT = ((ImportError, "name"), (OSError, "filename"))
"""Attributes of errors that are not among their args."""
_MUTABLE: tuple[Any, ...] = (
    *(list, dict, set, bytearray),
    *(collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict),
)
_CONTAINERS: dict[str, Any] = {kind.__name__: kind for kind in (*_MUTABLE, tuple, frozenset)}
_VIEWS: dict[str, Any] = {"dict_keys": dict.keys, "dict_items": dict.items}
_KEPT: tuple[Any, ...] = (*(int, str, float, complex, bytes, tuple, frozenset), *_MUTABLE)
"""Types whose equality a subclass may keep; it is plain data then."""


class Outgoing:
    """Values of one message as JSON. Containers stand in `table`, by their place there; what is met twice stands once.

    values: of the message that this one answers, by their places in its table.
    """

    def __init__(self, link: Any, values: list[Any]) -> None:
        self._link, self.values, self._before = link, values, len(values)
        self.table: list[Any] = []
        self.classes: list[dict[str, Any]] = []
        self._places = {id(value): place for place, value in enumerate(values)}
        self._budget, self._depth = MAX_ITEMS, 0

    def item(self, value: Any) -> Any:
        """Raises Undecided for what is too large or nested too deeply."""
        self._budget -= 1
        if self._budget < 0:
            raise self._link.doubt("a value that is too large")
        if value is None or value is True or value is False or type(value) is str:
            return value
        kind = type(value)
        if id(value) in self._places:
            return ["@", self._places[id(value)]]
        if id(value) in self._link.mirrored:
            return ["yours", self._link.mirrored[id(value)]]
        if (spelling := _SPELLED.get((kind.__module__, kind.__name__))) and not getattr(value, "tzinfo", None):
            return ["value", kind.__module__, kind.__name__, *spelling(value)]
        if _CONTAINERS.get(kind.__name__) is kind:
            return self._place(value)
        if kind.__name__ in _VIEWS and kind.__module__ == "builtins":
            return [
                "view",
                kind.__name__,
                self._place(dict(value) if "items" in kind.__name__ else dict.fromkeys(value)),
            ]
        if isinstance(value, BaseException):
            return self.error(value)
        return self._named(value) or self._other(value)

    def _named(self, value: Any) -> Any:
        """What both sides have under the same name."""
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__] if value.__name__ in MODULES else None
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if type(module) is not str or module not in MODULES or type(name) is not str or module not in sys.modules:
            return None
        if vars(sys.modules[module]).get(name) is not value or (name in _DANGEROUS and not self._link.wary):
            return None
        return ["library", module, name]

    def _other(self, value: Any) -> Any:
        """What is mirrored; and with it, what it is as plain data where it keeps the equality of such."""
        kind = type(value)
        if isinstance(value, type):
            return ["class", self._link.class_number(value, self.classes)]
        if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return self.item(value.item())
        described = ["own", self._link.number(value), self._link.class_number(kind, self.classes)]
        plain = next((plain for plain in _KEPT if isinstance(value, plain) and kind.__eq__ is plain.__eq__), None)
        if plain is not None:
            described.append(self.item(dict(dict.items(value)) if issubclass(plain, dict) else plain(value)))
        return described

    def error(self, error: BaseException) -> Any:
        args, named, number = [self.item(part) for part in error.args], self._named(type(error)), None
        if named is None:
            named, number = ["class", self._link.class_number(type(error), self.classes)], self._link.number(error)
        about = next((getattr(error, name) for kind, name in _ABOUT if isinstance(error, kind)), None)
        return ["error", named, number, about if type(about) is str else None, *args]

    def _place(self, value: Any) -> Any:
        place = self._places[id(value)] = self._before + len(self.table)
        self.values.append(value)
        self.table.append(None)
        self._depth += 1
        if self._depth > MAX_DEPTH:  # before the stack of C is used up, whose depth an answer may have lifted
            raise self._link.doubt("a value that is nested too deeply")
        self.table[place - self._before] = self._entry(value)
        self._depth -= 1
        return ["@", place]

    def _entry(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind is bytearray:
            return [kind.__name__, value.hex()]
        parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        head = {"deque": "maxlen", "defaultdict": "default_factory"}.get(kind.__name__)
        return [kind.__name__, *([self.item(getattr(value, head))] if head else []), *map(self.item, parts)]

    def changes(self, table: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """What of the message before, whose table this is, is other by now."""
        for place in range(self._before):
            value = self.values[place]
            if isinstance(value, _MUTABLE) and (entry := self._entry(value)) != table[place]:
                yield place, entry


class Incoming:
    """A message's values, made anew. values: those that are known by their place in the table."""

    def __init__(self, link: Any, values: list[Any], table: list[Any]) -> None:
        self._link, self._table = link, table
        self.values: list[Any] = values + [_MISSING] * (len(table) - len(values))

    def complete(self) -> None:
        for place in range(len(self._table)):
            self._at(place)

    def value(self, item: Any) -> Any:
        """Raises an Exception for what is no value."""
        if item is None or isinstance(item, (bool, str)):
            return item
        kind, *parts = item
        return getattr(self, f"_{_ITEMS[kind]}")(*parts)

    def _at(self, place: int) -> Any:
        if place < 0:
            raise IndexError
        if self.values[place] is _MISSING:
            name, *items = self._table[place]
            kind = _CONTAINERS[name]
            if kind in _MUTABLE:
                head = [self.value(items[0])] if name in ("deque", "defaultdict") else []
                self.values[place] = kind((), *head) if name == "deque" else kind(*head)
                self._fill(self.values[place], items[len(head) :])
            else:
                self.values[place] = kind(list(map(self.value, items)))
        return self.values[place]

    def change(self, place: int, entry: list[Any]) -> None:
        name, *items = entry
        value = self.values[place]
        if type(value) is not _CONTAINERS[name]:
            raise TypeError
        self._fill(value, items[1:] if name in ("deque", "defaultdict") else items)

    def _fill(self, value: Any, items: list[Any]) -> None:
        if isinstance(value, bytearray):
            value[:] = bytes.fromhex(items[0])
            return
        parts = list(map(self.value, items))
        value.clear()
        if isinstance(value, dict):
            for key, each in zip(parts[::2], parts[1::2]):  # noqa: B905 - Python 3.8 has no `strict`
                value[key] = each
        elif isinstance(value, set):
            value.update(parts)
        else:
            value.extend(parts)

    def _spelled(self, module: str, name: str, *texts: str) -> Any:
        if (module, name) not in _SPELLED:
            raise ValueError
        kind = getattr(importlib.import_module(module), name)
        if name == "complex":
            return complex(*map(float.fromhex, texts))
        read = _TEXTS.get(name, lambda text: int(text, 16))
        values = [read(text) for text in texts]
        return values[0] if isinstance(values[0], kind) else kind(*values)

    def _view(self, name: str, item: Any) -> Any:
        return _VIEWS[name](self.value(item))

    def _own(self, number: int, kind: int, *plain: Any) -> Any:
        return self._link.instance(number, kind, *map(self.value, plain))

    def _class(self, number: int) -> Any:
        kind = self._link.mirrors[number]
        if not isinstance(kind, type):
            raise TypeError
        return kind

    def _yours(self, number: int) -> Any:
        if number < 0:
            raise IndexError
        return self._link.own[number]

    def _module(self, name: str) -> Any:
        if name not in MODULES:
            raise ValueError
        return importlib.import_module(name)

    def _library(self, module: str, name: str) -> Any:
        if name.startswith("_") or (self._link.wary and name in _DANGEROUS):
            raise ValueError
        return getattr(self._module(module), name)

    def _error(self, kind: Any, number: int | None, about: str | None, *args: Any) -> BaseException:
        made, values = self.value(kind), list(map(self.value, args))
        if not issubclass(made, BaseException):
            raise TypeError
        if number is not None and number in self._link.mirrors:
            return self._link.mirrors[number]
        error = made.__new__(made, *values)
        if number is not None:
            return self._link.add_mirror(number, error)
        try:
            error.__init__(*values)
        except TypeError:  # it takes more than its args say
            error.args = tuple(values)
        for base, name in _ABOUT:
            if about is not None and isinstance(error, base):
                setattr(error, name, about)
        return error


_MISSING = object()
_ITEMS = {"@": "at", "value": "spelled", "view": "view", "own": "own", "class": "class", "yours": "yours"}
_ITEMS.update(module="module", library="library", error="error")
