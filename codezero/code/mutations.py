"""Programs that are probably wrong, made from programs that are probably right: known answers for testing a judge.

`mutate_code` makes one small slip; `transplant` lets a program answer another problem's question. Both read text as
`parsing.parse` does: for untrusted source go through `worker.py`. A mutant may still be right (an operand that does not
matter, a branch never taken), so a set of them is mostly wrong, not surely.
"""

import ast
import keyword
from collections.abc import Callable, Iterator
from random import Random

from codezero.code.canonical import canonical
from codezero.code.entry_point import find_entry
from codezero.code.parsing import names_bound, parse
from codezero.code.scopes import Finder

MAX_MUTANTS = 64
_TRIES_PER_MUTANT = 8

Slip = Callable[[ast.AST], ast.AST | list[ast.stmt] | None]
"""A node of a fresh tree -> what stands in its place; None when the node itself was changed."""

_FLIPPED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
_OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitXor, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def mutate_code(source: str, random: Random, count: int, *, entry: str) -> list[str]:
    """Up to `count` distinct programs, each one slip away from `source` and with another canonical form.

    Every one parses and, where `source` does, defines `entry` (empty: a program that reads stdin). Empty when
    `source` does not parse.
    """
    tree, _ = parse(source)
    if tree is None:
        return []
    count = min(count, MAX_MUTANTS)
    sites = [(index, slip) for index, node in enumerate(ast.walk(tree)) for slip in _slips(node)]
    random.shuffle(sites)
    defined = bool(entry) and find_entry(tree, entry) is not None
    mutants: dict[str, str] = {}
    try:
        original = canonical(source, entry)
        for index, slip in sites[: _TRIES_PER_MUTANT * count]:
            if len(mutants) == count:
                break
            mutant = _apply(source, index, slip)
            form = canonical(mutant, entry)
            changed = parse(mutant)[0]
            kept = changed is not None and (not defined or find_entry(changed, entry) is not None)
            if form != original and form not in mutants and kept:
                mutants[form] = mutant
    except (ValueError, RecursionError, MemoryError):
        return []
    return list(mutants.values())


def transplant(source: str, old_entry: str, new_entry: str) -> str | None:
    """`source` with its function `old_entry` called `new_entry`; None when that cannot be done faithfully.

    Only the function and what refers to it are renamed: not text, not attributes, not locals of the same name.
    """
    tree, _ = parse(source)
    usable = new_entry.isidentifier() and not keyword.iskeyword(new_entry)
    if tree is None or not usable or find_entry(tree, old_entry) is None:
        return None
    try:
        if old_entry != new_entry and not _rename_global(tree, old_entry, new_entry):
            return None
        return ast.unparse(tree)
    except (ValueError, RecursionError, MemoryError):
        return None


def _rename_global(tree: ast.Module, old: str, new: str) -> bool:
    """Call the module's own `old` by another name everywhere; False, and nothing is changed, when `new` is in use."""
    finder = Finder(tree, old)
    module = finder.scopes[0].bindings[old]
    uses = [use for use in finder.uses if use.callee is None and use.binding() is module]
    taken = {use.name for use in finder.uses} | {name for scope in finder.scopes for name in scope.bindings}
    if new in taken:
        return False
    for use in uses:
        use.write(new)
    return True


def _apply(source: str, index: int, slip: Slip) -> str:
    tree = ast.parse(source)
    node = list(ast.walk(tree))[index]
    replacement = slip(node)
    if replacement is not None:
        _replace(tree, node, replacement)
    return ast.unparse(ast.fix_missing_locations(tree))


def _replace(tree: ast.AST, node: ast.AST, by: ast.AST | list[ast.stmt]) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, by)
                return
            if isinstance(value, list) and any(part is node for part in value):  # pyright: ignore[reportUnknownVariableType]
                at = next(index for index, part in enumerate(value) if part is node)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                value[at : at + 1] = by if isinstance(by, list) else [by]
                return


def _slips(node: ast.AST) -> Iterator[Slip]:
    match node:
        case ast.Compare(ops=[op]):
            yield from (_set("ops", lambda other=other: [other()]) for other in _FLIPPED[type(op)])
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield _set("value", lambda: value + 1)
            yield _set("value", lambda: value - 1)
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OTHER_OPERATOR:
            yield _set("op", _OTHER_OPERATOR[type(op)])
            if isinstance(node, ast.BinOp) and isinstance(op, _ORDERED):
                yield _swap_operands
        case ast.If() | ast.IfExp():
            yield from _branch_slips(node)
        case ast.FunctionDef():
            yield from _return_slips(node)
        case _:
            yield from _part_slips(node)


def _part_slips(node: ast.AST) -> Iterator[Slip]:
    match node:
        case ast.Call(args=[_, _, *_]):
            yield _swap_arguments
        case ast.BoolOp(op=op):
            yield _set("op", ast.Or if isinstance(op, ast.And) else ast.And)
            yield _field("values", 0)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield _field("operand")
        case ast.Slice():
            yield from _slice_slips(node)
        case ast.comprehension(ifs=[_, *_]):
            yield _set("ifs", list)
        case _:
            pass


def _set(field: str, value: Callable[[], object]) -> Slip:
    return lambda node: setattr(node, field, value())


def _field(field: str, index: int | None = None) -> Slip:
    """One part stands for the whole."""
    return lambda node: getattr(node, field) if index is None else getattr(node, field)[index]


def _swap_operands(node: ast.AST) -> None:
    if isinstance(node, ast.BinOp):
        node.left, node.right = node.right, node.left


def _swap_arguments(node: ast.AST) -> None:
    if isinstance(node, ast.Call):
        node.args[:2] = node.args[1::-1]


def _slice_slips(node: ast.Slice) -> Iterator[Slip]:
    first, last = ast.Constant(1), ast.UnaryOp(ast.USub(), ast.Constant(1))
    yield _set("lower", lambda: None if node.lower else first)
    yield _set("upper", lambda: None if node.upper else last)


def _branch_slips(node: ast.If | ast.IfExp) -> Iterator[Slip]:
    yield _field("body")
    if node.orelse:
        yield _field("orelse")
    yield _negate


def _negate(node: ast.AST) -> None:
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)


def _return_slips(function: ast.FunctionDef) -> Iterator[Slip]:
    """Each `return NAME` gives another variable of the function."""
    parameters = [argument.arg for argument in function.args.args]
    variables = sorted({*parameters, *names_bound(*function.body)})
    returned = [
        node for node in ast.walk(function) if isinstance(node, ast.Return) and isinstance(node.value, ast.Name)
    ]
    for number, node in enumerate(returned):
        for name in variables:
            if isinstance(node.value, ast.Name) and node.value.id != name:
                yield _return_other(number, name)


def _return_other(number: int, name: str) -> Slip:
    def slip(function: ast.AST) -> None:
        returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and isinstance(n.value, ast.Name)]
        returns[number].value = ast.Name(name, ast.Load())

    return slip
