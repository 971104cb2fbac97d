"""Which part of an attempt is its answer: the one reading of training, exams, evals, vetting and `codezero evaluate`.

Models write prose, examples, drafts and several blocks. The text alone decides, never what passes: of several versions
the last counts, as for a person who reads, so an attempt that hedges with two programs earns what the last one earns.
A block that does not define what is asked for (an example, a session, tests) is no version.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.code.canonical import defined_names
from codezero.code.entry_point import find_entry, reads, writes
from codezero.code.parsing import BUILTINS, names_loaded, parse
from codezero.code.scopes import free_names

BLOCKS = ("only", "last", "best")
"""only: the one ```python block; several are no answer. last: the last block that defines what is asked for. best: that
one with the helpers of other blocks that it lacks; also a text without fences, and a method of `Solution`."""
MAX_BLOCKS = 64
"""Of an attempt that are looked at, the last ones."""
METHOD_CLASS = "Solution"
_MARK = re.compile(r"^([ \t]*)((?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
"""A fence; its opening may begin an item of a list."""
_ASKED = re.compile(r"`+[ \t]*(?:python|py)", re.IGNORECASE)
_PYTHON = re.compile(r"[{.]*(?:python|py)[\d.]*(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The code of an attempt."""

    code: str | None
    """None: there is none to be read."""
    closed: bool = False
    """Its fence has an end; False when the attempt was cut off."""
    flaw: str = ""
    """Why the form is not the one asked for, one closed ```python block; or why there is no code."""


@dataclass(frozen=True, slots=True)
class _Block:
    code: str
    closed: bool
    language: str
    asked: bool
    """It opens as the prompt asks."""


def read_answer(text: str, entry_point: str, block: str = "best") -> Answer:
    """The code of an attempt. `entry_point`: what it has to define; empty: it is a program. `block`: one of BLOCKS."""
    text = text.replace("\r\n", "\n")
    found = list(_blocks(text))
    asked = [one for one in found if one.asked]
    if block == "only":
        return _only(asked)
    generous = block == "best"
    if not found and generous:
        tree, _ = parse(text)
        added = None if tree is None else _addition(tree, entry_point)
        if added is not None:
            return Answer(text.strip("\n") + added, True, "no fence: the whole text is read")
    readable = [one for one in found if not one.language or _PYTHON.match(one.language)][-MAX_BLOCKS:]
    trees = [parse(one.code)[0] for one in readable]
    at = _last_version(trees, entry_point, methods=generous)
    if at is None:
        named = [one for one in readable if one.language]
        if not named or len(asked) == 1:
            return _only(asked)
        chosen, code = named[-1], named[-1].code
    else:
        chosen, tree = readable[at], trees[at]
        assert tree is not None
        helpers = _helpers(tree, trees[:at], trees[at + 1 :], entry_point) if generous else ""
        code = helpers + chosen.code + (_addition(tree, entry_point) or "")
    return Answer(code, chosen.closed, _flaw(code, chosen, asked, readable, entry_point))


def _only(asked: Sequence[_Block]) -> Answer:
    if len(asked) != 1:
        return Answer(None, flaw="more than one Python fence" if asked else "no Python fence")
    return Answer(asked[0].code, asked[0].closed)


def _flaw(code: str, chosen: _Block, asked: Sequence[_Block], readable: Sequence[_Block], entry: str) -> str:
    if asked == [chosen] and code == chosen.code:
        return ""
    if len(readable) > 1:
        return f"{len(readable)} fences: the last that {f'defines {entry}' if entry else 'is a program'} is read"
    return f"{entry} is a method of {METHOD_CLASS}" if code != chosen.code else "the fence is not called python"


def _blocks(text: str) -> Iterator[_Block]:
    opened: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        language = mark[4].strip()
        if opened is not None:
            if not _ends(opened, mark):
                continue
            yield _block(opened, text[opened.end() + 1 : mark.start()], closed=True)
        # a fence with a name opens a block even where one is open; prose behind a closing one is no name
        named = _PYTHON.match(language) or (language and len(language.split()) == 1)
        opened = mark if opened is None or named else None
    if opened is not None:
        yield _block(opened, text[opened.end() + 1 :], closed=False)


def _ends(opened: re.Match[str], mark: re.Match[str]) -> bool:
    """A fence deep inside the code is text of the code's own."""
    outer = bool(opened[4].strip()) and not _PYTHON.match(opened[4].strip())
    if outer and _PYTHON.match(mark[4].strip()):
        return True
    return (
        mark[3].startswith(opened[3])
        and not mark[2]
        and len(mark[1].expandtabs(4)) <= len((opened[1] + (opened[2] or "")).expandtabs(4)) + 3
    )


def _block(opened: re.Match[str], code: str, *, closed: bool) -> _Block:
    code = code.rstrip("\n")
    code = textwrap.dedent(code) if opened[1] or opened[2] else code
    asked = _ASKED.fullmatch((opened[3] + opened[4]).rstrip()) is not None
    return _Block(code, closed, opened[4].strip(), asked)


def _last_version(trees: Sequence[ast.Module | None], entry: str, *, methods: bool) -> int | None:
    """Where the last program stands; one that reads comes before one that only writes, as examples do."""
    defining = [at for at, tree in enumerate(trees) if tree is not None and _defines(tree, entry, methods=methods)]
    reading = [] if entry else [at for at in defining if (tree := trees[at]) is not None and reads(tree)]
    return max(reading or defining, default=None)


def _defines(tree: ast.Module, entry: str, *, methods: bool) -> bool:
    added = _addition(tree, entry)
    return added == "" or (methods and added is not None)


def _addition(tree: ast.Module, entry: str) -> str | None:
    """What has to follow for tests to find what they call: mostly nothing; None: it is not there."""
    if not entry:
        return "" if writes(tree) else None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if find_entry(tree, entry) is not None or any(node.name == entry for node in classes):
        return ""
    for node in classes:
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        if node.name == METHOD_CLASS and entry in methods and "__init__" not in methods:
            return f"\n\n{entry} = {METHOD_CLASS}().{entry}"
    return None


def _helpers(
    tree: ast.Module, earlier: Sequence[ast.Module | None], later: Sequence[ast.Module | None], entry: str
) -> str:
    """The source of the definitions in other blocks that `tree` uses and lacks; of two, the one right before it."""
    sources: dict[str, ast.stmt] = {}
    for other in (*later[::-1], *earlier):
        statements = [] if other is None else other.body
        sources |= {name: node for node in statements for name in defined_names(node) or () if name != entry}
    try:
        wanted, kept = list(free_names(tree) - BUILTINS), set[ast.stmt]()
        while wanted:
            node = sources.get(wanted.pop())
            if node is not None and node not in kept:
                kept.add(node)
                wanted += names_loaded(node)
        ordered = [node for other in (*earlier, *later) if other is not None for node in other.body if node in kept]
        return "".join(f"{ast.unparse(node)}\n\n" for node in ordered)
    except (RecursionError, MemoryError, ValueError):
        return ""
