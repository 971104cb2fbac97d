"""Statements of a program, followed on one path; see `interpreter.py`."""

# What a program's values are is for the program to say.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codezero.code.agreement.catalogue import sized
from codezero.code.agreement.interpreter import Budget, Expressions
from codezero.code.agreement.paths import Path
from codezero.code.agreement.polynomials import NotUnderstood
from codezero.code.agreement.scopes import Function, Kept, Variables, names_in
from codezero.code.parsing import declared, names_bound

CAUGHT = (LookupError, ArithmeticError, StopIteration, ValueError, AssertionError)
"""What a program may raise and catch. NotUnderstood is a ValueError, and is never caught."""


class Returned:
    def __init__(self, value: Any) -> None:
        self.value = value


End = ast.Break | ast.Continue | Returned | None
"""How a block ends; None: behind its last statement."""


class Interpreter(Expressions):
    """Raises NotUnderstood, and what the program itself raises."""

    def __init__(self, tree: ast.Module, path: Path, budget: Budget) -> None:
        super().__init__(path, budget)
        self.module = Variables(None)
        self._block(tree.body, self.module)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self._rebound = frozenset(declared(*functions) & names_bound(*functions))
        """Global variables that calls may set; what one finds there is not known."""

    def call(self, entry: str, args: Sequence[Any]) -> Any:
        """What any call returns. Raises NotUnderstood where that may depend on the calls before it."""
        self.module.own = self._rebound
        self._forget()
        function = self.module.lookup(entry, {})
        self.library.kept.append(Kept(function))
        result = function(*args)
        self._forget()
        for each in self.library.kept:
            each.check()
        return result

    def _forget(self) -> None:
        for name in self._rebound:
            self.module.variables.pop(name, None)

    def called(self, function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self.budget.step()
        names = names_in(*function.body)
        scope = Variables(function.scope, names.own)
        scope.outer, scope.variables = names.outer, function.bound(args, named)
        end = self._block(function.body, scope)
        if names.yields:
            return iter(scope.yielded)
        return end.value if isinstance(end, Returned) else None

    # ------------------------------------------------------------ blocks

    def _block(self, statements: Sequence[ast.stmt], scope: Variables) -> End:
        for statement in statements:
            self.budget.step()
            if (end := self._statement(statement, scope)) is not None:
                return end
        return None

    def _statement(self, statement: ast.stmt, scope: Variables) -> End:
        match statement:
            case ast.Return(value=value):
                return Returned(None if value is None else self.value(value, scope))
            case ast.If(test=test, body=body, orelse=orelse):
                return self._block(body if self.value(test, scope) else orelse, scope)
            case ast.For():
                return self._loop(statement, self._items(statement, scope), scope)
            case ast.While():
                return self._loop(statement, self._tests(statement, scope), scope)
            case ast.Break() | ast.Continue():
                return statement
            case ast.Try():
                return self._try(statement, scope)
            case ast.Match():
                return self._match(statement, scope)
            case _:
                self._simple(statement, scope)
                return None

    def _items(self, loop: ast.For, scope: Variables) -> Iterator[None]:
        for item in self.value(loop.iter, scope):
            self.budget.step()
            yield self.assign(loop.target, item, scope)

    def _tests(self, loop: ast.While, scope: Variables) -> Iterator[None]:
        while self.value(loop.test, scope):
            yield

    def _loop(self, loop: ast.For | ast.While, rounds: Iterator[object], scope: Variables) -> End:
        for _ in rounds:
            end = self._block(loop.body, scope)
            if isinstance(end, ast.Break):
                return None
            if isinstance(end, Returned):
                return end
        return self._block(loop.orelse, scope)

    def _try(self, statement: ast.Try, scope: Variables) -> End:
        if statement.finalbody:
            raise NotUnderstood("finally")
        try:
            end = self._block(statement.body, scope)
        except NotUnderstood:
            raise
        except CAUGHT as error:
            for handler in statement.handlers:
                kinds = Exception if handler.type is None else self.value(handler.type, scope)
                if isinstance(error, kinds):
                    return self._block(handler.body, scope)
            raise
        return end if end is not None else self._block(statement.orelse, scope)

    def _match(self, statement: ast.Match, scope: Variables) -> End:
        subject = self.value(statement.subject, scope)
        for case in statement.cases:
            if self._fits(case.pattern, subject, scope) and (case.guard is None or self.value(case.guard, scope)):
                return self._block(case.body, scope)
        return None

    def _fits(self, pattern: ast.pattern, subject: Any, scope: Variables) -> bool:
        match pattern:
            case ast.MatchValue(value=value):
                return subject == self.value(value, scope)
            case ast.MatchOr(patterns=patterns):
                return any(self._fits(each, subject, scope) for each in patterns)
            case ast.MatchAs(pattern=inner, name=name):
                if inner is not None and not self._fits(inner, subject, scope):
                    return False
                if name is not None:
                    scope.assign(name, subject)
                return True
            case _:
                raise NotUnderstood("a pattern")

    # ------------------------------------------------------------ simple statements

    def _simple(self, statement: ast.stmt, scope: Variables) -> None:
        match statement:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.FunctionDef() | ast.Import() | ast.ImportFrom():
                self._bind(statement, scope)
            case ast.Expr(value=value):
                self._effect(value, scope)
            case ast.Pass() | ast.Nonlocal() | ast.Global():
                pass
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, scope)
            case ast.Assert(test=test):
                if not self.value(test, scope):
                    raise AssertionError
            case ast.Raise(exc=ast.expr() as error):
                self._raise(error, scope)
            case _:
                raise NotUnderstood(type(statement).__name__)

    def _bind(self, statement: ast.stmt, scope: Variables) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                result = self.value(value, scope)
                for target in targets:
                    self.assign(target, result, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value, scope), scope)
            case ast.AugAssign():
                self._augmented(statement, scope)
            case ast.FunctionDef(name=name, args=args, body=body):
                function: Any = self.function(name, args, body, scope)
                for decorator in reversed(statement.decorator_list):
                    function = self.value(decorator, scope)(function)
                scope.assign(name, function)
            case ast.Import() | ast.ImportFrom():
                self._import(statement, scope)
            case _:
                pass  # a variable that is only declared

    def _effect(self, value: ast.expr, scope: Variables) -> None:
        match value:
            case ast.Yield(value=ast.expr() as item):
                scope.function().yielded.append(self.value(item, scope))
            case ast.YieldFrom(value=items):
                scope.function().yielded += self.value(items, scope)
            case _:
                self.value(value, scope)

    def assign(self, target: ast.expr, value: Any, scope: Variables) -> None:
        match target:
            case ast.Name(id=name):
                scope.assign(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(targets, list(value), scope)
            case ast.Subscript(value=owner, slice=place):
                changed = self.value(owner, scope)
                changed[self.known_place(changed, self.place(place, scope))] = value
            case _:
                raise NotUnderstood("a target")

    def _unpack(self, targets: Sequence[ast.expr], values: list[Any], scope: Variables) -> None:
        starred = next((at for at, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
        if starred is not None:
            behind = len(targets) - starred - 1
            if len(values) < len(targets) - 1:
                raise ValueError("not enough values")
            middle = values[starred : len(values) - behind]
            values = [*values[:starred], middle, *values[len(values) - behind :]]
        if len(values) != len(targets):
            raise ValueError("values to unpack")
        for target, value in zip(targets, values, strict=True):
            self.assign(target.value if isinstance(target, ast.Starred) else target, value, scope)

    def _augmented(self, statement: ast.AugAssign, scope: Variables) -> None:
        target, op = statement.target, statement.op
        match target:
            case ast.Name(id=name):
                before = scope.lookup(name, {})
                added = self.value(statement.value, scope)
                scope.assign(name, self._changed(before, op, added))
            case ast.Subscript(value=owner_node, slice=place_node):
                owner = self.value(owner_node, scope)
                place = self.known_place(owner, self.place(place_node, scope))
                owner[place] = self._changed(self.part(owner, place), op, self.value(statement.value, scope))
            case _:
                raise NotUnderstood("a target")

    def _changed(self, before: Any, op: ast.operator, added: Any) -> Any:
        if isinstance(before, list | deque) and isinstance(op, ast.Add):
            before += added  # the list itself, whoever else has it
            return sized(before)
        if isinstance(before, list | deque):
            raise NotUnderstood("a list changed in place")
        return self.operation(op, before, added)

    def _delete(self, target: ast.expr, scope: Variables) -> None:
        match target:
            case ast.Subscript(value=owner, slice=place):
                changed = self.value(owner, scope)
                if not isinstance(changed, list | deque):
                    raise NotUnderstood("del")
                del changed[self.known_place(changed, self.place(place, scope))]
            case _:
                raise NotUnderstood("del")

    def _import(self, statement: ast.Import | ast.ImportFrom, scope: Variables) -> None:
        for alias in statement.names:
            module = self.library.module(
                (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name
            )
            if isinstance(statement, ast.Import):
                scope.assign(alias.asname or alias.name, module)
            else:
                scope.assign(alias.asname or alias.name, self.attribute(module, alias.name))

    def _raise(self, error: ast.expr, scope: Variables) -> None:
        raised = self.value(error.func if isinstance(error, ast.Call) else error, scope)
        if not (isinstance(raised, type) and issubclass(raised, CAUGHT)):
            raise NotUnderstood("raise")
        raise raised
