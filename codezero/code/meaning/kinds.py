"""What kind of value an expression has, as far as that follows from the arguments that tests call it with.

A kind is a word: `int` (`bool` among them), `bool`, `float`, `str`; `[int]`, a list of them; `[]`, an empty one; `any`.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from codezero.code.assertions import calls_of

Kind = str
ANY, INT, BOOL, FLOAT, STR, NOTHING = "any", "int", "bool", "float", "str", ""
NUMBERS = (INT, BOOL, FLOAT)
WHOLE = (INT, BOOL)
ORDERED = (INT, BOOL, STR)
"""Any two of a kind are less, equal or greater: of floats NaN is none of it."""


def list_of(element: Kind) -> Kind:
    return f"[{element}]"


def is_list(kind: Kind) -> bool:
    return kind.startswith("[")


def has_length(kind: Kind) -> bool:
    return kind == STR or is_list(kind)


def iterator_of(element: Kind) -> Kind:
    """What is iterated once and is no list: it has no length and no parts."""
    return f"<{element}>"


def element(kind: Kind) -> Kind:
    """Of what is iterated."""
    return kind[1:-1] if kind[:1] in ("[", "<") and kind else STR if kind == STR else ANY


def join(one: Kind, other: Kind) -> Kind:
    """The kind of a value that is of either."""
    if one == other or NOTHING in (one, other):
        return one or other
    if is_list(one) and is_list(other):
        return list_of(join(element(one), element(other)))
    if one in NUMBERS and other in NUMBERS:
        return FLOAT if FLOAT in (one, other) else INT
    return ANY


def joined(kinds: Iterable[Kind]) -> Kind:
    return reduce(join, kinds, NOTHING)


def argument_kinds(tests: tuple[str, ...], entry: str) -> tuple[Kind, ...]:
    """By position, over all calls; empty where a call is not of literals alone."""
    calls = calls_of(tests, entry) if entry else ()
    if not calls or any(None in call.args or call.keywords or not call.whole for call in calls):
        return ()
    if len({call.npos for call in calls}) > 1:
        return ()
    try:
        rows = [[kind_of(ast.parse(str(arg), mode="eval").body, {}) for arg in call.args] for call in calls]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(joined(column) or ANY for column in zip(*rows, strict=True))


_RESULTS: Mapping[str, Kind] = {
    "len": INT, "int": INT, "ord": INT, "hash": INT, "str": STR, "chr": STR, "repr": STR, "bool": BOOL, "any": BOOL,
    "all": BOOL, "isinstance": BOOL, "float": FLOAT, "range": "<int>",
}  # fmt: skip
_TEXT_METHODS: Mapping[str, Kind] = {
    **dict.fromkeys(("upper", "lower", "title", "strip", "lstrip", "rstrip", "replace", "capitalize", "swapcase",
                     "join", "zfill", "center", "ljust", "rjust", "removeprefix", "removesuffix", "format"), STR),
    **dict.fromkeys(("count", "index", "find", "rfind", "rindex"), INT),
    **dict.fromkeys(("isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace", "startswith", "endswith"), BOOL),
    **dict.fromkeys(("split", "splitlines"), list_of(STR)),
}  # fmt: skip


def kind_of(node: ast.expr, known: Mapping[str, Kind]) -> Kind:
    """`known`: of the variables."""
    match node:
        case ast.Constant(value=value):
            return type(value).__name__ if isinstance(value, bool | int | float | str) else ANY
        case ast.Name(id=name):
            return known.get(name, ANY)
        case ast.Compare():
            return BOOL
        case ast.JoinedStr():
            return STR
        case ast.UnaryOp() | ast.BinOp() | ast.BoolOp() | ast.IfExp():
            return _operation(node, known)
        case ast.List(elts=parts):
            starred = any(isinstance(part, ast.Starred) for part in parts)
            return list_of(ANY if starred else joined(kind_of(part, known) for part in parts))
        case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
            made = list_of if isinstance(node, ast.ListComp) else iterator_of
            return made(kind_of(elt, known))
        case ast.Subscript(value=value, slice=index):
            kind = kind_of(value, known)
            return kind if isinstance(index, ast.Slice) else element(kind)
        case ast.Call():
            return _result(node, known)
        case _:
            return ANY


def _operation(node: ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.IfExp, known: Mapping[str, Kind]) -> Kind:
    match node:
        case ast.UnaryOp(op=op, operand=operand):
            kind = kind_of(operand, known)
            return BOOL if isinstance(op, ast.Not) else (INT if kind == BOOL else kind) if kind in NUMBERS else ANY
        case ast.BinOp():
            return _arithmetic(node, kind_of(node.left, known), kind_of(node.right, known))
        case ast.BoolOp(values=parts):
            return joined(kind_of(part, known) for part in parts)
        case ast.IfExp(body=body, orelse=orelse):
            return join(kind_of(body, known), kind_of(orelse, known))


def _arithmetic(node: ast.BinOp, left: Kind, right: Kind) -> Kind:
    match node.op:
        case ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod() if left in NUMBERS and right in NUMBERS:
            return FLOAT if FLOAT in (left, right) else INT
        case ast.BitAnd() | ast.LShift() | ast.RShift() if left in WHOLE and right in WHOLE:
            return BOOL if left == right == BOOL and isinstance(node.op, ast.BitAnd) else INT
        case ast.Div() if left in NUMBERS and right in NUMBERS:
            return FLOAT
        case ast.Add() if left == right == STR or (is_list(left) and is_list(right)):
            return join(left, right)
        case ast.Mult() if right in WHOLE and (left == STR or is_list(left)):
            return left
        case ast.Mult() if left in WHOLE and (right == STR or is_list(right)):
            return right
        case ast.Mod() if left == STR:
            return STR
        case ast.Pow() if left in WHOLE and isinstance(node.right, ast.Constant) and right == INT:
            return INT
        case _:
            return ANY


def _result(node: ast.Call, known: Mapping[str, Kind]) -> Kind:
    kinds: Sequence[Kind] = [kind_of(argument, known) for argument in node.args]
    match node.func:
        case ast.Name(id="abs" | "sum" as function) if kinds:
            kind = kinds[0] if function == "abs" else element(kinds[0])
            return INT if kind == BOOL or (kind == NOTHING and function == "sum") else kind if kind in NUMBERS else ANY
        case ast.Name(id="max" | "min"):
            return element(kinds[0]) if len(kinds) == 1 else joined(kinds)
        case ast.Name(id="sorted" | "list") if kinds:
            return list_of(element(kinds[0]))
        case ast.Name(id="reversed" | "iter") if kinds:
            return iterator_of(element(kinds[0]))
        case ast.Name(id=name):
            return _RESULTS.get(name, ANY)
        case ast.Attribute(value=value, attr=method):
            of_text = method != "index" and method != "count" and kind_of(value, known) != STR
            return ANY if of_text else _TEXT_METHODS.get(method, ANY)
        case _:
            return ANY


def cannot_fail(node: ast.expr, known: Mapping[str, Kind]) -> bool:
    """Does evaluating it surely raise nothing?"""
    match node:
        case ast.Constant() | ast.Name() | ast.Lambda():
            return True
        case ast.UnaryOp(op=op):
            fits = isinstance(op, ast.Not) or kind_of(node.operand, known) in NUMBERS
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.Div(), right=ast.Constant(value=int(value))):
            fits = value != 0 and kind_of(node.left, known) in NUMBERS
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
            fits = kind_of(node, known) != ANY
        case ast.Compare(left=left, ops=ops, comparators=others):
            kinds = [kind_of(part, known) for part in (left, *others)]
            equality = all(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
            fits = equality or all(kind in NUMBERS for kind in kinds) or all(kind == STR for kind in kinds)
        case ast.Subscript(slice=ast.Slice()):
            kind = kind_of(node.value, known)
            fits = kind == STR or is_list(kind)
        case ast.Call():
            return _call_cannot_fail(node, known)
        case ast.ListComp(elt=elt, generators=[only]) | ast.GeneratorExp(elt=elt, generators=[only]):
            return kind_of(only.iter, known) != ANY and all(
                cannot_fail(part, known) for part in (elt, only.iter, *only.ifs)
            )
        case ast.IfExp() | ast.BoolOp() | ast.List() | ast.Tuple() | ast.Slice():
            fits = True
        case _:
            return False
    return fits and all(cannot_fail(part, known) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))


def _call_cannot_fail(node: ast.Call, known: Mapping[str, Kind]) -> bool:
    kinds = [kind_of(argument, known) for argument in node.args]
    match node.func:
        case ast.Name(id="len"):
            fits = all(map(has_length, kinds))
        case ast.Name(id="abs"):
            fits = all(kind in NUMBERS for kind in kinds)
        case ast.Name(id="sum" | "sorted" as name):
            items = NUMBERS if name == "sum" else ORDERED
            plain = all(each.arg == "reverse" and isinstance(each.value, ast.Constant) for each in node.keywords)
            fits = (
                plain
                and (name == "sorted" or not node.keywords)
                and len(kinds) == 1
                and element(kinds[0]) in (*items, NOTHING)
            )
        case ast.Name(id="list" | "bool" | "str" | "any" | "all"):
            fits = ANY not in kinds
        case ast.Attribute(value=value, attr=method):
            fits = method in _TEXT_METHODS and "index" not in method and {kind_of(value, known), *kinds} == {STR}
            fits = fits and cannot_fail(value, known)
        case _:
            fits = False
    return fits and all(cannot_fail(argument, known) for argument in node.args)
