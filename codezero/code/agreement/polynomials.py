"""Polynomials with whole or rational coefficients over unknowns that are known by number."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product

Atom = int
"""An unknown, by its place in a path's list of them."""
Monomial = tuple[Atom, ...]
"""A product of unknowns, in order; the empty one is 1."""
Terms = Mapping[Monomial, int | Fraction]
"""A polynomial; no coefficient is 0."""
Form = tuple[tuple[Monomial, int], ...]
"""A polynomial without its constant, in order, its coefficients without a common factor."""

MOST_TERMS, MOST_BITS, MOST_FACTORS = 24, 128, 8
ONE: Monomial = ()


class NotUnderstood(ValueError):
    """The program says something that is not looked into."""


def of_constant(value: int | Fraction) -> Terms:
    return scaled({ONE: 1}, value)


def constant_of(terms: Terms) -> int | Fraction | None:
    """None: it is no constant."""
    return terms.get(ONE, 0) if terms.keys() <= {ONE} else None


def added(one: Terms, other: Terms, factor: int | Fraction = 1) -> Terms:
    """one + factor * other. Raises NotUnderstood for what is too large."""
    result = dict(one)
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
    result: Terms = {ONE: 1}
    for factor in factors:
        after: Terms = {}
        for (one, left), (other, right) in product(result.items(), factor.items()):
            after = added(after, {tuple(sorted((*one, *other))): right}, left)
        result = after
    return result


def primitive(terms: Terms) -> tuple[Form, Fraction, int | Fraction]:
    """(form, factor, constant), so that the polynomial is factor * form + constant with factor > 0."""
    divisor = denominator(terms)
    whole = [(key, int(value * divisor)) for key, value in terms.items() if key != ONE]
    common = math.gcd(*(value for _, value in whole))
    return tuple(sorted((key, value // common) for key, value in whole)), Fraction(common, divisor), terms.get(ONE, 0)


def negative(form: Form) -> Form:
    return tuple((key, -value) for key, value in form)


def by_unknown(base: Form) -> tuple[Form, Callable[[int], int]]:
    """What the residues of `base` follow from, and how: its one unknown where it has no other, else itself."""
    unknowns = {atom for monomial, _ in base for atom in monomial}
    if len(unknowns) != 1:
        return base, lambda value: value
    key: Form = ((tuple(unknowns), 1),)
    return key, lambda value: sum(factor * value ** len(monomial) for monomial, factor in base)
