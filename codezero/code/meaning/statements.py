"""Statements in a plainer form: loops that count or take away as loops over items, cases as branches."""

import ast
from collections.abc import Sequence

from codezero.code.meaning.expressions import Values
from codezero.code.meaning.kinds import is_list
from codezero.code.meaning.terms import (
    Names,
    NotUnderstood,
    call,
    constant,
    mentions,
    name,
    number,
    part,
    reverse,
    same,
)
from codezero.code.parsing import own_nodes

_TAKEN = "@taken"


def are_apart(targets: Sequence[ast.expr], parts: Sequence[ast.expr]) -> bool:
    """Several assignments in one, of which none needs what another changes; a function among them."""
    bound = [each.id for each in targets if isinstance(each, ast.Name)]
    functions = any(isinstance(each, ast.Lambda) for each in parts)
    plain = len(bound) == len(targets) == len(parts) and not any(mentions(each, *bound) for each in parts)
    return functions and plain


def appending(statement: ast.For, values: Values) -> ast.For:
    """A loop over indices that sets every item of a list once: the same that appends them to an empty one."""
    match statement:
        case ast.For(target=ast.Name(id=index), iter=ast.Call(func=ast.Name(id="range"), args=[length])):
            pass
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=index), ast.Name()]),
            iter=ast.Call(func=ast.Name(id="enumerate"), args=[whole]),
        ):
            length = call("len", whole)
        case _:
            return statement
    if jumps(statement) or index in assigned(statement.body):
        return statement
    for at, each in enumerate(statement.body):
        match each:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=bound), slice=ast.Name(id=used))], value=value):
                filled = _is_blank(values.get(bound), length, values)
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=bound), attr="insert"), args=[ast.Name(id=used), value]
                )
            ):
                begun = values.get(bound)
                filled = isinstance(begun, ast.List) and not begun.elts
            case _:
                continue
        body = [*statement.body[:at], *statement.body[at + 1 :]]
        if filled and used == index and not any(mentions(part, bound) for part in (*body, value)):
            values[bound] = ast.List([], ast.Load())
            added = ast.Expr(ast.Call(ast.Attribute(name(bound), "append", ast.Load()), [value], []))
            return ast.For(statement.target, statement.iter, [*body[:at], added, *body[at:]], [])
    return statement


def _is_blank(term: ast.expr | None, length: ast.expr, values: Values) -> bool:
    """A list of as many constants as `length`, which is a number of the program's text, says."""
    match term:
        case ast.BinOp(left=ast.List(elts=[ast.Constant()]), op=ast.Mult(), right=times):
            if isinstance(length, ast.Name):
                return length.id in values and same(times, values[length.id])
            match times, length:
                case (
                    ast.Call(func=ast.Name(id="len"), args=[one]),
                    ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=other)]),
                ):
                    return same(one, values.get(other, name(other)))
                case _:
                    return False
        case _:
            return False


def _is_list(bound: str, values: Values, names: Names) -> bool:
    return bound in values and is_list(names.kind(values[bound]))


def assigned(statements: Sequence[ast.stmt]) -> set[str]:
    bound = set[str]()
    for node in (each for statement in statements for each in ast.walk(statement)):
        match node:
            case ast.Name(id=target, ctx=ast.Store()):
                bound.add(target)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=target)))):
                bound.add(target)
            case _:
                pass
    return bound


def jumps(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in ast.walk(statement))


def returns(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return) for node in own_nodes(statement))


NEVER, FOUND = "never", "found"


def ends_early(statement: ast.For) -> str:
    """Where a break ends the loop: FOUND, at the end of the only branch; or the list that grows, of which the first
    branch asks how long it is. Raises NotUnderstood for another, as it is not plain what has happened until then."""
    breaks = sum(isinstance(node, ast.Break) for node in ast.walk(statement))
    match statement.body:
        case _ if not breaks:
            return NEVER
        case [ast.If(body=[*_, ast.Break()], orelse=[])] if breaks == 1:
            return FOUND
        case [
            ast.If(
                test=ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=bound)])),
                body=[ast.Break()],
                orelse=[],
            ),
            *rest,
        ] if breaks == 1 and bound in assigned(rest):
            return bound
        case _:
            pass
    raise NotUnderstood("break")


def as_for(statement: ast.While, values: Values, names: Names) -> ast.For:
    """`while i < n: ..; i += 1` and `while xs: x = xs.pop(0); ..` as loops over what they take one by one."""
    match statement:
        case ast.While(orelse=[_, *_]):
            pass
        case ast.While(test=ast.Constant(value=True), body=[ast.If(test=test, body=[ast.Break()], orelse=[]), *body]):
            return as_for(ast.While(ast.UnaryOp(ast.Not(), test), body, []), values, names)
        case ast.While(test=ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=left, ops=[op], comparators=[right]))):
            if isinstance(op, ast.GtE | ast.Eq):
                below: ast.cmpop = ast.Lt() if isinstance(op, ast.GtE) else ast.NotEq()
                return as_for(ast.While(ast.Compare(left, [below], [right]), statement.body, []), values, names)
        case ast.While(test=ast.Compare(left=ast.Name(id=index), ops=[op], comparators=[limit])):
            counted = _counting(index, op, limit, statement.body, values)
            if counted is not None:
                return counted
        case ast.While(body=[ast.Assign(targets=[ast.Name() as item], value=ast.Call() as popped), *body]):
            taken = _taken(statement.test, popped, body, values, names)
            if taken is not None:
                return ast.For(item, taken, body or [ast.Pass()], [])
        case _:
            pass
    raise NotUnderstood("while")


def _is_len(term: ast.expr) -> bool:
    return isinstance(term, ast.Call) and isinstance(term.func, ast.Name) and term.func.id == "len"


def _counting(index: str, op: ast.cmpop, limit: ast.expr, body: Sequence[ast.stmt], values: Values) -> ast.For | None:
    """`while i < n` with `i += 1`, and `while i >= 0` with `i -= 1`."""
    if isinstance(op, ast.Lt) or (isinstance(op, ast.NotEq) and number(values.get(index)) == 0 and _is_len(limit)):
        return _counted(index, limit, body, values)
    down = isinstance(op, ast.GtE | ast.Gt) and number(limit) == (0 if isinstance(op, ast.GtE) else -1)
    return _counted(index, None, body, values) if down else None


def _counted(index: str, limit: ast.expr | None, body: Sequence[ast.stmt], values: Values) -> ast.For | None:
    """limit: None: it counts down to 0."""
    steps = [at for at, each in enumerate(body) if _is_step(each, index, ast.Sub if limit is None else ast.Add)]
    if len(steps) != 1 or index not in values or (limit and number(values[index]) is None):
        return None
    before, after = body[: steps[0]], body[steps[0] + 1 :]
    changed = assigned([*before, *after])
    jumps = any(isinstance(node, ast.Continue | ast.Break) for part in body for node in ast.walk(part))
    needed = {index, *(each.id for each in ast.walk(limit or values[index]) if isinstance(each, ast.Name))}
    if changed & needed or jumps:
        return None
    if any(mentions(each, index) for each in after):
        return None
    bounds = [limit] if limit else [constant(-1), constant(-1)]
    counts = call("range", values.pop(index), *bounds)
    return ast.For(ast.Name(index, ast.Store()), counts, [*before, *after] or [ast.Pass()], [])


def _is_step(statement: ast.stmt, index: str, way: type[ast.operator]) -> bool:
    """`i += 1` or `i = i + 1`."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=bound), op=op, value=ast.Constant(value=1)):
            return bound == index and isinstance(op, way)
        case ast.Assign(
            targets=[ast.Name(id=bound)],
            value=ast.BinOp(left=ast.Name(id=before), op=op, right=ast.Constant(value=1)),
        ):
            return bound == before == index and isinstance(op, way)
        case _:
            return False


def _taken(test: ast.expr, popped: ast.Call, body: Sequence[ast.stmt], values: Values, names: Names) -> ast.expr | None:
    """The list that is emptied from its front, or reversed where it is from its end; its variable has nothing left."""
    match test, popped:
        case ast.Name(id=bound), ast.Call(func=ast.Attribute(value=ast.Name(id=whole), attr="pop"), args=args):
            alone = bound == whole and bound in values and not any(mentions(each, bound) for each in body)
            jumps = any(isinstance(node, ast.Break) for part in body for node in ast.walk(part))
            front = len(args) == 1 and number(args[0]) == 0
            if not alone or jumps or not _is_list(bound, values, names) or (args and not front):
                return None
            values[_TAKEN], values[bound] = values[bound], ast.List([], ast.Load())
            return name(_TAKEN) if front else reverse(name(_TAKEN))
        case ast.Call(func=ast.Name(id="len"), args=[inner]), _:
            return _taken(inner, popped, body, values, names)
        case ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)]), _:
            return _taken(left, popped, body, values, names)
        case _:
            return None


def changed_by(before: ast.expr, method: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
    """A list after one of its methods was called. Raises NotUnderstood for one that is a part of something else."""
    own = isinstance(before, ast.BinOp | ast.List | ast.ListComp | ast.Call) or (
        before.id[0] != "_" if isinstance(before, ast.Name) else isinstance(before, ast.Subscript | ast.IfExp)
    )
    if not own or (isinstance(before, ast.Subscript) and not isinstance(before.slice, ast.Slice)):
        raise NotUnderstood("a part that changes")
    match method, args:
        case "append", [value] if not keywords:
            return ast.BinOp(before, ast.Add(), ast.List([value], ast.Load()))
        case "extend", [value] if not keywords:
            return ast.BinOp(before, ast.Add(), call("list", value))
        case "insert", [at, value] if number(at) == 0:
            return ast.BinOp(ast.List([value], ast.Load()), ast.Add(), before)
        case "reverse", []:
            return reverse(before)
        case "sort", [] if all(each.arg in ("key", "reverse") for each in keywords):
            return ast.Call(name("sorted"), [before], keywords)
        case _:
            raise NotUnderstood(method)


def without_pop(value: ast.expr, values: Values, names: Names) -> ast.expr:
    """What a function returns last: `out.pop()` is `out[-1]` there."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=bound) as whole, attr="pop"), args=args, keywords=[]) if (
            _is_list(bound, values, names)
        ):
            at = [number(each) for each in args]
            return part(whole, constant(-1 if not at else 0)) if at in ([], [0]) else value
        case _:
            return value
