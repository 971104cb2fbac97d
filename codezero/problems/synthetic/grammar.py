"""How operations compose into programs: the kinds of problem, their five levels, their code and their meaning.

One table. A kind's phrase, code and meaning stand side by side, so that all three stay true to each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from codezero.problems.synthetic.vocabulary import INTEGER, LIST, ORDER, PAIR, PREDICATE, REDUCER, STRING, Family

LEVELS = (1, 2, 3, 4, 5)

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an operation within a kind."""

    family: Family
    names: tuple[str, ...]
    """The operations drawn for it."""
    swaps: tuple[str, ...]
    """The operations a mutation may put there."""
    then: bool = False
    """Said as a second step (`Atom.then`)."""

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
_FOLD = _slot(REDUCER, ("sum", "max", "min"), ("sum", "max", "min"))
"""Reducers that depend on the values: counting mapped values would ignore the map."""


@dataclass(frozen=True, slots=True)
class ProgramKind:
    """One shape of program. Templates name the slots by position."""

    level: int
    slots: tuple[Slot, ...]
    phrases: tuple[str, ...]
    code: str
    build: Callable[[Sequence[Function]], Function]
    """The slots' functions -> the program, as a function of one value (of the pair where there are two arguments)."""
    arguments: str = "nums"
    variable: str = "x"
    """What the slots' operations work on."""
    outer: int | None = None
    """Slot whose operation works on the whole of `code`."""
    differ: Literal["", "name", "name or constant"] = ""
    """In what the last two operations must differ."""
    drops: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Simpler programs: (kind, the slots it keeps)."""
    weight: int = 1
    """How often it is drawn within its level."""
    others: tuple[str, ...] = ()
    """`code` in other words of Python."""


_SINGLE = itemgetter(0)


def _two(level: int, first: Slot, second: Slot, phrase: str, argument: str, single: str) -> ProgramKind:
    """`second` works on what `first` makes of the argument; `single`: the kind of each alone."""
    drops = ((single, (0,)), (single, (1,)))

    def chain(f: Sequence[Function]) -> Function:
        return lambda value: f[1](f[0](value))

    return ProgramKind(
        level, (first, second), (phrase,), "{0}", chain, argument, argument, outer=1, differ="name", drops=drops
    )


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
