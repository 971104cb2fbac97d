"""What is known of how large linear forms are: bounds of sums and differences of two monomials, closed under addition
(octagons: Miné 2006, "The octagon abstract domain"), and bounds of other forms as they are given."""

import math
from collections.abc import Callable
from itertools import product

from codezero.code.agreement.polynomials import ONE, Atom, Form, Monomial, negative

Node = tuple[Monomial, int]
"""A monomial with its sign: a sum is a difference to the negative one."""
ZERO: Node = (ONE, 1)
INFINITE = math.inf


class FormBounds:
    """`modulus_of` an unknown that is a remainder; 0: it is none."""

    def __init__(self, modulus_of: Callable[[Atom], int]) -> None:
        self._modulus_of = modulus_of
        self._least: dict[Node, dict[Node, float]] = {}
        """Of a difference of two, the lower bound."""
        self._forms: dict[Form, float] = {}
        self.different: set[tuple[Form, int]] = set()
        """Forms, and what they are not."""
        self.fixed: list[tuple[Form, int]] = []
        """Forms of which `add` has found that they can be one number only."""

    def add(self, form: Form, least: int) -> None:
        match form:
            case [(one, factor)] if abs(factor) == 1:
                self._bound_difference((one, factor), ZERO, least)
            case [(one, factor), (other, another)] if abs(factor) == abs(another) == 1:
                self._bound_difference((one, factor), (other, -another), least)
            case _:
                self._forms[form] = max(self._forms.get(form, -INFINITE), least)

    def _bound_difference(self, one: Node, other: Node, least: float) -> None:
        """one - other >= least, and the same of their negatives; with all that follows for two."""
        if self._difference(one, other) >= least:
            return
        for first, last in ((one, other), (opposite(other), opposite(one))):
            above = [(node, gap) for node, gap in self._least.get(opposite(first), {}).items()]
            before = [(first, 0.0), *((opposite(node), gap) for node, gap in above)]
            after = [(last, 0.0), *self._least.get(last, {}).items()]
            for (start, gap), (end, rest) in product(before, after):
                self._set(start, end, gap + least + rest)

    def _set(self, one: Node, other: Node, least: float) -> None:
        if one == other or least <= self._difference(one, other):
            return
        self._least.setdefault(one, {})[other] = least
        self._least.setdefault(opposite(other), {})[opposite(one)] = least
        if one == opposite(other):
            self._bound_difference(one, ZERO, math.ceil(least / 2))
        elif least == -self._difference(other, one):
            terms = [(node[0], sign * node[1]) for node, sign in ((one, 1), (other, -1)) if node != ZERO]
            self.fixed.append((tuple(sorted(terms)), int(least)))

    def _difference(self, one: Node, other: Node) -> float:
        return 0 if one == other else self._least.get(one, {}).get(other, -INFINITE)

    def low(self, form: Form) -> float:
        low = max(self._forms.get(form, -INFINITE), sum(self._least_part(*part) for part in form))
        match form:
            case [(one, factor), (other, another)] if abs(factor) == abs(another) == 1:
                low = max(low, self._difference((one, factor), (other, -another)))
            case _:
                pass
        while (form, low) in self.different:
            low += 1
        return low

    def high(self, form: Form) -> float:
        return -self.low(negative(form))

    def _least_part(self, monomial: Monomial, factor: int) -> float:
        return min(factor * bound for bound in self._range(monomial))

    def _range(self, monomial: Monomial) -> tuple[float, float]:
        low, high = self._difference((monomial, 1), ZERO), -self._difference((monomial, -1), ZERO) + 0
        while (((monomial, 1),), low) in self.different:
            low += 1
        while (((monomial, 1),), high) in self.different:
            high -= 1
        if len(monomial) == 1 and (modulus := self._modulus_of(monomial[0])):
            low, high = max(low, 0), min(high, modulus - 1)
        if len(monomial) > 1 and all(monomial.count(atom) % 2 == 0 for atom in monomial):
            low = max(low, 0)
        return low, high


def opposite(node: Node) -> Node:
    return node if node == ZERO else (node[0], -node[1])
