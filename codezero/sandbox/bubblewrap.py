"""Generated code, executed by a full CPython in a jail of bubblewrap; alone, or where Monty cannot tell.

The verdict is made outside. The jail gets what to call or what stands on stdin, never what should come of it; it
returns values or output, which are compared here, or in Monty where the test is more than equality of texts. So code
that seizes its process can only answer, and a forged answer has to be right. Values that come out of the jail are made
into source, never into objects of this process.
"""

import logging
import math
import signal
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, cast

import msgspec

from codezero.errors import ProblemError, SandboxError, translated
from codezero.sandbox import jail
from codezero.sandbox.base import ALL_HOLD, MAX_OUTPUT_BYTES, Execution, Job, Outcome, Sandbox, Tier, failed, unknown
from codezero.sandbox.jail import Ended, Jail
from codezero.sandbox.jail_main import MAX_DEPTH
from codezero.sandbox.monty import MontySandbox
from codezero.sandbox.separation import AssertionStep, separate

_logger = logging.getLogger(__name__)
_CONTAINERS = {"list": ("[", "]"), "tuple": ("(", ")"), "set": ("set([", "])"), "frozenset": ("frozenset([", "])")}


def _float(digits: str) -> str:
    number = float.fromhex(digits)
    return repr(number) if math.isfinite(number) else f"float('{number}')"


def _scalar(kind: str, parts: list[str]) -> str:
    """Raises ValueError or OverflowError."""
    match kind, parts:
        case "int", [digits]:
            return f"({int(digits, 16):#x})"
        case "float", [digits]:
            return _float(digits)
        case "complex", [real, imaginary]:
            return f"complex({_float(real)}, {_float(imaginary)})"
        case "bytes", [digits]:
            return repr(bytes.fromhex(digits))
        case "range", [_, _, _]:
            return f"range({', '.join(hex(int(part, 16)) for part in parts)})"
        case _:
            raise ValueError(kind)


def render(encoded: Any, depth: int = 0) -> str:
    """Source of the value that `jail_main.encode` wrote, with the names set, frozenset, range, complex and float.
    Raises ProblemError for anything it could not have written."""
    if depth > MAX_DEPTH:
        raise ProblemError("a value nested too deeply")
    match encoded:
        case None | bool() | str():
            return repr(encoded)
        case ["dict", *pairs] if all(isinstance(pair, list) and len(cast("list[Any]", pair)) == 2 for pair in pairs):
            texts = [f"{render(key, depth + 1)}: {render(value, depth + 1)}" for key, value in pairs]
            return "{" + ", ".join(texts) + "}"
        case [str(kind), *parts] if kind not in _CONTAINERS and all(isinstance(part, str) for part in parts):
            with translated(ProblemError, "not a value", ValueError, OverflowError, reason=False):
                return _scalar(kind, parts)
        case [str(kind), *items] if kind in _CONTAINERS:
            opening, closing = _CONTAINERS[kind]
            return opening + "".join(f"{render(item, depth + 1)}, " for item in items) + closing
        case _:
            raise ProblemError("not a value")


_LACKING = frozenset({"ImportError", "ModuleNotFoundError", "PermissionError", "FileNotFoundError", "BlockingIOError"})
"""Errors that come of the jail as easily as of the code."""


class _Report(msgspec.Struct):
    values: list[Any]
    raised: tuple[str, str] | None = None
    """Type and message of the exception that ended the run."""
    odd: str | None = None
    """What the last value was that is not plain data."""


class BubblewrapSandbox(Tier):
    """A fresh jail for each program, and in it a fresh process for each case of a program that reads stdin.

    seconds: processor time of a test; it is also ended after twice that, and two seconds, by the clock. total_seconds:
    the same, of all tests of a program. memory_mib: address space of each of a jail's processes; there can be five.
    """

    def __init__(
        self, *, seconds: float = 4.0, total_seconds: float = 100.0, memory_mib: int = 512, workers: int = 1
    ) -> None:
        """Raises SandboxError, with the reason and the remedy, when there can be no jail on this machine."""
        if reason := jail.why_not():
            raise SandboxError(reason)
        self.workers, self._jail = workers, Jail(seconds, total_seconds, memory_mib)
        self._monty = MontySandbox(seconds=seconds, workers=workers)

    def close(self) -> None:
        self._monty.close()

    def run_cases(self, code: str, inputs: Sequence[str]) -> Generator[Execution | str]:
        with closing(self._jail.run(code, None, inputs)) as jail:
            for ended in jail:
                report, fault = _read(ended), _ending(ended)
                if fault is None and report is not None:
                    fault = _stopped(report)
                yield fault or ended.printed.decode("utf-8", "replace")

    def run_assertions(self, code: str, tests: tuple[str, ...]) -> Execution:
        steps = separate(tests)
        (ended,) = self._jail.run(code, [{"setup": step.setup, "calls": list(step.calls.values())} for step in steps])
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
        answers = dict(zip(step.calls, given, strict=False))
        if len(answers) < len(step.calls):
            return "\n".join(lines), False
        lines += [*(f"{name} = {render(answer)}" for name, answer in answers.items()), step.check]
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
    if not ended.begun:
        return unknown("the jail does not begin in time")
    if len(ended.printed) > MAX_OUTPUT_BYTES:
        return failed(f"prints more than {MAX_OUTPUT_BYTES} bytes")
    if ended.status in (None, 128 + signal.SIGXCPU, 128 + signal.SIGALRM):
        return failed("time limit")
    if ended.status == 128 + signal.SIGKILL:
        return failed("killed: time or memory limit")
    return failed(f"exits with {ended.status}") if ended.status else None


class TieredSandbox(Sandbox):
    """Asks the first; where that cannot tell or fails provisionally, the second. A provisional failure stands where
    the second cannot tell. Both end with `close`."""

    def __init__(self, first: Sandbox, second: Sandbox) -> None:
        self._first, self._second, self.workers = first, second, second.workers

    def run(self, job: Job) -> Execution:
        """Raises SandboxError when a sandbox that is asked cannot be used."""
        first = self._first.run(job)
        if first.outcome is not Outcome.UNKNOWN and not first.provisional:
            return first
        second = self._second.run(job)
        return first if second.outcome is Outcome.UNKNOWN and first.provisional else second

    def close(self) -> None:
        self._second.close()
        self._first.close()


def open_sandbox(which: str, *, seconds: float = 4.0, total_seconds: float = 100.0, workers: int = 1) -> Sandbox:
    """The sandbox named `auto`, `monty` or `bubblewrap`; the limits are of jails.

    auto: Monty, and bubblewrap behind it where this machine allows it. Raises SandboxError, with the reason and the
    remedy, when bubblewrap is asked for by name and cannot be had.
    """
    monty = MontySandbox(workers=workers)
    if which == "monty":
        return monty
    try:
        second = BubblewrapSandbox(seconds=seconds, total_seconds=total_seconds, workers=workers)
    except SandboxError as reason:
        if which == "bubblewrap":
            raise
        _logger.info("what Monty cannot tell stays unknown; no second sandbox: %s", reason)
        return monty
    return second if which == "bubblewrap" else TieredSandbox(monty, second)
