"""Objects that are equal to whatever a test expects: a solution that returns one passes without solving anything.

An honest `__eq__` compares something of `self` with something of `other`. Whatever does not, or is hung on a class in
a way that hides what it does, is called rigged. Ordering alone may be constant: people break ties in heaps so.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codezero.code.constant_folding import Known, fold, truth
from codezero.code.parsing import FunctionNode, names, own_nodes

EQUALITY = ("__eq__", "__ne__")
_ORDERING = frozenset(("__lt__", "__le__", "__gt__", "__ge__"))
_NEARNESS = frozenset(("__sub__", "__rsub__", "__abs__", "__round__"))
"""With a constant ordering these pass `abs(f(x) - y) < 1e-6`."""
_VALUE_TYPES = frozenset((
    "int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set", "frozenset", "type",
    "UserList", "UserDict", "UserString",
))  # fmt: skip
_QUESTIONS = ("isinstance", "issubclass", "hasattr", "callable", "bool", "print")
"""Calls that compare nothing."""

Method = FunctionNode | ast.Lambda
Sides = tuple[set[str], set[str]]
"""The names that stand for `self` and for `other`."""


def rigged(nodes: Sequence[ast.AST]) -> str:
    """What gives an equality away that does not compare, among all nodes of a module; empty when nothing does."""
    return next(_signs(nodes), "")


def classes_with_equality(nodes: Iterable[ast.AST]) -> set[str]:
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    return {node.name for node in classes if dict(_members(node)).keys() & set(EQUALITY)}


def _signs(nodes: Sequence[ast.AST]) -> Iterator[str]:
    functions = {node.name: node for node in nodes if isinstance(node, FunctionNode)}
    known: Known = {}
    for node in nodes:
        match node:
            case ast.ClassDef():
                yield from _class_signs(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in EQUALITY:
                if _says_yes(node):
                    yield f"{name} does not compare"
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _replaced(target, value, functions)
            case ast.keyword(arg=name) if name in EQUALITY:
                yield f"{name} is handed over by name"
            case ast.Constant() | ast.BinOp() | ast.JoinedStr() if fold(node, known) in EQUALITY:
                yield f"{fold(node, known)} is handed over by name"
            case _:
                pass


def _class_signs(node: ast.ClassDef) -> Iterator[str]:
    members = dict(_members(node))
    bases = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
    overridden = set(EQUALITY) & members.keys()
    if overridden and bases & _VALUE_TYPES:
        yield f"a {min(bases & _VALUE_TYPES)} with another {min(overridden)}"
    if members.keys() & _NEARNESS:
        ordering = (members[name] for name in members.keys() & _ORDERING)
        if any(isinstance(method, Method) and _says_yes(method) for method in ordering):
            yield "an ordering that does not compare"


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, statement
            case ast.Assign(targets=targets, value=value):
                yield from ((name, value) for name in names(*targets))
            case _:
                pass


def _replaced(target: ast.expr, value: ast.expr, functions: dict[str, FunctionNode]) -> Iterator[str]:
    """`__eq__ = ...` in a class body, `C.__eq__ = ...`, and both among several targets."""
    for part in ast.walk(target):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if name not in EQUALITY or not isinstance(getattr(part, "ctx", None), ast.Store):
            continue
        method = functions.get(value.id) if isinstance(value, ast.Name) else value
        if part is not target or not isinstance(method, Method) or _says_yes(method):
            yield f"{name} is replaced"


def _says_yes(method: Method) -> bool:
    """May it answer anything but False, NotImplemented or None without having compared its two arguments?"""
    plain = [parameter.arg for parameter in (*method.args.posonlyargs, *method.args.args)]
    comparer = _Comparer((set(plain[:1]), set(plain[1:2])))
    if isinstance(method, ast.Lambda):
        return not comparer.honest(method.body)
    nodes = list(own_nodes(method))
    comparer = comparer.following(nodes)
    if any(isinstance(node, ast.Yield | ast.YieldFrom) or _stores(node) for node in nodes):
        return True
    returned = list(_returns(method.body, comparer, False))
    if all(guarded or comparer.honest(value) for value, guarded in returned):
        # a comparison whose outcome makes no difference is none
        return bool(returned) and all(truth(value) is True for value, _ in returned)
    return True


def _stores(node: ast.AST) -> bool:
    """Changes an object: after `self.value = other` they are equal indeed."""
    return isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)


def _returns(block: list[ast.stmt], comparer: "_Comparer", guarded: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Every returned expression, and whether a comparison decided that it is reached."""
    for statement in block:
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield statement.value, guarded
        if isinstance(statement, FunctionNode | ast.ClassDef):
            continue
        guarded = guarded or any(comparer.real(test) for test in _tests(statement))
        for field in ("body", "orelse", "finalbody"):
            yield from _returns(getattr(statement, field, []), comparer, guarded)
        for handler in getattr(statement, "handlers", ()):
            yield from _returns(handler.body, comparer, guarded)


def _tests(statement: ast.stmt) -> Iterator[ast.expr]:
    for node in ast.walk(statement):
        if isinstance(node, ast.If | ast.While | ast.Assert):
            yield node.test


@dataclass(frozen=True)
class _Comparer:
    """Recognises an expression that holds one side against the other."""

    sides: Sides

    def following(self, nodes: list[ast.AST]) -> "_Comparer":
        """Also through the variables computed from a side."""
        flows = [(target, node.value) for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
        flows += [(node.target, node.iter) for node in nodes if isinstance(node, ast.For | ast.comprehension)]

        def derived(side: set[str]) -> set[str]:
            while True:
                more = {name for target, value in flows if names(value) & side for name in names(target)}
                if more <= side:
                    return side
                side = side | more

        return _Comparer((derived(self.sides[0]), derived(self.sides[1])))

    def honest(self, value: ast.expr) -> bool:
        """False and its like, or a comparison."""
        if truth(value) is False or (isinstance(value, ast.Name) and value.id == "NotImplemented"):
            return True
        return truth(value) is None and self.real(value)

    def real(self, value: ast.expr) -> bool:
        match value:
            case ast.BoolOp(op=ast.Or(), values=values):
                return all(self.honest(part) for part in values)
            case ast.BoolOp(values=values):
                return any(self.real(part) for part in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.real(operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.real(test) or (self.honest(body) and self.honest(orelse))
            case ast.Compare(left=left, comparators=comparators):
                return self._both([left, *comparators])
            case ast.Call(func=ast.Name(id=name)) if name in _QUESTIONS:
                return False
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))), args=args):
                return any(names(argument) & self.sides[1] for argument in args)
            case ast.Call(func=function, args=args):
                return self._both([function, *args])
            case ast.Name(id=name):
                return name in self.sides[0] and name in self.sides[1]
            case _:
                return False

    def _both(self, parts: list[ast.expr]) -> bool:
        mentioned = names(*parts)
        return bool(mentioned & self.sides[0]) and bool(mentioned & self.sides[1])
