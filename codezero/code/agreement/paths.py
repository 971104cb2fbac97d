"""One way through a program whose inputs are unknown: what was decided on it about whole numbers, and what follows.

A question (is this at least 0, is it 0) that what is known does not answer is answered both ways, one path each. What
is known: bounds of sums and differences of two, closed under addition (octagons: Miné 2006, "The octagon abstract
domain"), bounds of other linear forms as they are given, and residues. It is not complete: a path may be one that no
input takes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from codezero.code.agreement.polynomials import (
    ONE,
    Atom,
    Form,
    Monomial,
    NotUnderstood,
    Terms,
    added,
    by_unknown,
    constant_of,
    denominator,
    multiplied,
    negative,
    of_constant,
    primitive,
    scaled,
)

MOST_MODULUS, MOST_DECISIONS = 5040, 40
Node = tuple[Monomial, int]
"""A monomial with its sign: a sum is a difference to the negative one."""
ZERO: Node = (ONE, 1)
INFINITE = math.inf


class BudgetSpent(NotUnderstood):
    """Nothing is unclear, and there is too much of it."""


class Infeasible(Exception):
    """No input takes this path."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """(base + constant) mod modulus, as an unknown."""

    base: Form
    constant: int
    modulus: int


class FormBounds:
    def __init__(self) -> None:
        self._least: dict[Node, dict[Node, float]] = {}
        """Of a difference of two, the lower bound."""
        self._forms: dict[Form, float] = {}
        self.different: set[tuple[Form, float]] = set()
        """Forms, and what they are not."""

    def add(self, form: Form, least: float) -> None:
        if (pair := _as_difference(form)) is not None:
            self._bound(*pair, least)
        else:
            self._forms[form] = max(self._forms.get(form, -INFINITE), least)

    def _bound(self, one: Node, other: Node, least: float) -> None:
        """one - other >= least, and the same of their negatives; with all that follows for two."""
        if self._difference(one, other) >= least:
            return
        for first, last in ((one, other), (_opposite(other), _opposite(one))):
            above = self._least.get(_opposite(first), {}).items()
            before = [(first, 0.0), *((_opposite(node), gap) for node, gap in above)]
            after = [(last, 0.0), *self._least.get(last, {}).items()]
            for (start, gap), (end, rest) in product(before, after):
                self._set(start, end, gap + least + rest)

    def _set(self, one: Node, other: Node, least: float) -> None:
        if least > self._difference(one, other):
            self._least.setdefault(one, {})[other] = least
            self._least.setdefault(_opposite(other), {})[_opposite(one)] = least
            if one == _opposite(other):
                self._bound(one, ZERO, math.ceil(least / 2))

    def _difference(self, one: Node, other: Node) -> float:
        return INFINITE if one == other else self._least.get(one, {}).get(other, -INFINITE)

    def low(self, form: Form) -> float:
        parts = sum(abs(factor) * self._low_of(monomial, 1 if factor > 0 else -1) for monomial, factor in form)
        pair = _as_difference(form)
        return self._beyond(form, max(parts, self._difference(*pair) if pair else self._forms.get(form, -INFINITE)))

    def high(self, form: Form) -> float:
        return -self.low(negative(form))

    def are_empty(self) -> bool:
        """Is something the only number that it is not?"""
        return any(self.low(form) > self.high(form) for form, _ in self.different)

    def _low_of(self, monomial: Monomial, sign: int) -> float:
        is_square = sign > 0 and len(monomial) > 1 and all(monomial.count(atom) % 2 == 0 for atom in monomial)
        low = max(self._difference((monomial, sign), ZERO), 0 if is_square else -INFINITE)
        return self._beyond(((monomial, sign),), low)

    def _beyond(self, form: Form, low: float) -> float:
        while (form, low) in self.different:
            low += 1
        return low


def _opposite(node: Node) -> Node:
    return node if node == ZERO else (node[0], -node[1])


def _as_difference(form: Form) -> tuple[Node, Node] | None:
    """Of which two it is the difference."""
    match form:
        case [(_, 1 | -1) as one]:
            return one, ZERO
        case [(_, 1 | -1) as one, (_, 1 | -1) as other]:
            return one, _opposite(other)
        case _:
            return None


class Path:
    """`decided`: the first answers, in order; all later questions are answered with yes where that can be."""

    def __init__(self, decided: Sequence[bool] = ()) -> None:
        self.decided, self.open = list(decided), list[int]()
        """`open`: the places of answers that could have been no as well."""
        self._asked = 0
        self._atoms: list[object] = []
        """What each unknown is: a name or a Remainder."""
        self._places: dict[object, Atom] = {}
        self._bounds = FormBounds()
        self._residues: dict[Form, tuple[int, frozenset[int]]] = {}

    # ------------------------------------------------------------ unknowns

    def atom(self, key: object) -> Atom:
        if key not in self._places:
            self._places[key] = len(self._atoms)
            self._atoms.append(key)
        return self._places[key]

    def modulo(self, terms: Terms, modulus: int) -> Terms:
        """`terms`, whole for every input, modulo a positive number, as a polynomial of which one unknown may be new."""
        divisor = denominator(terms)
        modulus *= divisor
        whole = self._congruent(scaled(terms, divisor), modulus)
        constant = whole.pop(ONE, 0)
        if not whole:
            return of_constant(Fraction(constant, divisor))
        base = tuple(sorted(whole.items()))
        if constant == 0 and base[0][1] * 2 > modulus:
            mirrored = self.modulo({key: -value for key, value in whole.items()}, modulus)
            rest: Terms = {} if self.is_zero(mirrored) else added(of_constant(modulus), mirrored, -1)
            return scaled(rest, Fraction(1, divisor))
        _, value_of, residues = self._residues_of(base, modulus)
        values = {(value_of(each) + constant) % modulus for each in residues}
        if len(values) == 1:
            return of_constant(Fraction(values.pop(), divisor))
        return scaled({(self.atom(Remainder(base, constant, modulus)),): 1}, Fraction(1, divisor))

    def _congruent(self, terms: Terms, modulus: int) -> dict[Monomial, int]:
        """The same modulo `modulus`: remainders inside by what they are remainders of, coefficients reduced."""
        result: Terms = {}
        for monomial, value in terms.items():
            result = added(result, multiplied([self._inside(atom, modulus) for atom in monomial]), value)
        return {key: int(value) % modulus for key, value in result.items() if value % modulus}

    def _inside(self, atom: Atom, modulus: int) -> Terms:
        inner = self._atoms[atom]
        if not isinstance(inner, Remainder) or inner.modulus % modulus:
            return {(atom,): 1}
        return added(dict(inner.base), of_constant(inner.constant))

    # ------------------------------------------------------------ questions

    def at_least_zero(self, terms: Terms) -> bool:
        if (answer := self._known(terms, lambda value: value >= 0)) is not None:
            return answer
        form, factor, constant = primitive(terms)
        least = math.ceil(Fraction(-constant) / factor)
        if self._bounds.low(form) >= least or self._bounds.high(form) < least:
            return self._bounds.low(form) >= least
        answer = self._take()
        self._bounds.add(*((form, least) if answer else (negative(form), 1 - least)))
        return answer

    def is_zero(self, terms: Terms) -> bool:
        if (answer := self._known(terms, lambda value: value == 0)) is not None:
            return answer
        form, factor, constant = primitive(terms)
        value = Fraction(-constant) / factor
        low, high = self._bounds.low(form), self._bounds.high(form)
        if value.denominator != 1 or not low <= value <= high or (form, value) in self._bounds.different:
            return False
        if low == high:
            return True
        both = (form, int(value)), (negative(form), -int(value))
        if answer := self._take():
            for each in both:
                self._bounds.add(*each)
            if self._bounds.are_empty():
                raise Infeasible
        else:
            self._bounds.different.update(both)
        return answer

    def _take(self) -> bool:
        """The next answer."""
        if self._asked == len(self.decided):
            if self._asked == MOST_DECISIONS:
                raise BudgetSpent("too many decisions")
            self.open.append(self._asked)
            self.decided.append(True)
        self._asked += 1
        return self.decided[self._asked - 1]

    # ------------------------------------------------------------ residues

    def _residues_of(self, base: Form, modulus: int) -> tuple[Form, Callable[[int], int], frozenset[int]]:
        """The form that `base` follows from, how, and what that one may be modulo a multiple of `modulus`."""
        key, value_of = by_unknown(base)
        period, values = self._residues.get(key, (1, frozenset([0])))
        common = math.lcm(period, modulus)
        if common > MOST_MODULUS:
            raise NotUnderstood("a large modulus")
        if common != period:
            values = frozenset(value + step for value in values for step in range(0, common, period))
            self._residues[key] = common, values
        return key, value_of, values

    def _known(self, terms: Terms, holds: Callable[[int | Fraction], bool]) -> bool | None:
        """The answer where it is a constant's, or where one remainder decides it; None where it is another question."""
        if (constant := constant_of(terms)) is not None:
            return holds(constant)
        rest = [monomial for monomial in terms if monomial != ONE]
        inner = self._atoms[rest[0][0]]
        if len(rest) != 1 or len(rest[0]) != 1 or not isinstance(inner, Remainder):
            return None
        key, value_of, values = self._residues_of(inner.base, inner.modulus)
        factor, offset = terms[rest[0]], terms.get(ONE, 0)
        fits = frozenset(
            value for value in values if holds(factor * ((value_of(value) + inner.constant) % inner.modulus) + offset)
        )
        if not fits or fits == values:
            return bool(fits)
        answer = self._take()
        self._residues[key] = self._residues[key][0], fits if answer else values - fits
        return answer
