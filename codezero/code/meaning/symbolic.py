"""What a function returns, as one term over its parameters: assignments, branches, loops and calls of helpers resolved.

Nothing is run: statements only rewrite the terms that variables stand for. What is not understood (unknown calls,
shared lists that change, exceptions, loops that are no fold) raises NotUnderstood, and the program stays as it is. A
term that may raise an error is never dropped, nor moved to where it would be evaluated less often.
"""

import ast
from collections.abc import Sequence

from codezero.code.meaning import recursions
from codezero.code.meaning.expressions import Function, Values
from codezero.code.meaning.in_place import plainer
from codezero.code.meaning.kinds import NUMBERS, STR, Kind, is_list
from codezero.code.meaning.loops import YIELDED, Loops
from codezero.code.meaning.safety import check_sharing
from codezero.code.meaning.statements import are_apart, assigned, changed_by, jumps, returns, without_pop
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    call,
    constant,
    mentions,
    name,
    parameters,
    part,
    same,
    target_names,
)  # fmt: skip
from codezero.code.parsing import declared, own_nodes


def term_of(tree: ast.Module, entry: ast.FunctionDef, kinds: Sequence[Kind], names: Names) -> ast.expr:
    """What `entry` returns for its parameters, which are of these kinds. Raises NotUnderstood."""
    wanted = parameters(entry)
    names.kinds.update(zip(wanted, kinds, strict=False))
    return _Reader(tree, names).applied(entry.name, entry, [name(each) for each in wanted], {}, mutable=True)


class _Reader(Loops):
    # ------------------------------------------------------------ functions

    def returned(self, function: Function, args: Sequence[ast.expr], around: Values, *, mutable: bool) -> ast.expr:
        """`mutable`: its arguments may change, as nobody else looks at them. `around`: what is known where a function
        inside another is called."""
        wanted = parameters(function)
        if len(wanted) != len(args):
            raise NotUnderstood("arguments")
        before = len(self.owed)
        values = {**around, **{each: self.kept(arg) for each, arg in zip(wanted, args, strict=True)}}
        if isinstance(function, ast.Lambda):
            result = self.simple(self.read(function.body, values))
        else:
            check_sharing(function, frozenset(() if mutable else wanted), self.names)
            result = self._body(function, values)
        self.settle(before, [result])
        return result

    def _body(self, function: ast.FunctionDef, values: Values) -> ast.expr:
        if not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function)):
            result = self.block(function.body, values, ast.Constant(None))
            return self.simple(result or ast.Constant(None))
        values[YIELDED] = ast.List([], ast.Load())
        if self.block(function.body, values, None) is not None:
            raise NotUnderstood("return in a generator")
        return call("iter", self.simple(values[YIELDED]))

    def applied(
        self, called: str, function: Function, args: list[ast.expr], around: Values, *, mutable: bool = False
    ) -> ast.expr:
        """A call of the program's own function; of one that calls itself, as the fold that it is."""
        around = {} if called in self.module else around
        if called in self.opened:
            return ast.Call(name(f"@{called}"), args, [])
        if isinstance(function, ast.Lambda) or not mentions(function, called):
            return self.returned(function, args, around, mutable=mutable)
        own = [name(self.names.fresh(self.names.kind(arg))) for arg in args]
        self.opened.append(called)
        term = self.returned(function, own, around, mutable=False)
        self.opened.pop()
        return recursions.recursion(term, f"@{called}", own, args, self.names)

    # ------------------------------------------------------------ statements

    def block(self, statements: Sequence[ast.stmt], values: Values, falls: ast.expr | None) -> ast.expr | None:
        """The term that is returned. `falls`: the term for the end of the block; None: then `values` say it all."""
        for at, statement in enumerate(statements):
            self.names.step()
            rest = statements[at + 1 :]
            if (plain := plainer(statement, values, self.names)) is not None:
                return self.block([*plain, *rest], values, falls)
            match statement:
                case ast.Return(value=value):
                    if falls is None:
                        raise NotUnderstood("return")
                    return (
                        ast.Constant(None)
                        if value is None
                        else self.read(without_pop(value, values, self.names), values)
                    )
                case ast.If() if jumps(statement):
                    return self._branches(statement, rest, values, falls)
                case ast.If():
                    self._merged(statement, values)
                case ast.For() if returns(statement):
                    return self.search(statement, rest, values, falls)
                case ast.For():
                    self.loop(statement, values)
                case ast.Continue() | ast.Break():
                    return falls
                case _:
                    self._simple_statement(statement, values)
        return falls

    def _simple_statement(self, statement: ast.stmt, values: Values) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Lambda() as function):
                self._define(target, function)
            case ast.FunctionDef(name=target, decorator_list=[]):
                self._define(target, statement)
            case ast.Assign():
                self._assignment(statement, values)
            case ast.AugAssign(target=ast.Name(id=target), op=op, value=value):
                before = self._value(target, values)
                grows = isinstance(value, ast.Tuple) and is_list(self.names.kind(before))
                added = self.read(ast.List(value.elts) if grows and isinstance(value, ast.Tuple) else value, values)
                self._assign(name(target), ast.BinOp(before, op, added), values)
            case ast.Expr(value=value):
                self._effect(value, values)
            case ast.Import() | ast.ImportFrom():
                self.imported(statement)
            case _:
                if not isinstance(statement, ast.Pass | ast.Nonlocal):
                    raise NotUnderstood(type(statement).__name__)

    def _assignment(self, statement: ast.Assign, values: Values) -> None:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=parts)) if are_apart(
                targets, parts
            ):
                for each, one in zip(targets, parts, strict=True):
                    self._simple_statement(ast.Assign([each], one), values)
            case ast.Assign(targets=targets, value=value):
                term = self.read(value, values)
                if len(targets) > 1 and self.names.kind(self.simple(term)) not in (*NUMBERS, STR):
                    raise NotUnderstood("a list with two names")
                for each in targets:
                    self.consumed -= set(target_names(each))
                    self._assign(each, term, values)

    def _procedure(self, function: ast.FunctionDef, args: list[ast.expr], values: Values) -> None:
        """A call for what it changes outside: lists that its methods change, and what it declares `nonlocal`."""
        own = parameters(function)
        if len(own) != len(args) or any(isinstance(node, ast.Return) for node in own_nodes(function)):
            raise NotUnderstood("a procedure")
        inside = values | {each: self.kept(arg) for each, arg in zip(own, args, strict=True)}
        before = len(self.owed)
        self.block(function.body, inside, None)
        changed = assigned(function.body) & set(values) - set(own)
        nodes = [node for node in own_nodes(function) if isinstance(node, ast.Name)]
        changed -= {node.id for node in nodes if isinstance(node.ctx, ast.Store)} - declared(function)
        self.settle(before, [inside[each] for each in changed])
        values.update((each, inside[each]) for each in changed)

    def _effect(self, value: ast.expr, values: Values) -> None:
        """A method that changes a list, a call of a procedure, or a yield."""
        match value:
            case ast.Call(func=ast.Name(id=called), args=args, keywords=[]) if called in self.functions:
                function = self.functions[called]
                if isinstance(function, ast.Lambda) or called in self.module:
                    raise NotUnderstood("a procedure")
                self._procedure(function, [self.read(arg, values) for arg in args], values)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr=method), args=args, keywords=keywords):
                arguments = [self.read(arg, values) for arg in args]
                before = self._value(target, values)
                if not is_list(self.names.kind(before)):
                    raise NotUnderstood("a method of no list")
                options = [ast.keyword(each.arg, self.read(each.value, values)) for each in keywords]
                changed = changed_by(before, method, arguments, options)
                self._assign(name(target), changed, values)
            case ast.Yield(value=ast.expr() as item):
                added = ast.List([self.read(item, values)], ast.Load())
                values[YIELDED] = ast.BinOp(values[YIELDED], ast.Add(), added)
            case ast.YieldFrom(value=items):
                values[YIELDED] = ast.BinOp(values[YIELDED], ast.Add(), call("list", self.read(items, values)))
            case _:
                raise NotUnderstood(type(value).__name__)

    def _define(self, target: str, function: Function) -> None:
        if self.functions.setdefault(target, function) is not function:
            raise NotUnderstood("a function defined again")

    def _value(self, target: str, values: Values) -> ast.expr:
        if target not in values:
            raise NotUnderstood(target)
        return values[target]

    def _assign(self, target: ast.expr, value: ast.expr, values: Values) -> None:
        match target, value:
            case _, ast.Lambda():
                raise NotUnderstood("a function with two names")
            case ast.Name(id=bound), _:
                values[bound] = self.kept(value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Tuple(elts=parts) | ast.List(elts=parts):
                if len(targets) != len(parts) or any(isinstance(each, ast.Starred) for each in (*targets, *parts)):
                    raise NotUnderstood("unpacking")
                for each, one in zip(targets, parts, strict=True):
                    self._assign(each, one, values)
            case ast.Tuple(elts=[ast.Name() as first, ast.Starred(value=rest)]), _ if is_list(self.names.kind(value)):
                self._assign(first, part(value, constant(0)), values)
                self._assign(rest, part(value, ast.Slice(constant(1), None, None)), values)
            case ast.Tuple(elts=[ast.Starred(value=rest), ast.Name() as last]), _ if is_list(self.names.kind(value)):
                self._assign(last, part(value, constant(-1)), values)
                self._assign(rest, part(value, ast.Slice(None, constant(-1), None)), values)
            case ast.Tuple(elts=[first, second]), ast.Call(func=ast.Name(id="divmod"), args=[one, other]):
                self._assign(first, ast.BinOp(one, ast.FloorDiv(), other), values)
                self._assign(second, ast.BinOp(one, ast.Mod(), other), values)
            case _:
                raise NotUnderstood("unpacking")

    def _branches(
        self, statement: ast.If, rest: Sequence[ast.stmt], values: Values, falls: ast.expr | None
    ) -> ast.expr | None:
        """Of branches that leave: each with all that follows it."""
        test, other = self.read(statement.test, values), dict(values)
        first = self.branch([*statement.body, *rest], values, falls)
        second = self.branch([*statement.orelse, *rest], other, falls)
        if first is not None and second is not None:
            return ast.IfExp(test, first, second)
        if first is None and second is None:
            self._choose(test, values, other)
            return None
        raise NotUnderstood("return")

    def branch(self, block: Sequence[ast.stmt], values: Values, falls: ast.expr | None) -> ast.expr | None:
        before = len(self.owed)
        result = self.block(block, values, falls)
        made = [values[each] for each in assigned(block) if each in values] if result is None else [result]
        self.settle(before, [self.simple(each) for each in made])
        return result

    def _merged(self, statement: ast.If, values: Values) -> None:
        test, other, before = self.read(statement.test, values), dict(values), dict(values)
        self.branch(statement.body, values, None)
        self.branch(statement.orelse, other, None)
        self._choose(test, values, other)
        if values == before:
            self.kept(test)  # nothing else evaluates it

    def _choose(self, test: ast.expr, values: Values, other: Values) -> None:
        for bound in {*values, *other}:
            one, two = values.get(bound), other.get(bound)
            if one is None or two is None:
                values.pop(bound, None)  # it might be unbound, and is not understood where it is read
            elif not same(one, two):
                values[bound] = ast.IfExp(test, one, two)
