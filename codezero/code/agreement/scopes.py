"""Variables, functions with the variables around them, and what of both outlives a call."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from operator import is_not
from typing import Any, NamedTuple

from codezero.code.agreement.polynomials import NotUnderstood
from codezero.code.agreement.values import Bag, Table
from codezero.code.parsing import declared, names, names_bound, own_nodes


class Variables:
    """The variables of a module, a call or a comprehension."""

    def __init__(
        self, around: "Variables | None", own: frozenset[str] = frozenset(), *, comprehension: bool = False
    ) -> None:
        """`own`: names that are local from the start; a look at one that is not set yet is not understood."""
        self.around, self.own, self.comprehension = around, own, comprehension
        self.variables: dict[str, Any] = {}
        self.outer: frozenset[str] = frozenset()
        """Declared `nonlocal` or `global`."""
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
        if name in self.outer and self.around is not None:
            self.around.function().reassign(name, value)
        else:
            self.variables[name] = value

    def reassign(self, name: str, value: Any) -> None:
        """Where it is."""
        if name in self.variables or self.around is None:
            self.variables[name] = value
        else:
            self.around.function().reassign(name, value)

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


class Kept:
    """Values that outlive a call, as they are now."""

    def __init__(self, value: Any) -> None:
        """Raises NotUnderstood for an iterator, whose rest cannot be looked at."""
        self._value, self._parts = value, list(_parts(value, {}))

    def check(self) -> None:
        """Raises NotUnderstood where something of it is another now."""
        now = list(_parts(self._value, {}))
        if len(now) != len(self._parts) or any(map(is_not, now, self._parts)):
            raise NotUnderstood("what a call leaves to the next one")


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """The value and all that it holds."""
    if isinstance(value, Iterator):
        raise NotUnderstood("an iterator that outlives a call")
    yield value
    if id(value) not in seen:
        seen[id(value)] = value
        for part in _held(value):
            yield from _parts(part, seen)
        yield _parts  # the end of what it holds


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
