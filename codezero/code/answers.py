"""The code of an attempt that was written by a person or another tool: bare, in a fence of another name, among others.

Only `codezero evaluate` reads so. In training and in the exams exactly one ```python fence counts (`parsing.py`): the
form is part of what is asked and of what the embedded solver has to learn, the figures of earlier runs were taken so,
and an attempt that hedges with a wrong block and a right one must earn no more than its wrong block.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.code import stdio_program as program
from codezero.code.entry_point import find_entry
from codezero.code.parsing import extract_code, parse

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([^\n`]*?)[ \t]*\r?$", re.MULTILINE)
_PYTHON = re.compile(r"[{.]*(?:python|py)[\d.]*(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The code that counts."""

    code: str | None
    flaw: str = ""
    """Why its form is not the one asked for, in a phrase; empty where it is, and where there is no code."""


def read_answer(text: str, entry_point: str) -> Answer:
    """The last Python block that defines `entry_point`; without a fence the whole text, where it does.

    `entry_point` is empty for a program that reads stdin: then the last block that is a program, or the whole text.
    """
    only = extract_code(text).code
    if only is not None and _answers(only, entry_point):
        return Answer(only)
    blocks = list(_blocks(text))
    if not blocks:
        return (
            Answer(text.strip("\r\n"), "no fence: the whole text is read")
            if _answers(text, entry_point)
            else Answer(None)
        )
    named = [code for language, code in blocks if _PYTHON.match(language)]
    unnamed = [code for language, code in blocks if not language]
    found = _last(named, entry_point) or _last(unnamed, entry_point)
    if found is None:
        return Answer(only) if only is not None or not named else Answer(named[-1], _flaw(named, entry_point))
    return Answer(found, _flaw(named if found in named else unnamed, entry_point))


def _flaw(blocks: Sequence[str], entry_point: str) -> str:
    if len(blocks) == 1:
        return "the fence is not called python"
    return f"{len(blocks)} fences: the last that {f'defines {entry_point}' if entry_point else 'is a program'} is read"


def _last(codes: Sequence[str], entry_point: str) -> str | None:
    return next((code for code in reversed(codes) if _answers(code, entry_point)), None)


def _answers(code: str, entry_point: str) -> bool:
    tree: ast.Module | None = parse(code)[0]
    if tree is None:
        return False
    return find_entry(tree, entry_point) is not None if entry_point else program.writes(tree)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(what stands behind the opening fence, code). A fence with a name opens a block even where one is open."""
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is not None:
            yield opened[1], text[opened.end() + 1 : mark.start()].rstrip("\r\n")
        opened = mark if opened is None or mark[1] else None
    if opened is not None:
        yield opened[1], text[opened.end() + 1 :].rstrip("\r\n")
