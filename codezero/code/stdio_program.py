"""The whole program a stdin/stdout problem asks for: does it read, does it write, is it more than a constant text?

Looks at a tree that `canonical.reduce` left, so a `print` in a function that nothing calls does not count.
"""

import ast
from collections.abc import Iterator, Sequence

from codezero.code.assertions import Example
from codezero.code.entry_point import endless_loops, is_constant
from codezero.code.parsing import names_loaded

_READERS = frozenset(("input", "raw_input", "stdin", "fileinput", "open"))
_WRITERS = frozenset(("print", "stdout"))
_READING_ENDS = frozenset((*_READERS, "readline", "exit", "quit", "_exit"))
"""What leaves a `while True`: an end of the program, or of its input."""


def reads(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & _READERS) or _calls_os(tree, "read")


def writes(tree: ast.Module) -> bool:
    return bool(_mentioned(tree) & _WRITERS) or _calls_os(tree, "write")


def must_read(cases: Sequence[Example]) -> bool:
    return any(case.input.strip() for case in cases)


def is_stub(tree: ast.Module) -> bool:
    """Nothing but constants printed."""
    return all(isinstance(node, ast.Import | ast.ImportFrom) or _prints_constant(node) for node in tree.body)


def degenerate(tree: ast.Module) -> Iterator[str]:
    return endless_loops(list(ast.walk(tree)), ends=_READING_ENDS)


def _prints_constant(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute(), args=args)):
            return all(is_constant(argument) for argument in args)
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
