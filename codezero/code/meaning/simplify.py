"""Terms in one spelling: every rule keeps the meaning and is applied from the leaves up until none fits."""

import ast

from codezero.code.meaning import (
    arithmetic,
    assumptions,
    choices,
    conditions,
    emptiness,
    extremes,
    iteration,
    reductions,
    slices,
    texts,
)  # fmt: skip
from codezero.code.meaning.terms import Names, each_part

_MODULES = (
    conditions, choices, assumptions, arithmetic, extremes, emptiness, iteration, reductions, slices, texts,
)  # fmt: skip
_TABLES = tuple(module.RULES for module in _MODULES)
_NODES = {node for table in _TABLES for node in table}
RULES = {node: tuple(rule for table in _TABLES for rule in table.get(node, ())) for node in _NODES}


def simplify(term: ast.expr, names: Names) -> ast.expr:
    """Raises NotUnderstood for what takes too long."""
    names.step()
    term = each_part(term, lambda inner: simplify(inner, names))
    for rule in RULES.get(type(term), ()):
        simpler = rule(term, names)
        if simpler is not None:
            return simplify(simpler, names)
    return term
