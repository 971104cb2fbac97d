"""Operations of synthetic problems, and how they compose into programs of five levels.

One table each. A phrase, its code and its meaning stand side by side, so that all three stay true to each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter, mod, mul, sub
from typing import Any, Literal, NamedTuple

Words = tuple[str, ...]
Constant = int | str | None  # what parametrises an operation; None for those that take nothing
Apply = Callable[[Any, Any], Any]  # (value, constant) -> result


class Op(NamedTuple):
    """One use of an atom: its name within a family and its constant."""

    name: str
    constant: Constant = None


@dataclass(frozen=True, slots=True)
class Atom:
    """One operation. In the templates `{v}` is the value it works on and `{k}` its constant."""

    code: str
    apply: Apply  # must agree with `code`
    phrases: Words
    then: Words = ()  # how it is said as the second step of two; empty: it never is one
    constants: Sequence[Constant] = (None,)
    operator: bool = False  # its code needs brackets when another operation works on it
    others: Words = ()  # the same in other words of Python


Family = Mapping[str, Atom]


def _step(
    code: str, apply: Apply, words: str, constants: Sequence[Constant] = (None,), operator: bool = False, *others: str
) -> Atom:
    """An operation whose words are the same for a value and for the step before it."""
    return Atom(code, apply, (f"{{v}} {words}",), (words,), constants, operator, others)


def _infix(symbol: str, apply: Apply, phrases: Words, then: Words, constants: range, *others: str) -> Atom:
    return Atom(f"{{v}} {symbol} {{k}}", apply, phrases, then, constants, operator=True, others=others)


LETTERS = tuple("abcdeimnorst")

INTEGER: Family = {
    "add": _infix("+", add, ("{v} plus {k}", "the sum of {v} and {k}", "{v} increased by {k}"),
                  ("add {k}", "increase by {k}"), range(1, 13), "{k} + {v}"),
    "sub": _infix("-", sub, ("{v} minus {k}", "{v} decreased by {k}"),
                  ("subtract {k}", "decrease by {k}"), range(1, 13)),
    "mul": _infix("*", mul, ("{v} times {k}", "{v} multiplied by {k}", "the product of {v} and {k}"),
                  ("multiply by {k}",), range(2, 10), "{k} * {v}"),
    "div": _infix("//", lambda v, k: v // k, ("{v} divided by {k} rounded down", "the integer quotient of {v} and {k}"),
                  ("divide by {k} rounding down",), range(2, 10)),
    "mod": _infix("%", mod, ("the remainder of {v} divided by {k}", "{v} modulo {k}"),
                  ("take the remainder by {k}",), range(2, 11)),
    "sq": Atom("{v} * {v}", lambda v, _: v * v, ("the square of {v}", "{v} squared"), ("square it",), operator=True,
               others=("{v} ** 2", "pow({v}, 2)")),
    "neg": Atom("-{v}", lambda v, _: -v, ("the negative of {v}", "{v} with opposite sign"), ("flip the sign",),
                operator=True, others=("0 - {v}", "{v} * -1")),
    "abs": Atom("abs({v})", lambda v, _: abs(v), ("the absolute value of {v}", "the magnitude of {v}"),
                ("take the absolute value",)),
}  # fmt: skip

PREDICATE: Family = {
    "even": Atom("{v} % 2 == 0", lambda v, _: v % 2 == 0, ("even",), others=("not {v} % 2", "{v} % 2 != 1")),
    "odd": Atom("{v} % 2 == 1", lambda v, _: v % 2 == 1, ("odd",), others=("{v} % 2 != 0", "not {v} % 2 == 0")),
    "gt": Atom("{v} > {k}", lambda v, k: v > k, ("greater than {k}", "above {k}"), constants=range(1, 8),
               others=("{k} < {v}", "not {v} <= {k}")),
    "lt": Atom("{v} < {k}", lambda v, k: v < k, ("less than {k}", "below {k}"), constants=range(1, 8),
               others=("{k} > {v}", "not {v} >= {k}")),
    "divby": Atom("{v} % {k} == 0", lambda v, k: v % k == 0, ("divisible by {k}", "a multiple of {k}"),
                  constants=range(3, 6), others=("not {v} % {k}", "not {v} % {k} != 0")),
    "pos": Atom("{v} > 0", lambda v, _: v > 0, ("positive",), others=("0 < {v}", "{v} >= 1")),
    "neg": Atom("{v} < 0", lambda v, _: v < 0, ("negative",), others=("0 > {v}", "not {v} >= 0")),
}  # fmt: skip

STRING: Family = {
    "upper": _step("{v}.upper()", lambda v, _: v.upper(), "in upper case"),
    "lower": _step("{v}.lower()", lambda v, _: v.lower(), "in lower case"),
    "title": _step("{v}.title()", lambda v, _: v.title(), "in title case"),
    "rev": Atom("{v}[::-1]", lambda v, _: v[::-1], ("{v} reversed", "{v} backwards"), ("reversed",),
                others=("''.join(reversed({v}))",)),
    "first": Atom("{v}[0]", lambda v, _: v[0], ("the first character of {v}",)),
    "last": Atom("{v}[-1]", lambda v, _: v[-1], ("the last character of {v}",)),
    "firstk": Atom("{v}[:{k}]", lambda v, k: v[:k], ("the first {k} characters of {v}",),
                   ("cut to its first {k} characters",), range(2, 6), others=("{v}[0:{k}]",)),
    "lastk": Atom("{v}[-{k}:]", lambda v, k: v[-k:], ("the last {k} characters of {v}",),
                  ("cut to its last {k} characters",), range(2, 6)),
    "dropk": Atom("{v}[{k}:]", lambda v, k: v[k:], ("{v} without its first {k} characters",), constants=range(2, 6)),
    "repeat": _step("{v} * {k}", lambda v, k: v * k, "repeated {k} times", range(2, 6), True, "{k} * {v}"),
    "len": Atom("len({v})", lambda v, _: len(v), ("the length of {v}", "the number of characters in {v}")),
    "count": Atom("{v}.count('{k}')", lambda v, k: v.count(k), ("how many times '{k}' occurs in {v}",),
                  constants=LETTERS),
    "suffix": _step("{v} + '{k}'", add, "with '{k}' added at the end", LETTERS, operator=True),
    "prefix": _step("'{k}' + {v}", lambda v, k: k + v, "with '{k}' added at the front", LETTERS, operator=True),
    "replace": _step("{v}.replace('{k}', '')", lambda v, k: v.replace(k, ""), "with every '{k}' removed", LETTERS),
}  # fmt: skip

# `{v}` is a generator expression without brackets
REDUCER: Family = {
    "sum": Atom("sum({v})", lambda v, _: sum(v), ("the sum of",), others=("sum([{v}])",)),
    "max": Atom("max({v})", lambda v, _: max(v), ("the largest of", "the maximum of"), others=("max([{v}])",)),
    "min": Atom("min({v})", lambda v, _: min(v), ("the smallest of", "the minimum of"), others=("min([{v}])",)),
    "len": Atom("len([{v}])", lambda v, _: len(v), ("the number of",)),
}

# `{v}` is a generator expression without brackets
ORDER: Family = {
    "asc": Atom("sorted({v})", lambda v, _: sorted(v), ("sorted in ascending order", "from smallest to largest"),
                others=("sorted([{v}])",)),
    "desc": Atom("sorted([{v}], reverse=True)", lambda v, _: sorted(v, reverse=True),
                 ("sorted in descending order", "from largest to smallest"), others=("sorted({v})[::-1]",)),
    "rev": Atom("[{v}][::-1]", lambda v, _: v[::-1], ("in reverse order",), others=("list(reversed([{v}]))",)),
    "firstk": Atom("[{v}][:{k}]", lambda v, k: v[:k], ("keeping only the first {k}",), constants=(2, 3),
                   others=("[{v}][0:{k}]",)),
    "lastk": Atom("[{v}][-{k}:]", lambda v, k: v[-k:], ("keeping only the last {k}",), constants=(2, 3)),
}  # fmt: skip

LIST: Family = {
    "sum": Atom("sum({v})", lambda v, _: sum(v), ("the sum of {v}", "the total of {v}")),
    "max": Atom("max({v})", lambda v, _: max(v), ("the largest number in {v}", "the maximum of {v}")),
    "min": Atom("min({v})", lambda v, _: min(v), ("the smallest number in {v}", "the minimum of {v}")),
    "len": Atom("len({v})", lambda v, _: len(v), ("the number of elements in {v}",)),
    "first": Atom("{v}[0]", lambda v, _: v[0], ("the first element of {v}",)),
    "last": Atom("{v}[-1]", lambda v, _: v[-1], ("the last element of {v}",)),
    "range": Atom("max({v}) - min({v})", lambda v, _: max(v) - min(v),
                  ("the difference between the largest and the smallest number in {v}",)),
    "asc": Atom("sorted({v})", lambda v, _: sorted(v), ("{v} sorted in ascending order",)),
    "desc": Atom("sorted({v}, reverse=True)", lambda v, _: sorted(v, reverse=True),
                 ("{v} sorted in descending order",), others=("sorted({v})[::-1]",)),
    "rev": Atom("{v}[::-1]", lambda v, _: v[::-1], ("{v} in reverse order",), others=("list(reversed({v}))",)),
    "firstk": Atom("{v}[:{k}]", lambda v, k: v[:k], ("the first {k} elements of {v}",), constants=(2, 3),
                   others=("{v}[0:{k}]",)),
    "lastk": Atom("{v}[-{k}:]", lambda v, k: v[-k:], ("the last {k} elements of {v}",), constants=(2, 3)),
    "dropk": Atom("{v}[{k}:]", lambda v, k: v[k:], ("{v} without its first {k} elements",), constants=(2, 3)),
}  # fmt: skip

# applied to the pair (a, b)
PAIR: Family = {
    "add": Atom("a + b", lambda v, _: v[0] + v[1], ("the sum of a and b", "a plus b"), others=("b + a",)),
    "sub": Atom("a - b", lambda v, _: v[0] - v[1], ("a minus b",)),
    "mul": Atom("a * b", lambda v, _: v[0] * v[1], ("the product of a and b", "a times b"), others=("b * a",)),
    "max": Atom("max(a, b)", lambda v, _: max(v), ("the larger of a and b",), others=("a if a > b else b",)),
    "min": Atom("min(a, b)", lambda v, _: min(v), ("the smaller of a and b",), others=("a if a < b else b",)),
    "diff": Atom("abs(a - b)", lambda v, _: abs(v[0] - v[1]), ("the absolute difference of a and b",),
                 others=("max(a, b) - min(a, b)",)),
    "avg": Atom("(a + b) // 2", lambda v, _: (v[0] + v[1]) // 2, ("the average of a and b rounded down",)),
}  # fmt: skip


LEVELS = (1, 2, 3, 4, 5)

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an operation within a kind."""

    family: Family
    names: tuple[str, ...]  # the operations drawn for it
    swaps: tuple[str, ...]  # the operations a mutation may put there
    then: bool = False  # said as a second step (`Atom.then`)

    def phrases(self, name: str) -> tuple[str, ...]:
        atom = self.family[name]
        return atom.then if self.then else atom.phrases


def _slot(family: Family, names: Sequence[str] = (), swaps: Sequence[str] = (), *, then: bool = False) -> Slot:
    return Slot(family, tuple(names or family), tuple(swaps or family), then)


_INT, _PRED, _STR, _LIST, _PAIR, _ORD = (_slot(f) for f in (INTEGER, PREDICATE, STRING, LIST, PAIR, ORDER))
_BRANCH = _slot(INTEGER, ("add", "sub", "mul", "div", "mod", "sq"))
_SECOND_INT = _slot(INTEGER, ("add", "sub", "mul", "div", "mod", "neg", "abs"), then=True)
_FIRST_INT = _slot(INTEGER, _BRANCH.names, then=True)
_FIRST_STR = _slot(STRING, ("rev", "firstk", "lastk", "replace", "suffix", "prefix", "repeat"))
_STR_STEPS = tuple(name for name, atom in STRING.items() if atom.then)
_SECOND_STR = _slot(STRING, _STR_STEPS, _STR_STEPS, then=True)
_RED = _slot(REDUCER)
# reducers that depend on the values: counting mapped values would ignore the map
_FOLD = _slot(REDUCER, ("sum", "max", "min"), ("sum", "max", "min"))


@dataclass(frozen=True, slots=True)
class ProgramKind:
    """One shape of program. Templates name the slots by position."""

    level: int
    slots: tuple[Slot, ...]
    phrases: Words
    code: str
    # the slots' functions -> the program, as a function of one value (of the pair where there are two arguments)
    build: Callable[[Sequence[Function]], Function]
    arguments: str = "nums"
    variable: str = "x"  # what the slots' operations work on
    outer: int | None = None  # slot whose operation works on the whole of `code`
    differ: Literal["", "name", "name or constant"] = ""  # in what the last two operations must differ
    drops: tuple[tuple[str, tuple[int, ...]], ...] = ()  # simpler programs: (kind, the slots it keeps)
    weight: int = 1  # how often it is drawn within its level
    others: Words = ()  # `code` in other words of Python


_SINGLE = itemgetter(0)


def _two(level: int, first: Slot, second: Slot, phrase: str, argument: str, single: str) -> ProgramKind:
    """`second` works on what `first` makes of the argument; `single`: the kind of each alone."""
    return ProgramKind(
        level, (first, second), (phrase,), "{0}", lambda f: lambda value: f[1](f[0](value)), argument, argument,
        outer=1, differ="name", drops=((single, (0,)), (single, (1,))),
    )  # fmt: skip


_IF, _UNLESS = "{1} if {0} else {2}", "{2} if not ({0}) else {1}"
_MAP = ProgramKind(
    3, (_INT,), ("returns a list of {0} for each x in nums", "replaces each x in nums by {0}"),
    "[{0} for x in nums]", lambda f: lambda nums: [f[0](x) for x in nums],
    others=("list(map(lambda x: {0}, nums))",),
)  # fmt: skip
_FILTER = ProgramKind(
    3, (_PRED,), ("returns the numbers in nums that are {0}", "keeps each x in nums that is {0}"),
    "[x for x in nums if {0}]", lambda f: lambda nums: [x for x in nums if f[0](x)],
    others=("list(filter(lambda x: {0}, nums))",),
)  # fmt: skip
_FILTER_MAP = ProgramKind(
    4, (_PRED, _INT), ("returns a list of {1} for each x in nums that is {0}",),
    "[{1} for x in nums if {0}]", lambda f: lambda nums: [f[1](x) for x in nums if f[0](x)],
    drops=(("map", (1,)), ("filter", (0,))), others=("list(map(lambda x: {1}, filter(lambda x: {0}, nums)))",),
)  # fmt: skip
_IF_MAP = ProgramKind(
    5, (_PRED, _BRANCH, _BRANCH), ("returns a list of {1} if x is {0} and {2} otherwise for each x in nums",),
    f"[{_IF} for x in nums]", lambda f: lambda nums: [f[1](x) if f[0](x) else f[2](x) for x in nums],
    differ="name or constant", drops=(("filtmap", (0, 1)), ("map", (1,))), others=(f"[{_UNLESS} for x in nums]",),
)  # fmt: skip


def _over(level: int, outer: Slot, inner: ProgramKind, phrase: str, *drops: tuple[str, tuple[int, ...]]) -> ProgramKind:
    """`outer` works on the list that `inner` makes; its slot comes first."""

    def build(f: Sequence[Function]) -> Function:
        first = inner.build(f[1:])
        return lambda nums: f[0](first(nums))

    code = inner.code[1:-1].format("{1}", "{2}", "{3}")
    return ProgramKind(level, (outer, *inner.slots), (phrase,), code, build, outer=0, differ=inner.differ, drops=drops)


KINDS: Mapping[str, ProgramKind] = {
    "int1": ProgramKind(1, (_INT,), ("returns {0}",), "{0}", _SINGLE, weight=2, arguments="x"),
    "str1": ProgramKind(1, (_STR,), ("returns {0}",), "{0}", _SINGLE, arguments="s", variable="s"),
    "list1": ProgramKind(2, (_LIST,), ("returns {0}",), "{0}", _SINGLE, variable="nums"),
    "two": ProgramKind(2, (_PAIR,), ("returns {0}",), "{0}", _SINGLE, arguments="a, b", variable=""),
    "pred": ProgramKind(2, (_PRED,), ("returns True if x is {0}",), "{0}", _SINGLE, arguments="x"),
    "int2": _two(2, _FIRST_INT, _SECOND_INT, "takes x and will {0} then {1}", "x", "int1"),
    "map": _MAP,
    "filter": _FILTER,
    "str2": _two(3, _FIRST_STR, _SECOND_STR, "returns {0}, {1}", "s", "str1"),
    "ifint": ProgramKind(
        3, (_PRED, _BRANCH, _BRANCH), ("returns {1} if x is {0} and {2} otherwise",),
        _IF, lambda f: lambda x: f[1](x) if f[0](x) else f[2](x),
        arguments="x", differ="name or constant", drops=(("int1", (1,)), ("int1", (2,))), others=(_UNLESS,),
    ),
    "filtmap": _FILTER_MAP,
    "redfilt": _over(4, _RED, _FILTER, "returns {0} the numbers in nums that are {1}", ("filter", (1,))),
    "redmap": _over(4, _FOLD, _MAP, "returns {0} {1} for each x in nums", ("map", (1,))),
    "ordmap": _over(4, _ORD, _MAP, "returns a list of {1} for each x in nums, {0}", ("map", (1,))),
    "ordfilt": _over(4, _ORD, _FILTER, "returns the numbers in nums that are {1}, {0}", ("filter", (1,))),
    "redfiltmap": _over(
        5, _FOLD, _FILTER_MAP, "returns {0} {2} for each x in nums that is {1}",
        ("redmap", (0, 2)), ("redfilt", (0, 1)), ("filtmap", (1, 2)),
    ),
    "ordfiltmap": _over(
        5, _ORD, _FILTER_MAP, "returns a list of {2} for each x in nums that is {1}, {0}",
        ("filtmap", (1, 2)), ("ordfilt", (0, 1)), ("ordmap", (0, 2)),
    ),
    "ifmap": _IF_MAP,
    "redifmap": _over(
        5, _FOLD, _IF_MAP, "returns {0} {2} if x is {1} and {3} otherwise for each x in nums",
        ("redfiltmap", (0, 1, 2)), ("redmap", (0, 2)), ("ifmap", (1, 2, 3)),
    ),
}  # fmt: skip
