"""Sandboxes: a job in, an execution out; assertions, or a program whose output is compared."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from codezero.code.assertions import Example, parse_cases
from codezero.errors import ProblemError
from codezero.sandbox.values import same_values

MAX_CASE = 2**20  # characters of one; a longer one is UNKNOWN
MAX_BYTES = 16 * 1024  # longest code, and longest assertions together; longer ones are UNKNOWN
MAX_OUTPUT_BYTES = 256 * 1024  # a program that prints more, and more than twice what is wanted, is wrong

LACKS = "lacks the package "  # begins the reason of an execution that would need another package; its name follows

_BLANK = " \t\r\f\v"
_WORDS = re.compile(f"[{_BLANK}]+")


def same_output(wanted: str, printed: str) -> bool:
    """Line by line the same words. How they are spaced, and blank lines at the end, do not matter; case, spelling of
    numbers and other blank lines do. Only blanks of ASCII separate words."""
    first, second = (
        [_WORDS.split(line.strip(_BLANK)) for line in text.rstrip(_BLANK + "\n").split("\n")]
        for text in (wanted, printed)
    )
    return first == second


def same_decimals(wanted: str, printed: str) -> bool:
    """As many lines, each the same but for blanks around it, or numbers that are equal as decimals."""
    first, second = (text.strip().split("\n") for text in (wanted, printed))
    return len(first) == len(second) and all(map(_same_line, first, second))


def _same_line(wanted: str, printed: str) -> bool:
    if wanted.strip() == printed.strip():
        return True
    try:
        first, second = ([Decimal(word) for word in line.split()] for line in (wanted, printed))
        return first == second
    except ArithmeticError:  # some word is no number
        return False


SAME: dict[str, Callable[[str, str], bool]] = {"words": same_output, "decimals": same_decimals, "values": same_values}


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"  # the sandbox could not tell; never counted as wrong


TRUTH: dict[Outcome, bool | None] = {Outcome.PASS: True, Outcome.FAIL: False, Outcome.UNKNOWN: None}


@dataclass(frozen=True, slots=True)
class Execution:
    outcome: Outcome
    reason: str = ""  # why not PASS, or what of a PASS is not guarded, in a phrase of at most 200 printable characters
    provisional: bool = False
    """A FAIL that CPython need not see: the code raised something, or hit a limit, in an interpreter that is slower and
    knows less. A sandbox behind this one decides; without one it stands."""
    cheats: bool = False  # a FAIL of code that passed its tests and also what must fail: it answers for them
    unguarded: int = 0  # tests of a PASS that have no condition to find a cheat by
    printed: str = field(default="", compare=False)  # instead of what is wanted, cut like the reason


ALL_HOLD = Execution(Outcome.PASS)


def failed(reason: str, *, provisional: bool = False) -> Execution:
    return Execution(Outcome.FAIL, _phrase(reason), provisional)


def unknown(reason: str) -> Execution:
    return Execution(Outcome.UNKNOWN, _phrase(reason))


def _phrase(reason: str) -> str:
    """Some of it was written by the code: cut, and without control characters."""
    return "".join(character if character.isprintable() else " " for character in reason[:200])


class Job(NamedTuple):
    code: str  # not fenced
    tests: tuple[str, ...]
    stdio: bool = False  # the tests are `{"input": .., "output": ..}`; else they are assertions
    main: bool = True  # is a program of stdin `__main__`? The code of assertions never is.
    compared: str = "words"  # how what a program prints is compared: one of SAME
    reference: str = ""  # a program that is right: what it prints is added, in new lines, to the output that is wanted


class Sandbox(AbstractContextManager["Sandbox"], ABC):
    """Executes programs where they can harm nothing. A context manager that ends with `close`. workers: programs at
    once, each in a thread of its own; no result depends on it."""

    workers = 1

    @abstractmethod
    def run(self, job: Job) -> Execution:
        """Execute the code, then its tests. Raises SandboxError when the sandbox itself cannot be used."""

    @abstractmethod
    def refusal(self, job: Job) -> str:
        """Say in a phrase why no code can be decided by these tests here; empty when some can."""

    @abstractmethod
    def close(self) -> None: ...

    def run_many(self, jobs: Sequence[Job]) -> list[Execution]:
        """`run` for each, `workers` at once, in order. Raises what the first of them raises."""
        if self.workers == 1:
            return [self.run(job) for job in jobs]
        with ThreadPoolExecutor(self.workers, thread_name_prefix="sandbox") as pool:
            return list(pool.map(self.run, jobs))

    def run_distinct(self, jobs: Iterable[Job]) -> dict[Job, Execution]:
        """`run` for each different job: execution is deterministic, so once is enough."""
        distinct = list(dict.fromkeys(jobs))
        return dict(zip(distinct, self.run_many(distinct), strict=True))

    def __exit__(self, *_: object) -> None:
        self.close()


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Tier(Sandbox):
    @abstractmethod
    def read_assertions(self, tests: tuple[str, ...]) -> None:
        """Raises ProblemError for tests that this tier cannot run, whatever the code."""

    @abstractmethod
    def run_assertions(self, code: str, tests: tuple[str, ...]) -> Execution:
        """Tests that `read_assertions` has taken."""

    @abstractmethod
    def run_cases(self, code: str, inputs: Sequence[str], most: int, *, main: bool) -> Generator[Execution | str]:
        """Yield what the program prints for each stdin, or why it does not end; none is begun before it is asked for.
        most: bytes that it may print."""

    def refusal(self, job: Job) -> str:
        if not job.tests:
            return "no tests"
        if not job.stdio and _length("\n".join(job.tests)) > MAX_BYTES:
            return f"tests longer than {MAX_BYTES} bytes"
        try:
            parse_cases(job.tests, MAX_CASE) if job.stdio else self.read_assertions(job.tests)
        except ProblemError as error:
            return _phrase(str(error))
        return ""

    def run(self, job: Job) -> Execution:
        if refusal := self.refusal(job):
            return unknown(refusal)
        if _length(job.code) > MAX_BYTES:
            return unknown(f"code longer than {MAX_BYTES} bytes")
        return self._compare_cases(job) if job.stdio else self.run_assertions(job.code, job.tests)

    def _compare_cases(self, job: Job) -> Execution:
        """Run the cases in order until one does not hold."""
        cases = list(parse_cases(job.tests, MAX_CASE))
        if job.reference:
            inputs = [case.input for case in cases]
            with closing(self.run_cases(job.reference, inputs, MAX_CASE, main=job.main)) as outputs:
                for at, output in enumerate(outputs):
                    if isinstance(output, Execution):
                        return unknown(f"the reference: {output.reason}")
                    cases[at] = Example(inputs[at], f"{cases[at].output}\n{output}")
        most = max(MAX_OUTPUT_BYTES, *(2 * _length(case.output) for case in cases))
        with closing(self.run_cases(job.code, [case.input for case in cases], most, main=job.main)) as executions:
            for number, (case, execution) in enumerate(zip(cases, executions, strict=True), start=1):
                if isinstance(execution, str):
                    other = replace(failed("prints something else"), printed=_phrase(execution))
                    execution = ALL_HOLD if SAME[job.compared](case.output, execution) else other
                if execution.outcome is Outcome.UNKNOWN and execution.reason.startswith(LACKS):
                    return execution  # the same for every test, so that attempts can be counted by it
                if execution.outcome is not Outcome.PASS:
                    return replace(execution, reason=_phrase(f"test {number}: {execution.reason}"))
        return ALL_HOLD
