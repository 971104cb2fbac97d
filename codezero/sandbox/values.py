"""Values that came out of the jail, as source. They are never made into objects in this process."""

import re
from typing import cast

from codezero.errors import ProblemError
from codezero.sandbox.inside import MAX_DEPTH

_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]+")
_CONTAINERS = {
    "list": ("[", "]"),
    "tuple": ("(", ")"),
    "set": ("set([", "])"),
    "frozenset": ("frozenset([", "])"),
    "dict": ("{", "}"),
}


def render(encoded: object, depth: int = 0) -> str:
    """Source of the value that `inside.encode` wrote down. Raises ProblemError for anything it could not have written.

    Names used: set, frozenset, range, complex, float, bytes.
    """
    if depth > MAX_DEPTH:
        raise ProblemError("a value nested too deeply")
    match encoded:
        case None | bool() | str():
            return repr(encoded)
        case ["int", str(digits)] if _HEXADECIMAL.fullmatch(digits):
            return f"({digits})"
        case ["float", str(digits)]:
            return _float(digits)
        case ["complex", str(real), str(imaginary)]:
            return f"complex({_float(real)}, {_float(imaginary)})"
        case ["bytes", str(digits)]:
            return _bytes(digits)
        case ["range", str(), str(), str()]:
            parts = cast(list[str], encoded)[1:]
            if all(_HEXADECIMAL.fullmatch(part) for part in parts):
                return f"range({', '.join(parts)})"
        case _:
            return _container(encoded, depth + 1)
    raise ProblemError("not a value")


def _container(encoded: object, depth: int) -> str:
    kind, *items = cast(list[object], encoded) if isinstance(encoded, list) and encoded else [None]
    if not isinstance(kind, str) or kind not in _CONTAINERS:
        raise ProblemError("not a value")
    opening, closing = _CONTAINERS[kind]
    one = _pair if kind == "dict" else render
    return opening + "".join(f"{one(item, depth)}, " for item in items) + closing


def _pair(item: object, depth: int) -> str:
    if not isinstance(item, list) or len(pair := cast(list[object], item)) != 2:
        raise ProblemError("not a pair")
    return f"{render(pair[0], depth)}: {render(pair[1], depth)}"


def _float(digits: str) -> str:
    try:
        number = float.fromhex(digits)
    except (ValueError, OverflowError) as error:
        raise ProblemError("not a float") from error
    return repr(number) if number - number == 0 else f"float('{number}')"


def _bytes(digits: str) -> str:
    try:
        return repr(bytes.fromhex(digits))
    except ValueError as error:
        raise ProblemError("not bytes") from error
