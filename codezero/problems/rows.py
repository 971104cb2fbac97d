"""Rows of MBPP and CodeContests, in the form their data sets have, as problems with their known solutions.

Fields that are not used are ignored; one that is missing or of another type is refused by name. A third form,
`question` and `tests`, is for problems that somebody proposed.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_tests
from codezero.errors import ProblemError
from codezero.types import Problem, Source, Standing, Worked, problem_id

PYTHON3 = 3
"""CodeContests numbers its languages: 0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java."""
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


class _Mbpp(msgspec.Struct, frozen=True):
    """`text` in the full set is `prompt` in the sanitised one."""

    code: _Text
    test_list: Annotated[list[_Text], Meta(min_length=1, max_length=200)]
    text: _Text = ""
    prompt: _Text = ""
    test_setup_code: _Text = ""
    test_imports: list[_Text] = []

    def worked(self) -> Worked:
        setup = "\n".join(filter(None, (self.test_setup_code, *self.test_imports)))
        tests = tuple(f"{setup}\n{test}" if setup else test for test in self.test_list)
        question = (self.text or self.prompt).strip()
        if not question:
            raise ProblemError("the question (text or prompt) is empty")
        entry = parse_tests(tests, reference=self.code)[0]
        problem = Problem(problem_id(question, tests), question, tests, entry, Source.MBPP, reference=self.code)
        return Worked(problem, (self.code,))


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
    private_tests: _Cases = _Cases()
    incorrect_solutions: _Solutions = _Solutions()

    def worked(self) -> Worked:
        tests = tuple(self._tests())
        if not tests:
            raise ProblemError(f"no tests of at most {MAX_CASES_TEXT} characters")
        right, wrong = self.solutions.python(), self.incorrect_solutions.python()
        question = self.description.strip()
        reference = right[0] if right else None
        problem = Problem(problem_id(question, tests), question, tests, "", Source.CODE_CONTESTS, reference=reference)
        return Worked(problem, right, wrong)

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


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and text of the lines that are not blank; of one longer than MAX_ROW just enough to be refused."""
    number, at_start = 0, True
    with path.open("rb") as file:
        for piece in iter(lambda: file.readline(MAX_ROW + 1), b""):
            number += at_start
            if at_start and piece.strip():
                yield number, piece
            at_start = piece.endswith(b"\n")


def read_rows(path: Path) -> Iterator[Worked]:
    """The rows of a JSONL file. Raises ProblemError that names the line."""
    try:
        for number, line in lines(path):
            if number > MAX_ROWS:
                raise ProblemError(f"{path}: more than {MAX_ROWS} rows")
            try:
                yield read_row(line)
            except ProblemError as error:
                raise ProblemError(f"{path}, line {number}: {error}") from error
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error


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
