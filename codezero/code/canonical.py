"""One spelling for all programs that say the same, so that a judge reads what code does and not how it is dressed.

Removed: comments, docstrings, bare constants, annotations, statements and branches that cannot run, helpers and
imports that the entry point cannot reach, and text that talks to the judge. Locals, parameters and helpers are renamed
by structure. The result is for reading; nothing runs it."""

import ast
import keyword
import re
from collections.abc import Collection, Sequence
from typing import TypeVar

from codezero.code import parsing
from codezero.code.dead_code import blocks, drop_padding, droppable, live, without_unused_functions
from codezero.code.scopes import rename

MASK = "<STR>"
MAX_LETTERS, MAX_STRING = 40, 200
"""String literals with more letters, or longer ones, are masked: prose, not data. Patterns and tables have few letters.
Attribute names with more are replaced."""

_ADDRESSED = re.compile(  # chat markers, verdicts, orders and self-praise: text no program needs
    r"<\||<\uff5c|\|>|\[/?INST\]|<</?SYS>>|</?(?:s|think|tool_call|start_of_turn|end_of_turn)>|is_correct|\bverdict\b"
    r"|\ball (?:unit )?tests\b|\banswer\s*[:=]|```|\bthought process\b|\b(?:ignore|disregard) (?:all |the |any )?"
    r"(?:previous|prior|above)\b|\b(?:system|assistant|user|human)\s*:|\bsolution\s*:|\bjudge\b|\bgrader\b",
    re.IGNORECASE,
)
_N = TypeVar("_N", bound=ast.AST)


def canonical(source: str, entry: str, *, parameters: Sequence[str] | None = None) -> str:
    """`source` in its one spelling. `entry`: the function that is called; empty for a program that is run as it stands.
    `parameters`: names the question gives the entry point's parameters. Raises SyntaxError, ValueError, RecursionError
    or MemoryError; for untrusted source go through `worker.py`."""
    tree = parsing.parse_quietly(source)
    clean(tree, entry)
    respell(tree, entry, parameters=parameters)
    return spell(tree)


def clean(tree: ast.Module, entry: str, helpers: Collection[str] = ()) -> None:
    """Take out what does nothing, and definitions, imports and constants that neither the tests nor a statement with an
    effect reach. Nodes that stay are those that were parsed. `helpers`: what tests call beside the entry point
    (`f(Pair(1, 2))`); where the program defines it, it stays and keeps a plain name."""
    _Undress(tree).visit(tree)
    rename(tree, entry, None, helpers)  # no local shares its name with a helper: what follows goes by name
    while _sweep(tree):
        _Undress(tree).visit(tree)  # what was emptied may now be gone altogether
    statements = tree.body
    if entry:  # a module whose function is called, not a program that runs
        statements = [node for node in statements if not _is_demonstration(node, entry)]
        statements = [node for at, node in enumerate(statements) if not _is_overwritten(statements, at)]
    waiting = [(node, defined_names(node)) for node in statements]
    wanted, kept = {entry, *helpers}, set[ast.stmt]()
    while fresh := {node for node, defines in waiting if defines is None or defines & wanted} - kept:
        kept |= fresh
        wanted |= parsing.names_loaded(*fresh) | parsing.declared(*fresh)
    tree.body = [node for node in statements if node in kept]


def respell(tree: ast.Module, entry: str, *, parameters: Sequence[str] | None, helpers: Collection[str] = ()) -> None:
    """Give what `clean` left its new names."""
    for function in [node for node in ast.walk(tree) if isinstance(node, parsing.FunctionNode)]:
        match function.body[-2:]:  # `result = E; return result` at its end is `return E`
            case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
                mentions = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))
                if name == returned and mentions == 2 and name not in parsing.declared(function):
                    function.body[-2:] = [ast.Return(value)]
            case _:
                pass
    rename(tree, entry, parameters, helpers)
    _plain_names(tree, {entry, *(parameters or ())})


def _sweep(tree: ast.Module) -> bool:
    """Take from every function what only seems to do something; True when anything went."""
    swept = False
    for node in reversed(list(ast.walk(tree))):  # inner functions first
        if isinstance(node, parsing.FunctionNode):
            while drop_padding(node) or without_unused_functions(node):
                swept = True
    return swept


def spell(tree: ast.Module) -> str:
    """The text of a tree that `respell` left; the tree is of no use afterwards."""
    return ast.unparse(_Spell().visit(ast.fix_missing_locations(tree)))


def stated_parameters(question: str, entry: str) -> tuple[str, ...] | None:
    """The parameters in the first `NAME(a, b)` of a question; None when it states none."""
    stated = re.search(rf"\b{re.escape(entry)}\s*\(([^()]{{1,200}})\)", question)
    if stated is None:
        return None
    names = tuple(re.split(r"[:=]", part, maxsplit=1)[0].strip() for part in stated[1].split(","))
    plain = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    return names if plain and len(set(names)) == len(names) else None


class _Undress(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        known: parsing.Known = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr | ast.BinOp):
                parsing.fold(node, known)
        self._built = {key for key, value in known.items() if isinstance(value, str) and _suspicious(value)}

    def generic_visit(self, node: _N) -> _N:
        for field in {"annotation", "returns", "type_comment"}.intersection(node._fields):
            setattr(node, field, None)
        super().generic_visit(node)
        for field, block in blocks(node):
            setattr(node, field, live(block, node, field))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        decided = parsing.truth(node.test)
        if decided is None:
            return node
        taken, skipped = (node.body, node.orelse) if decided else (node.orelse, node.body)
        return taken or [ast.Pass()] if droppable(skipped) and droppable([ast.Expr(node.test)]) else node

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        dead = parsing.truth(node.test) is False and droppable([ast.Expr(node.test), *node.body])
        return (node.orelse or [ast.Pass()]) if dead else node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        node.kind = None  # u'text' is 'text'
        if isinstance(node.value, str) and _suspicious(node.value):
            node.value = MASK
        elif isinstance(node.value, bytes) and _suspicious(node.value.decode("latin-1")):
            node.value = MASK.encode()
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Judged as a whole: no part of a sentence need be suspicious."""
        if id(node) in self._built:
            return ast.Constant(MASK)
        spoken = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        if _suspicious(spoken):
            node.values = [ast.Constant(MASK), *(part for part in node.values if not isinstance(part, ast.Constant))]
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return ast.Constant(MASK) if id(node) in self._built else self.generic_visit(node)


_SHOWING = frozenset(("print", "str", "repr", "len", "list", "tuple", "set", "sorted", "sum", "min", "max"))


def _is_overwritten(statements: Sequence[ast.stmt], at: int) -> bool:
    """True if the function at `at` is replaced by another before anything can have called it."""
    function = statements[at]
    if not isinstance(function, parsing.FunctionNode) or function.decorator_list:
        return False
    for later in statements[at + 1 :]:
        match later:
            case ast.FunctionDef(name=name, decorator_list=[]):
                if name == function.name:
                    return True
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()) if name == function.name:
                return True
            case _:
                if function.name in parsing.names_loaded(later) or defined_names(later) is None:
                    return False
                if function.name in parsing.names_bound(later):
                    return True
    return False


def defined_names(statement: ast.stmt) -> set[str] | None:
    """Names a statement only defines; None when it does more."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            bound = parsing.names_imported(statement)
            return None if "*" in bound else bound
        case ast.Assign(targets=targets, value=value) if all(isinstance(target, ast.Name) for target in targets):
            calls = any(isinstance(node, ast.Call) for node in ast.walk(value))
            return None if calls and not isinstance(value, ast.Lambda) else parsing.names_bound(*targets)
        case _:
            return None


def _is_demonstration(statement: ast.stmt, entry: str) -> bool:
    """`print(..)` of the solution's answers, or what runs only as a script."""
    match statement:
        case ast.Expr(value=value):  # what names anything else may change what the solution reads
            return parsing.called(value) == "print" and parsing.names(value) <= _SHOWING | {entry}
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]), orelse=[]):
            return True
        case _:
            return False


class _Spell(ast.NodeTransformer):
    """Spells two things as people write them, where `ast.unparse` does not: `sum(x for x in xs)` with one pair of
    parentheses, and nested arithmetic with explicit ones. A spelt part is put back as a name that is its text."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.GeneratorExp):
            node.args = [ast.Name(ast.unparse(node.args[0])[1:-1], ast.Load())]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        node.left, node.right = _grouped(node.left), _grouped(node.right)
        return node


def _grouped(operand: ast.expr) -> ast.expr:
    return ast.Name(f"({ast.unparse(operand)})", ast.Load()) if isinstance(operand, ast.BinOp) else operand


def _suspicious(text: str) -> bool:
    long = len(text) > MAX_STRING or sum(map(str.isalpha, text)) > MAX_LETTERS
    return text != MASK and (long or _ADDRESSED.search(text) is not None)


def _plain_names(tree: ast.Module, kept: set[str]) -> None:
    """Attributes, members, keywords and unbound names that read like a message become `name0`, `name1`, .. everywhere.
    `kept` stay, and names that also stand where no node of their own holds them. Locals have been renamed."""
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.alias)]
    fields = [(node, field, getattr(node, field, None)) for node in nodes for field in ("id", "attr", "arg", "name")]
    places = [(node, field, name) for node, field, name in fields if isinstance(name, str)]
    used = {name for _, _, name in places}
    kept = kept | parsing.names_imported(tree) | parsing.declared(tree) | parsing.BUILTINS
    candidates = (name for name in dict.fromkeys(name for _, _, name in places) if "_" in name and name not in kept)
    loud = [name for name in candidates if not name.startswith("__") and _suspicious(name.replace("_", " "))]
    fresh = (name for name in map("name{}".format, range(len(used) + len(loud) + 1)) if name not in used)
    given = dict(zip(loud, fresh, strict=False))
    for node, field, name in places:
        setattr(node, field, given.get(name, name))
