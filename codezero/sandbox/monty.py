"""Generated code, executed inside pydantic-monty, a Python-subset interpreter in a worker process.

PASS: every test holds. FAIL: the code is at fault. UNKNOWN: the interpreter lacks something the code or its tests need.

What crosses back is how often conditions held, in a text, the text of an exception or what was printed, never a value
the code made: converting such a value can cost more than any limit inside. `gaps.py` says what Monty does as CPython
and may decide, `monty_shims.py` which exceptions are Monty's own. A FAIL by any other exception, or by a limit, is
provisional: alone it stands, and a second tier decides it.
"""

import ast
import math
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pydantic_monty
from pydantic_monty import Monty

from codezero.errors import ProblemError, SandboxError, translated
from codezero.sandbox.base import Execution, Job, Outcome, Tier, failed, unknown
from codezero.sandbox.control import FINISHED, HELD, MISSED, ControlledRun, SiteCounts, control_of, read_test
from codezero.sandbox.gaps import silent_gap
from codezero.sandbox.monty_shims import explain, explain_exit, mended, not_main, surroundings, with_stand_ins

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
            if printed.full:
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
        self.texts: list[str] = []
        self._bytes, self._most = 0, most

    @property
    def full(self) -> bool:
        return self._bytes > self._most

    def __call__(self, stream: str, text: str) -> None:
        if self.full:
            raise BrokenPipeError  # ends a program that would go on printing until its time is over
        if stream == "stdout":
            self.texts.append(text)
            self._bytes += len(text.encode("utf-8", "surrogatepass"))


def _whole(code: str) -> str:
    """exec, inside the sandbox, keeps the code's own `return` from ending the feed with a value of its making."""
    whole = f"{code}\n{FINISHED} = True"
    return f"exec({whole!r})"
