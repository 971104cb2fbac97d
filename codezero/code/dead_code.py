"""Dead code: statements that can never run, and those in a function whose absence nobody could notice.

The latter are variables that are never read, `x = x`, bare names. Only what cannot fail goes: taking away a statement
that raises would repair a program that was wrong."""

import ast
from collections.abc import Iterator, Sequence
from typing import cast

from codezero.code import parsing

_EXITS = ("exit", "quit", "sys.exit", "sys._exit", "os.exit", "os._exit")
_PRESENT = (
    ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.NamedExpr,
)  # fmt: skip


def blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The blocks directly inside a statement or handler, with the field each stands in."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield field, cast("list[ast.stmt]", block)


def live(statements: list[ast.stmt], owner: ast.AST, field: str) -> list[ast.stmt]:
    """A block without what follows its end and without needless `pass`."""
    last = next((index for index, statement in enumerate(statements) if _ends(statement)), None)
    if last is not None and (isinstance(owner, ast.Module) or droppable(statements[last + 1 :])):
        statements = statements[: last + 1]
    kept = [statement for statement in statements if not isinstance(statement, ast.Pass)]
    required = field == "body" and not isinstance(owner, ast.Module)
    if field == "finalbody":
        required = isinstance(owner, ast.Try | ast.TryStar) and not owner.handlers
    return kept or [ast.Pass()] * required


def droppable(statements: Sequence[ast.stmt]) -> bool:
    """True for statements that never run and whose mere presence has no effect, as a yield or a name made local has."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    inner = parsing.names_bound(*(node.target for node in nodes if isinstance(node, ast.comprehension)))
    return parsing.names_bound(*statements) <= inner and not any(isinstance(node, _PRESENT) for node in nodes)


def _ends(statement: ast.stmt) -> bool:
    leaves = isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue)
    return leaves or (isinstance(statement, ast.Expr) and parsing.called(statement.value) in _EXITS)


def without_unused_functions(function: parsing.FunctionNode) -> bool:
    """Take inner functions that nobody mentions out of `function`, in place; True when one went."""
    acting = (ast.Call, ast.Subscript, ast.NamedExpr)  # in a default
    functions = [node for node in function.body if isinstance(node, parsing.FunctionNode) and not node.decorator_list]
    unused = [node for node in functions if not any(isinstance(part, acting) for part in ast.walk(node.args))]
    used = parsing.names_loaded(*(node for node in function.body if node not in unused)) | parsing.declared(function)
    while wanted := [node for node in unused if node.name in used]:
        used = used.union(*(parsing.names_loaded(node) - {node.name} for node in wanted))
        unused = [node for node in unused if node not in wanted]
    if unused:
        function.body = live([node for node in function.body if node not in unused], function, "body")
    return bool(unused)


_INSPECTORS = frozenset(("locals", "vars", "eval", "exec", "dir"))  # they read variables by other means
_EMPTY = frozenset(("list", "dict", "set", "tuple", "str", "int", "float", "bool", "object"))
_PADDED = (ast.Assign, ast.AugAssign, ast.Expr, ast.Assert, ast.If, ast.For)


def drop_padding(function: parsing.FunctionNode) -> bool:
    """Take the padding out of `function`, in place; True when something went."""
    if not any(isinstance(node, _PADDED) for node in function.body) or parsing.names(function) & _INSPECTORS:
        return False
    sweep = _Sweep(function)
    function.body = sweep.block(function.body, function, "body")
    return bool(sweep.spare)


class _Sweep:
    def __init__(self, function: parsing.FunctionNode) -> None:
        everything, own = list(ast.walk(function)), list(parsing.own_nodes(function))
        caught = {node.name for node in everything if isinstance(node, ast.ExceptHandler) and node.name}
        removed = parsing.names(function, context=(ast.Del,))
        self.unsure = parsing.declared(function) | removed | caught  # bound or unbound elsewhere
        given = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
        bound = [node for node in own if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
        self.local = given | {node.id for node in bound} | self.unsure
        self.local |= {node.name for node in own if isinstance(node, parsing.FunctionNode | ast.ClassDef)}
        counted = [node for node in own if isinstance(node, ast.stmt) and _sets_whole_number(node)]
        harmless = {id(target) for node in counted for target in plain_targets(node)}
        begun, seen = set[str](), set[str]()
        for statement in function.body:
            if statement in counted and isinstance(statement, ast.Assign):
                begun |= parsing.names_bound(statement) - seen
            seen |= parsing.names(statement)
        self.counters = begun - {node.id for node in bound if id(node) not in harmless}
        self.spare: dict[int, ast.stmt] = {}  # statements without effect but for the variables they set
        self._survey(function.body, given - self.unsure)
        self._keep_what_is_read(everything)

    def _keep_what_is_read(self, everything: list[ast.AST]) -> None:
        """Leaves those in `spare` whose variables only others of them read."""
        inside = {id(part) for statement in self.spare.values() for part in ast.walk(statement)}
        outside = [node for node in everything if isinstance(node, ast.Name) and id(node) not in inside]
        read = {node.id for node in outside if isinstance(node.ctx, ast.Load)} | self.unsure
        # `i += 1` that stays needs its `i = 0`
        read |= parsing.names_bound(*(node for node in everything if isinstance(node, ast.AugAssign))) - self.counters
        while True:
            needed = [key for key, statement in reversed(self.spare.items()) if parsing.names_bound(statement) & read]
            needed = [key for key in needed if not _is_idle(self.spare[key])]
            if not needed:
                return
            for key in needed:
                read |= parsing.names_loaded(self.spare.pop(key))

    def _survey(self, block: list[ast.stmt], bound: set[str]) -> None:
        """`bound`: names that surely have a value at its start; grows by what surely gets one in it."""
        for statement in block:
            for _, _, inner in inner_blocks(statement):
                self._survey(inner, set(bound))
            if self._is_spare(statement, bound):
                self.spare[id(statement)] = statement
            if isinstance(statement, ast.Assign):
                bound |= parsing.names_bound(*plain_targets(statement)) - self.unsure

    def block(self, block: list[ast.stmt], owner: ast.AST, field: str) -> list[ast.stmt]:
        for statement in block:
            for part, name, inner in inner_blocks(statement):
                setattr(part, name, self.block(inner, part, name))
        return live([statement for statement in block if id(statement) not in self.spare], owner, field)

    def _is_spare(self, statement: ast.stmt, bound: set[str]) -> bool:
        match statement:
            case ast.Assign(value=value):
                return bool(plain_targets(statement)) and self._safe(value, bound)
            case ast.AugAssign(target=ast.Name(id=name)):
                return name in self.counters
            case ast.Expr(value=value):
                return self._safe(value, bound)
            case ast.Assert(test=test):
                return parsing.truth(test) is True and self._safe(test, bound)
            case ast.If(test=test, body=[ast.Pass()], orelse=[]):
                return self._safe(test, bound)
            case ast.For(target=ast.Name(), iter=iterated, orelse=[]) if _is_empty(iterated):
                return droppable(statement.body)
            case _:
                return False

    def _safe(self, value: ast.expr, bound: set[str]) -> bool:
        """Can it be evaluated without failing and without effect?"""
        match value:
            case ast.Constant() | ast.Lambda(args=ast.arguments(defaults=[], kw_defaults=[])):
                return True
            case ast.Name(id=name):
                return name in bound or (name in parsing.BUILTINS and name not in self.local)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
                return all(self._safe(part, bound) for part in parts)
            case ast.Dict(keys=keys, values=values):
                return all(isinstance(k, ast.Constant) for k in keys) and all(self._safe(v, bound) for v in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._safe(operand, bound)
            case ast.Compare(left=left, ops=ops, comparators=others):
                plain = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                safe = plain and all(self._safe(part, bound) for part in (left, *others))
                return safe or parsing.truth(value) is not None
            case ast.Call(args=[], keywords=[]):
                return parsing.called(value) in _EMPTY - self.local
            case _:
                return parsing.fold(value, {}) is not parsing.UNKNOWN


def _sets_whole_number(statement: ast.stmt) -> bool:
    """`i = 0`, and `i += 1` and the like."""
    match statement:
        case ast.Assign(value=value) | ast.AugAssign(op=ast.Add() | ast.Sub() | ast.Mult(), value=value):
            return bool(plain_targets(statement)) and isinstance(parsing.fold(value, {}), int)
        case _:
            return False


def _is_idle(statement: ast.stmt) -> bool:
    """`x = x`."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Name) and parsing.names(*plain_targets(statement)) == {value.id}


def inner_blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """Every block directly inside a statement that runs in the same frame: its owner, its field, itself."""
    if not isinstance(statement, parsing.FunctionNode | ast.ClassDef):
        for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from ((part, field, block) for field, block in blocks(part))


def plain_targets(statement: ast.AST) -> list[ast.expr]:
    """The variables of an assignment that does nothing but give them a value; else none."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return targets if all(isinstance(target, ast.Name) for target in targets) else []


def _is_empty(iterated: ast.expr) -> bool:
    match iterated:
        case ast.Call(args=[ast.Constant(value=int(stop))], keywords=[]):
            return parsing.called(iterated) == "range" and stop <= 0
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Constant(value=""):
            return True
        case _:
            return False
