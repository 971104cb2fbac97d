"""Problems that nothing is learned from: what the exam asks, and those of a source that the judge is measured on."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain, islice
from random import Random
from typing import TypeVar

from codezero.errors import CodeZeroError, ProblemError, translated
from codezero.problems.dedup import Novelty
from codezero.problems.filters import CURATED, inspect
from codezero.problems.hub import open_rows
from codezero.problems.rows import MAX_ROWS, read_row
from codezero.types import Problem, Worked

CANARY_ROWS, CANARY_EVERY = 384, 4
"""Of so many first rows of a source every fourth is the judge's: 94 of MBPP's 374."""
MAX_HELD_BACK = 10_000
"""Problems that new ones are compared with."""
_T = TypeVar("_T")


def exam_problems(name: str, count: int, *, seed: int, seconds: float) -> list[Problem]:
    """`count` usable problems of a set or path, the same for the same seed.

    Raises ProblemError when there is none, or it takes longer than `seconds` to read them.
    """
    problems = [row.problem for row in within(seconds, name, lambda: list(_usable(name, MAX_ROWS, 1)))]
    if not problems:
        raise ProblemError(f"{name} has no usable problem")
    return problems if count >= len(problems) else Random(f"exam {seed}").sample(problems, count)


def canary_rows(name: str, *, withheld: Novelty, seconds: float, whole: bool = False) -> list[Worked]:
    """The judge's rows of a source with solutions known to be right, none like what is `withheld`, to which they go.

    `whole`: all rows are the judge's. Raises ProblemError when there is none, or reading takes longer than `seconds`.
    """
    which = (MAX_ROWS, 1) if whole else (CANARY_ROWS, CANARY_EVERY)
    read = within(seconds, name, lambda: list(_usable(name, *which)))
    if not (rows := [row for row in read if row.right and withheld.add(row.problem) is None]):
        raise ProblemError(f"{name} has no solutions known to be right; `codezero data check` says what its rows lack")
    return rows


def digest(problems: Sequence[Problem]) -> str:
    """8 hex digits, the same for the same problems in any order."""
    return hashlib.sha256("".join(sorted(problem.id for problem in problems)).encode()).hexdigest()[:8]


def within(seconds: float, name: str, work: Callable[[], _T]) -> _T:
    """What `work` returns. Raises ProblemError, also when it takes longer."""
    with translated(ProblemError, f"{name} takes longer than {seconds:g} s to read", TimeoutError, reason=False):
        return begin(work).result(seconds)


def begin(work: Callable[[], _T]) -> Future[_T]:
    """What `work` returns or the error of this package that it ends with, from a thread that ends with the process."""
    future = Future[_T]()

    def run() -> None:
        try:
            future.set_result(work())
        except CodeZeroError as error:
            future.set_exception(error)
        finally:
            if not future.done():
                future.set_exception(ProblemError("reading ended unexpectedly; the log has the reason"))

    threading.Thread(target=run, name="problems", daemon=True).start()
    return future


def _usable(name: str, first: int, every: int) -> Iterator[Worked]:
    """Every so manieth of the first rows of a set, where it is well formed."""
    rows = open_rows(name)
    read = chain.from_iterable(rows.rows(shard, 0) for shard in rows.shards())
    for row in islice(read, 0, first, every):
        with suppress(ProblemError):
            worked = read_row(row)
            if inspect(worked.problem, CURATED) is None:
                yield worked
