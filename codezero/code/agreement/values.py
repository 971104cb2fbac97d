"""Values of a program that need not be known: numbers, texts, dicts and sets.

Numbers are polynomials with Python's operators, whose comparisons are decided on a path; a constant is always a plain
`int` or `bool`, and what true division gives is `real`, however round. Texts have a known length; their characters are
code points. Each key of a dict is compared with each, which a path may have to decide. Whatever else Python's own types
can do is NotUnderstood or an AttributeError."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from fractions import Fraction
from functools import partialmethod, total_ordering
from typing import Any, NoReturn

from codezero.code.agreement import paths
from codezero.code.agreement.paths import UNIT, NotUnderstood, Path, Terms

MOST_POWER, MOST_SHIFT, MOST_CHARACTERS, MOST_ASCII = 6, 12, 256, 127
ONES = paths.of_constant(1)
RANGES = {  # of ASCII; unknown characters beyond it are taken for none of these
    "isupper": ["AZ"], "islower": ["az"], "isalpha": ["AZ", "az"], "isdigit": ["09"], "isnumeric": ["09"],
    "isalnum": ["09", "AZ", "az"], "isspace": ["\t\r", "\x1c "],
}  # fmt: skip
CASE = ord("a") - ord("A")


def _refuse(*_: Any) -> NoReturn:
    raise NotUnderstood("an operation on what is not known")


class Number:
    """See the module. Mixed with infinity it can be compared, and nothing else."""

    __slots__ = ("path", "real", "terms")

    def __init__(self, path: Path, terms: Terms, *, real: bool = False) -> None:
        self.path, self.terms, self.real = path, terms, real

    __rpow__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __rlshift__ = __rrshift__ = _refuse
    __or__ = __ror__ = __xor__ = __rxor__ = __pos__ = _refuse
    __hash__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __add__(self, other: Any, sign: int = 1) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        return self._number(paths.added(self.terms, terms, sign), other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.__add__(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self._number(paths.scaled(self.terms, -1), 0)

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        return self._number(paths.multiplied([self.terms, terms]), other)

    __rmul__ = __mul__

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if type(power) is not int or not 0 <= power <= MOST_POWER:
            raise NotUnderstood("a power")
        result = self._number(paths.multiplied([self.terms] * power), power)
        return result if modulus is None else result % modulus

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __truediv__(self, other: Any) -> Any:
        return Number(self.path, paths.scaled(self.terms, Fraction(1, self._divisor(other))), real=True)

    def __mod__(self, other: Any) -> Any:
        divisor = self._divisor(other)
        if self.real:
            raise NotUnderstood("a remainder of what is not whole")
        if divisor < 0:
            raise NotUnderstood("a remainder of a negative number")
        return _plain(self.path, self.path.modulo(self.terms, divisor))

    def __floordiv__(self, other: Any) -> Any:
        return _plain(self.path, ((self - self % other) / other).terms)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and not other & (other + 1):
            return self % (other + 1)
        raise NotUnderstood("bits")

    __rand__ = __and__

    def __rshift__(self, other: Any) -> Any:
        return self // _power_of_two(other)

    def __lshift__(self, other: Any) -> Any:
        return self * _power_of_two(other)

    def __invert__(self) -> Any:
        return -self - 1

    def __floor__(self) -> Any:
        """Compute (P - P mod d) / d with the denominator d."""
        divisor = paths.denominator(self.terms)
        return _plain(self.path, paths.scaled(self.terms, divisor)) // divisor

    def __ceil__(self) -> Any:
        return -(-self).__floor__()

    def __trunc__(self) -> Any:
        if not self.real:
            return self
        return self.__floor__() if self >= 0 else self.__ceil__()

    def __index__(self) -> int:
        """A place or a count has to be known."""
        constant = paths.constant_of(self.terms)
        if constant is None or constant.denominator != 1:
            raise NotUnderstood("a place that is not known")
        return int(constant)

    def __bool__(self) -> bool:
        return not self.path.is_zero(self.terms)

    def __eq__(self, other: object) -> bool:
        terms = _terms(other)  # None: also of an infinity
        return terms is not None and self.path.is_zero(paths.added(self.terms, terms, -1))

    def _below(self, other: Any, sign: int, *, strict: bool) -> bool:
        """Decide sign * (other - self) > 0, or >= 0 where that is not strict."""
        if isinstance(other, float):
            return other * sign > 0
        if (terms := _terms(other)) is None:
            raise TypeError("no number")
        gap = paths.added(terms, self.terms, -1)
        whole = paths.scaled(gap, sign * paths.denominator(gap))
        return self.path.at_least_zero(paths.added(whole, ONES, -1) if strict else whole)

    __lt__, __le__ = partialmethod(_below, sign=1, strict=True), partialmethod(_below, sign=1, strict=False)
    __gt__, __ge__ = partialmethod(_below, sign=-1, strict=True), partialmethod(_below, sign=-1, strict=False)

    def _number(self, terms: Terms, other: Any) -> Any:
        return Number(self.path, terms, real=True) if self.real or is_real(other) else _plain(self.path, terms)

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


def is_real(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Number) and value.real)


def _terms(value: Any) -> Terms | None:
    if isinstance(value, Number):
        return value.terms
    return paths.of_constant(int(value)) if isinstance(value, int) else None


def _plain(path: Path, terms: Terms) -> Any:
    constant = paths.constant_of(terms)
    if constant is None:
        return Number(path, terms)
    return int(constant) if constant.denominator == 1 else Number(path, {UNIT: constant})


def _power_of_two(power: Any) -> int:
    if type(power) is not int or not 0 <= power <= MOST_SHIFT:
        raise NotUnderstood("bits")
    return 2**power


@total_ordering
class Text:
    """A `str`."""

    __slots__ = ("points",)

    def __init__(self, points: Sequence[Any] = ()) -> None:
        if len(points) > MOST_CHARACTERS:
            raise NotUnderstood("a long text")
        self.points = tuple(points)

    @classmethod
    def of(cls, text: str) -> "Text":
        return cls([ord(character) for character in text])

    def known(self) -> str:
        if not all(type(point) is int for point in self.points):
            raise NotUnderstood("a text that is not known")
        return "".join(map(chr, self.points))

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator["Text"]:
        return (Text([point]) for point in self.points)

    def __getitem__(self, place: Any) -> "Text":
        return Text(self.points[place] if isinstance(place, slice) else [self.points[place]])

    def __add__(self, other: Any) -> "Text":
        return Text([*self.points, *_text(other).points])

    def __mul__(self, times: Any) -> "Text":
        count = times.__index__()
        if count * len(self) > MOST_CHARACTERS:
            raise NotUnderstood("a long text")
        return Text(self.points * count)

    __rmul__ = __mul__
    __mod__ = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and len(self) == len(other) and self._stands_at(0, other)

    def __hash__(self) -> int:
        return hash(self.known())

    def __lt__(self, other: Any) -> bool:
        for left, another in zip(self.points, _text(other).points, strict=False):
            if left != another:
                return left < another
        return len(self) < len(other)

    def __contains__(self, other: Any) -> bool:
        return self.find(_text(other)) >= 0

    def _stands_at(self, place: int, part: "Text") -> bool:
        here = self.points[place : place + len(part)]
        return len(here) == len(part) and all(left == another for left, another in zip(here, part.points, strict=True))

    def startswith(self, part: Any) -> bool:
        return self._stands_at(0, _text(part))

    def endswith(self, part: Any) -> bool:
        return len(_text(part)) <= len(self) and self._stands_at(len(self) - len(part), part)

    def find(self, part: Any, start: int = 0, end: int | None = None) -> int:
        begin, stop, _ = slice(start, end).indices(len(self))
        places = range(max(begin, start), stop - len(_text(part)) + 1)
        return next((place for place in places if self._stands_at(place, part)), -1)

    def index(self, part: Any, start: int = 0) -> int:
        if (place := self.find(part, start)) < 0:
            raise ValueError("substring not found")
        return place

    def count(self, part: Any) -> int:
        return len(self.split(part)) - 1 if len(_text(part)) else len(self) + 1

    def split(self, part: Any = None, most: int = -1) -> list["Text"]:
        if part is None or not len(_text(part)):
            raise NotUnderstood("a split at spaces")
        pieces: list[Text] = []
        begin = 0
        while most < 0 or len(pieces) < most:
            place = self.find(part, begin)
            if place < 0:
                break
            pieces.append(self[begin:place])
            begin = place + len(part)
        return [*pieces, self[begin:]]

    def replace(self, old: Any, new: Any, most: int = -1) -> "Text":
        return _text(new).join(self.split(old, most))

    def join(self, parts: Any) -> "Text":
        points: list[Any] = []
        for number, part in enumerate(parts):
            points += [*(self.points if number else ()), *_text(part).points]
        return Text(points)

    def removeprefix(self, part: Any) -> "Text":
        return self[len(part) :] if self.startswith(part) else self

    def translate(self, table: Any) -> "Text":
        """`table`: code points to what `str.maketrans` makes of them."""
        replaced = [table.get(point, point) for point in self.points]
        texts = [each if isinstance(each, Text) else Text([] if each is None else [each]) for each in replaced]
        return Text().join(texts)

    def upper(self) -> "Text":
        return Text([point - CASE if _within(point, "islower") else point for point in self.points])

    def lower(self) -> "Text":
        return Text([point + CASE if _within(point, "isupper") else point for point in self.points])

    def swapcase(self) -> "Text":
        return Text().join(each.lower() if each.asks("isupper") else each.upper() for each in self)

    def title(self) -> "Text":
        before = [False, *(_within(point, "isalpha") for point in self.points[:-1])]
        pairs = zip(self, before, strict=False)
        return Text().join(each.lower() if inside else each.upper() for each, inside in pairs)

    def asks(self, question: str) -> bool:
        """As the method of that name, but that of `isupper` and `islower` every character has to be a letter."""
        if question in ("isupper", "islower") and len(self) > 1:
            raise NotUnderstood(question)
        return bool(self.points) and all(_within(point, question) for point in self.points)


def _within(point: Any, question: str) -> bool:
    if isinstance(point, int) and point > MOST_ASCII:
        raise NotUnderstood("a letter beyond ASCII")
    return any(ord(first) <= point <= ord(last) for first, last in RANGES[question])


def maketrans(left: Any, other: Any = None, gone: Any = None) -> Any:
    """As `str.maketrans`."""
    if other is None:
        return Table([(key.points[0] if isinstance(key, Text) else key, value) for key, value in left.items()])
    if len(left) != len(other):
        raise ValueError("lengths")
    dropped = () if gone is None else gone.points
    return Table([*zip(left.points, other.points, strict=True), *((point, None) for point in dropped)])


def _text(value: Any) -> Text:
    if not isinstance(value, Text):
        raise TypeError("no text")
    return value


class Table(MutableMapping[Any, Any]):
    """A dict. `default` makes the value of a key that is missing."""

    def __init__(self, items: Any = (), default: Callable[[], Any] | None = None) -> None:
        self._items: list[list[Any]] = []
        self.default = default
        self.update(items)

    __delitem__ = __eq__ = _refuse  # pyright: ignore[reportAssignmentType]

    def _find(self, key: Any) -> list[Any] | None:
        return next((item for item in self._items if item[0] == key), None)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._items])

    def __contains__(self, key: Any) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: Any) -> Any:
        if (item := self._find(key)) is not None:
            return item[1]
        if self.default is None:
            raise KeyError(key)
        self[key] = value = self.default()
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if (item := self._find(key)) is not None:
            item[1] = value
        else:
            self._items.append([key, value])

    def get(self, key: Any, default: Any = None) -> Any:
        item = self._find(key)
        return default if item is None else item[1]


class Tally(Table):
    """A Counter."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__()
        if isinstance(items, Table):
            raise NotUnderstood("counts that are given")
        for key in items:
            self[key] = self[key] + 1

    def __getitem__(self, key: Any) -> Any:
        return self.get(key, 0)


class Bag:
    """A set. Its order is nobody's business: only one of at most one element can be iterated."""

    def __init__(self, items: Any = ()) -> None:
        self.members: list[Any] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Any]:
        if len(self) > 1:
            raise NotUnderstood("the order of a set")
        return iter(self.members)

    def __contains__(self, item: Any) -> bool:
        return any(item == each for each in self.members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and len(self) == len(other) and all(each in other for each in self.members)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def add(self, item: Any) -> None:
        if item not in self:
            self.members.append(item)
