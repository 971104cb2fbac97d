"""Numbers that are not known: polynomials with Python's operators, whose comparisons are decided on a path.

A constant is always a plain `int` or `bool`; what true division gives is `real`, however round.
"""

from fractions import Fraction
from typing import Any, NoReturn

from codezero.code.agreement.paths import Path
from codezero.code.agreement.polynomials import (
    ONE,
    NotUnderstood,
    Terms,
    added,
    constant_of,
    denominator,
    multiplied,
    of_constant,
    scaled,
)

MOST_POWER = 6
ONES = of_constant(1)


class Number:
    """See the module. Mixed with infinity it can be compared, and nothing else."""

    __slots__ = ("path", "real", "terms")

    def __init__(self, path: Path, terms: Terms, *, real: bool = False) -> None:
        self.path, self.terms, self.real = path, terms, real

    # ------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> Any:
        return self._linear(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._linear(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._linear(other, 1)

    def __neg__(self) -> Any:
        return self._made(scaled(self.terms, -1), 0)

    def __pos__(self) -> "Number":
        return self

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        return self._made(multiplied([self.terms, terms]), other)

    __rmul__ = __mul__

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if type(power) is not int or not 0 <= power <= MOST_POWER:
            raise NotUnderstood("a power")
        result = self._made(multiplied([self.terms] * power), power)
        return result if modulus is None else result % modulus

    def __rpow__(self, _: Any) -> NoReturn:
        raise NotUnderstood("a power")

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __truediv__(self, other: Any) -> Any:
        divisor = self._divisor(other)
        return Number(self.path, scaled(self.terms, Fraction(1, divisor)), real=True)

    def __mod__(self, other: Any) -> Any:
        divisor = self._divisor(other)
        if self.real:
            raise NotUnderstood("a remainder of what is not whole")
        if divisor < 0:
            return -((-self) % -divisor)
        return _plain(self.path, self.path.modulo(self.path.reduced(self.terms), divisor))

    def __floordiv__(self, other: Any) -> Any:
        divisor = self._divisor(other)
        quotient = (self - self % divisor) / divisor
        return _plain(self.path, quotient.terms)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rtruediv__(self, _: Any) -> NoReturn:
        raise NotUnderstood("a division by what is not known")

    __rfloordiv__ = __rmod__ = __rdivmod__ = __rtruediv__

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and not other & (other + 1):
            return self % (other + 1)
        raise NotUnderstood("bits")

    __rand__ = __and__

    def __rshift__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 12:
            return self // 2**other
        raise NotUnderstood("bits")

    def __lshift__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 12:
            return self * 2**other
        raise NotUnderstood("bits")

    def __invert__(self) -> Any:
        return -self - 1

    def __floor__(self) -> Any:
        """Of a fraction: (P - P mod d) / d with its denominator d."""
        divisor = denominator(self.terms)
        return _plain(self.path, scaled(self.terms, divisor)) // divisor

    def __ceil__(self) -> Any:
        return -(-self).__floor__()

    def __trunc__(self) -> Any:
        if not self.real:
            return self
        return self.__floor__() if self >= 0 else self.__ceil__()

    def __index__(self) -> int:
        """A place or a count has to be known."""
        constant = constant_of(self.path.reduced(self.terms))
        if constant is None or constant.denominator != 1:
            raise NotUnderstood("a place that is not known")
        return int(constant)

    # ------------------------------------------------------------ decisions

    def __bool__(self) -> bool:
        return not self.path.is_zero(self.terms)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return False  # an infinity
        terms = _terms(other)
        return terms is not None and self.path.is_zero(added(self.terms, terms, -1))

    def __hash__(self) -> NoReturn:
        raise NotUnderstood("a number that is not known as a key")

    def __lt__(self, other: Any) -> bool:
        return self._less(other, strict=True)

    def __le__(self, other: Any) -> bool:
        return self._less(other, strict=False)

    def __gt__(self, other: Any) -> bool:
        return (-self)._less(-other, strict=True)

    def __ge__(self, other: Any) -> bool:
        return (-self)._less(-other, strict=False)

    def _less(self, other: Any, *, strict: bool) -> bool:
        if isinstance(other, float):
            return other > 0
        if (terms := _terms(other)) is None:
            raise TypeError("no number")
        gap = added(terms, self.terms, -1)
        whole = scaled(gap, denominator(gap))
        return self.path.at_least_zero(added(whole, ONES, -1) if strict else whole)

    # ------------------------------------------------------------

    def _linear(self, other: Any, sign: int) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        return self._made(added(self.terms, terms, sign), other)

    def _made(self, terms: Terms, other: Any) -> Any:
        real = self.real or (isinstance(other, Number) and other.real)
        return Number(self.path, terms, real=True) if real else _plain(self.path, terms)

    def _divisor(self, other: Any) -> int:
        if isinstance(other, Number):
            other = other.__index__()
        if type(other) is not int:
            raise NotUnderstood("a divisor")
        if not other:
            raise ZeroDivisionError
        return other


def unknown(path: Path, name: object) -> Number:
    return Number(path, {(path.atom(name),): 1})


def identical(one: Any, other: Any) -> bool:
    """Are two numbers equal and of one type?"""
    if isinstance(one, bool) or isinstance(other, bool):
        return type(one) is type(other) and one == other
    return is_real(one) == is_real(other) and one == other


def is_real(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Number) and value.real)


def _terms(value: Any) -> Terms | None:
    if isinstance(value, Number):
        return value.terms
    return of_constant(int(value)) if isinstance(value, int) else None


def _plain(path: Path, terms: Terms) -> Any:
    constant = constant_of(terms)
    if constant is None:
        return Number(path, terms)
    return int(constant) if constant.denominator == 1 else Number(path, {ONE: constant})
