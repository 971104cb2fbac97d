"""The operations synthetic problems are made of: how each is said, written and computed.

Pure tables. What may be composed with what is `grammar.py`'s business.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, mod, mul, sub
from typing import Any, NamedTuple

Constant = int | str | None
"""What parametrises an operation; None for those that take nothing."""
Apply = Callable[[Any, Any], Any]
"""(value, constant) -> result."""


class Op(NamedTuple):
    """One use of an atom: its name within a family and its constant."""

    name: str
    constant: Constant = None


@dataclass(frozen=True, slots=True)
class Atom:
    """One operation. In the templates `{v}` is the value it works on and `{k}` its constant."""

    code: str
    apply: Apply
    """Must agree with `code`."""
    phrases: tuple[str, ...]
    then: tuple[str, ...] = ()
    """How it is said as the second step of two; empty: it never is one."""
    constants: Sequence[Constant] = (None,)
    operator: bool = False
    """Its code needs brackets when another operation works on it."""
    others: tuple[str, ...] = ()
    """The same in other words of Python."""


Family = Mapping[str, Atom]


def _step(
    code: str, apply: Apply, words: str, constants: Sequence[Constant] = (None,), operator: bool = False, *others: str
) -> Atom:
    """An operation whose words are the same for a value and for the step before it."""
    return Atom(code, apply, (f"{{v}} {words}",), (words,), constants, operator, others)


def _infix(
    symbol: str, apply: Apply, phrases: tuple[str, ...], then: tuple[str, ...], constants: range, *others: str
) -> Atom:
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

REDUCER: Family = {
    "sum": Atom("sum({v})", lambda v, _: sum(v), ("the sum of",), others=("sum([{v}])",)),
    "max": Atom("max({v})", lambda v, _: max(v), ("the largest of", "the maximum of"), others=("max([{v}])",)),
    "min": Atom("min({v})", lambda v, _: min(v), ("the smallest of", "the minimum of"), others=("min([{v}])",)),
    "len": Atom("len([{v}])", lambda v, _: len(v), ("the number of",)),
}
"""`{v}` is a generator expression without brackets."""

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
"""`{v}` is a generator expression without brackets."""

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

PAIR: Family = {
    "add": Atom("a + b", lambda v, _: v[0] + v[1], ("the sum of a and b", "a plus b"), others=("b + a",)),
    "sub": Atom("a - b", lambda v, _: v[0] - v[1], ("a minus b",)),
    "mul": Atom("a * b", lambda v, _: v[0] * v[1], ("the product of a and b", "a times b"), others=("b * a",)),
    "max": Atom("max(a, b)", lambda v, _: max(v), ("the larger of a and b",), others=("a if a > b else b",)),
    "min": Atom("min(a, b)", lambda v, _: min(v), ("the smaller of a and b",), others=("a if a < b else b",)),
    "diff": Atom(
        "abs(a - b)",
        lambda v, _: abs(v[0] - v[1]),
        ("the absolute difference of a and b",),
        others=("max(a, b) - min(a, b)",),
    ),
    "avg": Atom("(a + b) // 2", lambda v, _: (v[0] + v[1]) // 2, ("the average of a and b rounded down",)),
}
"""Applied to the pair (a, b)."""
