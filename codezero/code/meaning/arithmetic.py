"""Rules for arithmetic of whole numbers, and for functions that stand for operators."""

import ast

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.kinds import BOOL, INT, STR, WHOLE, cannot_fail, is_list
from codezero.code.meaning.terms import Names, call, compare, constant, number, order_of, part, same

_BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "floordiv": ast.FloorDiv, "mod": ast.Mod, "pow": ast.Pow,
    "truediv": ast.Div, "and_": ast.BitAnd, "concat": ast.Add, "iadd": ast.Add,
}  # fmt: skip
_UNARY: dict[str, type[ast.unaryop]] = {"neg": ast.USub, "not_": ast.Not}
_COMPARED: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE,
}  # fmt: skip


def _function(term: ast.Call, names: Names) -> ast.expr | None:
    """`operator.add(a, b)` and `pow(a, 2)` as operators."""
    if not isinstance(term.func, ast.Name) or term.keywords:
        return None
    owner, _, function = term.func.id.rpartition(".")
    match term.args:
        case [left, right] if owner == "operator" or (owner, function) == ("", "pow"):
            if function in _BINARY:
                return ast.BinOp(left, _BINARY[function](), right)
            if function in _COMPARED:
                return compare(left, _COMPARED[function](), right)
            return part(left, right) if function == "getitem" else None
        case [only] if owner == "operator" and function in _UNARY:
            return ast.UnaryOp(_UNARY[function](), only)
        case _:
            return None


def _divmod(term: ast.Subscript, _: Names) -> ast.expr | None:
    match term.value, number(term.slice):
        case ast.Call(func=ast.Name(id="divmod"), args=[left, right]), (0 | 1) as index:
            return ast.BinOp(left, ast.Mod() if index else ast.FloorDiv(), right)
        case _:
            return None


def _negated(term: ast.UnaryOp, names: Names) -> ast.expr | None:
    match term:
        case ast.UnaryOp(op=ast.UAdd(), operand=operand) if names.kind(operand) == INT:
            return operand
        case ast.UnaryOp(op=ast.USub(), operand=ast.UnaryOp(op=ast.USub(), operand=inner)) if names.kind(inner) == INT:
            return inner
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(left=a, op=ast.Sub(), right=b)) if names.kind(a) == INT:
            return ast.BinOp(b, ast.Sub(), a) if names.kind(b) == INT else None
        case ast.UnaryOp(op=ast.Invert(), operand=inner) if names.kind(inner) == INT:
            return ast.BinOp(ast.UnaryOp(ast.USub(), inner), ast.Sub(), constant(1))
        case _:
            return None


def _operator(term: ast.BinOp, names: Names) -> ast.expr | None:
    if {names.kind(term.left), names.kind(term.right)} - {*WHOLE}:
        return None
    left, right, value = term.left, term.right, number(term.right)
    if number(left) is not None and value is not None:
        return _computed(number(left) or 0, term.op, value)
    match term.op:
        case ast.Add() | ast.Sub():
            return _sum(left, term.op, right)
        case ast.Mult():
            return _product(left, right)
        case ast.BitAnd() if (mask := value or number(left) or 0) > 0 and mask & (mask + 1) == 0:
            return ast.BinOp(right if value is None else left, ast.Mod(), constant(mask + 1))
        case _:
            return _power(left, term.op, value)


def _power(left: ast.expr, op: ast.operator, value: int | None) -> ast.expr | None:
    match left:
        case ast.BinOp(left=whole, op=ast.Sub(), right=ast.BinOp(left=again, op=ast.Mod(), right=by)) if (
            isinstance(op, ast.FloorDiv) and same(whole, again) and number(by) == value
        ):
            return ast.BinOp(whole, op, by)
        case _:
            pass
    match op, value:
        case ast.Pow(), 2:
            return ast.BinOp(left, ast.Mult(), left)
        case ast.Pow() | ast.FloorDiv(), 1:
            return left
        case ast.LShift(), int() if 0 < value < 16:
            return ast.BinOp(left, ast.Mult(), constant(2**value))
        case ast.RShift(), int() if 0 < value < 16:
            return ast.BinOp(left, ast.FloorDiv(), constant(2**value))
        case _:
            return None


def _computed(left: int, op: ast.operator, right: int) -> ast.expr | None:
    match op:
        case ast.Add():
            return constant(left + right)
        case ast.Sub():
            return constant(left - right)
        case ast.Mult() if max(abs(left), abs(right)) < 10**9:
            return constant(left * right)
        case _:
            return None


def _sum(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr | None:
    """Constants stand right and are positive; what is added twice is doubled."""
    value, adds = number(right), isinstance(op, ast.Add)
    if value == 0:
        return left
    if value is not None and value < 0:
        return ast.BinOp(left, ast.Sub() if adds else ast.Add(), constant(-value))
    if number(left) == 0:
        return right if adds else ast.UnaryOp(ast.USub(), right)
    if (shorter := _cancelled(left, right, adds)) is not None:
        return shorter
    if not adds:
        return _remainder(left, right)
    if same(left, right):
        return ast.BinOp(left, ast.Mult(), constant(2))
    if (more := _once_more(left, right)) is not None:
        return more
    return ast.BinOp(right, op, left) if _stands_right(left, right) else None


def _cancelled(left: ast.expr, right: ast.expr, adds: bool) -> ast.expr | None:
    """`a + -b` is `a - b`, `a - b + b` is `a`."""
    match left, right:
        case _, ast.UnaryOp(op=ast.USub(), operand=inner) if number(right) is None:
            return ast.BinOp(left, ast.Sub() if adds else ast.Add(), inner)
        case ast.UnaryOp(op=ast.USub(), operand=inner), _ if adds and number(right) is None and number(left) is None:
            return ast.BinOp(right, ast.Sub(), inner)
        case ast.BinOp(left=first, op=ast.Sub(), right=second), _ if adds and same(second, right):
            return first
        case ast.BinOp(left=first, op=ast.Add(), right=second), _ if not adds and same(second, right):
            return first
        case _, ast.BinOp(left=first, op=ast.Sub(), right=second) if adds and same(second, left):
            return first
        case _:
            return None


def _once_more(left: ast.expr, right: ast.expr) -> ast.expr | None:
    """`x * 2 + x` is `x * 3`."""
    match left:
        case ast.BinOp(left=inner, op=ast.Mult(), right=times) if number(times) is not None and same(inner, right):
            return ast.BinOp(inner, ast.Mult(), constant((number(times) or 0) + 1))
        case _:
            return None


def _remainder(left: ast.expr, right: ast.expr) -> ast.expr | None:
    """`x - x // 3 * 3` is `x % 3`."""
    match right:
        case ast.BinOp(left=ast.BinOp(left=inner, op=ast.FloorDiv(), right=by), op=ast.Mult(), right=times) if (
            same(inner, left) and same(by, times) and number(by)
        ):
            return ast.BinOp(left, ast.Mod(), by)
        case _:
            return None


def _product(left: ast.expr, right: ast.expr) -> ast.expr | None:
    value = number(right)
    if value == 1:
        return left
    if value == -1:
        return ast.UnaryOp(ast.USub(), left)
    match left, right:
        case ast.UnaryOp(op=ast.USub(), operand=one), ast.UnaryOp(op=ast.USub(), operand=other) if value is None:
            return ast.BinOp(one, ast.Mult(), other)
        case _:
            return ast.BinOp(right, ast.Mult(), left) if _stands_right(left, right) else None


def _stands_right(left: ast.expr, right: ast.expr) -> bool:
    """Should the operands be turned? Constants stand right, else they stand by their text."""
    if number(left) is not None or number(right) is not None:
        return number(right) is None
    return order_of(left) > order_of(right)


def _divisible(term: ast.Compare, names: Names) -> ast.expr | None:
    """`x // 3 * 3 == x` is `x % 3 == 0`, and so are `x / 3 == x // 3` and `x / 3 == int(x / 3)`."""
    if not isinstance(term.ops[0], ast.Eq | ast.NotEq) or len(term.ops) > 1:
        return None
    for one, other in ((term.left, term.comparators[0]), (term.comparators[0], term.left)):
        match one:
            case ast.BinOp(left=ast.BinOp(left=inner, op=ast.FloorDiv(), right=by), op=ast.Mult(), right=times) if (
                same(inner, other) and same(by, times) and number(by) and names.kind(inner) in WHOLE
            ):
                return compare(ast.BinOp(inner, ast.Mod(), by), term.ops[0], constant(0))
            case ast.BinOp(left=inner, op=ast.Div(), right=by) if number(by) and names.kind(inner) in WHOLE:
                whole = ast.BinOp(inner, ast.FloorDiv(), by)
                if same(other, whole) or same(other, call("int", one)):
                    return compare(ast.BinOp(inner, ast.Mod(), by), term.ops[0], constant(0))
            case _:
                pass
    return None


def _distributed(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`x * (1 if p else -1)` is a choice of products, `a * p` one of `a` and 0, and of two choices by one condition a
    sum is a choice of sums."""
    left, op, right = term.left, term.op, term.right
    if {names.kind(left), names.kind(right)} - {*WHOLE}:
        return None
    left, right = (_without_int(each, names) if isinstance(op, ast.Mult) else each for each in (left, right))
    if isinstance(op, ast.Mult) and BOOL in (names.kind(left), names.kind(right)):
        test, value = (right, left) if names.kind(right) == BOOL else (left, right)
        return ast.IfExp(test, value, constant(0)) if cannot_fail(value, names.kinds) else None
    match left, right:
        case ast.IfExp(test=test, body=a, orelse=b), ast.IfExp(test=again, body=c, orelse=d) if same(test, again):
            return ast.IfExp(test, ast.BinOp(a, op, c), ast.BinOp(b, op, d))
        case ast.IfExp(test=test, body=one, orelse=other), _ if _are_plain(one, other, op):
            return ast.IfExp(test, ast.BinOp(one, op, right), ast.BinOp(other, op, right))
        case _, ast.IfExp(test=test, body=one, orelse=other) if _are_plain(one, other, op):
            return ast.IfExp(test, ast.BinOp(left, op, one), ast.BinOp(left, op, other))
        case _:
            return None


def _without_int(term: ast.expr, names: Names) -> ast.expr:
    """A condition that was made a number."""
    match term:
        case ast.Call(func=ast.Name(id="int"), args=[inner]) if names.kind(inner) == BOOL:
            return inner
        case _:
            return term


def _are_plain(one: ast.expr, other: ast.expr, op: ast.operator) -> bool:
    """Two constants, or a sum with nothing for one of the two."""
    known = [number(each) for each in (one, other)]
    return None not in known or (0 in known and isinstance(op, ast.Add | ast.Sub))


def _rounded(term: ast.Call, names: Names) -> ast.expr | None:
    """`math.floor(x / 3)` and other detours over fractions, of numbers below 2**53; `sum([a, b])` is `a + b`."""
    match term:
        case ast.Call(func=ast.Name(id="math.floor"), args=[ast.BinOp(left=left, op=ast.Div(), right=right)]):
            whole = names.kind(left) in WHOLE and names.kind(right) in WHOLE
            return ast.BinOp(left, ast.FloorDiv(), right) if whole else None
        case ast.Call(
            func=ast.Name(id="int"),
            args=[ast.BinOp(left=ast.BinOp(left=left, op=ast.Div(), right=right), op=ast.FloorDiv(), right=one)],
        ) if number(one) == 1 and names.kind(left) in WHOLE and names.kind(right) in WHOLE:
            return ast.BinOp(left, ast.FloorDiv(), right)
        case ast.Call(func=ast.Name(id="int"), args=[ast.Call(func=ast.Name(id="math.fabs"), args=[inner])]):
            return call("abs", inner) if names.kind(inner) in WHOLE else None
        case ast.Call(func=ast.Name(id="int"), args=[ast.Call(func=ast.Name(id="math.pow"), args=[base, power])]):
            return ast.BinOp(base, ast.Pow(), power) if names.kind(base) in WHOLE and number(power) == 2 else None
        case ast.Call(func=ast.Name(id="sum"), args=[ast.List(elts=[first, second]) | ast.Tuple(elts=[first, second])]):
            return ast.BinOp(first, ast.Add(), second) if {names.kind(first), names.kind(second)} <= {*WHOLE} else None
        case _:
            return None


def _repeated(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`3 * s` is `s * 3`; `s + s` is `s * 2`."""
    kind = names.kind(term)
    if kind != STR and not is_list(kind):
        return None
    match term.op:
        case ast.Mult() if names.kind(term.left) in WHOLE:
            return ast.BinOp(term.right, ast.Mult(), term.left)
        case ast.Mult() if number(term.right) == 1:
            return term.left
        case ast.Add() if same(term.left, term.right):
            return ast.BinOp(term.left, ast.Mult(), constant(2))
        case ast.Add():
            return _once_more(term.left, term.right)
        case _:
            return None


RULES: Rules = {
    ast.Call: (_function, _rounded),
    ast.Subscript: (_divmod,),
    ast.UnaryOp: (_negated,),
    ast.BinOp: (_operator, _distributed, _repeated),
    ast.Compare: (_divisible,),
}
