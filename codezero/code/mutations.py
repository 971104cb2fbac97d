"""Programs that are probably wrong, made from programs that are probably right: known answers for testing a judge.

`mutate_code` makes one small slip; `transplant` lets a program answer another problem's question. Untrusted source goes
through `worker.py`. A mutant may still be right (an operand that does not matter, a branch never taken)."""

import ast
import keyword
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from codezero.code.canonical import canonical
from codezero.code.entry_point import find_entry
from codezero.code.parsing import names_bound, parse, parse_quietly
from codezero.code.scopes import Finder

MAX_MUTANTS = 64
_TRIES_PER_MUTANT = 8

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
    """Up to `count` distinct programs, each one slip away from `source` and with another canonical form. Every one
    parses and, where `source` does, defines `entry` (empty: a program that reads stdin). Empty when `source` does not
    parse."""
    tree, _ = parse(source)
    if tree is None:
        return []
    count = min(count, MAX_MUTANTS)
    sites = [(index, number) for index, node in enumerate(ast.walk(tree)) for number, _ in enumerate(_slips(node))]
    random.shuffle(sites)
    defined = bool(entry) and find_entry(tree, entry) is not None
    mutants: dict[str, str] = {}
    try:
        original = canonical(source, entry)
        for site in sites[: _TRIES_PER_MUTANT * count]:
            if len(mutants) == count:
                break
            mutant = _apply(source, *site)
            form = canonical(mutant, entry)
            changed = parse(mutant)[0]
            kept = changed is not None and (not defined or find_entry(changed, entry) is not None)
            if form != original and form not in mutants and kept:
                mutants[form] = mutant
    except (ValueError, RecursionError, MemoryError):
        return []
    return list(mutants.values())


def transplant(source: str, old_entry: str, new_entry: str) -> str | None:
    """`source` with its function `old_entry` called `new_entry`; None when that cannot be done faithfully. Only the
    function and what refers to it are renamed: not text, not attributes, not locals of the same name."""
    tree, _ = parse(source)
    usable = new_entry.isidentifier() and not keyword.iskeyword(new_entry)
    if tree is None or not usable or find_entry(tree, old_entry) is None:
        return None
    try:
        finder = Finder(tree, old_entry)
        module = finder.scopes[0].bindings[old_entry]
        uses = [use for use in finder.uses if use.callee is None and use.binding() is module]
        taken = {use.name for use in finder.uses} | {name for scope in finder.scopes for name in scope.bindings}
        if new_entry in taken - {old_entry}:
            return None
        for use in uses:
            use.write(new_entry)
        return ast.unparse(tree)
    except (ValueError, RecursionError, MemoryError):
        return None


Slip = tuple[ast.AST, Mapping[str, object]] | ast.AST | list[ast.stmt]  # a node with new fields, or its stand-in


def _apply(source: str, index: int, number: int) -> str:
    tree = parse_quietly(source)
    node = list(ast.walk(tree))[index]
    slip = list(_slips(node))[number]
    if isinstance(slip, tuple):
        for name, value in slip[1].items():
            setattr(slip[0], name, value)
    else:
        tree = _Replacement(node, slip).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | list[ast.stmt]) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def _slips(node: ast.AST) -> Iterator[Slip]:
    match node:
        case ast.Compare(ops=[op]):
            yield from ((node, {"ops": [other()]}) for other in _FLIPPED[type(op)])
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield from ((node, {"value": value + step}) for step in (1, -1))
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OTHER_OPERATOR:
            yield node, {"op": _OTHER_OPERATOR[type(op)]()}
            if isinstance(node, ast.BinOp) and isinstance(op, _ORDERED):
                yield node, {"left": node.right, "right": node.left}
        case ast.If() | ast.IfExp():
            yield from (branch for branch in (node.body, node.orelse) if branch)
            yield node, {"test": ast.UnaryOp(ast.Not(), node.test)}
        case ast.FunctionDef():
            parameters = [argument.arg for argument in node.args.args]
            returns = [part for part in ast.walk(node) if isinstance(part, ast.Return)]
            variables = sorted({*parameters, *names_bound(*node.body)})
            named = [(part, part.value.id) for part in returns if isinstance(part.value, ast.Name)]
            for part, returned in named:
                yield from ((part, {"value": ast.Name(name)}) for name in variables if name != returned)
        case _:
            yield from _part_slips(node)


def _part_slips(node: ast.AST) -> Iterator[Slip]:
    match node:
        case ast.Call(args=[first, second, *others]):
            yield node, {"args": [second, first, *others]}
        case ast.BoolOp(op=op, values=values):
            yield node, {"op": ast.Or() if isinstance(op, ast.And) else ast.And()}
            yield values[0]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Slice(lower=lower, upper=upper):
            yield node, {"lower": None if lower else ast.Constant(1)}
            yield node, {"upper": None if upper else ast.UnaryOp(ast.USub(), ast.Constant(1))}
        case ast.comprehension(ifs=[_, *_]):
            yield node, {"ifs": []}
        case _:
            pass
