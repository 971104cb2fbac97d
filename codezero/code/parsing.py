"""Parsing of foreign source within bounds. Nothing is run.

`ast.parse` can exhaust memory or the stack on hostile text, so untrusted source is read in the child process of
`worker.py`; the bounds here keep the ordinary case cheap."""

import ast
import builtins
import operator
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Any

BUILTINS = frozenset(dir(builtins))
UNPARSEABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def fence(code: str) -> str:
    """The form every solver is taught to answer in, and every judge reads."""
    return f"```python\n{code}\n```"


MAX_BYTES = 16 * 1024
MAX_LINES = 400
MAX_LINE_LENGTH = 2_000
MAX_NODES = 4_000

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def parse_quietly(source: str) -> ast.Module:
    """Without warnings: an invalid escape is the author's business. Raises UNPARSEABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def parse(source: str) -> tuple[ast.Module | None, str]:
    """The syntax tree, or None and the reason in a few words."""
    if len(source) > MAX_BYTES or len(source.encode("utf-8", "replace")) > MAX_BYTES:
        return None, f"longer than {MAX_BYTES // 1024} KiB"
    lines = source.splitlines()
    if len(lines) > MAX_LINES:
        return None, f"more than {MAX_LINES} lines"
    if any(len(line) > MAX_LINE_LENGTH for line in lines):
        return None, f"a line longer than {MAX_LINE_LENGTH} characters"
    try:
        tree = parse_quietly(source)
    except SyntaxError as error:
        return None, f"syntax error in line {error.lineno}" if error.lineno else "syntax error"
    except UNPARSEABLE as error:
        return None, f"cannot be parsed ({type(error).__name__})"
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        return None, f"more than {MAX_NODES} syntax nodes"
    return tree, ""


# what moves a terminal's cursor, and fillers and separators that no category gives away
_BLANK = frozenset("\b\x1b\u034f\u115f\u1160\u17b4\u17b5\u2028\u2029\u2800\u3164\uffa0")


def hidden_characters(source: str) -> tuple[str, ...]:
    """Invisible format controls (bidirectional overrides, zero-width characters, tags) and blanks, as `U+202E`. They
    make source read differently from how it runs: Boucher & Anderson, "Trojan Source", 2021."""
    hidden = {character for character in set(source) if character in _BLANK or unicodedata.category(character) == "Cf"}
    return tuple(f"U+{ord(character):04X}" for character in sorted(hidden))


def literal(node: ast.AST) -> str | None:
    """A literal expression in one normal spelling; None for anything that would have to be evaluated."""
    return ast.unparse(node) if _is_literal(node) else None


def _is_literal(node: ast.AST) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() | complex())):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(_is_literal(part) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_literal(key) for key in keys) and all(map(_is_literal, values))
        case _:
            return False


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function body that runs in its own frame: nested functions and classes are left out."""
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def names(*nodes: ast.AST, context: tuple[type[ast.expr_context], ...] = (ast.expr_context,)) -> set[str]:
    every = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in every if isinstance(name.ctx, context)}


names_loaded = partial(names, context=(ast.Load,))
names_bound = partial(names, context=(ast.Store, ast.Del))


def names_given(tree: ast.AST) -> set[str]:
    """Every name that something in the tree assigns, defines or takes as a parameter."""
    nodes = list(ast.walk(tree))
    defined = {node.name for node in nodes if isinstance(node, FunctionNode | ast.ClassDef)}
    return defined | names_bound(tree) | {node.arg for node in nodes if isinstance(node, ast.arg)}


def names_imported(*nodes: ast.AST) -> set[str]:
    aliases = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.alias))
    return {(alias.asname or alias.name).split(".")[0] for alias in aliases}


def dotted(node: ast.AST | None) -> str:
    """The text of `name` and `owner.name`; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case _:
            return ""


def called(node: ast.AST) -> str:
    """Name the function of a call, as `dotted` writes it; empty for anything but a call."""
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def declared(*nodes: ast.AST) -> set[str]:
    """Names declared `global` or `nonlocal`."""
    scoping = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Global | ast.Nonlocal))
    return {name for part in scoping for name in part.names}


UNKNOWN: Any = object()  # `fold` could not tell. Compare with `is`.

_MOST_DIGITS = 40
_MOST_ITEMS = 4_096

_NUMBERS: set[type] = {int, float, bool}
_SEQUENCES: set[type] = {str, bytes, list, tuple}

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_DISPLAYS: dict[type[ast.AST], Callable[[list[Any]], Any]] = {ast.List: list, ast.Tuple: tuple, ast.JoinedStr: "".join}

Known = dict[int, Any]  # values by id of the node: an expression inside an expression is looked at once


def fold(node: ast.AST, known: Known) -> Any:
    """The value of constants, displays of them, f-strings and small sums of them; else UNKNOWN."""
    if id(node) not in known:
        value = _fold(node, known)
        large = abs(value) >= 10**_MOST_DIGITS if isinstance(value, int) else False
        long = len(value) > _MOST_ITEMS if isinstance(value, Sized) else False
        known[id(node)] = UNKNOWN if large or long else value
    return known[id(node)]


def _fold(node: ast.AST, known: Known) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = fold(operand, known)
            return -value if isinstance(value, int | float) else UNKNOWN
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.JoinedStr(values=parts):
            values = [fold(part, known) for part in parts]
            return UNKNOWN if any(value is UNKNOWN for value in values) else _DISPLAYS[type(node)](values)
        case ast.FormattedValue(value=part, conversion=-1, format_spec=None):
            value = fold(part, known)
            return str(value) if isinstance(value, str | int) else UNKNOWN
        case ast.BinOp(op=op):
            sides = fold(node.left, known), fold(node.right, known)
            kinds: set[type] = set(map(type, sides))
            joined = isinstance(op, ast.Add) and len(kinds) == 1 and kinds <= _SEQUENCES
            fitting = type(op) in _OPERATORS and (joined or kinds <= _NUMBERS)
            return _OPERATORS[type(op)](*sides) if fitting else UNKNOWN
        case _:
            return UNKNOWN


def truth(node: ast.expr) -> bool | None:
    """Return whether it is always true or always false; None: neither, or not known."""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return None if any(isinstance(part, ast.Starred) for part in parts) else bool(parts)
        case ast.Dict(keys=keys):
            return None if None in keys else bool(keys)
        case ast.Lambda():
            return True
        case ast.JoinedStr(values=parts):
            return True if any(isinstance(part, ast.Constant) and part.value for part in parts) else None
        case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            value = fold(node, {})
            return None if value is UNKNOWN else bool(value)
        case _:
            return _combined_truth(node)


def _combined_truth(node: ast.expr) -> bool | None:
    match node:
        case ast.BoolOp(op=op, values=values):
            parts, decisive = [truth(value) for value in values], isinstance(op, ast.Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            sides = fold(left, {}), fold(right, {})
            ordered = isinstance(op, ast.Eq | ast.NotEq) or all(isinstance(side, int | float) for side in sides)
            known = ordered and not any(side is UNKNOWN for side in sides)
            return _OPERATORS[type(op)](*sides) if known else None
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand)
            return None if inner is None else not inner
        case ast.IfExp(body=body, orelse=orelse):
            first, second = truth(body), truth(orelse)
            return first if first == second else None
        case ast.Call(func=ast.Name(id="bool"), args=[only], keywords=[]):
            return truth(only)
        case _:
            return None
