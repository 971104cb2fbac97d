"""Generated code, executed by a full CPython in a jail of bubblewrap; alone, or where Monty cannot tell.

The verdict is made outside. The jail is told what to call or what stands on stdin, never what should come of it; it
hands back what it returned or printed, and that is compared here, or in Monty where the test is more than equality of
texts. So whatever the code does to the process it runs in, it can only answer, and a forged answer has to be right.
Values that come out of the jail are made into source, never into objects of this process.
"""

import logging
import re
import signal
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from codezero.errors import ProblemError, SandboxError
from codezero.sandbox import jail
from codezero.sandbox.base import (
    ALL_HOLD,
    MAX_OUTPUT_BYTES,
    Case,
    Execution,
    Job,
    Outcome,
    Sandbox,
    failed,
    run_cases,
    same_output,
    unknown,
)
from codezero.sandbox.jail import Ended, Jail
from codezero.sandbox.jail_main import MAX_DEPTH
from codezero.sandbox.monty import MAX_BYTES, MontySandbox
from codezero.sandbox.separation import AssertionStep, separate

_logger = logging.getLogger(__name__)
_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]+")
_CONTAINERS = {
    "list": ("[", "]"),
    "tuple": ("(", ")"),
    "set": ("set([", "])"),
    "frozenset": ("frozenset([", "])"),
    "dict": ("{", "}"),
}


def render(encoded: object, depth: int = 0) -> str:
    """Source of the value that `jail_main.encode` wrote. Raises ProblemError for anything it could not have written.

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
    render_item = _pair if kind == "dict" else render
    return opening + "".join(f"{render_item(item, depth)}, " for item in items) + closing


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


_LACKING = frozenset({"ImportError", "ModuleNotFoundError", "PermissionError", "FileNotFoundError", "BlockingIOError"})
"""Errors that come of the jail as easily as of the code."""
_CPU_TIME_IS_OVER = 128 + signal.SIGXCPU
_KILLED = 128 + signal.SIGKILL


class _Report(msgspec.Struct):
    """What `jail_main` reports."""

    values: list[Any]
    raised: tuple[str, str] | None = None
    """Type and message of the exception that ended the run."""
    odd: str | None = None
    """What the last value was that is not plain data."""


class BubblewrapSandbox(Sandbox):
    """A fresh jail for each program, and for each case of a program that reads stdin.

    seconds: processor time of a jail; it is also ended after twice that, and a second, by the clock. memory_mib:
    address space of each of its processes; there can be five.
    """

    def __init__(self, *, seconds: float = 4.0, memory_mib: int = 512) -> None:
        """Raises SandboxError, with the reason and the remedy, when there can be no jail on this machine."""
        if reason := jail.why_not():
            raise SandboxError(reason)
        self._jail = Jail(seconds, memory_mib)
        self._monty = MontySandbox(seconds=seconds)

    def run(self, job: Job) -> Execution:
        if not job.tests:
            return unknown("no tests")
        if len(job.code) > MAX_BYTES:
            return unknown(f"code longer than {MAX_BYTES} characters")
        try:
            if job.stdio:
                return run_cases(job.tests, lambda case: self._run_case(job.code, case))
            return self._run_calls(job.code, job.tests)
        except ProblemError as error:
            return unknown(str(error))

    def close(self) -> None:
        self._monty.close()

    def _run_case(self, code: str, case: Case) -> Execution:
        ended = self._jail.run(code, None, case.input)
        report = _read(ended)
        fault = _stopped(report) if report is not None else _ending(ended)
        if fault is not None:
            return fault
        printed = ended.printed.decode("utf-8", "replace")
        return ALL_HOLD if same_output(case.output, printed) else failed("prints something else")

    def _run_calls(self, code: str, tests: tuple[str, ...]) -> Execution:
        if sum(map(len, tests)) > MAX_BYTES:
            return unknown(f"tests longer than {MAX_BYTES} characters")
        steps = separate(tests)
        ended = self._jail.run(code, [{"setup": step.setup, "calls": step.calls} for step in steps])
        report = _read(ended)
        if report is None:
            return _ending(ended) or failed("ends before its tests do")
        script, complete = _script(steps, report.values)
        checked = self._monty.check(script)
        if checked.outcome is not Outcome.PASS:
            return checked
        return ALL_HOLD if complete and report.raised is None and report.odd is None else _stopped(report)


def _script(steps: Sequence[AssertionStep], values: Sequence[object]) -> tuple[str, bool]:
    """The checks of the steps whose calls were all answered, with the answers; and are those all steps?"""
    lines: list[str] = []
    given = iter(values)
    for step in steps:
        answers = [answer for _, answer in zip(step.names, given, strict=False)]
        if len(answers) < len(step.names):
            return "\n".join(lines), False
        lines += [f"{name} = {render(answer)}" for name, answer in zip(step.names, answers, strict=True)]
        lines.append(step.check)
    return "\n".join(lines), True


def _read(ended: Ended) -> _Report | None:
    """The report, or None when there is none that makes sense."""
    try:
        return msgspec.json.decode(ended.report, type=_Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _stopped(report: _Report) -> Execution:
    """Why a run that left a report did not come to its end."""
    if report.odd is not None:
        return unknown(f"returns what is not plain data: {report.odd}")
    if report.raised is None:
        return failed("ends before its tests do")
    name, message = report.raised
    if name == "MemoryError":
        return failed("memory limit")
    if name in _LACKING or "can't start new thread" in message:
        return unknown(f"the jail lacks something: {name}: {message}")
    return failed(f"{name}: {message}")


def _ending(ended: Ended) -> Execution | None:
    """Why a run without a report ended; None: as a program should."""
    if len(ended.printed) > MAX_OUTPUT_BYTES:
        return failed(f"prints more than {MAX_OUTPUT_BYTES} bytes")
    if ended.status is None or ended.status == _CPU_TIME_IS_OVER:
        return failed("time limit")
    if ended.status == _KILLED:
        return failed("killed: time or memory limit")
    return failed(f"exits with {ended.status}") if ended.status else None


class TieredSandbox(Sandbox):
    """Asks the first; where that cannot tell or fails provisionally, the second if there is one.

    A provisional failure stands where the second cannot tell. Both end with `close`.
    """

    def __init__(self, first: Sandbox, second: Sandbox | None = None) -> None:
        self._first = first
        self._second = second

    def run(self, job: Job) -> Execution:
        """Raises SandboxError when a sandbox that is asked cannot be used."""
        first = self._first.run(job)
        if self._second is None or not (first.outcome is Outcome.UNKNOWN or first.provisional):
            return first
        second = self._second.run(job)
        return first if second.outcome is Outcome.UNKNOWN and first.provisional else second

    def close(self) -> None:
        try:
            self._first.close()
        finally:
            if self._second is not None:
                self._second.close()


def open_sandbox(which: str) -> TieredSandbox:
    """The sandbox named `auto`, `monty` or `bubblewrap`.

    auto: Monty, and bubblewrap behind it where this machine allows it. Raises SandboxError, with the reason and the
    remedy, when bubblewrap is asked for by name and cannot be had.
    """
    if which == "monty":
        return TieredSandbox(MontySandbox())
    if which == "bubblewrap":
        return TieredSandbox(BubblewrapSandbox())
    if which != "auto":
        raise ValueError(f"no sandbox is called {which!r}")
    try:
        second = BubblewrapSandbox()
    except SandboxError as reason:
        _logger.info("what Monty cannot tell stays unknown; no second sandbox: %s", reason)
        second = None
    return TieredSandbox(MontySandbox(), second)
