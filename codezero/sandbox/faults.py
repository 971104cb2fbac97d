"""Whose fault an exception in Monty is: the code's, or Monty's because it lacks something CPython has."""

import builtins
import collections
import datetime
import decimal
import pathlib
import re
import types

import pydantic_monty

from codezero.sandbox.assertions import FINISHED, TAG
from codezero.sandbox.execution import Execution, failed, unknown
from codezero.sandbox.stand_ins import END_OF_INPUT, EXIT

_LACKING = re.compile(r"\bmonty\b|not (?:yet )?(?:support|implement)|host function|PathLike", re.IGNORECASE)
_NO_ATTRIBUTE = re.compile(r"'(?:\w+\.)*(\w+)'(?: object)? has no attribute '(\w+)'")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")
_REFUSED = re.compile(
    r"^(?:frozen)?set\.\w+\(\) takes exactly one"  # CPython's take any number of sets
    r"|cannot use '(?:set|dict|list)' as a set element"  # `{1} in sets` looks for a frozenset
    r"|to bytes$|bytes-like|'typing\.|^pow\(\) 2nd argument cannot be negative"
)
"""What Monty's builtins refuse and CPython's take."""
_LONGER_BY = 'can only concatenate list (not "'
"""CPython raises this for `+` too, but `+=` takes anything that can be iterated."""
_KINDS: dict[str, type] = {
    kind.__name__: kind
    for library in (builtins, collections, datetime, decimal, pathlib, re)
    for kind in vars(library).values()
    if isinstance(kind, type)
} | {"function": types.FunctionType}


def explain(error: pydantic_monty.MontyError, code: str = "") -> Execution:
    """FAIL or UNKNOWN, with the reason in a phrase. Every FAIL is provisional but that of a test's own assertion."""
    if isinstance(error, pydantic_monty.MontyCrashedError):
        return _fault("time limit") if error.timed_out else unknown(f"the interpreter died: {error}")
    cause = error.exception()
    name, message = type(cause).__name__, str(cause)
    match cause:
        case TimeoutError() if "time limit" in message:
            return _fault("time limit")
        case MemoryError():
            return _fault("memory limit")
        case AssertionError() if message.startswith(TAG):
            return failed(f"test {message.removeprefix(TAG).strip()} fails")
        case NameError() if FINISHED in message:
            return _fault("SyntaxError: 'return' outside function")
        case _ if END_OF_INPUT in message:
            return _fault("EOFError: reads more than its input")
        case _ if _is_lacking(cause, message) or (message.startswith(_LONGER_BY) and "+=" in code):
            return unknown(f"the sandbox lacks something: {name}: {message.replace(TAG, '')}")
        case _:
            return _fault(f"{name}: {message}")


def _fault(reason: str) -> Execution:
    return failed(reason, provisional=True)


def explain_exit(error: pydantic_monty.MontyError, code: str) -> Execution | None:
    """How a program that reads stdin ended; None when it ended by a plain `exit`.

    Where it asks for a deeper stack than Monty has, running out of it shows nothing.
    """
    cause = None if isinstance(error, pydantic_monty.MontyCrashedError) else error.exception()
    match cause:
        case SystemExit():
            status = str(cause).removeprefix(EXIT)
            return None if status in {"", "0"} else failed(f"exits with {status}")
        case RecursionError() if "setrecursionlimit" in code:
            return unknown("the sandbox lacks something: a deeper stack")
        case _:
            return explain(error, code)


def _is_lacking(cause: BaseException, message: str) -> bool:
    """Would CPython perhaps have gone on where Monty raised this?"""
    match cause:
        case ImportError() | PermissionError():
            return True
        case NotImplementedError() | RuntimeError() | SyntaxError():
            return _LACKING.search(message) is not None
        case TypeError() | ValueError():
            return _LACKING.search(message) is not None or _REFUSED.search(message) is not None
        case NameError():
            missing = _NO_NAME.search(message)
            return missing is not None and missing[1].removesuffix(TAG) in dir(builtins)
        case AttributeError():
            return message.startswith("module ") or TAG in message or _has_attribute(message)
        case _:
            return False


def _has_attribute(message: str) -> bool:
    """Does CPython's type have the attribute that Monty's lacks?"""
    match = _NO_ATTRIBUTE.search(message)
    if match is None:
        return False
    return hasattr(_KINDS.get(match[1], object), match[2])
