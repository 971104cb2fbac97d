"""Generated code, executed inside pydantic-monty, a Python-subset interpreter in a worker process.

PASS: every test holds. FAIL: the code is at fault. UNKNOWN: the interpreter lacks something the code or its tests need.

What crosses back is how often conditions held, in a text, the text of an exception or what was printed, never a value
the code made: converting such a value can cost more than any limit inside. `gaps.py` says what Monty does as CPython
and may decide, `explain` which exceptions are Monty's own. A FAIL by any other exception, or by a limit, is
provisional: alone it stands, and a second tier decides it.

Shims make up for what Monty lacks. Of builtins, and of a program's surroundings: `input`, `sys.stdin`, `sys.stdout`,
`sys.exit` and `EOFError`, source that runs in the sandbox before the program. Monty's own `sys` can be neither replaced
nor extended, so imports of it become assignments."""

import ast
import builtins
import collections
import datetime
import decimal
import functools
import math
import pathlib
import re
import threading
import types
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pydantic_monty
from pydantic_monty import Monty

from codezero.code.parsing import UNPARSEABLE, parse_quietly
from codezero.errors import ProblemError, SandboxError, translated
from codezero.sandbox.base import Execution, Job, Outcome, Tier, failed, unknown
from codezero.sandbox.control import FINISHED, HELD, MISSED, TAG, ControlledRun, SiteCounts, control_of, read_test
from codezero.sandbox.gaps import silent_gap
from codezero.sandbox.jail_main import SOLUTION

_SETUP = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef)


class MontySandbox(Tier):
    """Processes that execute programs, one for each of `workers`; they start when needed and end with `close`. seconds:
    time of the code, and again of all its assertions; for programs that read stdin, of each case. memory_mib: heap.
    Calls may be nested as deeply as by default in CPython."""

    def __init__(self, *, seconds: float = 2.0, memory_mib: int = 128, workers: int = 1) -> None:
        self.workers = workers
        self._limits = pydantic_monty.ResourceLimits(
            max_feed_duration_secs=seconds,
            max_total_sleep_secs=seconds,
            max_memory=memory_mib * 2**20,
            max_recursion_depth=1000,
        )
        self._watchdog_seconds = seconds + 1.0
        self._pool: Monty | None = None
        self._opening = threading.Lock()

    def run(self, job: Job) -> Execution:
        execution = super().run(job)
        text = "\n".join((job.reference, job.code) if job.stdio else (job.code, *job.tests))
        gap = "" if execution.outcome is Outcome.UNKNOWN else silent_gap(text, execution)
        return unknown(f"the sandbox may be mistaken: {gap}") if gap else execution

    def close(self) -> None:
        """End the processes; a later `run` starts others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def read_assertions(self, tests: tuple[str, ...]) -> None:
        for number, test in enumerate(tests, start=1):
            body = read_test(test, number).body
            if odd := next((each for each in body if not isinstance(each, (*_SETUP, ast.Assert))), None):
                raise ProblemError(f"test {number}: {type(odd).__name__} is neither an assertion nor set-up")
            if not any(isinstance(each, ast.Assert) for each in body):
                raise ProblemError(f"test {number} asserts only inside something else")
        control_of(tests)

    def run_assertions(self, code: str, tests: tuple[str, ...]) -> Execution:
        control, code = control_of(tests), not_main(code)
        execution = control.decide((run, self._report(run, code)) for run in control.runs())
        return replace(execution, provisional=True) if execution.cheats else execution

    def _report(self, run: ControlledRun, code: str) -> SiteCounts:
        before = f"{mended(code, *run.tests)}\n{run.helpers}\n{_whole(code)}\nNone"
        counts = f"f'[{{{HELD}}}, {{{MISSED}}}]'" if run.altered else "'[[], []]'"
        try:
            text = self._feed(before, "\n".join((FINISHED, *run.tests, counts)))
            return SiteCounts(*msgspec.json.decode(text, type=tuple[list[int], list[int]]))
        except pydantic_monty.MontyError as error:
            return SiteCounts(fault=explain(error, code))
        except msgspec.MsgspecError:  # the code has reached the lists
            return SiteCounts()

    def run_cases(self, code: str, inputs: Sequence[str], most: int, *, main: bool) -> Generator[Execution | str]:
        program = code if main else not_main(code)
        for text in inputs:
            printed, fault = _Printed(most), None
            try:
                before = f"{mended(program)}\n{surroundings(program, text)}"
                self._feed(before, f"{_whole(with_stand_ins(program))}\nNone", FINISHED, printed=printed)
            except pydantic_monty.MontyError as error:
                fault = explain_exit(error, program)
            if printed.left < 0:
                fault = failed(f"prints more than {most} bytes")
            yield fault or "".join(printed.texts)

    def _feed(self, *texts: str, printed: "_Printed | None" = None) -> Any:
        """Run the texts one after the other in a fresh session; the value of the last. Raises MontyError."""
        value: Any = None
        with translated(SandboxError, "the sandbox worker cannot be used", OSError, RuntimeError):
            with self._opening:
                if self._pool is None:
                    limit, most = self._watchdog_seconds, self.workers
                    pool = Monty(request_timeout=limit, max_processes=most, max_checkouts_per_worker=10_000)
                    self._pool = pool.__enter__()
                pool = self._pool
            with pool.checkout(
                limits=self._limits,
                assert_message_annotations=False,
                # a sleep is charged before it is slept; beyond the limit none is
                os_policy={"sleep": "system", "sleep_system_max": math.inf, "random_start": {"seed": 0}},
            ) as session:
                for text in texts:
                    value = session.feed_run(text, print_callback=printed or (lambda stream, text: None))
        return value


class _Printed:
    """Collects what a program prints to stdout, and not much more than it may."""

    def __init__(self, most: int) -> None:
        self.texts, self.left = list[str](), most  # bytes

    def __call__(self, stream: str, text: str) -> None:
        if self.left < 0:
            raise BrokenPipeError  # ends a program that would go on printing until its time is over
        if stream == "stdout":
            self.texts.append(text)
            self.left -= len(text.encode("utf-8", "surrogatepass"))


def _whole(code: str) -> str:
    """exec, inside the sandbox, keeps the code's own `return` from ending the feed with a value of its making."""
    whole = f"{code}\n{FINISHED} = True"
    return f"exec({whole!r})"


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
