"""Which literal a condition hangs on, and another in its place, so that a condition that was true is false."""

import ast
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from codezero.code.parsing import literal

Other = Callable[[Any, Random], Any]
"""Another value of the same type and shape. Raises ValueError where there is none."""
_SETS = frozenset(("set", "frozenset"))
_NEARLY = frozenset(("isclose", "allclose", "approx"))
_SIZES = frozenset(("abs", "fabs"))
_LETTERS = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")


def expected(condition: ast.expr) -> Iterator[tuple[ast.expr, Other]]:
    """What may be a literal without which the condition would not hold, and how it is changed."""
    match condition:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            for side in _one_sided(left, right):
                match side:
                    case ast.Call(func=func, args=[value]) if _name(func) in _SETS:
                        yield value, _without_one
                    case ast.Call(func=func, args=[value, *_]) if _name(func) in _NEARLY:
                        yield value, far
                    case _:
                        yield side, other
        case ast.Compare(ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set() as choices]):
            yield choices, _none_of
        case (
            ast.Compare(
                left=ast.Call(func=func, args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
                ops=[ast.Lt() | ast.LtE()],
            )
            | ast.Call(func=func, args=[left, right, *_])
        ) if _name(func) in (_SIZES if isinstance(condition, ast.Compare) else _NEARLY):
            yield from ((side, far) for side in _one_sided(left, right))
        case _:
            pass


def _one_sided(left: ast.expr, right: ast.expr) -> Iterator[ast.expr]:
    """Each side whose other side is no literal: two literals say nothing about the code."""
    yield from (side for side, opposite in ((right, left), (left, right)) if literal(opposite) is None)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def other(value: Any, random: Random) -> Any:
    """A literal of the same type that differs, as a literal that was meant might. Raises ValueError for none."""
    if type(value) not in _OTHER:
        raise ValueError
    return _OTHER[type(value)](value, random)


def _other_text(value: Any, random: Random) -> Any:
    if not value:
        return random.choice(_LETTERS[0])
    at = random.randrange(len(value))
    letters = next((kind for kind in _LETTERS if value[at] in kind), _LETTERS[0])
    return value[:at] + random.choice(letters.replace(value[at], "")) + value[at + 1 :]


def _other_item(value: Any, random: Random) -> Any:
    if not value:
        return type(value)((random.randrange(9),))
    at = random.randrange(len(value))
    return value[:at] + type(value)((other(value[at], random),)) + value[at + 1 :]


def _other_entry(value: Any, random: Random) -> Any:
    key = random.choice(list(value)) if value else 0
    return {**value, key: other(value.get(key, 0), random)}


def _without_one(value: Any, random: Random) -> Any:
    """Another is there in place of one element, wherever it stands."""
    if not value:
        return type(value)((random.randrange(9),))
    gone = random.choice(sorted(value, key=repr))
    instead = other(gone, random)
    return type(value)(instead if each == gone else each for each in value)


_OTHER: dict[type, Other] = {
    type(None): lambda value, random: True,
    bool: lambda value, random: not value,
    int: lambda value, random: value + random.choice((-3, -2, -1, 1, 2, 3)),
    float: lambda value, random: value + random.choice((-3.5, -1.25, 0.5, 2.75)),
    complex: lambda value, random: value + random.choice((-2, -1, 1, 2)),
    str: _other_text,
    bytes: lambda value, random: _other_text(value.decode("latin-1"), random).encode("latin-1"),
    list: _other_item,
    tuple: _other_item,
    set: _without_one,
    dict: _other_entry,
}


def _none_of(value: Any, random: Random) -> Any:
    """As many choices, none of which is among these. Raises ValueError where there are no others."""
    drawn = list(value)
    for _ in range(50):
        drawn = [other(each, random) if each in value else each for each in drawn]
    if any(each in value for each in drawn):
        raise ValueError
    return type(value)(drawn)


def far(value: Any, random: Random) -> Any:
    """Numbers that are not nearly these. Raises ValueError for what is no number."""
    if type(value) in (list, tuple):
        return type(value)(far(each, random) for each in value)
    if type(value) not in (int, float):
        raise ValueError
    return value + random.choice((-1, 1)) * type(value)(10 + abs(value)) * random.randint(1, 3)
