"""One spelling for all programs that say the same, so that a judge reads what code does and not how it is dressed.

Removed: comments, docstrings, bare constants, annotations, statements and branches that cannot run, helpers and
imports that the entry point cannot reach, and text that talks to the judge. Locals, parameters and helpers are renamed
by structure. The result is for reading; nothing here or elsewhere runs it.
"""

import ast
import keyword
import re
from collections.abc import Sequence
from typing import TypeVar, cast

from codezero.code.scopes import rename as rename_bindings
from codezero.code.syntax import FunctionNode, names_bound, names_loaded

MASK = "<STR>"
MAX_STRING = 40
"""Longer string literals are masked: prose, not data."""

ADDRESSED_TO_JUDGE = re.compile(
    r"<\|[^|\s]{1,40}\|>|is_correct|\bverdict\b|\ball (?:unit )?tests\b|\banswer\s*[:=]|```", re.IGNORECASE
)
"""Chat markers, verdicts and self-praise: text no program needs."""

_N = TypeVar("_N", bound=ast.AST)


def canonical(source: str, entry: str, *, parameters: Sequence[str] | None = None, rename: bool = True) -> str:
    """`source` in its one spelling. `parameters`: names the question gives the entry point's parameters.

    Raises SyntaxError, ValueError, RecursionError or MemoryError; for untrusted source go through `guard.py`.
    """
    return canonical_tree(ast.parse(source), entry, parameters=parameters, rename=rename)


def canonical_tree(tree: ast.Module, entry: str, *, parameters: Sequence[str] | None, rename: bool = True) -> str:
    """As `canonical`; changes `tree`."""
    _Undress().visit(tree)
    if rename:
        rename_bindings(tree, entry, None)  # no local shares its name with a helper: what follows goes by name
    for node in reversed(list(ast.walk(tree))):  # inner functions first
        if isinstance(node, FunctionNode):
            _drop_unused_functions(node)
            _inline_result(node)
    _keep_reachable(tree, entry)
    if rename:
        rename_bindings(tree, entry, parameters)
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
    """Takes off what does not change behaviour."""

    def generic_visit(self, node: _N) -> _N:
        super().generic_visit(node)
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                setattr(node, block, _live(cast("list[ast.stmt]", statements), _required(node, block)))
        if hasattr(node, "type_comment"):
            node.type_comment = None  # pyright: ignore[reportAttributeAccessIssue]
        return node

    def visit_FunctionDef(self, node: FunctionNode) -> FunctionNode:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        node.type_comment = None
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
        if not isinstance(node.test, ast.Constant):
            return node
        taken, skipped = (node.body, node.orelse) if node.test.value else (node.orelse, node.body)
        return taken or [ast.Pass()] if _droppable(skipped) else node

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        dead = isinstance(node.test, ast.Constant) and not node.test.value and _droppable(node.body)
        return (node.orelse or [ast.Pass()]) if dead else node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str | bytes) and _suspicious(node.value):
            node.value = MASK
            node.kind = None
        elif node.kind is not None:
            node.kind = None  # u'text' is 'text'
        return node


def _suspicious(value: str | bytes) -> bool:
    text = value if isinstance(value, str) else value.decode("latin-1")
    return len(text) > MAX_STRING or ADDRESSED_TO_JUDGE.search(text) is not None


def _required(owner: ast.AST, block: str) -> bool:
    if block == "finalbody":
        return isinstance(owner, ast.Try | ast.TryStar) and not owner.handlers
    return block == "body" and not isinstance(owner, ast.Module)


def _live(statements: list[ast.stmt], required: bool) -> list[ast.stmt]:
    """A block without what follows its end and without needless `pass`; `required`: it may not be empty."""
    ends = (ast.Return, ast.Raise, ast.Break, ast.Continue)
    last = next((index for index, statement in enumerate(statements) if isinstance(statement, ends)), None)
    if last is not None and _droppable(statements[last + 1 :]):
        statements = statements[: last + 1]
    kept = [statement for statement in statements if not isinstance(statement, ast.Pass)]
    return kept or ([ast.Pass()] if required else [])


def _droppable(statements: Sequence[ast.stmt]) -> bool:
    """May statements that never run go? Not if their mere presence has an effect: a yield, or a name made local."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    inner = names_bound(*(node.target for node in nodes if isinstance(node, ast.comprehension)))
    return names_bound(*statements) <= inner and not any(isinstance(node, _PRESENT) for node in nodes)


_PRESENT = (
    ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.NamedExpr,
)  # fmt: skip


def _inline_result(function: FunctionNode) -> None:
    """`result = E; return result` as its last two statements is `return E`."""
    match function.body[-2:]:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
            mentions = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))
            if name == returned and mentions == 2 and name not in _declared(function):
                function.body[-2:] = [ast.Return(value)]
        case _:
            pass


def _declared(function: ast.AST) -> set[str]:
    scoping = (node for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in scoping for name in node.names}


def _drop_unused_functions(function: FunctionNode) -> None:
    """Inner functions that nobody mentions, until none is left."""
    while True:
        used = names_loaded(*(node for node in function.body if not isinstance(node, FunctionNode)))
        for inner in function.body:
            if isinstance(inner, FunctionNode):
                used |= names_loaded(inner) - {inner.name}
        used |= _declared(function)
        kept = [node for node in function.body if not isinstance(node, FunctionNode) or _needed(node, used)]
        if len(kept) == len(function.body):
            return
        function.body = _live(kept, True)


def _needed(function: FunctionNode, used: set[str]) -> bool:
    return function.name in used or bool(function.decorator_list)


def _keep_reachable(tree: ast.Module, entry: str) -> None:
    """Drop definitions, imports and constants that neither the entry point nor a statement with an effect uses."""
    statements = [node for node in tree.body if not _is_demonstration(node)]
    last = {node.name: node for node in statements if isinstance(node, FunctionNode)}
    statements = [n for n in statements if not isinstance(n, FunctionNode) or n.decorator_list or last[n.name] is n]
    defines = {id(node): _defined(node) for node in statements}
    wanted = {entry}
    kept: set[int] = set()
    while True:
        fresh = [n for n in statements if id(n) not in kept and (defines[id(n)] is None or defines[id(n)] & wanted)]  # pyright: ignore[reportOptionalOperand]
        if not fresh:
            break
        kept |= {id(node) for node in fresh}
        wanted |= names_loaded(*fresh) | {name for node in fresh for name in _declared(node)}
    tree.body = [node for node in statements if id(node) in kept]


def _defined(statement: ast.stmt) -> set[str] | None:
    """Names a statement only defines; None when it does more."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            bound = {(alias.asname or alias.name).split(".")[0] for alias in names}
            return None if "*" in bound else bound
        case ast.Assign(targets=targets, value=value) if all(isinstance(target, ast.Name) for target in targets):
            calls = any(isinstance(node, ast.Call) for node in ast.walk(value))
            return None if calls and not isinstance(value, ast.Lambda) else names_bound(*targets)
        case _:
            return None


def _is_demonstration(statement: ast.stmt) -> bool:
    """`print(..)` after the solution, or what runs only as a script."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), orelse=[]):
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
