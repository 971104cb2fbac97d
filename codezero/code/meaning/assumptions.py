"""Rules for choices within choices: what one condition says of another."""

import ast

from codezero.code.meaning.conditions import Rules, opposite
from codezero.code.meaning.kinds import cannot_fail
from codezero.code.meaning.terms import Names, compare, each_part, number, same, substitute, text_of


def _assumed(term: ast.IfExp, names: Names) -> ast.expr | None:
    """What a condition says of others in the parts that it chooses."""
    facts = _facts(term.test, True, names)
    body, orelse = _given(term.body, facts), _given(term.orelse, _facts(term.test, False, names))
    if same(body, term.body) and same(orelse, term.orelse):
        return _of_one_value(term, names)
    return ast.IfExp(term.test, body, orelse)


def _of_one_value(term: ast.IfExp, names: Names) -> ast.expr | None:
    """`0 if x == 0 else -x` is `-x`; `a if a > b else max(a, b)` is `max(a, b)`."""
    match term.test, term.orelse:
        case ast.Compare(left=ast.Name(id=bound), ops=[ast.Eq()], comparators=[value]), other if (
            number(value) is not None
        ):
            there = substitute(other, {bound: value}, names)
            plain = isinstance(there, ast.UnaryOp) and number(there) == number(term.body) == 0
            plain |= same(there, term.body) or (same(term.body, ast.Name(bound, ast.Load())) and same(there, value))
            return other if plain and cannot_fail(other, names.kinds) else None
        case (
            ast.Compare(left=left, ops=[ast.Gt() | ast.Eq() as op], comparators=[right]),
            ast.Call(func=ast.Name(id="max" | "min" as which), args=[one, two], keywords=[]),
        ) if {text_of(left), text_of(right)} == {text_of(one), text_of(two)}:
            greater = left if which == "max" else right
            fits = same(term.body, greater) or (isinstance(op, ast.Eq) and same(term.body, left))
            return term.orelse if fits else None
        case _:
            return None


def _facts(test: ast.expr, holds: bool, names: Names) -> dict[str, bool]:
    """What is known of conditions, by their text."""
    turned = opposite(test, names)
    facts = {text_of(test): holds} | ({text_of(turned): not holds} if turned is not None else {})
    match test:
        case ast.Compare(left=left, ops=[ast.Gt()], comparators=[right]) if holds:
            facts |= dict.fromkeys(map(text_of, _equalities(left, right)), False)
            if number(right) is None:
                facts[text_of(compare(right, ast.Gt(), left))] = False
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if holds:
            if number(right) is None:
                facts |= {text_of(compare(a, ast.Gt(), b)): False for a, b in ((left, right), (right, left))}
        case _:
            pass
    return facts


def _equalities(left: ast.expr, right: ast.expr) -> tuple[ast.expr, ast.expr]:
    return compare(left, ast.Eq(), right), compare(right, ast.Eq(), left)


def _given(term: ast.expr, facts: dict[str, bool]) -> ast.expr:
    """The term with the choices made that the facts decide. Variables have one name each, so they say it everywhere."""
    if not any(isinstance(node, ast.IfExp) for node in ast.walk(term)):
        return term
    if isinstance(term, ast.IfExp) and (known := facts.get(text_of(term.test))) is not None:
        return _given(term.body if known else term.orelse, facts)
    return each_part(term, lambda inner: _given(inner, facts))


RULES: Rules = {ast.IfExp: (_assumed,)}
