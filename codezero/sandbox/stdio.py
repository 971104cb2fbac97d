"""Tests that give a program its input and hold what it prints against the output they want."""

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from codezero.errors import ProblemError

MAX_CASES = 20
"""Only this many are run, from the first: they bound the time one program can take."""
MAX_CASE_BYTES = 2**20
MAX_OUTPUT_BYTES = 256 * 1024
"""A program that prints more is wrong."""


class Case(msgspec.Struct, frozen=True):
    """One test: what stands on stdin and what has to stand on stdout."""

    input: str
    output: str


def read_cases(tests: Sequence[str]) -> list[Case]:
    """The first MAX_CASES tests, each from its JSON text. Raises ProblemError when one of them cannot be used."""
    return [_read(test, number) for number, test in enumerate(tests[:MAX_CASES], start=1)]


def _read(test: str, number: int) -> Case:
    if len(test) > MAX_CASE_BYTES:
        raise ProblemError(f"test {number} is longer than {MAX_CASE_BYTES} bytes")
    try:
        return msgspec.json.decode(test, type=Case)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise ProblemError(f"test {number} cannot be read: {error}") from error


def same_output(wanted: str, printed: str) -> bool:
    """Line by line the same words. How they are spaced, and blank lines at the end, do not matter.

    Case, spelling of numbers and blank lines before the end do.
    """
    return all(left == right for left, right in zip_longest(_words(wanted), _words(printed)))


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.rstrip().split("\n")]
