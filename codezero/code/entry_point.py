"""What a solution is entered by: the function that tests call, or the whole program that reads stdin and writes stdout.

Where the function is, how it can be called, whether it does anything; whether the program reads, writes and is more
than a constant text. What is asked of a program is asked of a tree that `canonical.reduce` left, so a `print` in a
function that nothing calls does not count.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.code.assertions import EntryCall
from codezero.code.constant_folding import truth
from codezero.code.parsing import FunctionNode, extract_code, names_loaded, own_nodes, parse

Entry = ast.FunctionDef | ast.Lambda
_READERS = frozenset(("input", "raw_input", "stdin", "fileinput", "open"))
_WRITERS = frozenset(("print", "stdout"))
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([^\n`]*?)[ \t]*\r?$", re.MULTILINE)
_PYTHON = re.compile(r"[{.]*(?:python|py)[\d.]*(?![a-z])", re.IGNORECASE)
READING_ENDS = frozenset((*_READERS, "readline", "exit", "quit", "_exit"))
"""What leaves a `while True`: an end of the program, or of its input."""


def find_entry(tree: ast.Module, entry: str) -> Entry | None:
    """What the last top-level `def NAME`, `NAME = lambda ..` or `NAME = other` leaves under that name.

    A coroutine is not one that tests can call. Some other callable (`NAME = sorted`) is taken to fit any call.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    entered: Entry | None = None
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == entry:
                entered = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == entry:
                entered = _callable(value, functions)
            case _:
                pass
    return entered


def _callable(value: ast.expr, functions: dict[str, ast.FunctionDef]) -> Entry | None:
    match value:
        case ast.Lambda():
            return value
        case ast.Name(id=name) if name in functions:
            return functions[name]
        case ast.Name() | ast.Attribute() | ast.Call():
            whatever = ast.Call(value, [ast.Starred(ast.Name("args", ast.Load()), ast.Load())], [])
            anything = ast.arguments([], [], ast.arg("args"), [], [], ast.arg("kwargs"), [])
            return ast.Lambda(anything, whatever)
        case _:
            return None


def parameters(function: Entry) -> list[str]:
    """Names of the parameters that can be given by position."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]


def accepts(arguments: ast.arguments, call: EntryCall) -> bool:
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


def returns_value(function: Entry) -> bool:
    if isinstance(function, ast.Lambda):
        return True
    return any(
        isinstance(node, ast.YieldFrom | ast.Yield)
        or (isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value))
        for node in own_nodes(function)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_stub(function: Entry) -> bool:
    """Nothing but pass, raise, or one constant."""
    if isinstance(function, ast.Lambda):
        return _is_constant(function.body)
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    match body:
        case [ast.Return(value=value)]:
            return value is None or _is_constant(value)
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
            return name == returned and _is_constant(value)
        case _:
            return all(isinstance(node, ast.Pass | ast.Raise) for node in body)


def _is_constant(node: ast.expr) -> bool:
    return not any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node))


def degenerate(function: Entry) -> Iterator[str]:
    """Ways in which it cannot be an answer whatever it computes."""
    arguments = function.args
    rest = [part.arg for part in (*arguments.kwonlyargs, arguments.vararg, arguments.kwarg) if part is not None]
    given = {*parameters(function), *rest}
    if given and not given & names_loaded(function):
        yield "no parameter is used"
    nodes = list(own_nodes(function))
    choices = (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Try, ast.Match, ast.comprehension)
    name = getattr(function, "name", None)
    recursive = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in nodes)
    if recursive and not any(isinstance(node, choices) for node in nodes):
        yield "recursion without an end"
    yield from endless_loops(nodes)


def endless_loops(nodes: list[ast.AST], *, ends: frozenset[str] = frozenset()) -> Iterator[str]:
    """`while True` that nothing leaves. `ends`: names whose call may end the program."""
    leaves = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)
    for node in nodes:
        if isinstance(node, ast.While) and truth(node.test):
            inside = [part for statement in node.body for part in ast.walk(statement)]
            called = {getattr(part, "id", getattr(part, "attr", "")) for part in inside}
            if not any(isinstance(part, leaves) for part in inside) and not called & ends:
                yield "loop without an end"


def is_rebound(tree: ast.Module, nodes: Sequence[ast.AST], entry: str) -> bool:
    """Is there a function of that name to read, and then another thing to run? `f = cache(f)` is none."""
    at = next((at for at, node in enumerate(tree.body) if isinstance(node, FunctionNode) and node.name == entry), None)
    if at is None:
        return False
    return any(isinstance(node, ast.Global) and entry in node.names for node in nodes) or any(
        entry in _binds(node) for node in tree.body[at + 1 :]
    )


def _binds(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds in a way that hides what they mean."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return set()
        case ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return set() if isinstance(value, ast.Lambda | ast.Name) else {name} - names_loaded(value)
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
        case _:
            own = list(own_nodes(statement))
            inner = {node.name for node in own if isinstance(node, FunctionNode | ast.ClassDef)}
            return inner | {
                node.id for node in own if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            }


def reads(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & _READERS) or _calls_os(tree, "read")


def writes(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & _WRITERS) or _calls_os(tree, "write")


def is_stub_program(tree: ast.Module) -> bool:
    """Nothing but constants printed."""
    return all(isinstance(node, ast.Import | ast.ImportFrom) or _prints_constant(node) for node in tree.body)


def _prints_constant(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute(), args=args)):
            return all(_is_constant(argument) for argument in args)
        case ast.Pass():
            return True
        case _:
            return False


def _mentioned(tree: ast.Module) -> set[str]:
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names_loaded(tree) | attributes | (modules & {"fileinput"})


def _calls_os(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and names_loaded(node) == {"os"}
        for node in ast.walk(tree)
    )


@dataclass(frozen=True, slots=True)
class AnswerCode:
    """The code of an answer that counts."""

    code: str | None
    flaw: str = ""
    """Why its form is not the one asked for, in a phrase; empty where it is, and where there is no code."""


def read_answer(text: str, entry_point: str) -> AnswerCode:
    """The code of an attempt that a person or another tool wrote: bare, in a fence of another name, among others.

    That is the last Python block that defines `entry_point`; without a fence the whole text, where it does.

    `entry_point` is empty for a program that reads stdin: then the last block that is a program, or the whole text.

    Only `codezero evaluate` reads so. In training and in the exams exactly one ```python fence counts: the form is part
    of what is asked, and an attempt that hedges with a wrong block and a right one must earn no more than the wrong.
    """
    only = extract_code(text).code
    if only is not None and _answers(only, entry_point):
        return AnswerCode(only)
    blocks = list(_blocks(text))
    if not blocks:
        whole = _answers(text, entry_point)
        return AnswerCode(text.strip("\r\n"), "no fence: the whole text is read") if whole else AnswerCode(None)
    named = [code for language, code in blocks if _PYTHON.match(language)]
    unnamed = [code for language, code in blocks if not language]
    last = _last(named, entry_point) or _last(unnamed, entry_point)
    if last is None:
        return AnswerCode(only) if only is not None or not named else AnswerCode(named[-1], _flaw(named, entry_point))
    return AnswerCode(last, _flaw(named if last in named else unnamed, entry_point))


def _flaw(blocks: Sequence[str], entry_point: str) -> str:
    if len(blocks) == 1:
        return "the fence is not called python"
    return f"{len(blocks)} fences: the last that {f'defines {entry_point}' if entry_point else 'is a program'} is read"


def _last(codes: Sequence[str], entry_point: str) -> str | None:
    return next((code for code in reversed(codes) if _answers(code, entry_point)), None)


def _answers(code: str, entry_point: str) -> bool:
    tree, _ = parse(code)
    if tree is None:
        return False
    return find_entry(tree, entry_point) is not None if entry_point else writes(tree)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(what stands behind the opening fence, code). A fence with a name opens a block even where one is open."""
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is not None:
            yield opened[1], text[opened.end() + 1 : mark.start()].rstrip("\r\n")
        opened = mark if opened is None or mark[1] else None
    if opened is not None:
        yield opened[1], text[opened.end() + 1 :].rstrip("\r\n")
