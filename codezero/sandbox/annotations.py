"""Annotations that CPython evaluates where a function or class is defined, and Monty never: do they surely evaluate?

Names have to be builtins, or bound at module level above; what is subscripted has to be a generic type with as many
parameters as it takes.
"""

import ast
import builtins
from collections.abc import Iterator

from codezero.code.parsing import BUILTINS, FunctionNode, names_bound

_BUILTIN_GENERIC = frozenset(("list", "tuple", "set", "frozenset", "dict", "type"))
_ONE = frozenset((
    "List", "Set", "FrozenSet", "Deque", "Sequence", "MutableSequence", "Iterable", "Iterator", "Collection", "Type",
    "Container", "Optional", "AbstractSet", "MutableSet", "Counter", "KeysView", "ValuesView",
))  # fmt: skip
_TWO = frozenset(("Dict", "DefaultDict", "OrderedDict", "Mapping", "MutableMapping", "ItemsView"))
_TYPING = _ONE | _TWO | {"Tuple", "Union", "Callable"}


def doubtful_annotation(nodes: list[ast.AST], tree: ast.Module) -> str:
    """The text of one that may raise, or that names what is not there yet; empty when all are as they should be."""
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        return ""
    bound = dict(_bound(tree))
    local = {part for node in nodes if isinstance(node, FunctionNode) for part in ast.walk(node)}
    for annotation in _evaluated(nodes, local):
        if not _Reader(bound, annotation.lineno).fits(annotation):
            return ast.unparse(annotation)[:40]
    return ""


def _evaluated(nodes: list[ast.AST], local: set[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        match node:
            case ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case (
                ast.FunctionDef(returns=ast.expr() as annotation)
                | ast.AsyncFunctionDef(returns=ast.expr() as annotation)
            ):
                yield annotation
            case ast.AnnAssign(annotation=annotation, target=target) if node not in local or not isinstance(
                target, ast.Name
            ):
                yield annotation
            case _:
                pass


def _bound(tree: ast.Module) -> Iterator[tuple[str, tuple[int, str]]]:
    """Names of the module, the line after which they are there, and what they are: class, value or generic type."""
    for node in tree.body:
        line = node.end_lineno or node.lineno
        match node:
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                for alias in aliases:
                    typed = module in ("typing", "collections.abc") and alias.name in _TYPING
                    yield alias.asname or alias.name, (line, alias.name if typed else "class")
            case ast.Import(names=aliases):
                yield from ((alias.asname or alias.name.partition(".")[0], (line, alias.name)) for alias in aliases)
            case ast.ClassDef(name=name):
                yield name, (line, "class")
            case ast.FunctionDef(name=name):
                yield name, (line, "value")
            case _:
                yield from ((name, (line, "value")) for name in names_bound(node))


class _Reader:
    """Of one annotation, at its line."""

    def __init__(self, bound: dict[str, tuple[int, str]], line: int) -> None:
        self._bound, self._line = bound, line

    def fits(self, node: ast.expr) -> bool:
        """Does it evaluate, to whatever?"""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return self._kind(name) != ""
            case _:
                return self._is_type(node)

    def _kind(self, name: str) -> str:
        line, kind = self._bound.get(name, (0, "class" if name in BUILTINS else ""))
        return kind if line < self._line else ""

    def _is_type(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=None):
                return True
            case ast.Constant(value=str(text)):
                return text.isidentifier()
            case ast.Name(id=name):
                return self._kind(name) not in ("", "value")
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return self._kind(module) == "typing" and name in _TYPING | {"Any"}
            case ast.Subscript(value=base, slice=given):
                parts = given.elts if isinstance(given, ast.Tuple) else [given]
                return self._takes(self._generic(base), parts)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                sides = (left, right)
                texts = any(isinstance(side, ast.Constant) and side.value is not None for side in sides)
                return not texts and isinstance(left, ast.Name | ast.Subscript) and all(map(self._is_class, sides))
            case _:
                return False

    def _is_class(self, node: ast.expr) -> bool:
        """May it stand beside `|`? A function, such as `any`, may not."""
        function = isinstance(node, ast.Name) and not isinstance(getattr(builtins, node.id, type), type)
        return self._is_type(node) and not function

    def _generic(self, base: ast.expr) -> str:
        match base:
            case ast.Name(id=name):
                kind = self._kind(name)
                return name if name in _BUILTIN_GENERIC and name not in self._bound else kind
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name if self._kind(module) == "typing" else ""
            case _:
                return ""

    def _takes(self, generic: str, parts: list[ast.expr]) -> bool:
        if generic == "Callable":
            arguments = parts[0].elts if isinstance(parts[0], ast.List) else []
            dots = isinstance(parts[0], ast.Constant) and parts[0].value is ...
            return (
                len(parts) == 2
                and (dots or isinstance(parts[0], ast.List))
                and all(map(self._is_type, [*arguments, parts[1]]))
            )
        if (
            generic in ("Tuple", "tuple")
            and len(parts) == 2
            and isinstance(parts[1], ast.Constant)
            and parts[1].value is ...
        ):
            parts = parts[:1]
        count = 1 if generic in _ONE else 2 if generic in _TWO else len(parts)
        known = generic in _TYPING or generic in _BUILTIN_GENERIC
        return known and len(parts) == count and all(map(self._is_type, parts))
