"""What a function does on one path: its syntax tree followed over numbers and texts that need not be known.

Nothing of the program is run by Python: every expression is looked at here, names mean what `library.py` lists, and
whatever else it says is NotUnderstood. Steps are counted.
"""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import ast
import math
import operator
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codezero.code.agreement.catalogue import sized
from codezero.code.agreement.library import Library
from codezero.code.agreement.numbers import Number
from codezero.code.agreement.paths import BudgetSpent, Path
from codezero.code.agreement.polynomials import NotUnderstood
from codezero.code.agreement.scopes import Function, Variables
from codezero.code.agreement.tables import Bag, Table
from codezero.code.agreement.texts import Text

OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
MOST_PLACES = 16
"""Of a list, where the place in it is not known."""


class Budget:
    """Steps for all paths of a question together. Raises BudgetSpent when they are used up."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise BudgetSpent("too long")


class Expressions:
    """Values of expressions. `statements.Interpreter` adds statements."""

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path, self.budget, self.library = path, budget, Library(path)

    def value(self, node: ast.expr, scope: Variables) -> Any:
        self.budget.step()
        match node:
            case ast.Constant(value=value):
                return self._constant(value)
            case ast.Name(id=name):
                return scope.lookup(name, self.library.names)
            case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
                return self._computed(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Attribute(value=owner, attr=name):
                return self.attribute(self.value(owner, scope), name)
            case ast.Subscript(value=owner, slice=place):
                return self.part(self.value(owner, scope), self.place(place, scope))
            case ast.Lambda(args=args, body=body):
                return self.function("<lambda>", args, [ast.Return(body)], scope)
            case ast.NamedExpr(target=target, value=value):
                result = self.value(value, scope)
                scope.function().assign(target.id, result)
                return result
            case _:
                return self._display(node, scope)

    def _computed(self, node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp, scope: Variables) -> Any:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(op, self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return UNARY[type(op)](self.value(operand, scope))
            case ast.BoolOp(op=op, values=parts):
                result: Any = None
                for part in parts:
                    result = self.value(part, scope)
                    if bool(result) is isinstance(op, ast.Or):
                        break
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, scope) else orelse, scope)
            case ast.Compare():
                return self._comparison(node, scope)

    # ------------------------------------------------------------ simple ones

    def _constant(self, value: object) -> Any:
        if isinstance(value, str):
            return Text.of(self.path, value)
        if value is None or isinstance(value, bool | int):
            return sized(value)
        raise NotUnderstood(type(value).__name__)

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in OPERATIONS or isinstance(left, Bag) or isinstance(right, Bag):
            raise NotUnderstood(type(op).__name__)
        return self.library.arithmetic(OPERATIONS[type(op)], left, right)

    def _comparison(self, node: ast.Compare, scope: Variables) -> bool:
        left = self.value(node.left, scope)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other, scope)
            if not self._compared(op, left, right):
                return False
            left = right
        return True

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        if type(op) in COMPARISONS:
            return COMPARISONS[type(op)](left, right)
        if isinstance(op, ast.In | ast.NotIn):
            return (left in right) is isinstance(op, ast.In)
        if right is None or isinstance(right, bool):
            return (left is right) is isinstance(op, ast.Is)
        raise NotUnderstood("identity")

    # ------------------------------------------------------------ parts

    def place(self, node: ast.expr, scope: Variables) -> Any:
        if not isinstance(node, ast.Slice):
            return self.value(node, scope)
        ends = (None if end is None else self.value(end, scope) for end in (node.lower, node.upper, node.step))
        return slice(*(end if end is None else end.__index__() for end in ends))

    def part(self, owner: Any, place: Any) -> Any:
        if isinstance(owner, list | tuple | Text | Table | range | deque):
            return owner[self.known_place(owner, place)]
        raise NotUnderstood("a part")

    def known_place(self, owner: Any, place: Any) -> Any:
        """A number that is not known as the one that it is on this path."""
        if not isinstance(place, Number) or isinstance(owner, Table):
            return place
        if len(owner) > MOST_PLACES:
            raise NotUnderstood("a place that is not known")
        places = range(len(owner)) if place >= 0 else range(-1, -len(owner) - 1, -1)
        known = next((each for each in places if place == each), None)
        if known is None:
            raise IndexError
        return known

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, dict):  # a module
            if name not in owner and not isinstance(owner, defaultdict):
                raise NotUnderstood(name)
            return owner[name]
        return self.library.method(owner, name)

    # ------------------------------------------------------------ calls

    def function(self, name: str, args: ast.arguments, body: list[ast.stmt], scope: Variables) -> Function:
        defaults = [self.value(default, scope) for default in args.defaults]
        keyword_defaults = [None if each is None else self.value(each, scope) for each in args.kw_defaults]
        return Function(name, args, body, scope, defaults, keyword_defaults, self.called)

    def called(self, function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def _call(self, node: ast.Call, scope: Variables) -> Any:
        function = self.value(node.func, scope)
        args = self.items(node.args, scope)
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotUnderstood("**")
        named = {str(keyword.arg): self.value(keyword.value, scope) for keyword in node.keywords}
        if not callable(function):
            raise NotUnderstood("a call")
        result = function(*args, **named)
        if isinstance(result, float) and not math.isinf(result):
            raise NotUnderstood("a fraction")
        return sized(result)

    # ------------------------------------------------------------ displays

    def _display(self, node: ast.expr, scope: Variables) -> Any:
        match node:
            case ast.List(elts=parts):
                return self.items(parts, scope)
            case ast.Tuple(elts=parts):
                return tuple(self.items(parts, scope))
            case ast.Set(elts=parts):
                return Bag(self.items(parts, scope))
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(filter(None, keys), values, strict=True)
                return Table([(self.value(key, scope), self.value(value, scope)) for key, value in pairs])
            case ast.ListComp(elt=elt, generators=loops):
                return sized(list(self._each(elt, loops, scope)))
            case ast.SetComp(elt=elt, generators=loops):
                return Bag(self._each(elt, loops, scope))
            case ast.GeneratorExp(elt=elt, generators=loops):
                return self._each(elt, loops, scope)
            case ast.DictComp(key=key, value=value, generators=loops):
                return Table(self._each(ast.Tuple([key, value], ast.Load()), loops, scope))
            case ast.JoinedStr(values=parts):
                return Text.of(self.path, "").join(self._shown(part, scope) for part in parts)
            case _:
                raise NotUnderstood(type(node).__name__)

    def items(self, parts: Iterable[ast.expr], scope: Variables) -> list[Any]:
        result: list[Any] = []
        for part in parts:
            result += self.value(part.value, scope) if isinstance(part, ast.Starred) else [self.value(part, scope)]
        return result

    def _each(self, elt: ast.expr, loops: Sequence[ast.comprehension], scope: Variables) -> Iterator[Any]:
        first = self.value(loops[0].iter, scope)  # at once, as Python does
        return self._looped(elt, loops, Variables(scope, comprehension=True), first)

    def _looped(self, elt: ast.expr, loops: Sequence[ast.comprehension], scope: Variables, items: Any) -> Iterator[Any]:
        loop, *inner = loops
        for item in items:
            self.budget.step()
            self.assign(loop.target, item, scope)
            if all(self.value(test, scope) for test in loop.ifs):
                if inner:
                    yield from self._looped(elt, inner, scope, self.value(inner[0].iter, scope))
                else:
                    yield self.value(elt, scope)

    def assign(self, target: ast.expr, value: Any, scope: Variables) -> None:
        raise NotImplementedError

    def _shown(self, part: ast.expr, scope: Variables) -> Text:
        match part:
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.library.names["str"](self.value(value, scope))
            case ast.Constant():
                return self.value(part, scope)
            case _:
                raise NotUnderstood("a format")
