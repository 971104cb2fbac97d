"""Is a problem usable, and new? One set of rules for own proposals, peers' proposals and data sets; nothing is run.

The rules are bounded before anything is parsed, so they may be applied to whatever a peer sent. A problem that passes
is well formed; whether its expected values are right is a question for its `standing`.

A duplicate is found by its tests in canonical form, or by its question's MinHash signature over runs of three words:
the share of equal minima estimates the Jaccard similarity of two sets, its standard deviation at most .044 (Broder
1997, "On the resemblance and containment of documents"). The function's name counts in neither."""

import ast
import contextlib
import hashlib
import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice, takewhile
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from datasketch import MinHash
from msgspec import Meta
from numpy.typing import NDArray

from codezero.code.assertions import EntryCall, cases_of, parse_cases, parse_tests
from codezero.code.parsing import BUILTINS, FunctionNode, hidden_characters, names_given, names_imported, parse
from codezero.environment import Environment
from codezero.problems.synthetic.tasks import parse_question
from codezero.system.state import Newest
from codezero.types import Problem, Source, Standing, Style

REMEMBERED_IDS = 4096
KEY_DIGITS = 16  # of a problem's id; enough to tell 20,000 apart
REMEMBERED = 512  # problems that a new one is compared with
# from this share of equal minima on two questions are the same. One changed word among 50 leaves .89 of the runs.
SIMILAR = 0.9
PERMUTATIONS = 128
RUN = 3
_EMPTY: Any = MinHash(num_perm=PERMUTATIONS, seed=1, scheme="affine32")
_WORD = re.compile(r"\w+|[^\w\s]")
_SIGNATURE = np.dtype("<u4")

Key = Annotated[str, Meta(max_length=KEY_DIGITS)]
Keys = Annotated[list[Key], Meta(max_length=REMEMBERED_IDS)]


def remember(recent: dict[str, None], identifier: str) -> bool:
    """Add to the last REMEMBERED_IDS that were, oldest first; False when it is among them already."""
    key = identifier[:KEY_DIGITS]
    if key in recent:
        return False
    recent[key] = None
    if len(recent) > REMEMBERED_IDS:
        del recent[next(iter(recent))]
    return True


class NoveltyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tests: Annotated[list[Key], Meta(max_length=REMEMBERED)] = []
    # one after the other, in the order of `tests`
    signatures: Annotated[bytes, Meta(max_length=REMEMBERED * PERMUTATIONS * _SIGNATURE.itemsize)] = b""

    def __post_init__(self) -> None:
        if len(self.signatures) != len(self.tests) * PERMUTATIONS * _SIGNATURE.itemsize:
            raise ValueError("not one signature for each problem")


class Novelty:
    """The last `most` problems that were added."""

    def __init__(self, state: NoveltyState | None = None, most: int = REMEMBERED) -> None:
        state = state or NoveltyState()
        signatures = np.frombuffer(state.signatures, _SIGNATURE).reshape(-1, PERMUTATIONS)
        self._known = Newest[str, NDArray[np.uint32]](most)  # signature by the key of the tests
        self._known.update(zip(state.tests, signatures, strict=True))

    def add(self, problem: Problem) -> Literal["tests", "question"] | None:
        """Remember it, unless it repeats one that is remembered: then say in what."""
        key, signature = tests_key(problem), signature_of(problem)
        if (repeat := self._repeats(key, signature)) is None:
            self._known[key] = np.zeros(PERMUTATIONS, _SIGNATURE) if signature is None else signature
        return repeat

    def repeats(self, problem: Problem) -> bool:
        """Is it one that is remembered, or much like it?"""
        return bool(self._known) and self._repeats(tests_key(problem), signature_of(problem)) is not None

    def _repeats(self, key: str, signature: NDArray[np.uint32] | None) -> Literal["tests", "question"] | None:
        if key in self._known:
            return "tests"
        known = list(self._known.values()) if signature is not None else []
        if known and float((np.stack(known) == signature).mean(axis=1).max()) >= SIMILAR:
            return "question"
        return None

    def state(self) -> NoveltyState:
        return NoveltyState(list(self._known), b"".join(row.tobytes() for row in self._known.values()))


def tests_key(problem: Problem) -> str:
    """16 hex digits, the same for tests that differ in order, spelling, or the function's name; of an item its id."""
    if problem.item is not None:
        return problem.id[:KEY_DIGITS]
    if problem.style is Style.STDIO:
        forms = [f"{case.input.split()} {case.output.split()}" for case in cases_of(problem.tests)]
    else:
        forms = [_canonical(_unnamed(test, problem.entry_point)) for test in problem.tests]
    return hashlib.sha256("\n".join(sorted(forms)).encode("utf-8", "replace")).hexdigest()[:KEY_DIGITS]


def signature_of(problem: Problem) -> NDArray[np.uint32] | None:
    """[PERMUTATIONS] minima over the question's runs of RUN words, its ends marked; None: only its equal repeats it."""
    if problem.item is not None:
        return None
    words = _WORD.findall(_unnamed(problem.question, problem.entry_point).lower())
    padded = [""] * (RUN - 1) + words + [""] * (RUN - 1)
    runs = {" ".join(padded[start : start + RUN]) for start in range(len(padded) - RUN + 1)}
    minima = _EMPTY.copy()
    minima.update_batch([run.encode("utf-8", "replace") for run in sorted(runs)])
    return np.asarray(minima.hashvalues, _SIGNATURE)


def _canonical(test: str) -> str:
    tree, _ = parse(test)
    with contextlib.suppress(RecursionError):
        if tree is not None:
            return ast.dump(tree)
    return " ".join(test.split())


def _unnamed(text: str, entry: str) -> str:
    return re.sub(rf"\b{re.escape(entry)}\b", "f", text) if entry else text


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
    MALFORMED = "malformed"  # a row of a data set that could not be read
    HELD_OUT = "held_out"  # the exam asks it, or the judge is measured on it
    CONTEXT = "context"  # the solver's context cannot hold it


class FilterRefusal(NamedTuple):
    """One reason, and a few words on what it was."""

    reason: str  # a `FilterReason`, or what an environment of the user's own says
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
# fewest and most words of a question that asks for so much
_WORDS_AT_LEVEL = {1: (3, 120), 2: (3, 200), 3: (4, 300), 4: (5, 400), 5: (7, 400)}


def inspect(problem: Problem, bounds: Bounds) -> FilterRefusal | None:
    """Find what is wrong with it, or None. Never raises, whatever its texts hold."""
    of_style = _programs(problem) if problem.style is Style.STDIO else _functions(problem, bounds)
    form = (_sizes(problem, bounds), _characters(problem, bounds), of_style, _leaks(problem), _level(problem))
    try:
        return next(chain.from_iterable(form), None)
    except (RecursionError, MemoryError):
        return FilterRefusal(FilterReason.TESTS, "nested too deeply")
    except ValueError as error:  # a ProblemError too; a number too long to be written
        return FilterRefusal(FilterReason.TESTS, str(error)[:200])


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
    """A peer's text may hide nothing; a data set's only has to be text."""
    try:
        "\n".join((problem.question, *problem.tests)).encode()
    except UnicodeEncodeError:
        yield FilterRefusal(FilterReason.CHARACTERS, "no valid Unicode")
    text = problem.question
    hidden = hidden_characters(text) or [ascii(char) for char in {*text} - {*"\n\r\t"} if not char.isprintable()]
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
        if entry in names_given(tree) | names_imported(tree):
            yield FilterRefusal(FilterReason.LEAK, f"test {number} defines {entry}")
        if not _asserts(tree, entry):
            yield FilterRefusal(FilterReason.UNCALLED, f"test {number}: no assertion about a call of {entry}")
    yield from _contradictions(parse_tests(problem.tests, entry)[1])


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
    bare = "".join(reference.split()) if reference else ""
    if len(bare) >= 20 and bare in "".join(question.split()):  # a shorter one may be there by coincidence
        yield FilterRefusal(FilterReason.LEAK, "the question holds the reference")
    if problem.style is Style.CALL and _defines(question, problem.entry_point):
        yield FilterRefusal(FilterReason.LEAK, f"the question defines {problem.entry_point}")


def _defines(question: str, entry: str) -> bool:
    """Is there a definition with a body? A signature, or one with a docstring, gives nothing away."""
    name = re.escape(entry)
    begins = rf"^([^\S\n]*).*?\b((?:async\s+)?def\s+{name}\s*\(|{name}\s*=\s*lambda\b)"
    for definition in islice(re.finditer(begins, question, re.MULTILINE), 20):
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
        if abs(known[1].level - level) >= 2:
            yield FilterRefusal(FilterReason.LEVEL, f"asked for {level}, is {known[1].level}")
    else:
        fewest, most = _WORDS_AT_LEVEL[level]
        words = len(problem.question.split())
        if not fewest <= words <= most:
            yield FilterRefusal(FilterReason.LEVEL, f"{words} words are not plausible at level {level}")


Fits = Callable[[Problem], bool]  # can the solver's context hold it?


class Screen:
    """All rules, and a memory of the problems that passed.

    `environment`: whose rules. `withheld`: what the exam asks and the judge is measured on, which nobody learns from.
    """

    def __init__(
        self, environment: Environment, fits: Fits = lambda problem: True, withheld: Novelty | None = None
    ) -> None:
        self._environment, self._fits, self._withheld, self._novelty = environment, fits, withheld, Novelty()

    def refuse(self, problem: Problem) -> FilterRefusal | None:
        """Find what is wrong with a problem, wherever it comes from; None and remembered when nothing is."""
        if (fault := self._environment.fault(problem)) is not None:
            return FilterRefusal(*fault)
        if self.withholds(problem):
            return FilterRefusal(FilterReason.HELD_OUT, "the exam asks it, or the judge is measured on it")
        if not self._fits(problem):
            return FilterRefusal(FilterReason.CONTEXT, "longer than the solver's context holds")
        if (repeat := self._novelty.add(problem)) is None:
            return None
        reason = FilterReason.DUPLICATE if repeat == "tests" else FilterReason.NEAR_DUPLICATE
        return FilterRefusal(reason, f"the {repeat} of an earlier one")

    def withholds(self, problem: Problem) -> bool:
        """Is it of the held-out part, or does it repeat a problem of the exam or of the judge's canaries?"""
        repeated = self._withheld is not None and self._withheld.repeats(problem)
        return repeated or self._environment.withholds(problem)

    def state(self) -> NoveltyState:
        return self._novelty.state()

    def restore(self, state: NoveltyState) -> None:
        self._novelty = Novelty(state)
