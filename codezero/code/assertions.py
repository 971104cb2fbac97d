"""Tests as data: the calls that assertions make, or what stands on stdin and must stand on stdout. Nothing is run.

Calls are found anywhere inside an assertion, because real tests wrap them: `set(f(..)) == set(..)`."""

import ast
import functools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from codezero.code.parsing import BUILTINS, called, literal, names_bound, names_imported, names_loaded, parse
from codezero.errors import ProblemError, translated
from codezero.types import Problem, Source, problem_id

MAX_TESTS = 200
MAX_CASE = 64 * 1024  # characters of one stdin/stdout test
MAX_EXAMPLES, MAX_EXAMPLE = 8, 300  # examples shown to a judge, and characters of the input or output of one
FieldText = Annotated[str, Meta(max_length=1 << 20)]  # of a row; HumanEval's longest test has less than 100,000


class EntryCall(NamedTuple):
    npos: int  # positional arguments; a starred one counts as none
    keywords: tuple[str, ...]
    args: tuple[str | None, ...]  # positional, then keyword arguments, as literals; None where one is no literal
    expected: str | None  # the literal it is compared with; None when the assertion says something else about it
    exact: bool = False  # it must equal `expected` itself: not as a set, not nearly, not only in truth value
    whole: bool = True  # `args` are all there is: nothing is starred


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One test as data: what goes in and what must come out."""

    input: str  # `f(1, 2)`, or what stands on stdin
    output: str  # `3`, or what must stand on stdout


def as_problem(question: str, tests: Sequence[str], entry_point: str | None, level: int | None = None) -> Problem:
    """A problem that somebody asks about. entry_point: None is read off the tests; empty: a program of stdin. Raises
    ProblemError for tests that cannot be read."""
    tests = tuple(tests)
    if entry_point == "":
        parse_cases(tests)
    entry = parse_tests(tests, entry_point)[0] if entry_point != "" else ""
    source = Source.MBPP if entry else Source.CODE_CONTESTS
    return Problem(problem_id(question, tests), question, tests, entry, source, level=level)


def parse_cases(tests: Sequence[str], longest: int = MAX_CASE) -> tuple[Example, ...]:
    """The stdin/stdout pairs in `tests`, JSON texts `{"input": .., "output": ..}`. Raises ProblemError when there is
    none, too many, or one has more than `longest` characters or is not of that form."""
    if not 0 < len(tests) <= MAX_TESTS:
        raise ProblemError(f"{len(tests)} tests, not 1 to {MAX_TESTS}")
    cases: list[Example] = []
    for number, test in enumerate(tests, 1):
        if len(test) > longest:
            raise ProblemError(f"test {number}: more than {longest} characters")
        with translated(ProblemError, f"test {number}", msgspec.MsgspecError, UnicodeError, RecursionError):
            cases.append(msgspec.json.decode(test.encode(), type=Example))
    return tuple(cases)


@functools.lru_cache(maxsize=64)
def calls_of(tests: tuple[str, ...], entry_point: str) -> tuple[EntryCall, ...]:
    """As `parse_tests`; nothing when the tests cannot be read: that is the problem's fault, not the solution's."""
    try:
        return parse_tests(tests, entry_point)[1]
    except ProblemError:
        return ()


@functools.lru_cache(maxsize=64)
def cases_of(tests: tuple[str, ...]) -> tuple[Example, ...]:
    """As `parse_cases`; nothing when the tests cannot be read."""
    try:
        return parse_cases(tests)
    except ProblemError:
        return ()


@functools.lru_cache(maxsize=64)
def examples(tests: tuple[str, ...], entry_point: str) -> tuple[Example, ...]:
    """Return at most MAX_EXAMPLES tests, none longer than MAX_EXAMPLE, as plain data: cases, and calls with literal
    arguments and the very literal that they must equal."""
    every = list(() if entry_point else cases_of(tests))
    for call in calls_of(tests, entry_point) if entry_point else ():
        if call.exact and call.whole and call.expected is not None and None not in call.args:
            named = [f"{key}={value}" for key, value in zip(call.keywords, call.args[call.npos :], strict=True)]
            given = ", ".join((*map(str, call.args[: call.npos]), *named))
            every.append(Example(f"{entry_point}({given})", call.expected))
    short = [example for example in every if len(example.input) <= MAX_EXAMPLE and len(example.output) <= MAX_EXAMPLE]
    return tuple(dict.fromkeys(short))[:MAX_EXAMPLES]


def parse_tests(
    tests: Sequence[str], entry_point: str | None = None, reference: str = ""
) -> tuple[str, tuple[EntryCall, ...]]:
    """The entry point of `tests` and its calls; if not given it is the undefined function named most often. Where there
    is none it may be a builtin that `reference` defines anew (`sum(2, 3)`). Raises ProblemError when a test does not
    parse or nothing is called: such a problem cannot be used."""
    if len(tests) > MAX_TESTS:
        raise ProblemError(f"more than {MAX_TESTS} tests")
    trees: list[ast.Module] = []
    for number, test in enumerate(tests, 1):
        tree, why = parse(test)
        if tree is None:
            raise ProblemError(f"test {number}: {why}")
        trees.append(tree)
    defined = parse(reference)[0] or ast.Module([], [])
    own = {node.name for node in defined.body if isinstance(node, ast.FunctionDef)}
    name = entry_point or _most_called(trees, BUILTINS) or _most_called(trees, BUILTINS - own)
    calls = tuple(call for tree in trees for call in _calls(tree, name)) if name else ()
    if not calls:
        raise ProblemError(f"no test calls {name or 'a function'}")
    return name, calls


class MbppRow(msgspec.Struct, frozen=True):
    """A row of MBPP; `text` in the full set is `prompt` in the sanitised one."""

    test_list: Annotated[list[FieldText], Meta(min_length=1, max_length=MAX_TESTS)]
    task_id: int = 0
    text: FieldText = ""
    prompt: FieldText = ""
    test_setup_code: FieldText = ""
    test_imports: Annotated[list[FieldText], Meta(max_length=MAX_TESTS)] = []
    code: FieldText = ""
    entry_point: Annotated[str, Meta(max_length=128)] = ""  # of own rows; MBPP has none, and it is read off the tests

    def parts(self) -> tuple[str, tuple[str, ...], str]:
        """Question, tests with what stands before each, and entry point. Raises ProblemError."""
        question = (self.text or self.prompt).strip()
        if not question:
            raise ProblemError("the question (text or prompt) is empty")
        setup = "\n".join(filter(None, (self.test_setup_code, *self.test_imports)))
        tests = tuple(f"{setup}\n{test}" if setup else test for test in self.test_list)
        return question, tests, parse_tests(tests, self.entry_point or None, reference=self.code)[0]


def _most_called(trees: Sequence[ast.Module], builtins: frozenset[str]) -> str:
    """Count, of calls inside another's arguments, only the outer one, and set-up lines only without an assertion."""
    claims = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    known = builtins | names_imported(*trees)
    counts: Counter[str] = Counter()
    waiting: deque[ast.AST] = deque(claims or trees)
    while waiting:
        match waiting.popleft():
            case ast.Call(func=ast.Name(id=name)) if name not in known:
                counts[name] += 1
            case node:
                waiting.extend(ast.iter_child_nodes(node))
    return counts.most_common(1)[0][0] if counts else ""


def _calls(tree: ast.Module, name: str) -> Iterator[EntryCall]:
    nodes = list(ast.walk(tree))
    claims = {call: (expected, exact) for node in nodes for call, expected, exact in _claims(node, name)}
    for node in nodes:
        if isinstance(node, ast.Call) and called(node) == name:
            plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
            values = tuple(literal(value) for value in (*plain, *(keyword.value for keyword in node.keywords)))
            expected, exact = claims.get(node, (None, False))
            whole = len(plain) == len(node.args) and len(keywords) == len(node.keywords)
            yield EntryCall(len(plain), keywords, values, expected, exact, whole)


_Claim = tuple[ast.Call, str, bool]  # a call, the literal it is compared with, and whether it must equal that itself


def _claims(node: ast.AST, name: str) -> Iterator[_Claim]:
    """Yield what one statement or unittest call says of calls of `name`."""
    match node:
        case ast.Assert(test=test):
            yield from _truths(test, name)
        case ast.Call(func=ast.Attribute(attr="assertTrue"), args=[test, *_]):
            yield from _truths(test, name)
        case ast.Call(func=ast.Attribute(attr=attribute), args=[left, right, *_]) if attribute.startswith("assert"):
            yield from _equal(left, right, name, exact=attribute == "assertEqual")
        case _:
            pass


def _truths(test: ast.expr, name: str) -> Iterator[_Claim]:
    match test:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _truths(part, name)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            yield from _equal(left, right, name, exact=True)
        case ast.Compare(left=ast.Call(args=[ast.BinOp(left=left, op=ast.Sub(), right=right)])):
            yield from _equal(left, right, name, exact=False)  # abs(f(x) - 3.14) < 1e-6
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call) if called(call) == name:
            yield call, "False", False
        case ast.Call() if called(test) == name:
            yield test, "True", False
        case ast.Call(args=[left, right, *_]):
            yield from _equal(left, right, name, exact=False)  # isclose(f(x), y)
        case _:
            pass


def _equal(left: ast.expr, right: ast.expr, name: str, *, exact: bool) -> Iterator[_Claim]:
    for side, other in ((left, right), (right, left)):
        strict = exact
        if isinstance(side, ast.Call) and called(side) != name and len(side.args) == 1:
            # set(f(..)) == set((4, 5)) and sorted(f(..)) == [4, 5] alike
            other = other.args[0] if isinstance(other, ast.Call) and len(other.args) == 1 else other
            side, strict = side.args[0], False
        value = literal(other)
        if isinstance(side, ast.Call) and called(side) == name and value is not None:
            yield side, value, strict


@functools.lru_cache(maxsize=64)
def names_used_by(tests: tuple[str, ...]) -> set[str]:
    return names_loaded(*(tree for test in tests if (tree := parse(test)[0]) is not None))


@functools.lru_cache(maxsize=64)
def names_left_open_by(tests: tuple[str, ...]) -> set[str]:
    """Names that tests call and do not bind, builtins aside."""
    trees = [tree for test in tests if (tree := parse(test)[0]) is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return used - defined - names_imported(*trees) - names_bound(*trees) - BUILTINS


# A kind is a word: `int`, `bool`, `float`, `str`; `[int]`, a list of them; `[]`, an empty one; `any`.
Kind = str
ANY, INT, BOOL, FLOAT, STR, NOTHING = "any", "int", "bool", "float", "str", ""
NUMBERS = (BOOL, INT, FLOAT)  # a value of one is a value of the next, but that a `bool` is kept apart where all are


def list_of(element: Kind) -> Kind:
    return f"[{element}]"


def is_list(kind: Kind) -> bool:
    return kind.startswith("[")


def element(kind: Kind) -> Kind:
    return kind[1:-1]


def join(first: Kind, other: Kind) -> Kind:
    """The kind of a value that is of either."""
    if first == other or NOTHING in (first, other):
        return first or other
    if is_list(first) and is_list(other):
        return list_of(join(element(first), element(other)))
    if first in NUMBERS and other in NUMBERS:
        return max(first, other, key=NUMBERS.index)
    return ANY


def joined(kinds: Iterable[Kind]) -> Kind:
    return reduce(join, kinds, NOTHING)


def argument_kinds(tests: tuple[str, ...], entry: str) -> tuple[Kind, ...]:
    """By position, over all calls; empty where a call is not of literals alone."""
    calls = calls_of(tests, entry) if entry else ()
    if not calls or any(None in call.args or call.keywords or not call.whole for call in calls):
        return ()
    if len({call.npos for call in calls}) > 1:
        return ()
    try:
        rows = [[_kind_of(ast.parse(str(arg), mode="eval").body) for arg in call.args] for call in calls]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(joined(column) or ANY for column in zip(*rows, strict=True))


def _kind_of(literal: ast.expr) -> Kind:
    match literal:
        case ast.Constant(value=value):
            return type(value).__name__ if isinstance(value, bool | int | float | str) else ANY
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _kind_of(operand)
        case ast.List(elts=parts):
            return list_of(joined(map(_kind_of, parts)))
        case _:
            return ANY
