"""Which characters of an attempt are its program: those that a node may learn from a stranger.

A judge reads canonical code, so whatever canonical code leaves out (words around the fence, comments, docstrings,
annotations, dead statements, imports and variables that nobody uses) earns its reward with any text in it, and would be
learned with it (arXiv 2511.09780, "Hail to the Thief").
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence

from codezero.code.dead_code import plain_targets
from codezero.code.parsing import called, names_loaded

Spans = tuple[tuple[int, int], ...]
"""[start, end) of characters in the attempt's text, in order, apart from each other."""
_OPENING, _CLOSING = "```python\n", "\n```"


def program_spans(text: str, code: str, nodes: Sequence[ast.AST], kept: ast.Module, mask: str) -> Spans:
    """nodes: of `code` as it was parsed, parents before children. kept: the same tree without what does nothing, in
    which `mask` stands in the place of prose. Empty where `code` is not one piece of `text`."""
    start = text.rfind(code)
    if start < 0 or not code or _is_cut_differently(code):
        return ()
    lines = [0, *(end.end() for end in re.finditer("\n", code))]
    relevant = bytearray(b"\1" * len(code))
    survivors = _survivors(kept, mask)
    for node in nodes:
        if (span := _span(node, code, lines)) is not None:
            relevant[slice(*span)] = bytes([node in survivors]) * (span[1] - span[0])
    for first, last in _comments(code, lines):
        relevant[first:last] = bytes(last - first)
    spans = [(start + first, start + last) for first, last in _runs(relevant)]
    before, end = text[:start].endswith(_OPENING), start + len(code)
    opening = [(start - len(_OPENING), start)] if before else []
    closing = [(end, end + len(_CLOSING))] if text.startswith(_CLOSING, end) else []
    return tuple(opening + spans + closing)


def _is_cut_differently(code: str) -> bool:
    """Has it line ends that Python counts and `str.find` does not, or the other way round?"""
    return "\r" in code or "\f" in code


def _survivors(kept: ast.Module, mask: str) -> Collection[ast.AST]:
    """The nodes that do something."""
    loaded = names_loaded(kept)
    survivors, idle = set[ast.AST](), set[ast.AST]()
    for node in ast.walk(kept):
        survivors.add(node)
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                unused = [alias for alias in aliases if (alias.asname or alias.name).split(".")[0] not in loaded]
                idle.update(unused if len(unused) < len(aliases) else [node, *unused])
            case ast.Assign() if (targets := plain_targets(node)) and not loaded.intersection(map(_name, targets)):
                idle.update(ast.walk(node))
            case ast.Expr(value=value) if called(value) == "print":
                idle.update(ast.walk(node))
            case ast.Constant(value=value) if value in (mask, mask.encode()):
                idle.add(node)
            case ast.JoinedStr(values=parts) if any(isinstance(p, ast.Constant) and p.value == mask for p in parts):
                idle.update(ast.walk(node))
            case _:
                pass
    return survivors - idle


def _name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else ""


def _span(node: ast.AST, code: str, lines: Sequence[int]) -> tuple[int, int] | None:
    """In characters of `code`; None for a node without a place."""
    if not isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias | ast.excepthandler | ast.pattern):
        return None
    line, column, end_line, end_column = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
    if end_line is None or end_column is None:
        return None
    return _character(code, lines, line, column), _character(code, lines, end_line, end_column)


def _character(code: str, lines: Sequence[int], line: int, column: int) -> int:
    """column: in bytes of UTF-8."""
    start = lines[line - 1]
    text = code[start : start + column]
    return start + (column if text.isascii() else len(code[start:].encode()[:column].decode("utf-8", "ignore")))


def _comments(code: str, lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    if "#" not in code:
        return
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            start = lines[token.start[0] - 1] + token.start[1]
            yield start, start + len(token.string)


def _runs(relevant: bytearray) -> Iterator[tuple[int, int]]:
    for run in re.finditer(b"\1+", relevant):
        yield run.span()
