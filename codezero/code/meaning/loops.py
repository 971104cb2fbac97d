"""Loops as the folds that they are; `symbolic.py` reads their bodies."""

import ast
from collections.abc import Sequence

from codezero.code.meaning import folds
from codezero.code.meaning.expressions import Expressions, Values
from codezero.code.meaning.folds import FULL
from codezero.code.meaning.in_place import plain_loop
from codezero.code.meaning.statements import appending, assigned, ends_early
from codezero.code.meaning.terms import NotUnderstood, call, generator, mentions, name, target_names

_NEXT = "@next"
"""Stands for what follows an iteration of a loop that may return."""
YIELDED = "@yielded"


class Loops(Expressions):
    def block(self, statements: Sequence[ast.stmt], values: Values, falls: ast.expr | None) -> ast.expr | None:
        """The term that is returned. `falls`: the term for the end of the block; None: then `values` say it all."""
        raise NotImplementedError

    def branch(self, block: Sequence[ast.stmt], values: Values, falls: ast.expr | None) -> ast.expr | None:
        """As `block`, of statements that may be skipped: what they owe is settled among them."""
        raise NotImplementedError

    def _heads(self, statement: ast.For, values: Values) -> tuple[ast.comprehension, Values]:
        """What is iterated, and the terms in the body: loop variables have fresh names."""
        if statement.orelse:
            raise NotUnderstood("else of a loop")
        iterated = self.simple(self.read(statement.iter, values))
        target, bound = self.fresh_target(statement.target, iterated)
        return generator(target, iterated, []), values | bound

    def loop(self, statement: ast.For, values: Values) -> None:
        """Every variable that the body changes, as what all its changes together make of it."""
        statement = plain_loop(appending(statement, values), values, self.names)
        head, inside = self._heads(statement, values)
        changes = self._changes(statement.body) - set(target_names(statement.target))
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(statement)):
            changes.add(YIELDED)
        holes = {each: f"@{each}" for each in sorted(changes) if each in values}
        for each, hole in holes.items():
            self.names.kinds[hole] = self.names.kind(values[each])
            inside[each] = name(hole)
        if mentions(statement.iter, *changes):
            raise NotUnderstood("a loop over what it changes")
        with self.again():
            self.branch(statement.body, inside, None)
        for each in changes | set(target_names(statement.target)):
            if each not in holes:
                values.pop(each, None)
        end = ends_early(statement)
        results = {
            each: folds.fold(
                values[each], self.simple(inside[each]), hole, head, self.names, end=FULL if end == each else end
            )
            for each, hole in holes.items()
            if each in inside
        }
        if len(results) < len(holes) or any(mentions(term, *holes.values()) for term in results.values()):
            raise NotUnderstood("a loop of several variables")
        for each, term in results.items():
            values[each] = self.simple(term)

    def _changes(self, statements: Sequence[ast.stmt]) -> set[str]:
        """Variables that statements change, or the procedures that they call."""
        changes = assigned(statements)
        for node in (each for statement in statements for each in ast.walk(statement)):
            match node:
                case ast.Expr(value=ast.Call(func=ast.Name(id=called))) if called in self.functions:
                    function = self.functions[called]
                    changes |= assigned(function.body) if isinstance(function, ast.FunctionDef) else set()
                case _:
                    pass
        return changes

    def search(self, statement: ast.For, rest: Sequence[ast.stmt], values: Values, falls: ast.expr | None) -> ast.expr:
        """A loop that returns what does not depend on where it is found."""
        head, inside = self._heads(statement, values)
        if assigned(statement.body) & set(values) or falls is None:
            raise NotUnderstood("a loop that returns")
        with self.again():
            term = self.simple(self.branch(statement.body, inside, name(_NEXT)) or name(_NEXT))
        after = self.block(rest, values, falls)
        found = folds.searched(term, _NEXT, head)
        if found is None or after is None:
            raise NotUnderstood("a loop that returns")
        test, value = found
        return ast.IfExp(call("any", ast.GeneratorExp(test, [head])), value, after)
