"""Variables, and functions with the variables around them."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codezero.code.agreement.polynomials import NotUnderstood


class Variables:
    """The variables of a module, a call or a comprehension."""

    def __init__(
        self, around: "Variables | None", own: frozenset[str] = frozenset(), *, comprehension: bool = False
    ) -> None:
        """`own`: names that are local from the start; a look at one that is not set yet is not understood."""
        self.around, self.own, self.comprehension = around, own, comprehension
        self.variables: dict[str, Any] = {}
        self.outer: set[str] = set()
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

    name: str
    args: ast.arguments
    body: list[ast.stmt]
    scope: Variables
    defaults: Sequence[Any]
    keyword_defaults: Sequence[Any]
    follow: Callable[["Function", Sequence[Any], Mapping[str, Any]], Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.follow(self, args, named)

    def bound(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters and their values. Raises TypeError."""
        names = [each.arg for each in (*self.args.posonlyargs, *self.args.args)]
        if len(args) > len(names) and self.args.vararg is None:
            raise TypeError("too many arguments")
        values = dict(zip(names, args, strict=False))
        if self.args.vararg is not None:
            values[self.args.vararg.arg] = tuple(args[len(names) :])
        if self.args.kwarg is not None or set(named) & set(values):
            raise TypeError("arguments")
        values |= named
        only = [each.arg for each in self.args.kwonlyargs]
        defaults = dict(zip(names[len(names) - len(self.defaults) :], self.defaults, strict=True))
        defaults |= dict(zip(only, self.keyword_defaults, strict=True))
        values = defaults | values
        if set(values) - {self.args.vararg.arg if self.args.vararg else ""} != {*names, *only}:
            raise TypeError("arguments")
        return values
