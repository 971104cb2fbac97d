"""One way through a program whose inputs are unknown: what was decided on it about whole numbers, and what follows.

A question (is this at least 0, is it 0) that what is known does not answer is answered both ways, one path each. What
is known: bounds of sums and differences of two, closed under addition (octagons: Miné 2006, "The octagon abstract
domain"), bounds of other linear forms as they are given, and residues. It is not complete: a path may be one that no
input takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

Atom = int  # an unknown, by its place in a path's list of them
Monomial = tuple[Atom, ...]  # a product of unknowns, in order; the empty one is 1
Terms = Mapping[Monomial, int | Fraction]  # a polynomial; no coefficient is 0
Form = tuple[tuple[Monomial, int], ...]  # a polynomial without its constant, without a common factor, in order

MOST_TERMS, MOST_BITS, MOST_FACTORS = 24, 128, 8
UNIT: Monomial = ()


class NotUnderstood(ValueError):
    """The program says something that is not looked into."""


def of_constant(value: int | Fraction) -> Terms:
    return scaled({UNIT: 1}, value)


def constant_of(terms: Terms) -> int | Fraction | None:
    """None: it is no constant."""
    return terms.get(UNIT, 0) if terms.keys() <= {UNIT} else None


def added(left: Terms, other: Terms, factor: int | Fraction = 1) -> Terms:
    """one + factor * other. Raises NotUnderstood for what is too large."""
    result = dict(left)
    for key, value in other.items():
        total = result.get(key, 0) + factor * value
        result[key] = total.numerator if total.denominator == 1 else total
        if not total:
            del result[key]
        elif len(key) > MOST_FACTORS or total.numerator.bit_length() > MOST_BITS:
            raise NotUnderstood("a large polynomial")
    if len(result) > MOST_TERMS:
        raise NotUnderstood("a large polynomial")
    return result


def scaled(terms: Terms, factor: int | Fraction) -> Terms:
    return added({}, terms, factor)


def denominator(terms: Terms) -> int:
    """The smallest number whose product with `terms` has whole coefficients."""
    return math.lcm(*(value.denominator for value in terms.values()))


def multiplied(factors: Sequence[Terms]) -> Terms:
    result: Terms = {UNIT: 1}
    for factor in factors:
        after: Terms = {}
        for (first, left), (second, right) in product(result.items(), factor.items()):
            after = added(after, {tuple(sorted((*first, *second))): right}, left)
        result = after
    return result


def primitive(terms: Terms) -> tuple[Form, Fraction, int | Fraction]:
    """(form, factor, constant), so that the polynomial is factor * form + constant with factor > 0."""
    divisor = denominator(terms)
    whole = [(key, int(value * divisor)) for key, value in terms.items() if key != UNIT]
    common = math.gcd(*(value for _, value in whole))
    return tuple(sorted((key, value // common) for key, value in whole)), Fraction(common, divisor), terms.get(UNIT, 0)


def negative(form: Form) -> Form:
    return tuple((key, -value) for key, value in form)


MOST_MODULUS, MOST_DECISIONS = 5040, 40
Node = tuple[Monomial, int]  # a monomial with its sign: a sum is a difference to the negative one
ZERO: Node = (UNIT, 1)


class BudgetSpent(NotUnderstood):
    """Nothing is unclear, and there is too much of it."""


class Infeasible(Exception):
    """No input takes this path."""


class Remainder(NamedTuple):
    """(base + constant) mod modulus, as an unknown."""

    base: Form
    constant: int
    modulus: int


class FormBounds:
    def __init__(self) -> None:
        self._least: dict[Node, dict[Node, float]] = {}  # of a difference of two, the lower bound
        self._forms: dict[Form, float] = {}
        self.different: set[tuple[Form, float]] = set()  # forms, and what they are not

    def add(self, form: Form, least: float) -> None:
        if (pair := _as_difference(form)) is not None:
            self._bound(*pair, least)
        else:
            self._forms[form] = max(self._forms.get(form, -math.inf), least)

    def _bound(self, left: Node, other: Node, least: float) -> None:
        """one - other >= least, and the same of their negatives; with all that follows for two."""
        if self._difference(left, other) >= least:
            return
        for first, last in ((left, other), (_opposite(other), _opposite(left))):
            above = self._least.get(_opposite(first), {}).items()
            before = [(first, 0.0), *((_opposite(node), gap) for node, gap in above)]
            after = [(last, 0.0), *self._least.get(last, {}).items()]
            for (start, gap), (end, rest) in product(before, after):
                if (total := gap + least + rest) > self._difference(start, end):
                    self._least.setdefault(start, {})[end] = total
                    self._least.setdefault(_opposite(end), {})[_opposite(start)] = total
                    if start == _opposite(end):
                        self._bound(start, ZERO, math.ceil(total / 2))

    def _difference(self, left: Node, other: Node) -> float:
        return math.inf if left == other else self._least.get(left, {}).get(other, -math.inf)

    def low(self, form: Form) -> float:
        parts: float = 0
        for monomial, factor in form:
            node = monomial, 1 if factor > 0 else -1
            is_square = factor > 0 and len(monomial) > 1 and all(monomial.count(atom) % 2 == 0 for atom in monomial)
            least = max(self._difference(node, ZERO), 0 if is_square else -math.inf)
            parts += abs(factor) * self._beyond((node,), least)
        pair = _as_difference(form)
        return self._beyond(form, max(parts, self._difference(*pair) if pair else self._forms.get(form, -math.inf)))

    def high(self, form: Form) -> float:
        return -self.low(negative(form))

    def _beyond(self, form: Form, low: float) -> float:
        while (form, low) in self.different:
            low += 1
        return low


def _opposite(node: Node) -> Node:
    return node if node == ZERO else (node[0], -node[1])


def _as_difference(form: Form) -> tuple[Node, Node] | None:
    match form:
        case [(_, 1 | -1) as left]:
            return left, ZERO
        case [(_, 1 | -1) as left, (_, 1 | -1) as other]:
            return left, _opposite(other)
        case _:
            return None


class Path:
    """`decided`: the first answers, in order; all later questions are answered with yes where that can be."""

    def __init__(self, decided: Sequence[bool] = ()) -> None:
        self.decided, self.open = list(decided), list[int]()  # open: answers that could have been no
        self._answered = 0
        self._atoms: list[object] = []  # what each unknown is: a name or a Remainder
        self._places: dict[object, Atom] = {}
        self._bounds = FormBounds()
        self._residues: dict[Form, tuple[int, frozenset[int]]] = {}

    def atom(self, key: object) -> Atom:
        if key not in self._places:
            self._places[key] = len(self._atoms)
            self._atoms.append(key)
        return self._places[key]

    def modulo(self, terms: Terms, modulus: int) -> Terms:
        """`terms`, whole for every input, modulo a positive number, as a polynomial of which one unknown may be new."""
        divisor = denominator(terms)
        modulus *= divisor
        congruent: Terms = {}
        for monomial, value in scaled(terms, divisor).items():
            inside = multiplied([self._inside(atom, modulus) for atom in monomial])
            congruent = added(congruent, inside, value)
        whole = {key: int(value) % modulus for key, value in congruent.items() if value % modulus}
        constant = whole.pop(UNIT, 0)
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

    def _inside(self, atom: Atom, modulus: int) -> Terms:
        """Terms that are the same modulo `modulus`: a remainder gives what it is a remainder of."""
        inner = self._atoms[atom]
        if not isinstance(inner, Remainder) or inner.modulus % modulus:
            return {(atom,): 1}
        return added(dict(inner.base), of_constant(inner.constant))

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
            if any(self._bounds.low(form) > self._bounds.high(form) for form, _ in self._bounds.different):
                raise Infeasible  # something is the only number that it is not
        else:
            self._bounds.different.update(both)
        return answer

    def _take(self) -> bool:
        """The next answer."""
        if self._answered == len(self.decided):
            if self._answered == MOST_DECISIONS:
                raise BudgetSpent("too many decisions")
            self.open.append(self._answered)
            self.decided.append(True)
        self._answered += 1
        return self.decided[self._answered - 1]

    def _residues_of(self, base: Form, modulus: int) -> tuple[Form, Callable[[int], int], frozenset[int]]:
        """The form that `base` follows from, how, and what that one may be modulo a multiple of `modulus`."""
        unknowns = {atom for monomial, _ in base for atom in monomial}
        key: Form = ((tuple(unknowns), 1),) if len(unknowns) == 1 else base
        period, values = self._residues.get(key, (1, frozenset([0])))
        common = math.lcm(period, modulus)
        if common > MOST_MODULUS:
            raise NotUnderstood("a large modulus")
        if common != period:
            values = frozenset(value + step for value in values for step in range(0, common, period))
            self._residues[key] = common, values
        if key is base:
            return base, lambda value: value, values
        return key, lambda value: sum(factor * value ** len(monomial) for monomial, factor in base), values

    def _known(self, terms: Terms, holds: Callable[[int | Fraction], bool]) -> bool | None:
        """The answer where it is a constant's, or where one remainder decides it; None where it is another question."""
        if (constant := constant_of(terms)) is not None:
            return holds(constant)
        rest = [monomial for monomial in terms if monomial != UNIT]
        inner = self._atoms[rest[0][0]]
        if len(rest) != 1 or len(rest[0]) != 1 or not isinstance(inner, Remainder):
            return None
        key, value_of, values = self._residues_of(inner.base, inner.modulus)
        factor, offset = terms[rest[0]], terms.get(UNIT, 0)
        fits = frozenset(
            value for value in values if holds(factor * ((value_of(value) + inner.constant) % inner.modulus) + offset)
        )
        if not fits or fits == values:
            return bool(fits)
        answer = self._take()
        self._residues[key] = self._residues[key][0], fits if answer else values - fits
        return answer
