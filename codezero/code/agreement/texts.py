"""Texts of a known length whose characters are code points, perhaps not known."""

from collections.abc import Iterator, Sequence
from functools import total_ordering
from typing import Any

from codezero.code.agreement.numbers import unknown
from codezero.code.agreement.paths import Path
from codezero.code.agreement.polynomials import NotUnderstood
from codezero.code.agreement.tables import Table

MOST_CHARACTERS, MOST_ASCII = 256, 127
RANGES = {
    "isupper": ["AZ"], "islower": ["az"], "isalpha": ["AZ", "az"], "isdigit": ["09"], "isnumeric": ["09"],
    "isalnum": ["09", "AZ", "az"], "isspace": ["\t\r", "\x1c "],
}  # fmt: skip
"""Of ASCII; unknown characters beyond it are taken for none of these."""
CASE = ord("a") - ord("A")


@total_ordering
class Text:
    """Implements of `str` what its characters need not be known for; the rest is NotUnderstood or an AttributeError."""

    __slots__ = ("path", "points")

    def __init__(self, path: Path, points: Sequence[Any]) -> None:
        if len(points) > MOST_CHARACTERS:
            raise NotUnderstood("a long text")
        self.path, self.points = path, tuple(points)

    @classmethod
    def of(cls, path: Path, text: str) -> "Text":
        return cls(path, [ord(character) for character in text])

    @classmethod
    def unknown(cls, path: Path, name: str, length: int) -> "Text":
        """Characters that may be any; a code point is no other unknown number."""
        return cls(path, [unknown(path, f"{name} {place}") for place in range(length)])

    def known(self) -> str:
        if not all(type(point) is int for point in self.points):
            raise NotUnderstood("a text that is not known")
        return "".join(map(chr, self.points))

    def _new(self, points: Sequence[Any]) -> "Text":
        return Text(self.path, points)

    # ------------------------------------------------------------ as a sequence

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator["Text"]:
        return (self._new([point]) for point in self.points)

    def __getitem__(self, place: Any) -> "Text":
        return self._new(self.points[place] if isinstance(place, slice) else [self.points[place]])

    def __add__(self, other: Any) -> "Text":
        return self._new([*self.points, *_text(other).points])

    def __mul__(self, times: Any) -> "Text":
        count = times.__index__()
        if count * len(self) > MOST_CHARACTERS:
            raise NotUnderstood("a long text")
        return self._new(self.points * count)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and len(self) == len(other) and self._stands_at(0, other)

    def __hash__(self) -> int:
        return hash(self.known())

    def __lt__(self, other: Any) -> bool:
        for one, another in zip(self.points, _text(other).points, strict=False):
            if one != another:
                return one < another
        return len(self) < len(other)

    def __contains__(self, other: Any) -> bool:
        return self.find(_text(other)) >= 0

    def _stands_at(self, place: int, other: "Text") -> bool:
        part = self.points[place : place + len(other)]
        return len(part) == len(other) and all(one == another for one, another in zip(part, other.points, strict=True))

    # ------------------------------------------------------------ methods of str

    def find(self, part: Any, start: int = 0, end: int | None = None) -> int:
        begin, stop, _ = slice(start, end).indices(len(self))
        places = range(begin, stop - len(_text(part)) + 1)
        return next((place for place in places if self._stands_at(place, part)), -1)

    def index(self, part: Any, start: int = 0) -> int:
        if (place := self.find(part, start)) < 0:
            raise ValueError("substring not found")
        return place

    def count(self, part: Any) -> int:
        return len(self.split(part)) - 1 if len(_text(part)) else len(self) + 1

    def split(self, part: Any = None, most: int = -1) -> list["Text"]:
        if part is None:
            raise NotUnderstood("a split at spaces")
        if not len(_text(part)):
            raise ValueError("empty separator")
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
        if not len(_text(old)):
            raise NotUnderstood("an empty text replaced")
        return _text(new).join(self.split(old, most))

    def join(self, parts: Any) -> "Text":
        points: list[Any] = []
        for number, part in enumerate(parts):
            points += [*(self.points if number else ()), *_text(part).points]
        return self._new(points)

    def startswith(self, part: Any) -> bool:
        return self._stands_at(0, _text(part))

    def endswith(self, part: Any) -> bool:
        return len(_text(part)) <= len(self) and self._stands_at(len(self) - len(part), part)

    def removeprefix(self, part: Any) -> "Text":
        return self[len(part) :] if self.startswith(part) else self

    def removesuffix(self, part: Any) -> "Text":
        return self[: len(self) - len(part)] if self.endswith(part) else self

    def translate(self, table: Any) -> "Text":
        """`table`: code points to what `str.maketrans` makes of them."""
        replaced = (table.get(point, point) for point in self.points)
        return self._new("").join(_translated(self, point) for point in replaced)

    # ------------------------------------------------------------ of single characters

    def upper(self) -> "Text":
        return self._new([point - CASE if _within(point, "islower") else point for point in self.points])

    def lower(self) -> "Text":
        return self._new([point + CASE if _within(point, "isupper") else point for point in self.points])

    def swapcase(self) -> "Text":
        turned = (each.lower() if each.asks("isupper") else each.upper() for each in self)
        return self._new("").join(turned)

    def capitalize(self) -> "Text":
        return self[:1].upper() + self[1:].lower()

    def title(self) -> "Text":
        before = [False, *(_within(point, "isalpha") for point in self.points[:-1])]
        pairs = zip(self, before, strict=False)
        return self._new("").join(each.lower() if inside else each.upper() for each, inside in pairs)

    def asks(self, question: str) -> bool:
        """As the method of that name, but that of `isupper` and `islower` every character has to be a letter."""
        if question in ("isupper", "islower") and len(self) > 1:
            raise NotUnderstood(question)
        return bool(self.points) and all(_within(point, question) for point in self.points)


def _within(point: Any, question: str) -> bool:
    if isinstance(point, int) and point > MOST_ASCII:
        raise NotUnderstood("a letter beyond ASCII")
    return any(ord(first) <= point <= ord(last) for first, last in RANGES[question])


def _translated(owner: Text, point: Any) -> Text:
    return point if isinstance(point, Text) else Text(owner.path, [] if point is None else [point])


def maketrans(one: Any, other: Any = None, gone: Any = None) -> Any:
    """As `str.maketrans`."""
    if other is None:
        return Table([(key.points[0] if isinstance(key, Text) else key, value) for key, value in one.items()])
    if len(one) != len(other):
        raise ValueError("lengths")
    return Table(
        [
            *zip(one.points, other.points, strict=True),
            *((point, None) for point in (gone.points if gone is not None else ())),
        ]
    )


def _text(value: Any) -> Text:
    if not isinstance(value, Text):
        raise TypeError("no text")
    return value
