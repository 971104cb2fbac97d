"""Whose fault an exception in Monty is: the code's, or Monty's because it lacks something CPython has."""

import builtins
import re

import pydantic_monty

from codezero.sandbox.assertions import FINISHED, TAG
from codezero.sandbox.execution import Execution, failed, unknown
from codezero.sandbox.stand_ins import END_OF_INPUT, EXIT

_LACKING = re.compile(r"\bmonty\b|not (?:yet )?(?:support|implement)|host function|PathLike", re.IGNORECASE)
_NO_ATTRIBUTE = re.compile(r"'(\w+)'(?: object)? has no attribute '(\w+)'")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")


def explain(error: pydantic_monty.MontyError) -> Execution:
    """FAIL or UNKNOWN, with the reason in a phrase."""
    if isinstance(error, pydantic_monty.MontyCrashedError):
        return failed("time limit") if error.timed_out else unknown(f"the interpreter died: {error}")
    cause = error.exception()
    name, message = type(cause).__name__, str(cause)
    match cause:
        case TimeoutError() if "time limit" in message:
            return failed("time limit")
        case MemoryError():
            return failed("memory limit")
        case AssertionError() if message.startswith(TAG):
            return failed(f"test {message.removeprefix(TAG).strip()} fails")
        case NameError() if FINISHED in message:
            return failed("SyntaxError: 'return' outside function")
        case _ if END_OF_INPUT in message:
            return failed("EOFError: reads more than its input")
        case _ if _is_lacking(cause, message):
            return unknown(f"the sandbox lacks something: {name}: {message.replace(TAG, '')}")
        case _:
            return failed(f"{name}: {message}")


def explain_exit(error: pydantic_monty.MontyError, *, deep: bool) -> Execution | None:
    """How a program that reads stdin ended; None when it ended by a plain `exit`.

    deep: it asks for a deeper stack than Monty has, so running out of it shows nothing.
    """
    cause = None if isinstance(error, pydantic_monty.MontyCrashedError) else error.exception()
    match cause:
        case SystemExit():
            status = str(cause).removeprefix(EXIT)
            return None if status in {"", "0"} else failed(f"exits with {status}")
        case RecursionError() if deep:
            return unknown("the sandbox lacks something: a deeper stack")
        case _:
            return explain(error)


def _is_lacking(cause: BaseException, message: str) -> bool:
    """Would CPython perhaps have gone on where Monty raised this?"""
    match cause:
        case ImportError() | PermissionError():
            return True
        case NotImplementedError() | RuntimeError() | SyntaxError() | TypeError():
            return _LACKING.search(message) is not None
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
    kind = getattr(builtins, match[1], None)
    return isinstance(kind, type) and hasattr(kind, match[2])
