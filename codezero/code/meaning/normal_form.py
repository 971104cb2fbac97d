"""One spelling for programs that compute the same: what `canonical.py` leaves, as one expression where it can be read.

The order of work: statements, helpers and loops become one term (`symbolic.py`, `folds.py`), terms are rewritten
(`simplify.py` and the modules that it names). Every rule keeps the value for arguments of
the kinds that the tests have; where a program raises an error its normal form raises one too, but perhaps another.
What is not understood stays as it was written.
"""

import ast
from collections.abc import Sequence

from codezero.code.meaning.kinds import Kind
from codezero.code.meaning.library import LIBRARY
from codezero.code.meaning.simplify import simplify
from codezero.code.meaning.symbolic import term_of
from codezero.code.meaning.terms import Names, NotUnderstood, each_part, name

MOST_GROWTH = 40
"""Nodes that a term may have more than the program: past that it is no plainer than what was written."""


def normalise(tree: ast.Module, entry: str, kinds: Sequence[Kind]) -> None:
    """Changes the module in place where its function `entry` is understood. `kinds` of its arguments, by position."""
    function = _entry(tree, entry)
    if function is None:
        return
    names = Names({})
    try:
        term = simplify(term_of(tree, function, kinds, names), names)
        used = {node.id for node in ast.walk(term) if isinstance(node, ast.Name)}
        if any(each == entry or each.startswith("@") for each in used) or _size(term) > _size(tree) + MOST_GROWTH:
            return
    except (NotUnderstood, RecursionError):
        return
    modules = sorted({each.split(".")[0] for each in used if "." in each})
    if not set(modules) <= LIBRARY:
        return
    function = ast.FunctionDef(entry, function.args, [ast.Return(_Spelt().visit(_unshared(term)))], [], None)
    imports = [ast.Import([ast.alias(each)]) for each in modules]
    tree.body = [*imports, function]


def _entry(tree: ast.Module, entry: str) -> ast.FunctionDef | None:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry]
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Lambda(args=args, body=body)) if bound == entry:
                found.append(ast.FunctionDef(entry, args, [ast.Return(body)], [], None))
            case _:
                pass
    return found[0] if len(found) == 1 and not found[0].decorator_list else None


def _unshared(term: ast.expr) -> ast.expr:
    """A copy in which no node stands twice."""
    return each_part(term, _unshared)


def _size(tree: ast.AST) -> int:
    return sum(1 for _ in ast.walk(tree))


class _Spelt(ast.NodeTransformer):
    """Full names as attributes, targets as what is bound."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        owner, _, attribute = node.id.rpartition(".")
        if owner:
            return ast.Attribute(self.visit_Name(name(owner)), attribute, ast.Load())
        return ast.Name(node.id, ast.Load())

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        target = self.visit(node.target)
        for each in ast.walk(target):
            if isinstance(each, ast.Name | ast.Tuple):
                each.ctx = ast.Store()
        return ast.comprehension(target, self.visit(node.iter), [self.visit(each) for each in node.ifs], 0)
