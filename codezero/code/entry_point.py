"""Entry points of solutions: the function that tests call, or the whole program that reads stdin and writes stdout.

Programs are examined as `canonical.py` leaves them, so a `print` in a function that nothing calls does not count."""

import ast
from collections.abc import Iterator, Sequence

from codezero.code.assertions import EntryCall
from codezero.code.parsing import FunctionNode, called, dotted, literal, names_imported, names_loaded, own_nodes, truth

Entry = ast.FunctionDef | ast.Lambda
_READERS = frozenset(("input", "raw_input", "stdin", "fileinput", "open"))
READING_ENDS = frozenset((*_READERS, "readline", "exit", "quit", "_exit"))  # these leave a `while True`


def find_entry(tree: ast.Module, entry: str) -> Entry | None:
    """Return what the last top-level `def NAME`, `NAME = lambda ..` or `NAME = other` leaves under that name. Tests
    cannot call a coroutine. Some other callable (`NAME = sorted`) is taken to fit any call."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    entered: ast.AST | None = None
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == entry:
                entered = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == entry:
                entered = functions.get(dotted(value), value)
            case _:
                pass
    if isinstance(entered, ast.Name | ast.Attribute | ast.Call):
        whatever = ast.Call(entered, [ast.Starred(ast.Name("args", ast.Load()), ast.Load())], [])
        return ast.Lambda(ast.arguments([], [], ast.arg("args"), [], [], ast.arg("kwargs"), []), whatever)
    return entered if isinstance(entered, Entry) else None


def parameters(function: Entry) -> list[str]:
    """Names of the parameters that can be given by position."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]


def accepts(function: Entry, call: EntryCall) -> bool:
    arguments, positional = function.args, parameters(function)
    keyword_only = [parameter.arg for parameter in arguments.kwonlyargs]
    free = {*positional[max(call.npos, len(arguments.posonlyargs)) :], *keyword_only}
    required = set(positional[call.npos : len(positional) - len(arguments.defaults)])
    required |= {name for name, default in zip(keyword_only, arguments.kw_defaults, strict=True) if default is None}
    few = call.npos <= len(positional) or arguments.vararg is not None
    known = set(call.keywords) <= free or arguments.kwarg is not None
    return few and known and required <= set(call.keywords) & free


def returns_value(function: Entry) -> bool:
    if isinstance(function, ast.Lambda):
        return True
    nodes = list(own_nodes(function))
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    yields = any(isinstance(node, ast.YieldFrom | ast.Yield) for node in nodes)
    return yields or any(literal(value) != "None" for value in returned)


def is_stub(function: Entry) -> bool:
    """Nothing but pass, raise, or one constant."""
    if isinstance(function, ast.Lambda):
        return _is_constant(function.body)
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    match body:
        case [ast.Return(value=value)]:
            return value is None or _is_constant(value)
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=returned)]:
            return name == dotted(returned) and _is_constant(value)
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
    if any(called(node) == name for node in nodes) and not any(isinstance(node, choices) for node in nodes):
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
    """True if there is a function of that name to read, and then another thing to run. `f = cache(f)` is none."""
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
        case ast.Import() | ast.ImportFrom():
            return names_imported(statement)
        case _:
            own = list(own_nodes(statement))
            bound = {node.id for node in own if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
            return bound | {node.name for node in own if isinstance(node, FunctionNode | ast.ClassDef)}


def reads(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & {*_READERS, "os.read"})


def writes(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & {"print", "stdout", "os.write"})


def is_stub_program(tree: ast.Module) -> bool:
    acting = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)]
    calls = [node.value for node in acting if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    plain = all(isinstance(call.func, ast.Name | ast.Attribute) and all(map(_is_constant, call.args)) for call in calls)
    return plain and len(calls) == len(acting)


def _mentioned(tree: ast.Module) -> set[str]:
    """Names, attributes, those of `os` as `os.NAME` too, and `fileinput` where it is imported."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    words = names_loaded(tree) | {node.attr for node in attributes} | (modules & {"fileinput"})
    return words | {f"os.{node.attr}" for node in attributes if names_loaded(node) == {"os"}}
