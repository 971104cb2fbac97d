"""Tests with a secret control, so that code which shares their process cannot forge what comes of them.

Tests and code run in one namespace, as CPython and every published harness run them. There the code can patch builtins,
read what is expected off the stack, or write the report itself. So what passes runs again, in pairs of processes. A
coin decides for each condition whether it stands as it was written or is made false, and in the other run of the pair
it is the other way round. A literal that a condition compares with becomes another of its type; else it is negated. An
honest program is told False at exactly those. Code that answers for its tests cannot know which they are: for each it
is found out three times in four, and always when it says the same everywhere. Where few literals are certain to be
reached, more pairs are run. What equals everything passes a negation, so each `==` is also asked about another value.
"""

import ast
import functools
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any, NamedTuple

from codezero.code.parsing import UNPARSEABLE, literal, parse_quietly
from codezero.errors import ProblemError, translated
from codezero.sandbox.base import ALL_HOLD, Execution, failed

Other = Callable[[Any, Random], Any]  # another value of the same type and shape. Raises ValueError where there is none.
_NEARLY = frozenset(("isclose", "allclose", "approx"))
_LETTERS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")


def expected(condition: ast.expr) -> Iterator[tuple[ast.expr, Other]]:
    """Yield what may be a literal without which the condition would not hold, and how it is changed."""
    match condition:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            for side in _one_sided(left, right):
                match side:
                    case ast.Call(func=func, args=[value]) if _name(func) in ("set", "frozenset"):
                        yield value, _without_one
                    case ast.Call(func=func, args=[value, *_]) if _name(func) in _NEARLY:
                        yield value, far
                    case _:
                        yield side, other
        case ast.Compare(ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set() as choices]):
            yield choices, _none_of
        case (
            ast.Compare(
                left=ast.Call(func=func, args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
                ops=[ast.Lt() | ast.LtE()],
            )
            | ast.Call(func=func, args=[left, right, *_])
        ) if _name(func) in (("abs", "fabs") if isinstance(condition, ast.Compare) else _NEARLY):
            yield from ((side, far) for side in _one_sided(left, right))
        case _:
            pass


def _one_sided(left: ast.expr, right: ast.expr) -> Iterator[ast.expr]:
    """Each side whose other side is no literal: two literals say nothing about the code."""
    yield from (side for side, opposite in ((right, left), (left, right)) if literal(opposite) is None)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def other(value: Any, random: Random) -> Any:
    """A literal of the same type that differs, as a literal that was meant might. Raises ValueError for none."""
    if type(value) not in _OTHER:
        raise ValueError
    return _OTHER[type(value)](value, random)


def _other_text(value: Any, random: Random) -> Any:
    if not value:
        return random.choice(_LETTERS[0])
    at = random.randrange(len(value))
    letters = next((kind for kind in _LETTERS if value[at] in kind), _LETTERS[0])
    return value[:at] + random.choice(letters.replace(value[at], "")) + value[at + 1 :]


def _other_item(value: Any, random: Random) -> Any:
    if not value:
        return type(value)((random.randrange(9),))
    at = random.randrange(len(value))
    return value[:at] + type(value)((other(value[at], random),)) + value[at + 1 :]


def _other_entry(value: Any, random: Random) -> Any:
    key = random.choice(list(value)) if value else 0
    return {**value, key: other(value.get(key, 0), random)}


def _without_one(value: Any, random: Random) -> Any:
    """Another is there in place of one element, wherever it stands."""
    if not value:
        return type(value)((random.randrange(9),))
    gone = random.choice(sorted(value, key=repr))
    instead = other(gone, random)
    return type(value)(instead if each == gone else each for each in value)


_OTHER: dict[type, Other] = {
    type(None): lambda value, random: True,
    bool: lambda value, random: not value,
    int: lambda value, random: value + random.choice((-3, -2, -1, 1, 2, 3)),
    float: lambda value, random: value + random.choice((-3.5, -1.25, 0.5, 2.75)),
    complex: lambda value, random: value + random.choice((-2, -1, 1, 2)),
    str: _other_text,
    bytes: lambda value, random: _other_text(value.decode("latin-1"), random).encode("latin-1"),
    list: _other_item,
    tuple: _other_item,
    set: _without_one,
    dict: _other_entry,
}


def _none_of(value: Any, random: Random) -> Any:
    """As many choices, none of which is among these. Raises ValueError where there are no others."""
    drawn = list(value)
    for _ in range(50):
        drawn = [other(each, random) if each in value else each for each in drawn]
    if any(each in value for each in drawn):
        raise ValueError
    return type(value)(drawn)


def far(value: Any, random: Random) -> Any:
    """Numbers that are not nearly these. Raises ValueError for what is no number."""
    if type(value) in (list, tuple):
        return type(value)(far(each, random) for each in value)
    if type(value) not in (int, float):
        raise ValueError
    return value + random.choice((-1, 1)) * type(value)(10 + abs(value)) * random.randint(1, 3)


TAG = f"_{secrets.token_hex(8)}"  # ends every name this module adds; code that was written elsewhere cannot guess it
FINISHED = f"finished{TAG}"  # bound by the code's last line: it ran to its end
HELD, MISSED = f"held{TAG}", f"missed{TAG}"  # of the report: for each site, how often its condition was true, and false

_SITE, _EQUALS, _DIFFERS, _ALL = f"site{TAG}", f"equals{TAG}", f"differs{TAG}", f"all{TAG}"
_HELPERS = f"""
{HELD}, {MISSED} = [0] * {{0}}, [0] * {{0}}
def {_SITE}(number, holds, held={HELD}, missed={MISSED}):
    if holds:
        held[number] += 1
    else:
        missed[number] += 1
def others{TAG}(value, type=type, bool=bool, int=int, float=float, str=str, list=list, tuple=tuple, len=len):
    kind = type(value)
    if kind is bool:
        return [not value]
    if kind is int or kind is float:
        return [value + 1]
    if kind is str:
        return [value + "x"]
    found = []
    if kind is list or kind is tuple:
        for at in (0, 1, 2, 3, 4, 5, 6, 7):
            if at < len(value) and len(found) < 20:
                found += [value[:at] + kind((each,)) + value[at + 1 :] for each in others{TAG}(value[at])]
    return found
def lies{TAG}(left, right, others=others{TAG}, error=Exception):
    try:
        if left == right:
            for each in others(right):
                if each != right and left == each:
                    return True
            for each in others(left):
                if each != left and each == right:
                    return True
    except error:
        pass
    return False
def {_EQUALS}(left, right, held={HELD}, lies=lies{TAG}):
    if lies(left, right):
        held[-1] += 1
    return left == right
def {_DIFFERS}(left, right, held={HELD}, lies=lies{TAG}):
    if lies(left, right):
        held[-1] += 1
    return left != right
def {_ALL}(*values):
    for value in values:
        if not value:
            return value
    return True
"""
"""Runs before the code, which may shadow builtins. {{0}}: the number of sites, and one more for what equals others."""
_ENOUGH = 3  # conditions with another literal, certain to be reached, that a program has to be told False at
_CATCHES = frozenset(("AssertionError", "Exception", "BaseException"))

_Edit = tuple[int, int, int, str]  # bytes from, to; order among those at one place; the text instead
_Change = Callable[[Random, bool], list[_Edit]]


class Site(NamedTuple):
    """A condition of a test, or, without a change, the test's end."""

    test: int
    certain: bool = True  # whenever the test comes to its end it was evaluated
    change: _Change | None = None  # edits that make a true condition false, if asked to
    literal: bool = False  # by another literal in it
    span: tuple[int, int] = (0, 0)  # bytes of the assertion; `condition`: of what it asserts
    condition: tuple[int, int] = (0, 0)

    def framed(self, before: str, after: str) -> list[_Edit]:
        """Put its condition between two texts, in place of its assertion."""
        (start, end), (opens, closes) = self.span, self.condition
        return [(start, opens, 0, before), (closes, end, 0, after)]


class ControlledRun(NamedTuple):
    """The source that one process executes before the code, and after it."""

    helpers: str
    tests: tuple[str, ...]
    altered: tuple[bool, ...] = ()  # of each site: made false? Empty: its assertions raise, as in CPython


class SiteCounts(NamedTuple):
    """Counts of a run: for each site, how often its condition was true, and how often false."""

    held: Sequence[int] = ()
    missed: Sequence[int] = ()
    fault: Execution | None = None  # what ended it before its end


class Control(NamedTuple):
    """Tests as the sites in them; the last of them are the tests' ends."""

    texts: tuple[bytes, ...]
    sites: tuple[Site, ...]
    comparisons: tuple[list[_Edit], ...]  # of each test: ask what is compared about another value too

    def runs(self, random: Random | None = None) -> Iterator[ControlledRun]:
        """The tests as they are, then pairs that complement each other, drawn anew each time. What one run shows, no
        later one may learn but the other of its pair: of two literals nothing says which was meant, of three the one
        that stands in two pairs was."""
        random, sure = random or SystemRandom(), sum(site.literal and site.certain for site in self.sites)
        plain = list[list[_Edit]]([] for _ in self.texts)
        for site in filter(lambda site: site.change, self.sites):
            plain[site.test] += site.framed("assert (", f'), "{TAG} {site.test + 1}"')
        yield ControlledRun("", tuple(map(_edited, self.texts, plain)))
        for _ in range(-(-_ENOUGH // sure) if sure else 1):
            coins = [random.random() < 0.5 for _ in self.sites]
            seeds = [random.getrandbits(64) for _ in self.sites]
            yield self._run(coins, seeds)
            yield self._run([not coin for coin in coins], seeds)

    def _run(self, coins: Sequence[bool], seeds: Sequence[int]) -> ControlledRun:
        edits = [list(edits) for edits in self.comparisons]
        ends = [""] * len(self.texts)
        for number, (site, coin) in enumerate(zip(self.sites, coins, strict=True)):
            if site.change is None:
                ends[site.test] = f"\n{_SITE}({number}, {not coin})"
            else:
                edits[site.test] += site.framed(f"{_SITE}({number}, (", "))") + site.change(Random(seeds[number]), coin)
        texts = map(str.__add__, map(_edited, self.texts, edits), ends)
        return ControlledRun(_HELPERS.format(len(coins) + 1), tuple(texts), tuple(coins))

    def decide(self, reports: Iterable[tuple[ControlledRun, SiteCounts]]) -> Execution:
        """Decide the code by the reports of the runs, which are asked for one after the other."""
        cheats, reached = False, set[int]()
        for run, report in reports:
            counts = list(zip(self.sites, run.altered, report.held, report.missed, strict=False))
            wrong = (site.test for site, altered, _, false in counts if site.change and false and not altered)
            if (test := next(wrong, None)) is not None:
                return failed(f"test {test + 1} fails")
            if report.fault is not None:
                return report.fault
            passed_by = any(site.certain and not true + false for site, _, true, false in counts)
            cheats |= passed_by or len(counts) < len(run.altered) or any(report.held[len(counts) :])
            cheats |= any(true if altered else false for _, altered, true, false in counts)
            reached |= {site.test for site, _, true, false in counts if site.change and true + false}
        if cheats:
            return replace(failed("passes tests that must fail"), cheats=True)
        bare = len(self.texts) - len(reached)
        why = f"{bare} of {len(self.texts)} tests are unguarded: no condition to change" if bare else ""
        return replace(ALL_HOLD, reason=why, unguarded=bare)


@functools.lru_cache(maxsize=1024)
def control_of(tests: tuple[str, ...]) -> Control:
    """The sites of these tests. Raises ProblemError for one that cannot be read or asserts nothing."""
    texts, readers = list[bytes](), list[_Reader]()
    for number, test in enumerate(tests):
        tree = read_test(test, number + 1)
        texts.append(test.replace("\r\n", "\n").replace("\r", "\n").encode())
        readers.append(_Reader(number, texts[-1], tree))
        with translated(ProblemError, f"test {number + 1} is nested too deeply", RecursionError, reason=False):
            readers[-1].visit(tree)
    sites = [site for reader in readers for site in reader.sites] + list(map(Site, range(len(tests))))
    return Control(tuple(texts), tuple(sites), tuple(reader.comparisons for reader in readers))


def read_test(test: str, number: int) -> ast.Module:
    """Raises ProblemError for what is no test; `number` is for its message."""
    with translated(ProblemError, f"test {number} cannot be read", *UNPARSEABLE):
        tree = parse_quietly(test)
    if not any(isinstance(node, ast.Assert | ast.Raise | ast.With) for node in ast.walk(tree)):
        raise ProblemError(f"test {number} asserts nothing")
    return tree


class _Reader(ast.NodeVisitor):
    """Finds the conditions and the comparisons of one test."""

    def __init__(self, test: int, text: bytes, tree: ast.Module) -> None:
        self._test, self._certain, self._depth = test, set(_certain(tree.body, {})), 1
        self._lines: list[int] = [0]
        for line in text.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.sites, self.comparisons = list[Site](), list[_Edit]()

    def visit_Try(self, node: ast.Try) -> None:
        """Leaves an assertion as it is whose failure the test itself catches."""
        rest = [*node.handlers, *node.orelse, *node.finalbody]
        types = [handler.type for handler in node.handlers]
        kinds = [kind for each in types for kind in (each.elts if isinstance(each, ast.Tuple) else [each])]
        catches = any(kind is None or _name(kind) in _CATCHES for kind in kinds)
        for part in rest if catches else [*node.body, *rest]:
            self.visit(part)

    def visit_Assert(self, node: ast.Assert) -> None:
        literal = next(self._literals(node.test), None)
        change, certain = literal or self._negation(node.test), node in self._certain
        places = self._span(node), self._span(node.test)
        self.sites.append(Site(self._test, certain, change, literal is not None, *places))
        self.visit(node.test)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._depth += 1
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            helper = _EQUALS if isinstance(node.ops[0], ast.Eq) else _DIFFERS
            (start, end), (first, middle), (then, last) = map(self._span, (node, node.left, node.comparators[0]))
            self.comparisons.append((start, first, self._depth, f"{helper}(("))
            self.comparisons.append((middle, then, 0, "), ("))
            self.comparisons.append((last, end, -self._depth, "))"))
        self.generic_visit(node)
        self._depth -= 1

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Evaluates all parts of a conjunction, as they are where it holds, also when one is made false."""
        self._depth += 1
        if isinstance(node.op, ast.And):
            (start, end), *parts = map(self._span, (node, *node.values))
            self.comparisons.append((start, parts[0][0], self._depth, f"{_ALL}(("))
            for (_, before), (after, _) in itertools.pairwise(parts):
                self.comparisons.append((before, after, 0, "), ("))
            self.comparisons.append((parts[-1][1], end, -self._depth, "))"))
        self.generic_visit(node)
        self._depth -= 1

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leaves it as it is: before Python 3.12 what stands in it has no place."""

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start, end = self._lines[node.lineno - 1], self._lines[(node.end_lineno or node.lineno) - 1]
        return start + node.col_offset, end + (node.end_col_offset or 0)

    def _literals(self, condition: ast.expr) -> Iterator[_Change]:
        """Changes of a literal whose value the condition hangs on."""
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            for part in reversed(condition.values):
                yield from self._literals(part)
        for node, other in expected(condition):
            try:
                value = ast.literal_eval(node)
                drawn = [other(value, Random(seed)) for seed in range(4)]
                if all(each != value and ast.literal_eval(repr(each)) == each for each in drawn):
                    yield functools.partial(_respelled, *self._span(node), value, other)
            except (ValueError, TypeError, SyntaxError, OverflowError, RecursionError):
                continue

    def _negation(self, condition: ast.expr) -> _Change:
        start, end = self._span(condition)
        edits = [(start, start, 1, "not ("), (end, end, -1, ")")]
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            first, last = self._span(condition.operand)
            edits = [(start, first, 1, "("), (last, end, -1, ")")]
        return lambda random, altered: edits if altered else []


def _respelled(start: int, end: int, value: object, other: Other, random: Random, altered: bool) -> list[_Edit]:
    """Spell a literal, or another, in one way, which does not give away which of them it is."""
    return [(start, end, 0, f"({other(value, random) if altered else value!r})")]


def _edited(text: bytes, edits: Sequence[_Edit]) -> str:
    parts, done = list[bytes](), 0
    for start, end, _, instead in sorted(edits, key=lambda edit: edit[:3]):
        parts += [text[done:start], instead.encode()]
        done = end
    return b"".join((*parts, text[done:])).decode()


def _certain(body: Sequence[ast.stmt], functions: dict[str, ast.FunctionDef]) -> Iterator[ast.Assert]:
    """Assertions that are evaluated whenever these statements come to their end; functions are those they may call."""
    for statement in body:
        match statement:
            case ast.Assert():
                yield statement
            case ast.FunctionDef(name=name):
                functions = {**functions, name: statement}
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in functions:
                function, functions = functions[name], {key: each for key, each in functions.items() if key != name}
                if not any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function)):
                    yield from _certain(function.body, functions)
            case _ if any(isinstance(part, ast.Return) for part in ast.walk(statement)):
                return
            case _:
                pass
