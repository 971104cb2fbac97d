"""Generated code, executed: inside pydantic-monty, a Python-subset interpreter in a worker process.

Three outcomes. PASS: every test holds. FAIL: the code is at fault. UNKNOWN: the interpreter lacks something the code
or its tests need, so it could not tell; never counted as wrong.

What crosses back is a pair of booleans and the text of an exception, never a value the code made: converting such a
value can cost more than any limit inside. Two errors remain possible. A method that takes an argument Monty does not
know raises TypeError and reads as the code's fault. A helper that tests call without defining it is the code's own.
"""

import builtins
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pydantic_monty
from pydantic_monty import Monty

from codezero.errors import ProblemError, SandboxError
from codezero.sandbox.assertions import FINISHED, INSPECT, TAG, TRUST, examine
from codezero.sandbox.execution import Execution, Job, Outcome

MAX_BYTES = 16 * 1024
"""Longest code, and longest tests together; longer ones are UNKNOWN."""
_REASON_CHARACTERS = 200
_WATCHDOG_GRACE_SECONDS = 1.0
_CHECKOUTS_PER_WORKER = 10_000

_OWN_CLASS = re.compile(r"class|type|exec|eval")
"""Without one of these words no object with its own notion of equality can be made."""
_LACKING = re.compile(r"\bmonty\b|not (?:yet )?(?:support|implement)|host function", re.IGNORECASE)
_NO_ATTRIBUTE = re.compile(r"'(\w+)'(?: object)? has no attribute '(\w+)'")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")


class MontySandbox:
    """A worker process that executes programs; it starts with the first one and ends with `close`.

    seconds: time of the code, and again of all its tests. memory_mib: heap. recursion: call depth (CPython's own
    default is 1000).
    """

    def __init__(self, *, seconds: float = 2.0, memory_mib: int = 128, recursion: int = 1000) -> None:
        self._limits = pydantic_monty.ResourceLimits(
            max_feed_duration_secs=seconds,
            max_memory=memory_mib * 2**20,
            max_recursion_depth=recursion,
        )
        self._watchdog_seconds = seconds + _WATCHDOG_GRACE_SECONDS
        self._pool: Monty | None = None

    def run(self, job: Job) -> Execution:
        """Execute the code, then its tests. Raises SandboxError when no worker can be had."""
        code, tests = job.code, job.tests
        if not tests:
            return Execution(Outcome.UNKNOWN, "no tests")
        for what, text in (("code", code), ("tests", "\n".join(tests))):
            if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
                return Execution(Outcome.UNKNOWN, f"{what} longer than {MAX_BYTES} bytes")
        try:
            script = examine(tests)
        except ProblemError as error:
            return _execution(Outcome.UNKNOWN, str(error))
        wary = _may_define_equality(code)
        try:
            # exec, inside the sandbox, keeps the code's own `return` from ending the feed with a value of its making
            whole = f"{code}\n{FINISHED} = True"
            (plain,) = self._feed(f"{INSPECT if wary else TRUST}\n{script.before}\nexec({whole!r})\nNone", script.after)
        except pydantic_monty.MontyError as error:
            return _explain(error)
        if not plain or (wary and not script.traced):
            return Execution(Outcome.UNKNOWN, "compares objects that could be made to equal anything")
        return Execution(Outcome.PASS)

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """`run` for each, in order."""
        return [self.run(job) for job in jobs]

    def close(self) -> None:
        """End the worker; a later `run` starts another."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _feed(self, *texts: str) -> Any:
        """Run the texts one after the other in a fresh session; the value of the last. Raises MontyError."""
        session = self._started().checkout(
            limits=self._limits,
            assert_message_annotations=False,
            os_policy={"sleep": "zero", "random_start": {"seed": 0}},
        )
        value: Any = None
        try:
            with session:
                for text in texts:
                    value = session.feed_run(text, print_callback=_discard)
        except (OSError, RuntimeError) as error:
            raise SandboxError(f"the sandbox worker cannot be used: {error}") from error
        return value

    def _started(self) -> Monty:
        if self._pool is None:
            pool = Monty(
                min_processes=1,
                max_processes=1,
                request_timeout=self._watchdog_seconds,
                max_checkouts_per_worker=_CHECKOUTS_PER_WORKER,
            )
            try:
                self._pool = pool.__enter__()
            except (OSError, RuntimeError) as error:
                raise SandboxError(f"the sandbox worker cannot start: {error}") from error
        return self._pool


def _discard(stream: str, text: str) -> None:
    """What code prints is nobody's business."""


def _may_define_equality(code: str) -> bool:
    return not code.isascii() or _OWN_CLASS.search(code) is not None


def _execution(outcome: Outcome, reason: str) -> Execution:
    return Execution(outcome, reason[:_REASON_CHARACTERS])


def _explain(error: pydantic_monty.MontyError) -> Execution:
    """Whose fault an exception is."""
    if isinstance(error, pydantic_monty.MontyCrashedError):
        if error.timed_out:
            return Execution(Outcome.FAIL, "time limit")
        return _execution(Outcome.UNKNOWN, f"the interpreter died: {error}")
    cause = error.exception()
    name, message = type(cause).__name__, str(cause)
    match cause:
        case TimeoutError() if "time limit" in message:
            return Execution(Outcome.FAIL, "time limit")
        case MemoryError():
            return Execution(Outcome.FAIL, "memory limit")
        case AssertionError() if message.startswith(TAG):
            return Execution(Outcome.FAIL, f"test {message.removeprefix(TAG).strip()} fails")
        case NameError() if FINISHED in message:
            return Execution(Outcome.FAIL, "SyntaxError: 'return' outside function")
        case _ if _is_lacking(cause, message):
            return _execution(Outcome.UNKNOWN, f"the sandbox lacks something: {name}: {message}")
        case _:
            return _execution(Outcome.FAIL, f"{name}: {message}")


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
            return message.startswith("module ") or _has_attribute(message)
        case _:
            return False


def _has_attribute(message: str) -> bool:
    """Does CPython's type have the attribute that Monty's lacks?"""
    match = _NO_ATTRIBUTE.search(message)
    if match is None:
        return False
    kind = getattr(builtins, match[1], None)
    return isinstance(kind, type) and hasattr(kind, match[2])
