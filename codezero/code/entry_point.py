"""The function a call-style problem asks for: where it is, how it can be called, whether it does anything."""

import ast
from collections.abc import Iterator

from codezero.code.assertions import Call
from codezero.code.constant_folding import truth
from codezero.code.parsing import names_loaded, own_nodes

Entry = ast.FunctionDef | ast.Lambda


def find_entry(tree: ast.Module, entry: str) -> Entry | None:
    """What the last top-level `def NAME`, `NAME = lambda ..` or `NAME = other` leaves under that name.

    A coroutine is not one that tests can call. Some other callable (`NAME = sorted`) is taken to fit any call.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found: Entry | None = None
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if name == entry:
                found = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == entry:
                found = _callable(value, functions)
            case _:
                pass
    return found


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
        return is_constant(function.body)
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    match body:
        case [ast.Return(value=value)]:
            return value is None or is_constant(value)
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
            return name == returned and is_constant(value)
        case _:
            return all(isinstance(node, ast.Pass | ast.Raise) for node in body)


def is_constant(node: ast.expr) -> bool:
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
