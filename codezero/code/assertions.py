"""Tests as data: the calls that assertions make, or what stands on stdin and must stand on stdout. Nothing is run.

Calls are found anywhere inside an assertion, because real tests wrap them: `set(f(..)) == set(..)`,
`math.isclose(f(x), y)`, `self.assertEqual(f(x), y)`.
"""

import ast
import builtins
import functools
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from codezero.code.parsing import FunctionNode, literal, names_bound, names_loaded, parse
from codezero.errors import ProblemError

MAX_TESTS = 200
MAX_CASE = 64 * 1024
"""Characters of one stdin/stdout test."""
MAX_EXAMPLES, MAX_EXAMPLE = 8, 300
"""Examples shown to a judge, and characters of the input or output of one."""
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class EntryCall:
    """A call of the entry point."""

    npos: int
    """Positional arguments; a starred one counts as none."""
    keywords: tuple[str, ...]
    args: tuple[str | None, ...]
    """Positional then keyword arguments in literal spelling; None where one is not a literal."""
    expected: str | None
    """The literal it is compared with; None when the assertion says something else about it."""
    exact: bool = False
    """It must equal `expected` itself: not as a set, not nearly, not only in truth value."""
    whole: bool = True
    """`args` are all there is: nothing is starred."""


@dataclass(frozen=True, slots=True)
class Example:
    """One test as data: what goes in and what must come out."""

    input: str
    """`f(1, 2)`, or what stands on stdin."""
    output: str
    """`3`, or what must stand on stdout."""


@dataclass(frozen=True, slots=True)
class EntryCalls:
    """What the tests of a problem call."""

    entry_point: str
    calls: tuple[EntryCall, ...]


class _Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: str
    output: str


def parse_cases(tests: Sequence[str]) -> tuple[Example, ...]:
    """The stdin/stdout pairs in `tests`, JSON texts `{"input": .., "output": ..}`.

    Raises ProblemError when there is none, too many, or one is too long or not of that form.
    """
    if not 0 < len(tests) <= MAX_TESTS:
        raise ProblemError(f"{len(tests)} tests, not 1 to {MAX_TESTS}")
    cases: list[Example] = []
    for number, test in enumerate(tests, 1):
        if len(test) > MAX_CASE:
            raise ProblemError(f"test {number}: more than {MAX_CASE} characters")
        try:
            case = msgspec.json.decode(test.encode(), type=_Case)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ProblemError(f"test {number}: {error}") from error
        cases.append(Example(case.input, case.output))
    return tuple(cases)


@functools.lru_cache(maxsize=64)
def calls_of(tests: tuple[str, ...], entry_point: str) -> tuple[EntryCall, ...]:
    """As `parse_tests`; nothing when the tests cannot be read: that is the problem's fault, not the solution's."""
    try:
        return parse_tests(tests, entry_point).calls
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
    """What can be shown of the tests as plain data: at most MAX_EXAMPLES, none longer than MAX_EXAMPLE.

    A call is shown only with literal arguments and the very literal that it must equal. Empty when nothing is so.
    """
    every = _call_examples(tests, entry_point) if entry_point else cases_of(tests)
    short = [example for example in every if len(example.input) <= MAX_EXAMPLE and len(example.output) <= MAX_EXAMPLE]
    return tuple(dict.fromkeys(short))[:MAX_EXAMPLES]


def _call_examples(tests: tuple[str, ...], entry_point: str) -> Iterator[Example]:
    for call in calls_of(tests, entry_point):
        if call.exact and call.whole and call.expected is not None and None not in call.args:
            named = [f"{key}={value}" for key, value in zip(call.keywords, call.args[call.npos :], strict=True)]
            given = [value for value in call.args[: call.npos] if value is not None]
            yield Example(f"{entry_point}({', '.join((*given, *named))})", call.expected)


def parse_tests(tests: Sequence[str], entry_point: str | None = None, reference: str = "") -> EntryCalls:
    """The calls in `tests`; without `entry_point` it is the undefined function named most often.

    Where there is none it may be a builtin that `reference` defines anew (`sum(2, 3)`).

    Raises ProblemError when a test does not parse or nothing is called: such a problem cannot be used.
    """
    if len(tests) > MAX_TESTS:
        raise ProblemError(f"more than {MAX_TESTS} tests")
    trees: list[ast.Module] = []
    for number, test in enumerate(tests, 1):
        tree, why = parse(test)
        if tree is None:
            raise ProblemError(f"test {number}: {why}")
        trees.append(tree)
    name = entry_point or _most_called(trees, _BUILTINS) or _most_called(trees, _BUILTINS - _defined(reference))
    calls = tuple(call for tree in trees for call in _calls(tree, name))
    if not calls:
        raise ProblemError(f"no test calls {name or 'a function'}")
    return EntryCalls(name, calls)


def _most_called(trees: Sequence[ast.Module], builtins: frozenset[str]) -> str:
    """Of calls inside the arguments of another only the outer counts, and set-up lines only without an assertion."""
    claims = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    imports = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    known = builtins | {alias.asname or alias.name for node in imports for alias in node.names}
    counts: Counter[str] = Counter()
    waiting: deque[ast.AST] = deque(claims or trees)
    while waiting:
        match waiting.popleft():
            case ast.Call(func=ast.Name(id=name)) if name not in known:
                counts[name] += 1
            case node:
                waiting.extend(ast.iter_child_nodes(node))
    return counts.most_common(1)[0][0] if counts else ""


def _defined(source: str) -> set[str]:
    tree, _ = parse(source)
    return set() if tree is None else {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _calls(tree: ast.Module, name: str) -> Iterator[EntryCall]:
    nodes = list(ast.walk(tree))
    claims = {id(claim.call): claim for node in nodes for claim in _claims(node, name)}
    for node in nodes:
        if isinstance(node, ast.Call) and _is_call(node, name):
            plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
            claim = claims.get(id(node))
            yield EntryCall(
                len(plain),
                keywords,
                tuple(literal(value) for value in (*plain, *(keyword.value for keyword in node.keywords))),
                claim and claim.expected,
                exact=claim is not None and claim.exact,
                whole=len(plain) == len(node.args) and len(keywords) == len(node.keywords),
            )


@dataclass(frozen=True, slots=True)
class _Claim:
    call: ast.Call
    expected: str
    exact: bool


def _claims(node: ast.AST, name: str) -> Iterator[_Claim]:
    """What one statement or unittest call says of calls of `name`."""
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
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call) if _is_call(call, name):
            yield _Claim(call, "False", exact=False)
        case ast.Call() as call if _is_call(call, name):
            yield _Claim(call, "True", exact=False)
        case ast.Call(args=[left, right, *_]):
            yield from _equal(left, right, name, exact=False)  # isclose(f(x), y)
        case _:
            pass


def _equal(left: ast.expr, right: ast.expr, name: str, *, exact: bool) -> Iterator[_Claim]:
    for side, other in ((left, right), (right, left)):
        if isinstance(side, ast.Call) and _is_call(side, name):
            value = literal(other)
            if value is not None:
                yield _Claim(side, value, exact)
        elif isinstance(side, ast.Call) and len(side.args) == 1:
            # set(f(..)) == set((4, 5)) and sorted(f(..)) == [4, 5] alike
            inner = other.args[0] if isinstance(other, ast.Call) and len(other.args) == 1 else other
            value, call = literal(inner), side.args[0]
            if isinstance(call, ast.Call) and _is_call(call, name) and value is not None:
                yield _Claim(call, value, exact=False)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


@functools.lru_cache(maxsize=64)
def names_used_by(tests: tuple[str, ...]) -> set[str]:
    trees = (parse(test)[0] for test in tests)
    return {name for tree in trees if tree is not None for name in names_loaded(tree)}


@functools.lru_cache(maxsize=64)
def names_left_open_by(tests: tuple[str, ...]) -> set[str]:
    """Names that tests call and do not bind, builtins aside."""
    nodes = [node for test in tests if (tree := parse(test)[0]) is not None for node in ast.walk(tree)]
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    defined = {node.name for node in nodes if isinstance(node, FunctionNode | ast.ClassDef)}
    imported = {alias.asname or alias.name.split(".")[0] for alias in nodes if isinstance(alias, ast.alias)}
    return called - defined - imported - names_bound(*nodes) - _BUILTINS
