"""Finds the answer in an attempt: the one reading of training, exams, evals, vetting and `codezero evaluate`.

Models write prose, examples, drafts and several blocks. The text alone decides, never what passes: of several versions
the last counts, as for a person who reads, so an attempt that hedges with two programs earns what the last one earns.
A block that does not define what is asked for (an example, a session, tests) is no version."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codezero.code.canonical import defined_names
from codezero.code.entry_point import find_entry, reads, writes
from codezero.code.parsing import BUILTINS, MAX_BYTES, UNPARSEABLE, names_loaded, parse, parse_quietly
from codezero.code.scopes import free_names

BLOCKS = ("only", "last", "best")
"""only: the one ```python block; several are no answer. last: the last block that defines what is asked for. best: that
one with the helpers of other blocks that it lacks; without the statement in which it is cut off, and without a chain of
thought; also code among words, and a method of `Solution`."""
MAX_BLOCKS = 64  # of an attempt that are looked at, the last ones
MAX_BARE, MAX_CUTS = 16, 4  # pieces of code among words that are looked at; statements of one that turn out to be words
METHOD_CLASS = "Solution"
_MARK = re.compile(r"^([ \t]*)((?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_REQUESTED = re.compile(r"`+[ \t]*(?:python|py)", re.IGNORECASE)
_STATEMENT = re.compile(r"^(?:import |from \S+ import |(?:async )?def |class |@|\w+ *= *)", re.MULTILINE)
_PYTHON = re.compile(r"[{.]*(?:python|py)[\d.]*(?![a-z])", re.IGNORECASE)
_Trees = Sequence[ast.Module | None]


class Answer(NamedTuple):
    code: str | None  # None: there is none to be read
    closed: bool = False  # its fence has an end; False when the attempt was cut off
    flaw: str = ""  # why the form is not the one asked for, one closed ```python block; or why there is no code


class _Block(NamedTuple):
    code: str
    closed: bool
    language: str
    requested: bool  # it opens as the prompt asks


def read_answer(text: str, entry_point: str, block: str = "best") -> Answer:
    """The code of an attempt. `entry_point`: what it has to define; empty: it is a program. `block`: one of BLOCKS."""
    text = text.replace("\r\n", "\n")
    generous = block == "best"
    if generous:
        text = text.rpartition("</think>")[2]
    blocks = list(_blocks(text))
    if generous and blocks and not blocks[-1].closed:
        complete = _complete(blocks[-1].code[:MAX_BYTES]).rstrip("\n")
        blocks += [blocks.pop()._replace(code=complete)] if _answers(complete, entry_point) is not None else []
    requested = [block for block in blocks if block.requested]
    if block == "only":
        return _only(requested)
    readable = [block for block in blocks if not block.language or _PYTHON.match(block.language)][-MAX_BLOCKS:]
    trees = [parse(block.code)[0] for block in readable]
    at = _last_version(trees, entry_point, methods=generous)
    if at is None:
        bare = _bare(text, entry_point) if generous else None
        if bare is not None:
            return Answer(bare, True, "no fence: the text itself is read")
        named = [block for block in readable if block.language]
        if not named or len(requested) == 1:
            return _only(requested)
        chosen, code = named[-1], named[-1].code
    else:
        chosen, tree = readable[at], trees[at]
        assert tree is not None
        helpers = _helpers(tree, trees[:at], trees[at + 1 :], entry_point) if generous else ""
        code = helpers + chosen.code + (_addition(tree, entry_point) or "")
    return Answer(code, chosen.closed, _flaw(code, chosen, requested, readable, entry_point))


def _bare(text: str, entry: str) -> str | None:
    """The last version among the words of a text; None: there is none. A program has to be the whole text."""
    if not entry:
        return text.strip("\n") if _answers(text, entry) is not None else None
    last, end = None, 0
    for _ in range(MAX_BARE):
        if (start := _STATEMENT.search(text, end)) is None:
            break
        code = _complete(text[start.start() : start.start() + MAX_BYTES])
        end = max(start.end(), start.start() + len(code))
        if (added := _answers(code, entry)) is not None:
            body = parse_quietly(code).body
            while isinstance(body[-1], ast.Expr) and not isinstance(body[-1].value, ast.Call):
                body.pop()  # `Note` and `[DONE]` can be parsed as well
            last = "\n".join(code.split("\n")[: body[-1].end_lineno]) + added
    return last


def _complete(code: str) -> str:
    """The statements before the one that cannot be parsed: an attempt was cut off there, or goes on in words."""
    for _ in range(MAX_CUTS):
        try:
            parse_quietly(code)
            return code
        except SyntaxError as error:
            lines = code.split("\n")[: error.lineno]
            starts = [at for at, line in enumerate(lines) if line[:1].strip()]
            code = "".join(f"{line}\n" for line in lines[: max(starts, default=0)])
        except UNPARSEABLE:
            break
    return ""


def _answers(code: str, entry: str) -> str | None:
    """As `_addition`; None also for what cannot be parsed."""
    return None if (tree := parse(code)[0]) is None else _addition(tree, entry)


def _only(requested: Sequence[_Block]) -> Answer:
    if len(requested) != 1:
        return Answer(None, flaw="more than one Python fence" if requested else "no Python fence")
    return Answer(requested[0].code, requested[0].closed)


def _flaw(code: str, chosen: _Block, requested: Sequence[_Block], readable: Sequence[_Block], entry: str) -> str:
    if requested == [chosen] and code == chosen.code:
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
    requested = _REQUESTED.fullmatch((opened[3] + opened[4]).rstrip()) is not None
    return _Block(code, closed, opened[4].strip(), requested)


def _last_version(trees: _Trees, entry: str, *, methods: bool) -> int | None:
    """Find the last program; one that reads comes before one that only writes, as examples do."""
    added = [None if tree is None else _addition(tree, entry) for tree in trees]
    defining = [at for at, text in enumerate(added) if text == "" or (methods and text is not None)]
    reading = [] if entry else [at for at in defining if (tree := trees[at]) is not None and reads(tree)]
    return max(reading or defining, default=None)


def _addition(tree: ast.Module, entry: str) -> str | None:
    """Return what has to follow for tests to find what they call: mostly nothing; None: it is not there."""
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


def _helpers(tree: ast.Module, earlier: _Trees, later: _Trees, entry: str) -> str:
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
