"""Programs in another style: rules of two templates each, what stands in a program and what may stand there instead.

In a template one capital letter is a part of the program: K a whole number, T a text, X, Y and Z a name, F the name of
a function, P and Q alone on a line all statements of a block, V what is no constant, S no generator, any other an
expression. NEXT_K and PREV_K are the numbers beside K. Names of its own that `after` binds are written in lower case,
and made different from every name of the program, but for those that `before` binds too. Rules need not be sound for
every type: what they make is executed before it counts.
"""

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from codezero.code.parsing import UNPARSEABLE, parse_quietly

Block = list[ast.stmt]
Found = dict[str, ast.AST | Block]

LISTS = ("{}", "sorted({}, reverse=True)", "{}[::-1]", "{}[:K]", "{}[-K:]", "len({})")
"""Where a list stands in what is returned."""
FOLDS = ("sum({})", "max({})", "min({})", "sorted({})")
"""Where a generator stands."""
MAPPED, KEPT = "E for X in S", "E for X in S if C"

_PART = re.compile("[A-Z]")
_BESIDE = re.compile("(NEXT|PREV)_([A-Z])")
_UNCOMPARED = {"ctx", "kind", "type_comment", "type_params"}


class Rule(NamedTuple):
    before: str
    after: str
    needs: str = ""
    """An import that `after` uses."""


@dataclass(frozen=True)
class Kind:
    """One way to write differently."""

    family: str
    rules: tuple[Rule, ...]


def rewrites(kind: Kind, source: str) -> list[str]:
    """Distinct programs, each with one rule applied at one place. Raises UNPARSEABLE where `source` is no program."""
    tree = parse_quietly(source)
    taken = _names(tree)
    made: dict[str, None] = {}
    for rule in kind.rules:
        for text in _applied(rule, tree, taken):
            made[f"{rule.needs}\n\n{text}" if rule.needs else text] = None
    return [text for text in made if _parses(text)]


def two_at_once(kinds: Iterable[Kind], source: str, random: Random, count: int) -> Iterator[str]:
    """Up to `count` programs in which two kinds are seen."""
    order = list(kinds)
    for _ in range(10 * count):
        random.shuffle(order)
        code, times = source, 0
        for kind in order:
            if options := rewrites(kind, code):
                code, times = random.choice(options), times + 1
            if times == 2:
                count -= 1
                yield code
                break
        if count == 0:
            return


def held(before: str, setup: str, value: str, holders: Sequence[str]) -> tuple[Rule, ...]:
    """`before` within one of `holders` that is returned: `setup` comes first, and `value` stands in its place."""
    return tuple(
        Rule(f"return {holder.format(before)}", f"{setup}\nreturn {holder.format(value)}") for holder in holders
    )


def over(setup: str, mapped: str | None = None, kept: str | None = None, value: str = "out") -> tuple[Rule, ...]:
    """Lists and generators of which `value` is made, after `setup`. Its `...` is `mapped`, or `kept` where there is a
    filter; None: no such rule."""
    rules: tuple[Rule, ...] = ()
    for inner, line in ((MAPPED, mapped), (KEPT, kept)):
        if line is not None:
            rules += stands(inner, setup.replace("...", line), value)
    return rules


def stands(inner: str, setup: str, value: str = "out") -> tuple[Rule, ...]:
    """Lists and generators of one form, of which `value` is made, after `setup`."""
    return held(f"[{inner}]", setup, value, LISTS) + held(f"({inner})", setup, value, FOLDS)


def everywhere(inner: str, value: str) -> tuple[Rule, ...]:
    """Wherever a list or a generator of this form stands."""
    return (Rule(f"[{inner}]", value), Rule(f"({inner})", value))


def kinds(**families: Mapping[str, tuple[Rule, ...]]) -> dict[str, Kind]:
    """The kinds of all families, by name."""
    return {name: Kind(family, rules) for family, named in families.items() for name, rules in named.items()}


def _applied(rule: Rule, tree: ast.Module, taken: set[str]) -> Iterator[str]:
    """The text of `tree` for each place where the rule applies; `tree` is as before afterwards."""
    before, after = ast.parse(rule.before).body, ast.parse(rule.after).body
    taken = taken - _bound(before)
    if isinstance(before[0], ast.Expr) and isinstance(after[0], ast.Expr):
        for node, field, at in _places(tree):
            old = _get(node, field, at)
            found: Found = {}
            if _matches(before[0].value, old, found):
                _set(node, field, at, _Filled(found, after, taken).visit(copy.deepcopy(after[0].value)))
                yield ast.unparse(tree)
                _set(node, field, at, old)
        return
    for block in _blocks(tree):
        for at in range(len(block) - len(before) + 1):
            old, found = block[at : at + len(before)], Found()
            if all(_matches(part, node, found) for part, node in zip(before, old, strict=True)):
                new = _Filled(found, after, taken).block(copy.deepcopy(after))
                block[at : at + len(before)] = new
                yield ast.unparse(tree)
                block[at : at + len(new)] = old


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where an expression is read: node, field and place in it."""
    for node in list(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            values = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, part in values:
                if isinstance(part, ast.expr) and isinstance(getattr(part, "ctx", ast.Load()), ast.Load):
                    yield node, field, at


def _blocks(tree: ast.AST) -> Iterator[Block]:
    for node in list(ast.walk(tree)):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _get(node: ast.AST, field: str, at: int | None) -> Any:
    return getattr(node, field) if at is None else getattr(node, field)[at]


def _set(node: ast.AST, field: str, at: int | None, value: ast.expr) -> None:
    if at is None:
        setattr(node, field, value)
    else:
        getattr(node, field)[at] = value


def _matches(before: Any, node: Any, found: Found) -> bool:
    """Does the part of a program have this form? `found`: what stands for the capital letters."""
    if isinstance(before, ast.Name) and _PART.fullmatch(before.id):
        return _fits(before.id, node) and _same(found.setdefault(before.id, node), node)
    if isinstance(before, list):
        if len(before) == 1 and (letter := _block_letter(before[0])) and node:
            found[letter] = node
            return True
        return len(before) == len(node) and all(_matches(*pair, found) for pair in zip(before, node, strict=True))
    if isinstance(before, str) and _PART.fullmatch(before) and isinstance(node, str):
        return _same(found.setdefault(before, ast.Name(node)), ast.Name(node))
    if not isinstance(before, ast.AST):
        return type(before) is type(node) and before == node
    fields = [field for field in before._fields if field not in _UNCOMPARED]
    return type(before) is type(node) and all(
        _matches(getattr(before, field), getattr(node, field), found) for field in fields
    )


def _fits(letter: str, node: Any) -> bool:
    match letter:
        case "K":
            return isinstance(node, ast.Constant) and type(node.value) is int
        case "T":
            return isinstance(node, ast.Constant) and type(node.value) is str
        case "X" | "Y" | "Z":
            return isinstance(node, ast.Name)
        case "S":
            return isinstance(node, ast.expr) and not isinstance(node, ast.GeneratorExp)
        case "V":
            return isinstance(node, ast.expr) and not isinstance(node, ast.Constant)
        case _:
            return isinstance(node, ast.expr)


def _same(one: ast.AST | Block, other: ast.AST) -> bool:
    return one is other or (isinstance(one, ast.AST) and ast.unparse(one) == ast.unparse(other))


def _block_letter(node: Any) -> str:
    match node:
        case ast.Expr(value=ast.Name(id="P" | "Q" as letter)):
            return letter
        case _:
            return ""


class _Filled(ast.NodeTransformer):
    """A template with what was found in the place of its capital letters, under names that the program lacks."""

    def __init__(self, found: Mapping[str, ast.AST | Block], after: Block, taken: set[str]) -> None:
        own = _bound(after)
        self._found, self._fresh = found, {name: _free(name, taken) for name in own if not _PART.fullmatch(name)}

    def block(self, body: Block) -> Block:
        filled: Block = []
        for node in body:
            letter = _block_letter(node)
            filled += copy.deepcopy(self._found[letter]) if letter else [self.visit(node)]  # pyright: ignore
        return filled

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, self.block(value))
            elif isinstance(value, list):
                setattr(node, field, [self.visit(part) if isinstance(part, ast.AST) else part for part in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
            elif isinstance(value, str) and field in ("name", "arg"):
                found = self._found.get(value)
                setattr(node, field, found.id if isinstance(found, ast.Name) else self._fresh.get(value, value))
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if beside := _BESIDE.fullmatch(node.id):
            number: Any = self._found[beside[2]]
            return ast.Constant(number.value + (1 if beside[1] == "NEXT" else -1))
        found = self._found.get(node.id)
        return ast.Name(self._fresh.get(node.id, node.id)) if found is None else copy.deepcopy(found)  # pyright: ignore

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """A text in braces is written out."""
        self.generic_visit(node)
        texts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        plain = [isinstance(text, ast.Constant) and isinstance(text.value, str) for text in texts]
        node.values = [text if is_text else part for part, text, is_text in zip(node.values, texts, plain, strict=True)]
        return node


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | _bound([tree])


def _bound(nodes: Sequence[ast.AST]) -> set[str]:
    every = [part for node in nodes for part in ast.walk(node)]
    names = {part.id for part in every if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return (
        names
        | {part.arg for part in every if isinstance(part, ast.arg)}
        | {part.name for part in every if isinstance(part, ast.FunctionDef)}
    )


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _parses(text: str) -> bool:
    try:
        parse_quietly(text)
    except UNPARSEABLE:
        return False
    return True
