"""Values that a function returns, as lines of JSON, and EvalPlus's rule for which of them are right.

Written anew from what the checker of evalplus 0.3.1 does (Liu et al. 2023, arXiv 2305.01210). docs/measuring.md lists
where a verdict may differ."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import itertools
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

NOT_NONE = ("check_str", "text_match_three", "text_starta_endb")  # what they return, beside None, is not compared
NESTING, MOST_DEEP = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])'), 200
RTOL, ATOL = 1e-7, 1e-6  # ATOL: of floats where the task has none
_FAULTS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, msgspec.MsgspecError)


def value_to_json(value: object) -> object:
    """Make an object of one field of what JSON has no form for. Runs with answers too, in words that Monty knows."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return {"int": hex(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [value_to_json(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [value_to_json(each) for each in value]}
    if isinstance(value, (type(set()), type(frozenset()))):
        return {"set": [value_to_json(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[value_to_json(key), value_to_json(each)] for key, each in value.items()]}
    if isinstance(value, type(1j)):  # noqa: UP003
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"bytes": list(value)}
    return {"other": 0}


def value_of_json(value: object) -> object:
    """Undo `value_to_json`; another object equals nothing. Runs with answers too."""
    if isinstance(value, list):
        return [value_of_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "int":
        return int(held, 16)
    if kind == "tuple":
        return tuple([value_of_json(each) for each in held])
    if kind == "set":
        return type(set())([value_of_json(each) for each in held])
    if kind == "dict":
        return {value_of_json(key): value_of_json(each) for key, each in held}
    if kind == "complex":
        return held[0] + held[1] * 1j
    return bytes([*held]) if kind == "bytes" else object()


class ValueRule(msgspec.Struct, frozen=True):
    """How the values of one task are compared. inputs: as JSON, where they decide what is right."""

    entry: str
    mbpp: bool
    atol: float
    inputs: list[Any] = []


def same_values(wanted: str, printed: str) -> bool:
    """Is each value right? wanted: a line with a `ValueRule`, and what the reference printed. Last lines count."""
    try:
        line, _, reference = wanted.partition("\n")
        rule = msgspec.json.decode(line, type=ValueRule)
        lines = (text.rstrip("\n").rpartition("\n")[2] for text in (reference, printed))
        expected, values = map(_values, map(_read, lines))
        inputs = _values(rule.inputs) or [()] * len(expected)
        return len(values) == len(expected) and _all_right(rule, inputs, expected, values)
    except _FAULTS:  # of what a program printed; an error is a failure in EvalPlus too
        return False


def _read(line: str) -> object:
    """Not by trust in the interpreter's own bound, which a library may have raised beyond what its stack holds."""
    depth = 0
    for opened, closed in NESTING.findall(line):
        depth += bool(opened) - bool(closed)
        if depth > MOST_DEEP:
            raise ValueError
    return json.loads(line)


def _values(read: object) -> list[Any]:
    if not isinstance(read, list):
        raise TypeError
    return list(map(value_of_json, read))


def _all_right(
    rule: ValueRule, inputs: Sequence[Sequence[Any]], expected: Sequence[Any], values: Sequence[Any]
) -> bool:
    atol = rule.atol
    for given, wanted, value in zip(inputs, expected, values, strict=True):
        if not rule.mbpp and rule.entry == "find_zero":  # HumanEval/32: any root
            if not abs(sum(factor * math.pow(value, power) for power, factor in enumerate(given[0]))) <= atol:
                return False
            continue
        if atol == 0 and _floats(wanted):
            atol = ATOL  # from here on, as EvalPlus has it
        if _equal(rule, given, wanted, value):
            continue
        if atol == 0 or type(value) is not type(wanted) or not _close(value, wanted, atol):
            return False
    return True


def _equal(rule: ValueRule, given: Sequence[Any], wanted: Any, value: Any) -> bool:
    """By ==, or by the oracle of a task of MBPP that has one."""
    if rule.mbpp and rule.entry in NOT_NONE:
        return (value if isinstance(value, bool) else value is not None) == (wanted is not None)
    if value == wanted or not rule.mbpp:
        return bool(value == wanted)
    match rule.entry:
        case "are_equivalent":  # Mbpp/164: whatever comes back
            return True
        case "sum_div":  # Mbpp/295
            return value == 0
        case "surface_Area":  # Mbpp/581: of a pyramid by its height
            base, height = given
            area = base**2 + 4 * (base * math.sqrt((base / 2) ** 2 + height**2)) / 2
            return abs(value - round(area)) <= rule.atol
        case "digit_distance_nums":  # Mbpp/558: digits side by side from the right
            first, second = map(str, given)
            width = max(len(first), len(second))
            pairs = zip(first.zfill(width), second.zfill(width), strict=True)
            return value == sum(abs(int(left) - int(right)) for left, right in pairs)
        case _:
            return False


def _floats(wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return bool(wanted) and all(isinstance(each, float) for each in wanted)
    return isinstance(wanted, float)


def _close(value: Any, wanted: Any, atol: float) -> bool:
    """As `numpy.allclose`, but that shapes have to be the same: what is broadcast may be more than memory holds."""
    if isinstance(wanted, list | tuple):
        sequence = isinstance(value, list | tuple) and len(value) == len(wanted)
        return sequence and all(map(_close, value, wanted, itertools.repeat(atol)))
    if not _number(value) or not _number(wanted):
        return False
    return value == wanted or (math.isfinite(abs(wanted)) and abs(value - wanted) <= atol + RTOL * abs(wanted))


def _number(value: Any) -> bool:
    """Has NumPy a type for it?"""
    return isinstance(value, float | complex) or (isinstance(value, int) and -(2**63) <= value < 2**64)
