"""What can be said of a solution without running it, and without asking a model: `check`.

Certain failures (does not parse, entry point missing, cannot be called as the tests call it), signs of an attack on
the judge (quarantine), and milder flaws. Reads untrusted text: call it through `worker.py`.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from codezero.code import entry_point
from codezero.code.answer import read_answer
from codezero.code.assertions import Example, calls_of, cases_of, examples, names_left_open_by
from codezero.code.attacks import attacks
from codezero.code.canonical import MASK, clean, respell, spell, stated_parameters
from codezero.code.capabilities import dunders, reaches
from codezero.code.copied_answers import find_copied
from codezero.code.kinds import Kind, argument_kinds
from codezero.code.parsing import MAX_BYTES, FunctionNode, hidden_characters, names_loaded, parse
from codezero.code.relevance import Spans, program_spans


@dataclass(frozen=True, slots=True)
class StaticRequest:
    completion_text: str
    tests: tuple[str, ...]
    entry_point: str
    """Empty for a program that reads stdin and writes stdout."""
    question: str
    block: str = "best"
    """How the answer is read; see `answer.BLOCKS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    """The findings. Where a check could not be made its field keeps the harmless default."""

    code: str | None = None
    """What was read, up to the size that is looked at; None: no answer."""
    flaw: str = ""
    """Why the form of the answer is not the one asked for."""
    closed: bool = False
    parses: bool = False
    stdio: bool = False
    """A whole program was asked for: its entry point is that it writes, its arguments are what it reads."""
    entry_defined: bool = False
    arity_ok: bool = False
    returns_value: bool = False
    stub: bool = False
    degenerate: tuple[str, ...] = ()
    """Loops and recursions without an end."""
    undefined_names: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    """Imports, calls and attributes that reach outside a pure function."""
    toplevel: tuple[str, ...] = ()
    """Kinds of statement that act when the module is loaded."""
    unused_params: tuple[str, ...] = ()
    signature_as_stated: bool = True
    """The parameters are called as in the question, or the question does not say."""
    hardcode_ratio: float = 0.0
    """Share of tests whose input and expected value both stand in the code."""
    quarantine: tuple[str, ...] = ()
    """Why this looks like an attack; empty when it does not."""
    refusal: str = ""
    """Why there is no tree: no fence, a syntax error, over a limit."""
    unavailable: str = ""
    """Why nothing can be said; then no other field means anything."""
    examples: tuple[Example, ...] = ()
    """The tests whose input and output are literals; bounded in number and length."""
    canonical: str | None = None
    kinds: tuple[Kind, ...] = ()
    """Of the arguments that the tests call the function with; empty where they do not show it."""
    program: Spans = ()
    """Where in the attempt the program stands that `canonical` is of, without what does nothing."""

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
    further |= {} if entry else _program_findings(tree, cases_of(tests))
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


def _program_findings(reduced: ast.Module, cases: Sequence[Example]) -> dict[str, Any]:
    writes = entry_point.writes(reduced)
    return {
        "stdio": True,
        "entry_defined": writes,
        "arity_ok": entry_point.reads(reduced) or not any(case.input.strip() for case in cases),
        "returns_value": writes,
        "stub": entry_point.is_stub_program(reduced),
        "degenerate": tuple(entry_point.endless_loops(list(ast.walk(reduced)), ends=entry_point.READING_ENDS)),
    }


def _acts(node: ast.stmt) -> bool:
    """Does a top-level statement do more than define?"""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return False
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return bool(reaches(ast.Module([ast.Expr(value)], []), list(ast.walk(value)), program=False))
        case _:
            return not isinstance(node, FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom | ast.AnnAssign)
