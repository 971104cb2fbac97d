"""Static findings about a solution, without running it and without asking a model: `check`.

Certain failures (does not parse, entry point missing, cannot be called as the tests call it), signs of an attack on
the judge (quarantine), and milder flaws. Reads untrusted text: call it through `worker.py`.

`program_spans` says which characters of an attempt are its program: those that a node may learn from another peer. A
judge reads canonical code, so whatever that leaves out (words around the fence, comments, docstrings, annotations, dead
statements, unused imports and variables) earns its reward with any text in it, and would be learned with it (arXiv
2511.09780, "Hail to the Thief")."""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from codezero.code import entry_point
from codezero.code.answer import read_answer
from codezero.code.assertions import Example, Kind, argument_kinds, calls_of, cases_of, examples, names_left_open_by
from codezero.code.attacks import attacks, dunders, reaches
from codezero.code.canonical import MASK, clean, respell, spell, stated_parameters
from codezero.code.copied_answers import find_copied
from codezero.code.dead_code import plain_targets
from codezero.code.parsing import MAX_BYTES, FunctionNode, called, hidden_characters, names, names_loaded, parse

Spans = tuple[tuple[int, int], ...]  # [start, end) of characters in the attempt's text, in order, apart from each other
_OPENING, _CLOSING = "```python\n", "\n```"


def program_spans(text: str, code: str, nodes: Sequence[ast.AST], kept: ast.Module, mask: str) -> Spans:
    """nodes: of `code` as it was parsed, parents before children. kept: the same tree without what does nothing, in
    which `mask` stands in the place of prose. Empty where `code` is not one piece of `text`."""
    start = text.rfind(code)
    if start < 0 or not code or "\r" in code or "\f" in code:  # line ends that Python counts and `str.find` does not
        return ()
    lines = [0, *(end.end() for end in re.finditer("\n", code))]
    relevant = bytearray(b"\1" * len(code))
    survivors = _survivors(kept, mask)
    for node in nodes:
        if (span := _span(node, code, lines)) is not None:
            relevant[slice(*span)] = bytes([node in survivors]) * (span[1] - span[0])
    for token in tokenize.generate_tokens(io.StringIO(code).readline) if "#" in code else ():
        if token.type == tokenize.COMMENT:
            first = lines[token.start[0] - 1] + token.start[1]
            relevant[first : first + len(token.string)] = bytes(len(token.string))
    spans = [(start + first, start + last) for first, last in (run.span() for run in re.finditer(b"\1+", relevant))]
    before, end = text[:start].endswith(_OPENING), start + len(code)
    opening = [(start - len(_OPENING), start)] if before else []
    closing = [(end, end + len(_CLOSING))] if text.startswith(_CLOSING, end) else []
    return tuple(opening + spans + closing)


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
            case ast.Assign() if (targets := plain_targets(node)) and not loaded & names(*targets):
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


@dataclass(frozen=True, slots=True)
class StaticRequest:
    completion_text: str
    tests: tuple[str, ...]
    entry_point: str  # empty for a program that reads stdin and writes stdout
    question: str
    block: str = "best"  # how the answer is read; see `answer.BLOCKS`


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    """The findings. Where a check could not be made its field keeps the harmless default."""

    code: str | None = None  # what was read, up to the size that is looked at; None: no answer
    flaw: str = ""  # why the form of the answer is not the one asked for
    closed: bool = False
    parses: bool = False
    stdio: bool = False  # a whole program was asked for: it writes (entry point) and reads (arguments)
    entry_defined: bool = False
    arity_ok: bool = False
    returns_value: bool = False
    stub: bool = False
    degenerate: tuple[str, ...] = ()  # loops and recursions without an end
    undefined_names: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()  # imports, calls and attributes that reach outside a pure function
    toplevel: tuple[str, ...] = ()  # kinds of statement that act when the module is loaded
    unused_params: tuple[str, ...] = ()
    signature_as_stated: bool = True  # the parameters are called as in the question, or the question does not say
    hardcode_ratio: float = 0.0  # share of tests whose input and expected value both stand in the code
    quarantine: tuple[str, ...] = ()  # why this looks like an attack; empty when it does not
    refusal: str = ""  # why there is no tree: no fence, a syntax error, over a limit
    unavailable: str = ""  # why nothing can be said; then no other field means anything
    examples: tuple[Example, ...] = ()  # the tests whose input and output are literals; bounded in number and length
    canonical: str | None = None
    kinds: tuple[Kind, ...] = ()  # of the arguments in the tests; empty where they do not show it
    program: Spans = ()  # where in the attempt the program stands that `canonical` is of, without what does nothing

    @property
    def certain_failure(self) -> bool:
        return not (self.parses and self.entry_defined and self.arity_ok)


def check(request: StaticRequest) -> StaticReport:
    """Never raises on hostile text that the limits of `parsing.py` let in."""
    answer = read_answer(request.completion_text, request.entry_point, request.block)
    if answer.code is None:
        return StaticReport(refusal=answer.flaw)
    code = answer.code[: MAX_BYTES + 1]  # as long as that it is refused
    hidden = tuple(f"hidden character {name}" for name in hidden_characters(answer.code))
    read = StaticReport(code=code, flaw=answer.flaw, closed=answer.closed, quarantine=hidden)
    tree, why = parse(code)
    if tree is not None:
        try:
            return _inspect(tree, code, request, read)
        except (RecursionError, MemoryError, ValueError) as error:
            why = f"nested too deeply ({type(error).__name__})"
    return replace(read, refusal=f"unparseable: {why}")


def _inspect(tree: ast.Module, code: str, request: StaticRequest, read: StaticReport) -> StaticReport:
    entry, tests = request.entry_point, request.tests
    nodes = list(ast.walk(tree))
    ratio, certain = find_copied(nodes, tests, entry)
    copied = [f"answers of {ratio:.0%} of the tests are written into the code"] if certain else []
    messages = Checker(tree, filename="solution").messages
    undefined = {str(message.message_args[0]) for message in messages if isinstance(message, UndefinedName)}
    findings = replace(
        read,
        parses=True,
        undefined_names=tuple(sorted(undefined)),
        banned=(*sorted(reaches(tree, nodes, program=not entry)), *sorted(dunders(nodes))),
        hardcode_ratio=ratio,
        quarantine=(*read.quarantine, *copied, *attacks(tree, nodes, code, tests, entry, request.question)),
        examples=examples(tests, entry),
    )
    stated = stated_parameters(request.question, entry) if entry else None
    further = _function_findings(tree, request, stated) if entry else {}
    helpers = sorted(names_left_open_by(tests) - {entry}) if entry else ()
    clean(tree, entry, helpers)
    spans = program_spans(request.completion_text, code, nodes, tree, MASK)
    respell(tree, entry, parameters=stated, helpers=helpers)
    if not entry:
        further = {
            "stdio": True,
            "entry_defined": entry_point.writes(tree),
            "arity_ok": entry_point.reads(tree) or not any(case.input.strip() for case in cases_of(tests)),
            "returns_value": entry_point.writes(tree),
            "stub": entry_point.is_stub_program(tree),
            "degenerate": tuple(entry_point.endless_loops(list(ast.walk(tree)), ends=entry_point.READING_ENDS)),
        }
    return replace(findings, **further, canonical=spell(tree), kinds=argument_kinds(tests, entry), program=spans)


def _function_findings(tree: ast.Module, request: StaticRequest, stated: Sequence[str] | None) -> dict[str, Any]:
    function = entry_point.find_entry(tree, request.entry_point)
    toplevel = tuple(type(node).__name__ for node in tree.body if _acts(node))
    if function is None:
        return {"toplevel": toplevel, "signature_as_stated": not stated}
    named, calls = entry_point.parameters(function), calls_of(request.tests, request.entry_point)
    return {
        "toplevel": toplevel,
        "entry_defined": True,
        "arity_ok": all(entry_point.accepts(function, call) for call in calls),
        "returns_value": entry_point.returns_value(function),
        "stub": entry_point.is_stub(function),
        "degenerate": tuple(entry_point.degenerate(function)),
        "unused_params": tuple(sorted(set(named) - names_loaded(function))),
        "signature_as_stated": stated is None or named == list(stated),
    }


def _acts(node: ast.stmt) -> bool:
    """True for a top-level statement that does more than define."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return False
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return bool(reaches(ast.Module([ast.Expr(value)], []), list(ast.walk(value)), program=False))
        case _:
            return not isinstance(node, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom | ast.AnnAssign)
