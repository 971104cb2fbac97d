"""Makes up for what Monty lacks: shims for a program's surroundings and builtins, and whose fault an exception is.

The surroundings are `input`, `sys.stdin`, `sys.stdout`, `sys.exit` and `EOFError`: source that runs in the sandbox
before the program. Monty's own `sys` can be neither replaced nor extended, so imports of it become assignments.
"""

import ast
import builtins
import collections
import datetime
import decimal
import functools
import pathlib
import re
import types

import pydantic_monty

from codezero.code.parsing import UNPARSEABLE, parse_quietly
from codezero.sandbox.base import Execution, failed, unknown
from codezero.sandbox.control import FINISHED, TAG
from codezero.sandbox.jail_main import SOLUTION

_LACKING = re.compile(r"\bmonty\b|not (?:yet )?(?:support|implement)|host function|PathLike", re.IGNORECASE)
_NO_ATTRIBUTE = re.compile(r"'(?:\w+\.)*(\w+)'(?: object)? has no attribute '(\w+)'")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")
_REFUSED = re.compile(  # what Monty's builtins refuse and CPython's take
    r"^[\w.]+(?:\(\))? (?:takes (?:no|exactly)|expected at (?:most|least)) "  # a builtin's parameters, never a `def`'s
    r"|cannot use '(?:set|dict|list)' as a set element"  # `{1} in sets` looks for a frozenset
    r"|to bytes$|bytes(?:-like| found)|must be string or compiled|'typing\.|^pow\(\) 2nd argument cannot be negative"
)
_LONGER_BY = 'can only concatenate list (not "'  # raised by CPython for `+` too, but not for `+=`
_KINDS: dict[str, type] = {
    kind.__name__: kind
    for library in (builtins, collections, datetime, decimal, pathlib, re)
    for kind in vars(library).values()
    if isinstance(kind, type)
} | {"function": types.FunctionType}


_fault = functools.partial(failed, provisional=True)


def explain(error: pydantic_monty.MontyError, code: str = "") -> Execution:
    """FAIL or UNKNOWN, with the reason in a phrase. Every FAIL is provisional but that of a test's own assertion."""
    if isinstance(error, pydantic_monty.MontyCrashedError):
        return _fault("time limit") if error.timed_out else unknown(f"the interpreter died: {error}")
    cause = error.exception()
    name, message = type(cause).__name__, str(cause)
    match cause:
        case TimeoutError() if "time limit" in message or "sleep limit" in message:
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


def explain_exit(error: pydantic_monty.MontyError, code: str) -> Execution | None:
    """Say how a program that reads stdin ended; None: by a plain `exit`. Running out of a deeper stack than Monty has
    shows nothing."""
    cause = None if isinstance(error, pydantic_monty.MontyCrashedError) else error.exception()
    match cause:
        case SystemExit():
            status = str(cause).removeprefix(EXIT)
            return None if status in {"", "0"} else failed(f"exits with {status}")
        case RecursionError() if "setrecursionlimit" in code:
            return unknown("the sandbox lacks something: a deeper stack")
        case ValueError() if "set_int_max_str_digits" in code and "digits" in str(cause):
            return unknown("the sandbox lacks something: longer numbers")
        case _:
            return explain(error, code)


def _is_lacking(cause: BaseException, message: str) -> bool:
    """True if CPython might have gone on where Monty raised this."""
    match cause:
        case ImportError() | PermissionError():
            return True
        case NotImplementedError() | RuntimeError() | SyntaxError():
            return _LACKING.search(message) is not None
        case TypeError() | ValueError():
            return _LACKING.search(message) is not None or _REFUSED.search(message) is not None
        case OverflowError():
            return "ssize_t" in message  # `range` of large numbers
        case NameError():
            missing = _NO_NAME.search(message)
            return missing is not None and missing[1].removesuffix(TAG) in dir(builtins)
        case AttributeError():
            missing = _NO_ATTRIBUTE.search(message)
            present = missing is not None and (
                missing[2].startswith("__") or hasattr(_KINDS.get(missing[1], object), missing[2])
            )
            return present or message.startswith("module ") or TAG in message
        case _:
            return False


END_OF_INPUT = f"end of input{TAG}"  # message of the exception raised in place of EOFError
EXIT = f"exit{TAG}"  # begins the message of the SystemExit that `exit` raises; the status follows

_SYS = f"sys{TAG}"
_SURROUNDINGS = f"""
import sys as real{TAG}
EOFError = FileExistsError
def exit(status=None, kind=SystemExit):
    raise kind("{EXIT}" + str(status or 0))
quit = exit
class Stdin{TAG}:
    def __init__(self, lines):
        self.waiting = lines[::-1]
    def readline(self):
        return self.waiting.pop() if self.waiting else ""
    def readlines(self):
        lines, self.waiting = self.waiting[::-1], []
        return lines
    def read(self):
        return "".join(self.readlines())
    def __iter__(self):
        return self
    def __next__(self):
        if not self.waiting:
            raise StopIteration
        return self.waiting.pop()
class Stdout{TAG}:
    def write(self, text, print=print, len=len):
        print(text, end="")
        return len(text)
    def writelines(self, texts, print=print):
        for text in texts:
            print(text, end="")
    def flush(self):
        pass
class Sys{TAG}:
    def __init__(self, lines, system):
        self.stdin, self.stdout, self.stderr = Stdin{TAG}(lines), Stdout{TAG}(), system.stderr
        self.maxsize, self.argv, self.exit = system.maxsize, ["main.py"], exit
    def setrecursionlimit(self, limit):
        pass
    def set_int_max_str_digits(self, limit):
        pass
def input(prompt="", print=print, end=EOFError):
    if prompt != "":
        print(prompt, end="")
    line = {_SYS}.stdin.readline()
    if line == "":
        raise end("{END_OF_INPUT}")
    return line[:-1] if line[-1] == "\\n" else line
"""
_PRINT = f"""
def print(*values, sep=" ", end="\\n", file=None, flush=False, print=print):
    if file is {_SYS}.stdout or file is None:
        print(*values, sep=sep, end=end)
    else:
        print(*values, sep=sep, end=end, file=file)
"""
"""Monty's own `print` knows no other stdout than Monty's; this one is slower, so it serves only those that need it."""


def surroundings(code: str, text: str) -> str:
    """The source that runs before `code` whose stdin holds `text`."""
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole] + ([rest] if rest else [])
    return f"{_SURROUNDINGS}\n{_SYS} = Sys{TAG}({lines!r}, real{TAG})\n{_PRINT if 'stdout' in code else ''}"


@functools.lru_cache(maxsize=8)
def with_stand_ins(code: str) -> str:
    """`code` with its imports of `sys` changed into assignments; code that Python cannot parse comes back unchanged."""
    return _changed(code, _StandIns()) if "sys" in code else code


@functools.lru_cache(maxsize=8)
def not_main(code: str) -> str:
    """`code` as a module that is not `__main__`; Monty's own `__name__` cannot be changed."""
    return _changed(code, _Imported()) if "__name__" in code else code


def _changed(code: str, changes: ast.NodeTransformer) -> str:
    try:
        return ast.unparse(ast.fix_missing_locations(changes.visit(parse_quietly(code))))
    except UNPARSEABLE:
        return code  # Monty says what is wrong with it


class _Imported(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(SOLUTION) if node.id == "__name__" and isinstance(node.ctx, ast.Load) else node


class _StandIns(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        others = [alias for alias in node.names if alias.name != "sys"]
        taken = [_assignment(alias.asname or "sys", _SYS) for alias in node.names if alias.name == "sys"]
        return [*taken, *([ast.Import(others)] if others else [])]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.module != "sys" or node.level or any(alias.name == "*" for alias in node.names):
            return node
        return [_assignment(alias.asname or alias.name, f"{_SYS}.{alias.name}") for alias in node.names]


def _assignment(name: str, value: str) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Name(value, ast.Load()))


_LAZY = ("enumerate", "filter", "map", "reversed", "zip")
_MENDED = {
    name: f"{name} = lambda *args, {name}={name}, iter=iter, **named: iter({name}(*args, **named))" for name in _LAZY
} | {
    "round": """
def round(number, ndigits=None, round=round, float=float, type=type):
    if ndigits is None:
        return round(number)
    if type(number) is float and 0 <= ndigits <= 22:
        return float(f"{number:.{+ndigits}f}")
    return round(number, ndigits)
"""
}
_MENTIONED = re.compile(rf"\b({'|'.join(_MENDED)})\b")


def mended(*texts: str) -> str:
    """Source to run first: the builtins that the texts name, as CPython has them."""
    mentioned = {name for text in texts for name in _MENTIONED.findall(text)}
    return "\n".join(_MENDED[name] for name in sorted(mentioned))
