"""One way through a program whose inputs are unknown: what was decided on it about whole numbers, and what follows.

A question (is this at least 0, is it 0) that what is known does not answer is answered both ways, one path each. What
is known: bounds of sums and differences of two, closed under addition, bounds of other linear forms, residues, and
which numbers are equal. It is not complete: a path may be one that no input takes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from codezero.code.agreement.bounds import FormBounds
from codezero.code.agreement.polynomials import (
    ONE,
    Atom,
    Form,
    Infeasible,
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
    plain,
    primitive,
)

MOST_MODULUS, MOST_DECISIONS = 5040, 40


class BudgetSpent(NotUnderstood):
    """Nothing is unclear, and there is too much of it."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """(base + constant) mod modulus, as an unknown."""

    base: Form
    constant: int
    modulus: int

    @property
    def terms(self) -> Terms:
        return dict(self.base) | ({ONE: self.constant} if self.constant else {})

    @property
    def atoms(self) -> set[Atom]:
        return {atom for monomial, _ in self.base for atom in monomial}


class Path:
    """`decided`: the first answers, in order; all later questions are answered with yes where that can be."""

    def __init__(self, decided: Sequence[bool] = ()) -> None:
        self.decided, self.open = list(decided), list[int]()
        """`open`: the places of answers that could have been no as well."""
        self._asked = 0
        self.atoms: list[object] = []
        """What each unknown is: a name, a Remainder, or a function of another unknown."""
        self._places: dict[object, Atom] = {}
        self._bounds = FormBounds(self._modulus_of)
        self._residues: dict[Form, tuple[int, frozenset[int]]] = {}
        self._known: dict[Atom, Terms] = {}
        self._said: dict[object, bool] = {}

    # ------------------------------------------------------------ unknowns

    def atom(self, key: object) -> Atom:
        if key not in self._places:
            self._places[key] = len(self.atoms)
            self.atoms.append(key)
        return self._places[key]

    def modulo(self, terms: Terms, modulus: int) -> Terms:
        """`terms`, whole for every input, modulo a positive number, as a polynomial of which one unknown may be new."""
        divisor = denominator(terms)
        modulus *= divisor
        if modulus > MOST_MODULUS:
            raise NotUnderstood("a large modulus")
        whole = self._congruent({key: int(value * divisor) for key, value in terms.items()}, modulus)
        constant = whole.pop(ONE, 0)
        if not whole:
            return of_constant(Fraction(constant, divisor))
        base = tuple(sorted(whole.items()))
        if constant == 0 and base[0][1] * 2 > modulus:
            mirrored = self.modulo({key: -value for key, value in whole.items()}, modulus)
            rest: Terms = {} if self.is_zero(mirrored) else added(of_constant(modulus), mirrored, -1)
            return {key: plain(Fraction(value) / divisor) for key, value in rest.items()}
        atom = self.atom(Remainder(base, constant, modulus))
        values = {(rest + constant) % modulus for rest in self._residues_of(base, modulus)}
        if len(values) == 1:
            return of_constant(Fraction(values.pop(), divisor))
        return {(atom,): plain(Fraction(1, divisor))}

    def _congruent(self, terms: Terms, modulus: int) -> dict[Monomial, int]:
        """The same modulo `modulus`: remainders inside by what they are remainders of, coefficients reduced."""
        result: dict[Monomial, int] = {}
        for monomial, value in terms.items():
            factors: list[Terms] = []
            for atom in monomial:
                inner = self.atoms[atom]
                known = isinstance(inner, Remainder) and inner.modulus % modulus == 0
                factors.append(inner.terms if isinstance(inner, Remainder) and known else {(atom,): 1})
            for key, part in multiplied(factors).items():
                result[key] = (result.get(key, 0) + int(value) * int(part)) % modulus
        return {key: value for key, value in result.items() if value}

    # ------------------------------------------------------------ questions

    def says(self, key: object) -> bool:
        """A question of which nothing is known but what it was answered before."""
        if key not in self._said:
            self._said[key] = self._take()
        return self._said[key]

    def at_least_zero(self, terms: Terms) -> bool:
        terms = self.reduced(terms)
        if (constant := constant_of(terms)) is not None:
            return constant >= 0
        if (answer := self._by_residue(terms, lambda value: value >= 0)) is not None:
            return answer
        form, factor, constant = primitive(terms)
        least = math.ceil(Fraction(-constant) / factor)
        if self._bounds.low(form) >= least:
            return True
        if self._bounds.high(form) < least:
            return False
        if self._take():
            self._bound(form, least)
            return True
        self._bound(negative(form), 1 - least)
        return False

    def is_zero(self, terms: Terms) -> bool:
        terms = self.reduced(terms)
        if (constant := constant_of(terms)) is not None:
            return constant == 0
        if (answer := self._by_residue(terms, lambda value: value == 0)) is not None:
            return answer
        form, factor, constant = primitive(terms)
        value = Fraction(-constant) / factor
        low, high = self._bounds.low(form), self._bounds.high(form)
        if value.denominator != 1 or not low <= value <= high or (form, int(value)) in self._bounds.different:
            return False
        if low == high:
            return True
        if not self._take():
            self._bounds.different |= {(form, int(value)), (negative(form), -int(value))}
            return False
        self._bound(form, int(value))
        self._bound(negative(form), -int(value))
        self._substitute(form, int(value))
        return True

    def _take(self) -> bool:
        """The next answer."""
        if self._asked == len(self.decided):
            if self._asked == MOST_DECISIONS:
                raise BudgetSpent("too many decisions")
            self.open.append(self._asked)
            self.decided.append(True)
        self._asked += 1
        return self.decided[self._asked - 1]

    def _modulus_of(self, atom: Atom) -> int:
        key = self.atoms[atom]
        return key.modulus if isinstance(key, Remainder) else 0

    # ------------------------------------------------------------ what follows

    def _bound(self, form: Form, least: int) -> None:
        self._bounds.add(form, least)
        while self._bounds.fixed:
            self._substitute(*self._bounds.fixed.pop())

    def reduced(self, terms: Terms) -> Terms:
        """With what is known in the place of unknowns."""
        for _ in range(8):
            if not self._known or not any(self._changed(atom) for monomial in terms for atom in monomial):
                return terms
            result: dict[Monomial, int | Fraction] = {}
            for monomial, value in terms.items():
                factors = [self._now(atom) for atom in monomial]
                for key, part in multiplied(factors).items():
                    result[key] = result.get(key, 0) + value * part
            terms = {key: plain(value) for key, value in result.items() if value}
        raise NotUnderstood("a long chain of equals")

    def _changed(self, atom: Atom) -> bool:
        inner = self.atoms[atom]
        return atom in self._known or (isinstance(inner, Remainder) and any(map(self._changed, inner.atoms)))

    def _now(self, atom: Atom) -> Terms:
        inner = self.atoms[atom]
        if atom in self._known:
            return self._known[atom]
        if isinstance(inner, Remainder) and self._changed(atom):
            return self.modulo(self.reduced(inner.terms), inner.modulus)
        return {(atom,): 1}

    def _substitute(self, form: Form, value: int) -> None:
        """`form` is `value`: an unknown that occurs once and alone is expressed by the others."""
        for monomial, factor in form:
            if len(monomial) != 1 or abs(factor) != 1 or not isinstance(self.atoms[monomial[0]], str):
                continue
            rest = {key: -part * factor for key, part in form if key != monomial}
            if not any(self._holds(monomial[0], atom) for key in rest for atom in key):
                self._known[monomial[0]] = added(rest, of_constant(value * factor))
                self._hand_on(((monomial, 1),), self._known[monomial[0]])
                return

    def _hand_on(self, key: Form, terms: Terms) -> None:
        """Residues of an unknown to the other one by which it is expressed. Raises Infeasible."""
        if key not in self._residues:
            return
        period, values = self._residues[key]
        if (constant := constant_of(terms)) is not None:
            left = values & {int(constant) % period}
        else:
            form, factor, constant = primitive(terms)
            if len(form) > 1 or factor != 1 or constant.denominator != 1:
                return
            self._residues_of(form, period)
            common, others = self._residues.get(form, (1, frozenset[int]()))
            if common % period:
                return
            left = frozenset(each for each in others if (each + int(constant)) % period in values)
            self._residues[form] = common, left
            self._fix(form)
        if not left:
            raise Infeasible

    def _holds(self, wanted: Atom, atom: Atom) -> bool:
        inner = self.atoms[atom]
        return wanted == atom or (
            isinstance(inner, Remainder) and any(self._holds(wanted, each) for each in inner.atoms)
        )

    # ------------------------------------------------------------ residues

    def _residues_of(self, base: Form, modulus: int) -> frozenset[int]:
        """What `base` may be modulo `modulus`."""
        key, value_of = by_unknown(base)
        period, values = self._residues.get(key, (1, frozenset([0])))
        common = math.lcm(period, modulus)
        if common > MOST_MODULUS:
            return frozenset(range(modulus))
        if common != period:
            values = frozenset(value + step for value in values for step in range(0, common, period))
            self._residues[key] = common, values
        return frozenset(value_of(value) % modulus for value in values)

    def _by_residue(self, terms: Terms, holds: Callable[[int | Fraction], bool]) -> bool | None:
        """The answer where one remainder decides it; None where that is another kind of question."""
        rest = [monomial for monomial in terms if monomial != ONE]
        if len(rest) != 1 or len(rest[0]) != 1:
            return None
        remainder = self.atoms[rest[0][0]]
        if not isinstance(remainder, Remainder):
            return None
        base, modulus = remainder.base, remainder.modulus
        self._residues_of(base, modulus)
        key, value_of = by_unknown(base)
        period, values = self._residues.get(key, (1, frozenset[int]()))
        if period % modulus:
            return None
        factor, offset = terms[rest[0]], terms.get(ONE, 0)
        fits = frozenset(
            value for value in values if holds(factor * ((value_of(value) + remainder.constant) % modulus) + offset)
        )
        if fits and fits != values:
            answer = self._take()
            self._residues[key] = period, fits if answer else values - fits
            self._fix(key)
            return answer
        return bool(fits)

    def _fix(self, key: Form) -> None:
        """Remainders that can only be one number now are known."""
        for atom, each in enumerate(self.atoms):
            if isinstance(each, Remainder) and by_unknown(each.base)[0] == key:
                values = {
                    (value + each.constant) % each.modulus for value in self._residues_of(each.base, each.modulus)
                }
                if len(values) == 1:
                    self._known[atom] = of_constant(values.pop())
