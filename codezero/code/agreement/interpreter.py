"""Follows a program's syntax tree on one path, over numbers and texts that need not be known.

Nothing of the program is run by Python: every expression and statement is looked at here, by the two tables at the end,
names mean what `library.py` lists, and whatever else it says is NotUnderstood. Steps are counted."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import ast
import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from codezero.code.agreement import library
from codezero.code.agreement.library import Function, Variables, as_text, names_in, parts, sized
from codezero.code.agreement.paths import BudgetSpent, NotUnderstood, Path, of_constant
from codezero.code.agreement.values import RANGES, Bag, Number, Table, Text, maketrans
from codezero.code.parsing import declared, names_bound

OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip
CAUGHT = (LookupError, ArithmeticError, StopIteration, ValueError)  # by a program; NotUnderstood, though, never is
MOST_PLACES = 16  # of a list, where the place in it is not known
End = ast.Break | ast.Continue | tuple[Any] | None  # a block returns this; None: it ends behind its last statement


class Interpreter:
    """`budget`: a step for each of its items, for all paths of a shape. Raises NotUnderstood, and what the program
    itself raises."""

    def __init__(self, tree: ast.Module, path: Path, budget: Iterator[int]) -> None:
        self.budget, self.path, self.module = budget, path, Variables(None)
        self.names = library.NAMES | {"float": self._float}
        self.block(tree.body, self.module)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self._rebound = frozenset(declared(*functions) & names_bound(*functions))  # globals set by calls: unknown

    def call(self, entry: str, args: Sequence[Any]) -> Any:
        """Return what any call returns. Raises NotUnderstood where that may depend on the calls before it."""
        self.module.own = self._rebound
        self._forget()
        function = self.module.lookup(entry, {})
        before = list(parts(function, {}))
        result = function(*args)
        self._forget()
        after = list(parts(function, {}))
        if len(after) != len(before) or any(map(operator.is_not, after, before)):
            raise NotUnderstood("what a call leaves to the next one")
        return result

    def step(self) -> None:
        if next(self.budget, None) is None:
            raise BudgetSpent("too long")

    def _forget(self) -> None:
        for name in self._rebound:
            self.module.variables.pop(name, None)

    def value(self, node: ast.expr, scope: Variables) -> Any:
        self.step()
        if type(node) not in EXPRESSIONS:
            raise NotUnderstood(type(node).__name__)
        return EXPRESSIONS[type(node)](self, node, scope)

    def items(self, parts: Iterable[ast.expr], scope: Variables) -> list[Any]:
        result: list[Any] = []
        for part in parts:
            result += self.value(part.value, scope) if isinstance(part, ast.Starred) else [self.value(part, scope)]
        return result

    def constant(self, value: object) -> Any:
        if isinstance(value, str):
            return Text.of(value)
        if value is None or isinstance(value, bool | int):
            return sized(value)
        raise NotUnderstood(type(value).__name__)

    def operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        if type(op) not in OPERATORS or isinstance(left, Bag) or isinstance(right, Bag):
            raise NotUnderstood(type(op).__name__)
        return self.arithmetic(OPERATORS[type(op)], left, right)

    def arithmetic(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """A function of the module `operator`, within bounds."""
        if operation is operator.mul and isinstance(left, library.SEQUENCES) | isinstance(right, library.SEQUENCES):
            items, times = (left, right) if isinstance(left, library.SEQUENCES) else (right, left)
            if len(items) * times.__index__() > library.MOST_ITEMS:
                raise NotUnderstood("a long list")
        if operation is operator.truediv and isinstance(left, int) and isinstance(right, int):
            left = Number(self.path, of_constant(left))
        if operation in (operator.pow, operator.lshift) and isinstance(left, int):
            library.small(right)
        return sized(operation(left, right))

    def _float(self, value: Any) -> Any:
        if not isinstance(value, Text):
            return Number(self.path, of_constant(value) if isinstance(value, int) else value.terms, real=True)
        if (known := value.known().strip().lower()) not in ("inf", "-inf"):
            raise NotUnderstood("a fraction")
        return float(known)

    def choice(self, node: ast.BoolOp, scope: Variables) -> Any:
        for part in node.values[:-1]:
            if bool(result := self.value(part, scope)) is isinstance(node.op, ast.Or):
                return result
        return self.value(node.values[-1], scope)

    def comparison(self, node: ast.Compare, scope: Variables) -> bool:
        left = self.value(node.left, scope)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other, scope)
            if type(op) in OPERATORS:
                answer = OPERATORS[type(op)](left, right)
            elif right is None or isinstance(right, bool):
                answer = (left is right) is isinstance(op, ast.Is)
            else:
                raise NotUnderstood("identity")
            if not answer:
                return False
            left = right
        return True

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, dict) and name in owner:  # of a module
            return owner[name]
        if isinstance(owner, Text) and name in RANGES:
            return lambda: owner.asks(name)
        if owner is as_text and name == "maketrans":
            return maketrans
        if owner is as_text or owner is library.NAMES["list"]:
            return lambda value, *args: self.attribute(value, name)(*args)
        if name not in library.METHODS.get(type(owner), "").split():
            raise NotUnderstood(name)
        return getattr(owner, name)

    def part(self, node: ast.Subscript, scope: Variables) -> tuple[Any, Any]:
        """Return what has parts, and the place of one: that which an unknown number is on this path."""
        owner = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            given = [None if end is None else self.value(end, scope) for end in ends]
            place = slice(*(end if end is None else end.__index__() for end in given))
        else:
            place = self.value(node.slice, scope)
        if not isinstance(owner, list | tuple | Text | Table | range | deque):
            raise NotUnderstood("a part")
        if not isinstance(place, Number) or isinstance(owner, Table):
            return owner, place
        if len(owner) > MOST_PLACES:
            raise NotUnderstood("a place that is not known")
        places = range(len(owner)) if place >= 0 else range(-1, -len(owner) - 1, -1)
        known = next((each for each in places if place == each), None)
        if known is None:
            raise IndexError
        return owner, known

    def calling(self, node: ast.Call, scope: Variables) -> Any:
        function, args = self.value(node.func, scope), self.items(node.args, scope)
        if not callable(function) or any(keyword.arg is None for keyword in node.keywords):
            raise NotUnderstood("a call")
        result = function(*args, **{str(each.arg): self.value(each.value, scope) for each in node.keywords})
        if isinstance(result, float) and not math.isinf(result):
            raise NotUnderstood("a fraction")
        return sized(result)

    def each(self, elt: ast.expr, loops: Sequence[ast.comprehension], scope: Variables) -> Iterator[Any]:
        first = self.value(loops[0].iter, scope)  # at once, as Python does
        return self._looped(elt, loops, Variables(scope, comprehension=True), first)

    def _looped(self, elt: ast.expr, loops: Sequence[ast.comprehension], scope: Variables, items: Any) -> Iterator[Any]:
        loop, *inner = loops
        for item in items:
            self.step()
            self.assign(loop.target, item, scope)
            if all(self.value(test, scope) for test in loop.ifs):
                if inner:
                    yield from self._looped(elt, inner, scope, self.value(inner[0].iter, scope))
                else:
                    yield self.value(elt, scope)

    def shown(self, node: ast.FormattedValue, scope: Variables) -> Text:
        if node.conversion != -1 or node.format_spec is not None:
            raise NotUnderstood("a format")
        return as_text(self.value(node.value, scope))

    def function(self, args: ast.arguments, body: list[ast.stmt], scope: Variables) -> Function:
        if args.posonlyargs or args.kwonlyargs or args.kwarg is not None:
            raise NotUnderstood("parameters")
        return Function(args, body, scope, [self.value(default, scope) for default in args.defaults], self.called)

    def called(self, function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self.step()
        names = names_in(*function.body)
        scope = Variables(function.scope, names.own)
        scope.outer, scope.variables = names.outer, function.bound(args, named)
        end = self.block(function.body, scope)
        if names.yields:
            return iter(scope.yielded)
        return end[0] if isinstance(end, tuple) else None

    def define(self, node: ast.FunctionDef, scope: Variables) -> None:
        function: Any = self.function(node.args, node.body, scope)
        for decorator in reversed(node.decorator_list):
            function = self.value(decorator, scope)(function)
        scope.assign(node.name, function)

    def block(self, statements: Sequence[ast.stmt], scope: Variables) -> End:
        for node in statements:
            self.step()
            if type(node) not in STATEMENTS:
                raise NotUnderstood(type(node).__name__)
            if (end := STATEMENTS[type(node)](self, node, scope)) is not None:
                return end
        return None

    def loop(self, loop: ast.For | ast.While, scope: Variables) -> End:
        for _ in self._rounds(loop, scope):
            end = self.block(loop.body, scope)
            if isinstance(end, ast.Break):
                return None
            if isinstance(end, tuple):
                return end
        return self.block(loop.orelse, scope)

    def _rounds(self, loop: ast.For | ast.While, scope: Variables) -> Iterator[None]:
        if isinstance(loop, ast.While):
            while self.value(loop.test, scope):
                yield
        else:
            for item in self.value(loop.iter, scope):
                self.step()
                yield self.assign(loop.target, item, scope)

    def attempt(self, node: ast.Try, scope: Variables) -> End:
        if node.finalbody:
            raise NotUnderstood("finally")
        try:
            end = self.block(node.body, scope)
        except NotUnderstood:
            raise
        except CAUGHT as error:
            for handler in node.handlers:
                if isinstance(error, Exception if handler.type is None else self.value(handler.type, scope)):
                    return self.block(handler.body, scope)
            raise
        return end if end is not None else self.block(node.orelse, scope)

    def match(self, node: ast.Match, scope: Variables) -> End:
        subject = self.value(node.subject, scope)
        for case in node.cases:
            match case.pattern:
                case ast.MatchValue(value=value):
                    fits = subject == self.value(value, scope)
                case ast.MatchAs(pattern=None, name=name):
                    fits = True
                    if name is not None:
                        scope.assign(name, subject)
                case _:
                    raise NotUnderstood("a pattern")
            if fits and (case.guard is None or self.value(case.guard, scope)):
                return self.block(case.body, scope)
        return None

    def effect(self, node: ast.Expr, scope: Variables) -> None:
        if isinstance(node.value, ast.Yield) and node.value.value is not None:
            scope.yielded.append(self.value(node.value.value, scope))
        else:
            self.value(node.value, scope)

    def assignment(self, node: ast.Assign, scope: Variables) -> None:
        result = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, result, scope)

    def assign(self, target: ast.expr, value: Any, scope: Variables) -> None:
        match target:
            case ast.Name(id=name):
                scope.assign(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(targets, list(value), scope)
            case ast.Subscript():
                owner, place = self.part(target, scope)
                owner[place] = value
            case _:
                raise NotUnderstood("a target")

    def _unpack(self, targets: Sequence[ast.expr], values: list[Any], scope: Variables) -> None:
        starred = next((at for at, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
        if starred is not None:
            end = len(values) - (len(targets) - starred - 1)
            values[starred:end] = [values[starred:end]]
        if len(values) != len(targets):
            raise ValueError("values to unpack")
        for target, value in zip(targets, values, strict=True):
            self.assign(target.value if isinstance(target, ast.Starred) else target, value, scope)

    def walrus(self, node: ast.NamedExpr, scope: Variables) -> Any:
        result = self.value(node.value, scope)
        scope.function().assign(node.target.id, result)
        return result

    def augmented(self, node: ast.AugAssign, scope: Variables) -> None:
        owner, place = self.part(node.target, scope) if isinstance(node.target, ast.Subscript) else (None, None)
        before = self.value(node.target, scope) if owner is None else owner[place]
        added = self.value(node.value, scope)
        if not isinstance(before, list | deque):
            before = self.operation(node.op, before, added)
        elif isinstance(node.op, ast.Add):
            before += added  # the list itself, whoever else has it
        else:
            raise NotUnderstood("a list changed in place")
        if owner is None:
            self.assign(node.target, sized(before), scope)
        else:
            owner[place] = sized(before)

    def delete(self, node: ast.Delete, scope: Variables) -> None:
        for target in node.targets:
            part = self.part(target, scope) if isinstance(target, ast.Subscript) else None
            if part is None or not isinstance(part[0], list | deque):
                raise NotUnderstood("del")
            del part[0][part[1]]

    def modules(self, node: ast.Import | ast.ImportFrom, scope: Variables) -> None:
        for alias in node.names:
            name = alias.name if isinstance(node, ast.Import) else node.module
            if name not in library.MODULES:
                raise NotUnderstood(str(name))
            held = library.MODULES[name]
            if name == "operator":
                bounded = ("mul", "floordiv", "mod", "truediv")
                held = held | {each: partial(self.arithmetic, getattr(operator, each)) for each in bounded}
            meant = held if isinstance(node, ast.Import) else self.attribute(held, alias.name)
            scope.assign(alias.asname or alias.name, meant)


EXPRESSIONS: Mapping[type[ast.expr], Callable[[Interpreter, Any, Variables], Any]] = {
    ast.Constant: lambda run, node, _: run.constant(node.value),
    ast.Name: lambda run, node, scope: scope.lookup(node.id, run.names),
    ast.NamedExpr: Interpreter.walrus,
    ast.BinOp: lambda run, node, scope: run.operation(
        node.op, run.value(node.left, scope), run.value(node.right, scope)
    ),
    ast.UnaryOp: lambda run, node, scope: OPERATORS[type(node.op)](run.value(node.operand, scope)),
    ast.BoolOp: Interpreter.choice,
    ast.Compare: Interpreter.comparison,
    ast.IfExp: lambda run, node, scope: run.value(node.body if run.value(node.test, scope) else node.orelse, scope),
    ast.Call: Interpreter.calling,
    ast.Attribute: lambda run, node, scope: run.attribute(run.value(node.value, scope), node.attr),
    ast.Subscript: lambda run, node, scope: operator.getitem(*run.part(node, scope)),
    ast.Lambda: lambda run, node, scope: run.function(node.args, [ast.Return(node.body)], scope),
    ast.List: lambda run, node, scope: run.items(node.elts, scope),
    ast.Tuple: lambda run, node, scope: tuple(run.items(node.elts, scope)),
    ast.Set: lambda run, node, scope: Bag(run.items(node.elts, scope)),
    ast.Dict: lambda run, node, scope: Table(
        [(run.value(key, scope), run.value(value, scope)) for key, value in zip(node.keys, node.values, strict=True)]
    ),
    ast.ListComp: lambda run, node, scope: sized(list(run.each(node.elt, node.generators, scope))),
    ast.SetComp: lambda run, node, scope: Bag(run.each(node.elt, node.generators, scope)),
    ast.GeneratorExp: lambda run, node, scope: run.each(node.elt, node.generators, scope),
    ast.DictComp: lambda run, node, scope: Table(
        run.each(ast.Tuple([node.key, node.value], ast.Load()), node.generators, scope)
    ),
    ast.JoinedStr: lambda run, node, scope: Text().join(run.items(node.values, scope)),
    ast.FormattedValue: Interpreter.shown,
}
STATEMENTS: Mapping[type[ast.stmt], Callable[[Interpreter, Any, Variables], End]] = {
    ast.Return: lambda run, node, scope: (run.value(node.value, scope) if node.value else None,),
    ast.If: lambda run, node, scope: run.block(node.body if run.value(node.test, scope) else node.orelse, scope),
    ast.For: Interpreter.loop,
    ast.While: Interpreter.loop,
    ast.Break: lambda _, node, __: node,
    ast.Continue: lambda _, node, __: node,
    ast.Try: Interpreter.attempt,
    ast.Match: Interpreter.match,
    ast.Expr: Interpreter.effect,
    ast.Assign: Interpreter.assignment,
    ast.AnnAssign: lambda run, node, scope: (
        run.assign(node.target, run.value(node.value, scope), scope) if node.value else None
    ),
    ast.AugAssign: Interpreter.augmented,
    ast.Delete: Interpreter.delete,
    ast.FunctionDef: Interpreter.define,
    ast.Import: Interpreter.modules,
    ast.ImportFrom: Interpreter.modules,
    **dict.fromkeys((ast.Pass, ast.Nonlocal, ast.Global), lambda *_: None),
}
