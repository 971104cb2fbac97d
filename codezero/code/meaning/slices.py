"""Rules for parts of lists and texts."""

import ast

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.indices import is_sequence
from codezero.code.meaning.kinds import ORDERED, element
from codezero.code.meaning.terms import Names, call, constant, is_reverse, is_true, name, number, part, reverse, same


def _indexed(term: ast.Subscript, names: Names) -> ast.expr | None:
    """Parts of lists and texts."""
    value, index, kind = term.value, term.slice, names.kind(term.value)
    match index:
        case ast.Call(func=ast.Name(id="slice"), args=args):
            parts = [None if isinstance(each, ast.Constant) and each.value is None else each for each in args]
            bounds = [None, *parts] if len(parts) == 1 else parts
            return part(value, ast.Slice(*bounds))
        case _:
            pass
    if not is_sequence(value, names):
        return None
    if isinstance(index, ast.Slice):
        return _sliced(value, index, kind, names)
    match value, number(index):
        case ast.Call(func=ast.Name(id="sorted"), args=[inner], keywords=keywords), (0 | -1) as at:
            if _only_reversed(keywords) and element(kind) in ORDERED:
                return call("max" if (at == -1) is not bool(keywords) else "min", inner)
        case ast.Call(func=ast.Name(id="sorted"), args=[ast.List(elts=[_, _]) as pair], keywords=[]), 1:
            return call("max", pair)
        case ast.Subscript(value=inner, slice=back), (0 | -1) as at if is_reverse(back):
            return part(inner, constant(-1 if at == 0 else 0))
        case _:
            pass
    match index:
        case ast.BinOp(left=ast.Call(func=ast.Name(id="len"), args=[whole]), op=ast.Sub(), right=by) if same(
            whole, value
        ):
            return part(value, constant(-1)) if number(by) == 1 else None
        case _:
            return None


def _sliced(value: ast.expr, index: ast.Slice, kind: str, names: Names) -> ast.expr | None:
    lower, upper, step = index.lower, index.upper, index.step
    if number(step) == 1 or (isinstance(step, ast.Constant) and step.value is None):
        return part(value, ast.Slice(lower, upper, None))
    if number(step) == -1:
        return _backwards(value, lower, upper, kind, names)
    if step is not None:
        return None
    if number(lower) == 0 or (isinstance(lower, ast.Constant) and lower.value is None):
        return part(value, ast.Slice(None, upper, None))
    if _is_length(upper, value) or (isinstance(upper, ast.Constant) and upper.value is None):
        return part(value, ast.Slice(lower, None, None))
    if lower is None and upper is None:
        return value
    if upper is None and (last := _last(lower, value)) is not None:
        return part(value, ast.Slice(constant(-last), None, None))
    match value:
        case ast.Subscript(value=inner, slice=back) if is_reverse(back) and lower is None and (number(upper) or 0) > 0:
            return reverse(part(inner, ast.Slice(constant(-(number(upper) or 0)), None, None)))
        case ast.Subscript(value=inner, slice=back) if is_reverse(back) and upper is None and (number(lower) or 0) < 0:
            return reverse(part(inner, ast.Slice(None, constant(-(number(lower) or 0)), None)))
        case _:
            return None


def _backwards(
    value: ast.expr, lower: ast.expr | None, upper: ast.expr | None, kind: str, names: Names
) -> ast.expr | None:
    from_end = lower is None or number(lower) == -1 or _is_length(lower, value)
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub) and number(lower.right) == 1:
        from_end |= _is_length(lower.left, value)
    if upper is None and lower is not None and (number(lower) or 0) > 0:
        return reverse(part(value, ast.Slice(None, constant((number(lower) or 0) + 1), None)))
    if upper is not None or not from_end:
        return None
    if lower is not None:
        return reverse(value)
    match value:
        case ast.Subscript(value=inner, slice=back) if is_reverse(back):
            return inner
        case ast.Call(func=ast.Name(id="sorted"), args=[inner], keywords=keywords) if element(kind) in ORDERED:
            flags = [] if keywords else [ast.keyword("reverse", ast.Constant(True))]
            return ast.Call(name("sorted"), [inner], flags) if _only_reversed(keywords) else None
        case _:
            return None


def _only_reversed(keywords: list[ast.keyword]) -> bool:
    """No keyword, or `reverse=True`."""
    return all(each.arg == "reverse" and is_true(each.value, True) for each in keywords)


def _is_length(term: ast.expr | None, value: ast.expr) -> bool:
    match term:
        case ast.Call(func=ast.Name(id="len"), args=[whole]):
            return same(whole, value)
        case _:
            return False


def _last(lower: ast.expr | None, value: ast.expr) -> int | None:
    """How many items `xs[max(0, len(xs) - k):]` takes."""
    match lower:
        case ast.Call(func=ast.Name(id="max"), args=[first, second]):
            for zero, rest in ((first, second), (second, first)):
                match rest:
                    case ast.BinOp(left=length, op=ast.Sub(), right=by) if number(zero) == 0 and _is_length(
                        length, value
                    ):
                        return number(by) if (number(by) or 0) > 0 else None
                    case _:
                        pass
        case _:
            pass
    return None


def _cut(term: ast.IfExp, names: Names) -> ast.expr | None:
    """`xs[:2] if len(xs) > 2 else xs` is `xs[:2]`, and so at the other end."""
    match term:
        case ast.IfExp(
            test=ast.Compare(left=length, ops=[ast.Gt()], comparators=[most]),
            body=ast.Subscript(value=whole, slice=ast.Slice(lower=lower, upper=upper, step=None)) as short,
            orelse=other,
        ) if same(whole, other) and _is_length(length, whole) and is_sequence(whole, names):
            limit = number(most) or 0
            first, last = lower is None and number(upper) == limit, upper is None and number(lower) == -limit
            return short if limit > 0 and (first or last) else None
        case _:
            return None


RULES: Rules = {ast.Subscript: (_indexed,), ast.IfExp: (_cut,)}
