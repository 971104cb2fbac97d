"""Rows of MBPP and CodeContests, in the form their data sets have, as problems with their known solutions.

Fields that are not used are ignored; one that is missing or of another type is refused by name. A third form,
`question` and `tests`, is for problems that somebody proposed.
"""

import bisect
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import MbppRow, parse_tests
from codezero.errors import ProblemError
from codezero.types import Problem, Source, Standing, Worked, problem_id

PYTHON3 = 3
"""CodeContests numbers its languages: 0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java."""
EXTERNAL = 6
"""CodeContests' word for a difficulty that it does not know."""
RATINGS = (1000, 1300, 1700, 2200)
"""Ratings of Codeforces at which levels 2 to 5 begin."""
MAX_ROW = 32 << 20
"""Bytes of one line. A row of CodeContests has every solution that was handed in, and cases of megabytes."""
MAX_CASES, MAX_CASES_TEXT = 64, 64 * 1024
"""Tests of one problem, and characters of them all: what a peer can be sent."""
MAX_ROWS = 20_000
MAX_SOLUTIONS = 20
"""Of a kind, for one problem."""
MAX_SOLUTION = 64 * 1024
"""Characters."""
_Text = Annotated[str, Meta(max_length=1 << 20)]


class _Mbpp(MbppRow, frozen=True):
    def worked(self) -> Worked:
        question, tests, entry = self.parts()
        problem = Problem(problem_id(question, tests), question, tests, entry, Source.MBPP, reference=self.code or None)
        return Worked(problem, (self.code,) if self.code else ())


class _Cases(msgspec.Struct, frozen=True):
    input: list[str] = []
    output: list[str] = []


class _Solutions(msgspec.Struct, frozen=True):
    language: list[int] = []
    solution: list[str] = []

    def python(self) -> tuple[str, ...]:
        written = zip(self.language, self.solution, strict=False)
        programs = (code for language, code in written if language == PYTHON3 and len(code) <= MAX_SOLUTION)
        return tuple(islice(programs, MAX_SOLUTIONS))


class _CodeContests(msgspec.Struct, frozen=True):
    description: _Text
    public_tests: _Cases
    solutions: _Solutions
    difficulty: int = 0
    cf_rating: int = 0
    private_tests: _Cases = _Cases()
    incorrect_solutions: _Solutions = _Solutions()

    def worked(self) -> Worked:
        tests = tuple(self._tests())
        if not tests:
            raise ProblemError(f"no tests of at most {MAX_CASES_TEXT} characters")
        right, wrong = self.solutions.python(), self.incorrect_solutions.python()
        question = self.description.strip()
        reference = right[0] if right else None
        key, source = problem_id(question, tests), Source.CODE_CONTESTS
        problem = Problem(key, question, tests, "", source, level=self.level, reference=reference)
        return Worked(problem, right, wrong)

    @property
    def level(self) -> int | None:
        """1 to 5 by the rating of Codeforces, else by the difficulty; None where the row says neither.

        Difficulties are 1 EASY to 5 HARDEST, 6 EXTERNAL, and from 7 on the letters of Codeforces' problems, A first.
        """
        if self.cf_rating > 0:
            return 1 + bisect.bisect_right(RATINGS, self.cf_rating)
        named = self.difficulty if self.difficulty < EXTERNAL else self.difficulty - EXTERNAL
        return min(named, 5) if named > 0 else None

    def _tests(self) -> Iterator[str]:
        """The first that fit together; one that is too long leaves room for the next."""
        room, left = MAX_CASES_TEXT, MAX_CASES
        for cases in (self.public_tests, self.private_tests):
            for given, wanted in zip(cases.input, cases.output, strict=False):
                if len(given) + len(wanted) < room and left:
                    test = json.dumps({"input": given, "output": wanted})
                    if len(test) <= room:
                        room, left = room - len(test), left - 1
                        yield test


class _Proposed(msgspec.Struct, frozen=True):
    question: _Text
    tests: Annotated[list[_Text], Meta(max_length=200)]
    entry_point: Annotated[str, Meta(max_length=128)] | None = None
    """Read off the tests when it is missing; empty: the program reads stdin and writes stdout."""
    level: int | None = None
    proposer: Annotated[str, Meta(max_length=128)] | None = None

    def worked(self) -> Worked:
        tests, question = tuple(self.tests), self.question.strip()
        entry = parse_tests(tests)[0] if self.entry_point is None else self.entry_point
        key, claimed = problem_id(question, tests), Standing.CLAIMED
        problem = Problem(key, question, tests, entry, Source.PROPOSER, claimed, self.level, proposer=self.proposer)
        return Worked(problem, ())


_KINDS = {"test_list": _Mbpp, "public_tests": _CodeContests, "tests": _Proposed}
"""By a field that each row of the kind has."""


def lines(path: Path) -> Iterator[bytes]:
    """Those that are not blank; of one longer than MAX_ROW just enough to be refused."""
    at_start = True
    with path.open("rb") as file:
        for piece in iter(lambda: file.readline(MAX_ROW + 1), b""):
            if at_start and piece.strip():
                yield piece
            at_start = piece.endswith(b"\n")


def read_row(row: bytes | Mapping[str, object]) -> Worked:
    """One row of any kind: a line of JSON, or its fields. Raises ProblemError."""
    try:
        if isinstance(row, bytes) and len(row) > MAX_ROW:
            raise ProblemError(f"longer than {MAX_ROW >> 20} MiB")
        fields = msgspec.json.decode(row, type=dict[str, object]) if isinstance(row, bytes) else row
        kind = next((kind for field, kind in _KINDS.items() if field in fields), None)
        if kind is None:
            raise ProblemError("neither a row of MBPP (test_list) nor of CodeContests (public_tests)")
        return msgspec.convert(fields, type=kind).worked()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProblemError(str(error)) from error
