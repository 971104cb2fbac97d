"""What can be said of a solution without running it, and without asking a model: `check`.

Certain failures (does not parse, entry point missing, cannot be called as the tests call it), signs of an attack on
the judge (quarantine), and milder flaws. Reads untrusted text: call it through `guard.py`.
"""

import ast
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyflakes.checker import Binding, Builtin, Checker
from pyflakes.messages import UndefinedName

from codezero.code import hacks
from codezero.code.canonical import canonical_tree, stated_parameters
from codezero.code.extract import extract_code
from codezero.code.syntax import FunctionNode, hidden_characters, names_bound, names_loaded, own_nodes, parse
from codezero.code.tests import Call, Example, parse_tests
from codezero.errors import ProblemError

_OUTSIDE_MODULES = frozenset({
    "os", "subprocess", "sys", "socket", "shutil", "ctypes", "importlib", "builtins", "pickle", "marshal",
    "multiprocessing", "threading", "signal", "inspect", "gc", "requests", "urllib", "http", "pathlib", "tempfile",
    "asyncio", "pty", "resource", "faulthandler", "code", "codeop", "unittest", "pytest",
})  # fmt: skip
_OUTSIDE_CALLS = frozenset({
    "exec", "eval", "compile", "__import__", "open", "input", "breakpoint", "globals", "locals", "vars", "setattr",
    "delattr", "exit", "quit",
})  # fmt: skip
_PLAIN_DUNDERS = frozenset(("__init__", "__name__", "__len__", "__class__", "__doc__"))


@dataclass(frozen=True, slots=True)
class StaticRequest:
    """One completion and the problem it answers."""

    completion_text: str
    tests: tuple[str, ...]
    entry_point: str
    """Empty for a program that reads stdin and writes stdout."""
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    """The findings. Where a check could not be made its field keeps the harmless default."""

    fences: int = 0
    closed: bool = False
    parses: bool = False
    entry_defined: bool = False
    arity_ok: bool = False
    returns_value: bool = False
    stub: bool = False
    degenerate: tuple[str, ...] = ()
    """Loops and recursions without an end."""
    undefined_names: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    """Imports and calls that reach outside a pure function."""
    dunder: tuple[str, ...] = ()
    toplevel: tuple[str, ...] = ()
    """Kinds of statement that act when the module is loaded."""
    unused_params: tuple[str, ...] = ()
    signature_as_stated: bool = True
    """The parameters are called as in the question, or the question does not say."""
    hardcode_ratio: float = 0.0
    """Share of tests whose input and expected value both stand in the code."""
    quarantine: tuple[str, ...] = ()
    """Why this looks like an attack; empty when it does not."""
    refusal: str = ""
    """Why there is no tree: no fence, a syntax error, over a limit."""
    unavailable: str = ""
    """Why nothing can be said; then no other field means anything."""
    examples: tuple[Example, ...] = ()
    """The tests whose input and output are literals; bounded in number and length."""
    canonical: str | None = None
    digest: str = ""
    """sha256 of `canonical`."""

    @property
    def certain_failure(self) -> bool:
        return not (self.parses and self.entry_defined and self.arity_ok)


def check(request: StaticRequest) -> StaticReport:
    """Never raises on hostile text that the limits of `syntax.py` let in."""
    found = extract_code(request.completion_text)
    if found.code is None:
        why = "no Python fence" if found.fences == 0 else "more than one Python fence"
        return StaticReport(fences=found.fences, closed=found.closed, refusal=why)
    hidden = tuple(f"hidden character {name}" for name in hidden_characters(found.code))
    tree, why = parse(found.code)
    if tree is None:
        return StaticReport(fences=1, closed=found.closed, quarantine=hidden, refusal=f"unparseable: {why}")
    try:
        return _inspect(tree, found.code, found.closed, request, hidden)
    except (RecursionError, MemoryError, ValueError) as error:
        why = f"unparseable: nested too deeply ({type(error).__name__})"
        return StaticReport(fences=1, closed=found.closed, quarantine=hidden, refusal=why)


def _inspect(
    tree: ast.Module, code: str, closed: bool, request: StaticRequest, hidden: tuple[str, ...]
) -> StaticReport:
    entry = request.entry_point
    function = _find_entry(tree, entry)
    calls = _calls(request.tests, entry)
    hardcode = hacks.hardcode_ratio(tree, calls)
    stated = stated_parameters(request.question, entry)
    arguments = None if function is None else function.args
    parameters = [] if arguments is None else [*arguments.posonlyargs, *arguments.args]
    named = [parameter.arg for parameter in parameters]
    findings = StaticReport(
        fences=1,
        closed=closed,
        parses=True,
        entry_defined=function is not None,
        arity_ok=arguments is not None and all(accepts(arguments, call) for call in calls),
        returns_value=function is not None and _returns_value(function),
        stub=function is not None and _is_stub(function),
        degenerate=() if function is None else tuple(_degenerate(function)),
        undefined_names=_undefined_names(tree),
        banned=tuple(sorted(_banned(tree))),
        dunder=tuple(sorted(_dunders(tree))),
        toplevel=tuple(type(node).__name__ for node in tree.body if _acts(node)),
        unused_params=() if function is None else tuple(sorted(set(named) - names_loaded(function))),
        signature_as_stated=stated is None or named == list(stated),
        hardcode_ratio=hardcode,
        quarantine=hidden + hacks.attacks(tree, code, request.tests, entry, hardcode, len(calls)),
        canonical=None,
    )
    text = canonical_tree(tree, entry, parameters=stated)
    return _with_canonical(findings, text)


def _with_canonical(report: StaticReport, text: str) -> StaticReport:
    return replace(report, canonical=text, digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())


def _find_entry(tree: ast.Module, entry: str) -> ast.FunctionDef | ast.Lambda | None:
    """The last top-level `def` or `NAME = lambda` of that name; a coroutine is not one that tests can call."""
    found: ast.FunctionDef | ast.Lambda | None = None
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == entry:
                found = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value) if name == entry:
                found = value
            case _:
                pass
    return found


@functools.lru_cache(maxsize=64)
def _calls(tests: tuple[str, ...], entry: str) -> tuple[Call, ...]:
    """Nothing when the tests cannot be read: that is the problem's fault, not the solution's."""
    try:
        return parse_tests(tests, entry).calls
    except ProblemError:
        return ()


def accepts(arguments: ast.arguments, call: Call) -> bool:
    """Can a function with these parameters be called so?"""
    positional = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    only = len(arguments.posonlyargs)
    if call.npos > len(positional) and not arguments.vararg:
        return False
    free = set(positional[max(call.npos, only) :]) | {parameter.arg for parameter in arguments.kwonlyargs}
    if not arguments.kwarg and not set(call.keywords) <= free:
        return False
    required = positional[call.npos : len(positional) - len(arguments.defaults)]
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            required.append(parameter.arg)
    return set(required) <= set(call.keywords) & free


def _returns_value(function: ast.FunctionDef | ast.Lambda) -> bool:
    if isinstance(function, ast.Lambda):
        return True
    return any(
        isinstance(node, ast.YieldFrom | ast.Yield)
        or (isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value))
        for node in own_nodes(function)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_stub(function: ast.FunctionDef | ast.Lambda) -> bool:
    """Nothing but pass, raise, or one constant."""
    if isinstance(function, ast.Lambda):
        return isinstance(function.body, ast.Constant)
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if all(isinstance(node, ast.Pass | ast.Raise) for node in body):
        return True
    only = body[0]
    return len(body) == 1 and isinstance(only, ast.Return) and (only.value is None or _constant(only.value))


def _constant(node: ast.expr) -> bool:
    return not any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node))


def _degenerate(function: ast.FunctionDef | ast.Lambda) -> Iterator[str]:
    nodes = list(own_nodes(function))
    choices = (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Try, ast.Match, ast.comprehension)
    name = getattr(function, "name", None)
    recursive = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in nodes)
    if recursive and not any(isinstance(node, choices) for node in nodes):
        yield "recursion without an end"
    leaves = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)
    for node in nodes:
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            inside = (part for statement in node.body for part in ast.walk(statement))
            if not any(isinstance(part, leaves) for part in inside):
                yield "loop without an end"


class _Checker(Checker):
    """Binds only the builtins that a program mentions: binding all of them is most of the work on a short one."""

    def __init__(self, tree: ast.Module) -> None:
        self._mentioned = names_loaded(tree) | names_bound(tree)
        super().__init__(tree, filename="solution")

    def addBinding(self, node: ast.AST | None, value: Binding) -> None:
        if not isinstance(value, Builtin) or value.name in self._mentioned:
            super().addBinding(node, value)  # pyright: ignore[reportArgumentType]  # None for a builtin


def _undefined_names(tree: ast.Module) -> tuple[str, ...]:
    messages = _Checker(tree).messages
    return tuple(sorted({str(message.message_args[0]) for message in messages if isinstance(message, UndefinedName)}))


def _banned(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from {alias.name.split(".")[0] for alias in names} & _OUTSIDE_MODULES
            case ast.ImportFrom(module=module) if module and module.split(".")[0] in _OUTSIDE_MODULES:
                yield module.split(".")[0]
            case ast.Call(func=ast.Name(id=name)) if name in _OUTSIDE_CALLS:
                yield name
            case _:
                pass


def _dunders(tree: ast.Module) -> set[str]:
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in attributes if name.startswith("__") and name not in _PLAIN_DUNDERS}


def _acts(node: ast.stmt) -> bool:
    """Does a top-level statement do more than define?"""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return False
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            calls = (part for part in ast.walk(value) if isinstance(part, ast.Call))
            return any(isinstance(call.func, ast.Name) and call.func.id in _OUTSIDE_CALLS for call in calls)
        case _:
            return not isinstance(node, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom | ast.AnnAssign)
