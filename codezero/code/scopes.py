"""Which binding every name in a module means, as the interpreter would find it."""

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from codezero.code.parsing import FunctionNode, own_nodes

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Kind(Enum):
    """What a binding is, which decides the names it may get: the first free one of its series."""

    FIXED = ()
    LOCAL = ("v",)
    """Variables and parameters."""
    ITERATION = ("x", "y", "z", "v")
    """Comprehension and loop variables, and parameters of lambdas."""
    FUNCTION = ("h",)

    def series(self) -> Iterator[str]:
        *short, stem = cast("tuple[str, ...]", self.value)
        return itertools.chain(short, (f"{stem}{number}" for number in itertools.count()))


@dataclass(eq=False)
class Binding:
    """A name in the scope that binds it."""

    old: str
    kind: Kind
    new: str = ""
    definition: "Scope | None" = None
    """The scope of the function it is bound to, if a `def` binds it."""


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension."""

    parent: "Scope | None"
    is_class: bool = False
    is_comprehension: bool = False
    bindings: dict[str, Binding] = field(default_factory=dict[str, Binding])
    elsewhere: dict[str, bool] = field(default_factory=dict[str, bool])
    """Names declared `global` (True) or `nonlocal` (False) here."""

    def bind(self, name: str, kind: Kind) -> Binding:
        if name in self.elsewhere:
            owner = self.root if self.elsewhere[name] else self.parent
            found = owner and owner.lookup(name)
            return found or self.root.bindings.setdefault(name, Binding(name, Kind.FIXED))
        kind = Kind.FIXED if self.is_class else kind
        return self.bindings.setdefault(name, Binding(name, kind))

    def lookup(self, name: str) -> Binding | None:
        """As the interpreter does: classes are invisible to the functions inside them."""
        scope: Scope | None = self
        if name in self.elsewhere:
            scope = self.root if self.elsewhere[name] else self.parent
        while scope is not None:
            if name in scope.bindings and (scope is self or not scope.is_class):
                return scope.bindings[name]
            scope = scope.parent
        return None

    @property
    def root(self) -> "Scope":
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def function(self) -> "Scope":
        """Where an assignment expression binds."""
        scope = self
        while scope.is_comprehension and scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass
class Use:
    """One place where an identifier is written."""

    node: ast.AST
    attribute: str
    name: str
    scope: Scope
    index: int | None = None
    callee: ast.expr | None = None
    """What is called, where the identifier is the keyword of an argument."""

    def binding(self) -> Binding | None:
        """What it means; None when nothing here binds it."""
        if self.callee is None:
            return self.scope.lookup(self.name)
        # `helper(size=3)` means the helper's parameter
        helper = self.scope.lookup(self.callee.id) if isinstance(self.callee, ast.Name) else None
        return helper.definition.bindings.get(self.name) if helper and helper.definition else None

    def write(self, name: str) -> None:
        if self.index is None:
            setattr(self.node, self.attribute, name)
        else:
            getattr(self.node, self.attribute)[self.index] = name


class Finder(ast.NodeVisitor):
    """Builds the scopes, and lists every use of a name with the scope it stands in."""

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self.scope = Scope(None)
        self.scopes = [self.scope]
        self.uses: list[Use] = []
        self.entry_parameters: list[Binding] = []
        self.scope.bind(entry, Kind.FIXED)
        self.entry = entry
        self.keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
        self.generic_visit(tree)

    def declare(self, node: ast.AST, attribute: str, kind: Kind, scope: Scope | None = None) -> Binding:
        scope = scope or self.scope
        name = str(getattr(node, attribute))
        self.uses.append(Use(node, attribute, name, scope))
        return scope.bind(name, kind)

    def enter(self, *, is_class: bool = False, is_comprehension: bool = False) -> Scope:
        self.scope = Scope(self.scope, is_class, is_comprehension)
        self.scopes.append(self.scope)
        return self.scope

    def leave(self) -> None:
        assert self.scope.parent is not None
        self.scope = self.scope.parent

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.append(Use(node, "id", node.id, self.scope))
        else:
            self.declare(node, "id", Kind.LOCAL)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.declare(node.target, "id", Kind.LOCAL, self.scope.function)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg:
                self.uses.append(Use(keyword, "arg", keyword.arg, self.scope, callee=node.func))

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        method = self.scope.is_class
        is_entry = self.scope.parent is None and node.name == self.entry
        binding = self.declare(node, "name", Kind.FUNCTION)
        self.visit_all((*node.decorator_list, *node.args.defaults, *node.args.kw_defaults))
        inner = self.enter()
        named = method and any(parameter.arg in self.keywords for parameter in _all_parameters(node.args))
        # a function defined twice has no single set of parameters to rename keywords by
        binding.definition = inner if binding.definition is None else None
        self.declare_scoping(node)
        parameters = self.parameters(node.args, Kind.FIXED if named else Kind.LOCAL)
        if is_entry:
            self.entry_parameters = parameters
        self.visit_all(node.body)
        self.leave()

    visit_AsyncFunctionDef = visit_FunctionDef  # pyright: ignore[reportAssignmentType]

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all((*node.args.defaults, *node.args.kw_defaults))
        self.enter()
        self.parameters(node.args, Kind.ITERATION)
        self.visit(node.body)
        self.leave()

    def parameters(self, args: ast.arguments, kind: Kind) -> list[Binding]:
        declared = [self.declare(argument, "arg", kind) for argument in _all_parameters(args)]
        return declared[: len(args.posonlyargs) + len(args.args)]

    def declare_scoping(self, function: ast.AST) -> None:
        """`global` and `nonlocal` hold for the whole function, also above the line they stand in."""
        for node in own_nodes(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.scope.elsewhere |= dict.fromkeys(node.names, isinstance(node, ast.Global))

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.uses += [Use(node, "names", name, self.scope, index) for index, name in enumerate(node.names)]

    visit_Nonlocal = visit_Global  # pyright: ignore[reportAssignmentType]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all((*node.decorator_list, *node.bases, *node.keywords))
        self.declare(node, "name", Kind.FUNCTION)
        self.enter(is_class=True)
        self.visit_all(node.body)
        self.leave()

    def visit_comprehension_expression(self, node: Comprehension) -> None:
        self.visit(node.generators[0].iter)  # evaluated outside
        self.enter(is_comprehension=True)
        for number, generator in enumerate(node.generators):
            if number:
                self.visit(generator.iter)
            self.visit_iteration_target(generator.target)
            self.visit_all(generator.ifs)
        self.visit_all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,))
        self.leave()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_expression

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit_iteration_target(node.target)
        self.visit_all((*node.body, *node.orelse))

    visit_AsyncFor = visit_For  # pyright: ignore[reportAssignmentType]

    def visit_iteration_target(self, target: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self.scope.bind(part.id, Kind.ITERATION)
        self.visit(target)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.scope.bind((alias.asname or alias.name).split(".")[0], Kind.FIXED).kind = Kind.FIXED

    visit_ImportFrom = visit_Import  # pyright: ignore[reportAssignmentType]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.capture(node)

    def capture(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.declare(node, "name", Kind.LOCAL)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = capture

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.declare(node, "rest", Kind.LOCAL)
        self.generic_visit(node)


def _all_parameters(args: ast.arguments) -> list[ast.arg]:
    rest = (args.vararg, *args.kwonlyargs, args.kwarg)
    return [*args.posonlyargs, *args.args, *(argument for argument in rest if argument is not None)]
