"""Text in a program that talks to a reader instead of being data: masked, and names that do so replaced."""

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Any

MASK = "<STR>"
MAX_STRING = 40
"""Longer string literals are masked: prose, not data. Longer attribute names are replaced."""

_ADDRESSED = re.compile(
    r"<\||<\uff5c|\|>|\[/?INST\]|<</?SYS>>|</?(?:s|think|tool_call|start_of_turn|end_of_turn)>|is_correct|\bverdict\b"
    r"|\ball (?:unit )?tests\b|\banswer\s*[:=]|```|\bthought process\b|\b(?:ignore|disregard) (?:all |the |any )?"
    r"(?:previous|prior|above)\b|\b(?:system|assistant|user|human)\s*:|\bsolution\s*:|\bjudge\b|\bgrader\b",
    re.IGNORECASE,
)
"""Chat markers, verdicts, orders and self-praise: text no program needs."""
_BUILTINS = frozenset(dir(builtins))


def suspicious(text: Any) -> bool:
    return isinstance(text, str) and text != MASK and (len(text) > MAX_STRING or _ADDRESSED.search(text) is not None)


def masked(value: str | bytes) -> str | bytes:
    if isinstance(value, bytes):
        return MASK.encode() if suspicious(value.decode("latin-1")) else value
    return MASK if suspicious(value) else value


def plain_names(tree: ast.Module, kept: set[str]) -> None:
    """Attributes, members, keywords and unbound names that read like a message become `name0`, `name1`, ..

    One name is one name everywhere, so what the program does is unchanged; `kept` stay. Locals have been renamed.
    """
    places = list(_places(tree))
    used = {name for _, _, name in places}
    loud = dict.fromkeys(name for _, _, name in places if _speaks(name) and name not in kept)
    if not loud:
        return
    for name in loud.keys() & _fixed(tree):
        del loud[name]
    fresh = (name for name in map("name{}".format, range(len(used) + len(loud) + 1)) if name not in used)
    given = {name: next(fresh) for name in loud}
    for node, field, name in places:
        if name in given:
            setattr(node, field, given[name])


def _speaks(name: str) -> bool:
    return "_" in name and name not in _BUILTINS and not name.startswith("__") and suspicious(name.replace("_", " "))


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Every identifier that an import does not fix: (node, field, name)."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, ast.alias):
                yield node, field, name


def _fixed(tree: ast.Module) -> set[str]:
    """Names that also stand where no node of their own holds them."""
    fixed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            fixed.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            fixed |= set(node.names)
    return fixed
