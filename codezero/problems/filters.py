"""Is a problem usable, and new? One set of rules for own proposals, peers' proposals and data sets; nothing is run.

The rules are bounded before anything is parsed, so they may be applied to whatever a stranger sent. A problem that
passes is well formed; whether its expected values are right is a question for its `standing`.
"""

import ast
import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice, takewhile
from typing import NamedTuple

from codezero.code.assertions import EntryCall, parse_cases, parse_tests
from codezero.code.parsing import BUILTINS, FunctionNode, hidden_characters, parse
from codezero.environment import Environment
from codezero.problems.dedup import Novelty, NoveltyState
from codezero.problems.synthetic.programs import parse_question
from codezero.types import Problem, Source, Standing, Style


class FilterReason(StrEnum):
    LENGTH = "length"
    CHARACTERS = "characters"
    FEW_TESTS = "few_tests"
    TESTS = "tests"
    ENTRY = "entry"
    UNNAMED = "unnamed"
    UNCALLED = "uncalled"
    CONTRADICTION = "contradiction"
    LEAK = "leak"
    LEVEL = "level"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    MALFORMED = "malformed"
    """A row of a data set that could not be read."""
    HELD_OUT = "held_out"
    """The exam asks it, or the judge is measured on it."""
    CONTEXT = "context"
    """The solver's context cannot hold it."""


class FilterRefusal(NamedTuple):
    """One reason, and a few words on what it was."""

    reason: str
    """A `FilterReason`, or what an environment of the user's own says."""
    detail: str


class Bounds(NamedTuple):
    """Most characters of a question and of a test, most tests, and whether these hold assertions and nothing else."""

    question: int
    tests: int
    test: int
    assertions_only: bool


MIN_TESTS = 2
PROPOSED = Bounds(question=2_000, tests=16, test=500, assertions_only=True)
CURATED = Bounds(question=20_000, tests=64, test=64 * 1024, assertions_only=False)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SPACES = frozenset("\n\r\t")
_WORDS_AT_LEVEL = {1: (3, 120), 2: (3, 200), 3: (4, 300), 4: (5, 400), 5: (7, 400)}
"""Fewest and most words of a question that asks for so much."""
_MISJUDGED = 2
"""Levels between what was asked for and what a question of our own family is."""
_DEFINITIONS = 20
"""Places of a question that are looked at for a solution."""
_TELLING = 20
"""Characters from which on a reference inside the question is no coincidence."""


def inspect(problem: Problem, bounds: Bounds) -> FilterRefusal | None:
    """What is wrong with it, or None. Never raises, whatever its texts hold."""
    try:
        return next(_faults(problem, bounds), None)
    except (RecursionError, MemoryError):
        return FilterRefusal(FilterReason.TESTS, "nested too deeply")
    except ValueError as error:  # a ProblemError too; a number too long to be written
        return FilterRefusal(FilterReason.TESTS, str(error)[:200])


def _faults(problem: Problem, bounds: Bounds) -> Iterator[FilterRefusal]:
    yield from _sizes(problem, bounds)
    yield from _characters(problem, bounds)
    if problem.style is Style.STDIO:
        yield from _programs(problem)
    else:
        yield from _functions(problem, bounds)
    yield from _leaks(problem)
    yield from _level(problem)


def _sizes(problem: Problem, bounds: Bounds) -> Iterator[FilterRefusal]:
    question, tests, different = problem.question, problem.tests, len(set(problem.tests))
    if not question.strip():
        yield FilterRefusal(FilterReason.LENGTH, "the question is empty")
    if len(question) > bounds.question:
        yield FilterRefusal(FilterReason.LENGTH, f"a question of more than {bounds.question} characters")
    if different < MIN_TESTS:
        yield FilterRefusal(FilterReason.FEW_TESTS, f"{different} different tests, not at least {MIN_TESTS}")
    if len(tests) > bounds.tests:
        yield FilterRefusal(FilterReason.LENGTH, f"more than {bounds.tests} tests")
    if any(len(test) > bounds.test for test in tests):
        yield FilterRefusal(FilterReason.LENGTH, f"a test of more than {bounds.test} characters")


def _characters(problem: Problem, bounds: Bounds) -> Iterator[FilterRefusal]:
    """A stranger's text may hide nothing; a data set's only has to be text."""
    try:
        "\n".join((problem.question, *problem.tests)).encode()
    except UnicodeEncodeError:
        yield FilterRefusal(FilterReason.CHARACTERS, "no valid Unicode")
    text = problem.question
    hidden = hidden_characters(text) or [ascii(char) for char in set(text) - _SPACES if not char.isprintable()]
    if bounds.assertions_only and hidden:
        yield FilterRefusal(FilterReason.CHARACTERS, f"hidden or control characters: {', '.join(hidden[:3])}")


def _programs(problem: Problem) -> Iterator[FilterRefusal]:
    outputs: dict[str, str] = {}
    for case in parse_cases(problem.tests):
        given, wanted = " ".join(case.input.split()), " ".join(case.output.split())
        if outputs.setdefault(given, wanted) != wanted:
            yield FilterRefusal(FilterReason.CONTRADICTION, f"two outputs for {given[:80]!r}")
    if len(outputs) < MIN_TESTS:
        yield FilterRefusal(FilterReason.FEW_TESTS, f"{len(outputs)} different inputs, not at least {MIN_TESTS}")


def _functions(problem: Problem, bounds: Bounds) -> Iterator[FilterRefusal]:
    entry = problem.entry_point
    if not _NAME.fullmatch(entry) or keyword.iskeyword(entry) or entry in BUILTINS:
        yield FilterRefusal(FilterReason.ENTRY, f"{entry[:40]!r} is no name for a function")
    # What a solver is shown of a claimed problem is its question alone; of others also a test, which names it.
    if problem.standing is Standing.CLAIMED and not re.search(rf"\b{re.escape(entry)}\b", problem.question):
        yield FilterRefusal(FilterReason.UNNAMED, f"the question does not name {entry}")
    for number, test in enumerate(problem.tests, 1):
        tree, why = parse(test)
        if tree is None:
            yield FilterRefusal(FilterReason.TESTS, f"test {number}: {why}")
            return
        if bounds.assertions_only and not all(isinstance(statement, ast.Assert) for statement in tree.body):
            yield FilterRefusal(FilterReason.TESTS, f"test {number}: something other than assertions")
        if entry in _bound_names(tree):
            yield FilterRefusal(FilterReason.LEAK, f"test {number} defines {entry}")
        if not _asserts(tree, entry):
            yield FilterRefusal(FilterReason.UNCALLED, f"test {number}: no assertion about a call of {entry}")
    yield from _contradictions(parse_tests(problem.tests, entry)[1])


def _bound_names(tree: ast.AST) -> set[str]:
    """Every name that something in the tree assigns, imports, defines or takes as a parameter."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
            case _:
                pass
    return names


def _asserts(tree: ast.Module, entry: str) -> bool:
    """Is anything stated about a call of `entry`, by an assertion or one of unittest's? Names hold what it returned."""
    nodes = list(ast.walk(tree))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = {function.attr for function in functions if isinstance(function, ast.Attribute)}
    states = any(isinstance(node, ast.Assert) for node in nodes) or any(name.startswith("assert") for name in methods)
    return states and any(isinstance(function, ast.Name) and function.id == entry for function in functions)


def _contradictions(calls: Sequence[EntryCall]) -> Iterator[FilterRefusal]:
    """The same literal arguments cannot give two values, nor be both true and false."""
    values: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for call in calls:
        if call.expected is None or not call.whole or None in call.args:
            continue
        if call.exact or call.expected in ("True", "False"):
            values[call.args, call.npos, call.keywords, call.exact].append(call.expected)
    for key, expected in values.items():
        if not all(_same(expected[0], other) for other in expected[1:]):
            yield FilterRefusal(FilterReason.CONTRADICTION, f"two values for the arguments {str(key[0])[:80]}")


def _same(value: str, other: str) -> bool:
    """Do two literals have equal values? `{1, 2}` and `{2, 1}`, `1` and `1.0` do."""
    try:
        return value == other or bool(ast.literal_eval(value) == ast.literal_eval(other))
    except (TypeError, SyntaxError):  # `{[]}` is a literal in form alone
        return False


def _leaks(problem: Problem) -> Iterator[FilterRefusal]:
    """A question that holds a solution asks for copying."""
    question, reference = problem.question, problem.reference
    if reference and len(bare := "".join(reference.split())) >= _TELLING and bare in "".join(question.split()):
        yield FilterRefusal(FilterReason.LEAK, "the question holds the reference")
    if problem.style is Style.CALL and _defines(question, problem.entry_point):
        yield FilterRefusal(FilterReason.LEAK, f"the question defines {problem.entry_point}")


def _defines(question: str, entry: str) -> bool:
    """Is there a definition with a body? A signature, or one with a docstring, gives nothing away."""
    name = re.escape(entry)
    begins = rf"^([^\S\n]*).*?\b((?:async\s+)?def\s+{name}\s*\(|{name}\s*=\s*lambda\b)"
    for definition in islice(re.finditer(begins, question, re.MULTILINE), _DEFINITIONS):
        depth = len(definition[1])
        first, *rest = question[definition.start(2) :].split("\n")
        deeper = takewhile(lambda line, most=depth: len(line) - len(line.lstrip()) > most or not line.strip(), rest)
        tree, _ = parse("\n".join([first.split("`")[0], *deeper]))
        if tree is not None and any(map(_has_body, tree.body)):
            return True
    return False


def _has_body(statement: ast.stmt) -> bool:
    if isinstance(statement, FunctionNode):
        parts = (part.value if isinstance(part, ast.Expr) else part for part in statement.body)
        return not all(isinstance(part, ast.Pass | ast.Constant | ast.Import | ast.ImportFrom) for part in parts)
    return isinstance(statement, ast.Assign)


def _level(problem: Problem) -> Iterator[FilterRefusal]:
    """Could it be as hard as was asked for? What is known of our own family decides, elsewhere the length."""
    level, known = problem.level, parse_question(problem.question)
    if level is None or problem.source is Source.CODE_CONTESTS:  # its level is what people found hard
        return
    if level not in _WORDS_AT_LEVEL:
        yield FilterRefusal(FilterReason.LEVEL, f"level {level} is not 1 to 5")
    elif known is not None:
        if abs(known[1].level - level) >= _MISJUDGED:
            yield FilterRefusal(FilterReason.LEVEL, f"asked for {level}, is {known[1].level}")
    else:
        fewest, most = _WORDS_AT_LEVEL[level]
        words = len(problem.question.split())
        if not fewest <= words <= most:
            yield FilterRefusal(FilterReason.LEVEL, f"{words} words are not plausible at level {level}")


Fits = Callable[[Problem], bool]
"""Can the solver's context hold it?"""
_REPEATS = {"tests": FilterReason.DUPLICATE, "question": FilterReason.NEAR_DUPLICATE}


class Screen:
    """All rules, and a memory of the problems that passed.

    `environment`: whose rules. `withheld`: what the exam asks and the judge is measured on, which nobody learns from.
    """

    def __init__(
        self, environment: Environment, fits: Fits = lambda problem: True, withheld: Novelty | None = None
    ) -> None:
        self._environment, self._fits, self._withheld, self._novelty = environment, fits, withheld, Novelty()

    def refuse(self, problem: Problem) -> FilterRefusal | None:
        """What is wrong with a problem, wherever it comes from; None and remembered when nothing is."""
        if (fault := self._environment.fault(problem)) is not None:
            return FilterRefusal(*fault)
        if self.withholds(problem):
            return FilterRefusal(FilterReason.HELD_OUT, "the exam asks it, or the judge is measured on it")
        if not self._fits(problem):
            return FilterRefusal(FilterReason.CONTEXT, "longer than the solver's context holds")
        repeat = self._novelty.add(problem)
        return None if repeat is None else FilterRefusal(_REPEATS[repeat], f"the {repeat} of an earlier one")

    def withholds(self, problem: Problem) -> bool:
        """Is it of the held-out part, or does it repeat a problem of the exam or of the judge's canaries?"""
        asked = self._withheld is not None and self._withheld.repeats(problem)
        return asked or self._environment.withholds(problem)

    def state(self) -> NoveltyState:
        return self._novelty.state()

    def restore(self, state: NoveltyState) -> None:
        self._novelty = Novelty(state)
