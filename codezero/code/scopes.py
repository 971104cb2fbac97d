"""Bindings that the names in a module mean, as the interpreter would find them; and new names for the bindings.

The new names depend on structure alone: two programs that differ only in how locals, parameters and helpers are called
come out the same. The entry point, imports, attributes, class members and names nobody binds (builtins, mistakes) keep
theirs, and no new name ever captures one of them: renaming must not repair a program that was wrong."""

import ast
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from codezero.code.parsing import FunctionNode, own_nodes

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

Series = tuple[tuple[str, ...], str]  # letters, then a stem with numbers: the first free one is the new name
FIXED: Series = ((), "")  # it keeps its name
LOCAL: Series = ((), "v")  # variables and parameters
ITERATION: Series = (("x", "y", "z"), "v")  # comprehension and loop variables, and parameters of lambdas
FUNCTION: Series = ((), "h")

_NAMED = {"ExceptHandler": "name", "MatchAs": "name", "MatchStar": "name", "MatchMapping": "rest"}


@dataclass(eq=False)
class Binding:
    old: str
    series: Series
    new: str = ""
    definition: "Scope | None" = None  # the scope of the function it is bound to, if a `def` binds it


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension."""

    parent: "Scope | None"
    is_class: bool = False
    is_comprehension: bool = False
    bindings: dict[str, Binding] = field(default_factory=dict[str, Binding])
    elsewhere: dict[str, bool] = field(default_factory=dict[str, bool])  # names declared global (True) or nonlocal

    def bind(self, name: str, series: Series) -> Binding:
        if name in self.elsewhere:
            *_, root = self.outwards()
            return self.lookup(name) or root.bindings.setdefault(name, Binding(name, FIXED))
        return self.bindings.setdefault(name, Binding(name, FIXED if self.is_class else series))

    def lookup(self, name: str) -> Binding | None:
        """As the interpreter does: classes are invisible to the functions inside them."""
        scopes = list(self.outwards())
        if name in self.elsewhere:
            scopes = scopes[-1:] if self.elsewhere[name] else scopes[1:]
        seen = (scope for scope in scopes if name in scope.bindings and (scope is self or not scope.is_class))
        return next((scope.bindings[name] for scope in seen), None)

    def outwards(self) -> "Iterator[Scope]":
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass
class Use:
    node: ast.AST
    attribute: str
    name: str
    scope: Scope
    index: int | None = None
    callee: ast.expr | None = None  # what is called, where the identifier is the keyword of an argument

    def binding(self) -> Binding | None:
        """Look up what it means; None when nothing here binds it."""
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

    def __init__(self, tree: ast.Module, entry: str, helpers: Iterable[str] = ()) -> None:
        self.scope = Scope(None)
        self.scopes = [self.scope]
        self.uses: list[Use] = []
        self.entry_parameters: list[Binding] = []
        for name in (entry, *helpers):
            self.scope.bind(name, FIXED)
        self.entry = entry
        self.keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
        self.generic_visit(tree)

    def declare(self, node: ast.AST, attribute: str, series: Series, scope: Scope | None = None) -> Binding:
        scope = scope or self.scope
        name = str(getattr(node, attribute))
        self.uses.append(Use(node, attribute, name, scope))
        return scope.bind(name, series)

    @contextmanager
    def inner(self, *, is_class: bool = False, is_comprehension: bool = False) -> Generator[Scope]:
        outer, self.scope = self.scope, Scope(self.scope, is_class, is_comprehension)
        self.scopes.append(self.scope)
        yield self.scope
        self.scope = outer

    def generic_visit(self, node: ast.AST) -> None:
        field = _NAMED.get(type(node).__name__, "")
        if getattr(node, field, None):
            self.declare(node, field, LOCAL)
        super().generic_visit(node)

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.append(Use(node, "id", node.id, self.scope))
        else:
            self.declare(node, "id", LOCAL)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        function = next(scope for scope in self.scope.outwards() if not scope.is_comprehension)
        self.declare(node.target, "id", LOCAL, function)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg:
                self.uses.append(Use(keyword, "arg", keyword.arg, self.scope, callee=node.func))

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        method = self.scope.is_class
        is_entry = self.scope.parent is None and node.name == self.entry
        binding = self.declare(node, "name", FUNCTION)
        self.visit_all((*node.decorator_list, *node.args.defaults, *node.args.kw_defaults))
        named = method and any(parameter.arg in self.keywords for parameter in _all_parameters(node.args))
        with self.inner() as inner:
            # a function defined twice has no single set of parameters to rename keywords by
            binding.definition = inner if binding.definition is None else None
            # `global` and `nonlocal` hold for the whole function, also above the line they stand in
            for part in own_nodes(node):
                if isinstance(part, ast.Global | ast.Nonlocal):
                    inner.elsewhere |= dict.fromkeys(part.names, isinstance(part, ast.Global))
            parameters = self.parameters(node.args, FIXED if named else LOCAL)
            if is_entry:
                self.entry_parameters = parameters
            self.visit_all(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # pyright: ignore[reportAssignmentType]

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all((*node.args.defaults, *node.args.kw_defaults))
        with self.inner():
            self.parameters(node.args, ITERATION)
            self.visit(node.body)

    def parameters(self, args: ast.arguments, series: Series) -> list[Binding]:
        declared = [self.declare(argument, "arg", series) for argument in _all_parameters(args)]
        return declared[: len(args.posonlyargs) + len(args.args)]

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.uses += [Use(node, "names", name, self.scope, index) for index, name in enumerate(node.names)]

    visit_Nonlocal = visit_Global  # pyright: ignore[reportAssignmentType]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all((*node.decorator_list, *node.bases, *node.keywords))
        self.declare(node, "name", FUNCTION)
        with self.inner(is_class=True):
            self.visit_all(node.body)

    def visit_comprehension_expression(self, node: Comprehension) -> None:
        self.visit(node.generators[0].iter)  # evaluated outside
        with self.inner(is_comprehension=True):
            for number, generator in enumerate(node.generators):
                if number:
                    self.visit(generator.iter)
                self.visit_iteration_target(generator.target)
                self.visit_all(generator.ifs)
            self.visit_all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_expression

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit_iteration_target(node.target)
        self.visit_all((*node.body, *node.orelse))

    visit_AsyncFor = visit_For  # pyright: ignore[reportAssignmentType]

    def visit_iteration_target(self, target: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self.scope.bind(part.id, ITERATION)
        self.visit(target)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.scope.bind((alias.asname or alias.name).split(".")[0], FIXED).series = FIXED

    visit_ImportFrom = visit_Import  # pyright: ignore[reportAssignmentType]


def _all_parameters(args: ast.arguments) -> list[ast.arg]:
    rest = (args.vararg, *args.kwonlyargs, args.kwarg)
    return [*args.posonlyargs, *args.args, *(argument for argument in rest if argument is not None)]


def rename(tree: ast.Module, entry: str, parameters: Sequence[str] | None, helpers: Iterable[str] = ()) -> None:
    """Give every renameable binding of `tree` its new name, in place. `parameters` name the entry's parameters;
    `helpers` keep their names, as the entry does."""
    finder = Finder(tree, entry, helpers)
    uses = [(use, use.binding()) for use in finder.uses]
    bound = [binding for scope in finder.scopes for binding in scope.bindings.values()]
    kept = {use.name for use, binding in uses if binding is None}
    kept |= {binding.old for binding in bound if binding.series is FIXED}
    given = dict(zip(finder.entry_parameters, parameters or (), strict=False))
    for scope in finder.scopes:  # outer ones first; names follow from the order of first appearance
        outer = scope.parent.outwards() if scope.parent else ()
        taken = {*kept, *(binding.new for around in outer for binding in around.bindings.values())}
        for binding in scope.bindings.values():
            if binding.series is FIXED:
                binding.new = binding.old
                continue
            letters, stem = binding.series
            numbered = map(f"{stem}{{}}".format, itertools.count())
            wanted = (given.get(binding, ""), *letters)
            binding.new = next(name for name in itertools.chain(wanted, numbered) if name and name not in taken)
            taken.add(binding.new)
    for use, binding in uses:
        if binding is not None:
            use.write(binding.new)


def free_names(tree: ast.Module) -> set[str]:
    """Names that are used where nothing in the module binds them: builtins, and mistakes."""
    return {use.name for use in Finder(tree, "").uses if use.callee is None and use.binding() is None}
