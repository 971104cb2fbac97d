"""Rows of MBPP and CodeContests, in the form their data sets have, as problems with their known solutions.

Only what is used is read; everything else in a row is ignored. Whatever is missing or of another type is refused with
the name of the field. Of CodeContests' cases, which may be megabytes long, those are kept that fit a problem. A third
form, `question` and `tests`, is for problems that somebody proposed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
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


class _Cases(msgspec.Struct, frozen=True):
    input: list[str] = []
    output: list[str] = []


class _Solutions(msgspec.Struct, frozen=True):
    language: list[int] = []
    solution: list[str] = []


class _CodeContests(msgspec.Struct, frozen=True):
    description: _Text
    public_tests: _Cases
    solutions: _Solutions
    private_tests: _Cases = _Cases()
    incorrect_solutions: _Solutions = _Solutions()


class _Proposed(msgspec.Struct, frozen=True):
    question: _Text
    tests: Annotated[list[_Text], Meta(max_length=200)]
    entry_point: Annotated[str, Meta(max_length=128)] | None = None
    """Read off the tests when it is missing; empty: the program reads stdin and writes stdout."""
    level: int | None = None
    proposer: Annotated[str, Meta(max_length=128)] | None = None


def read_rows(path: Path) -> Iterator[Worked]:
    """The rows of a JSONL file. Raises ProblemError that names the line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_ROW + 1), b""), 1):
                if len(line) > MAX_ROW:
                    raise ProblemError(f"{path}, line {number}: longer than {MAX_ROW >> 20} MiB")
                if number > MAX_ROWS:
                    raise ProblemError(f"{path}: more than {MAX_ROWS} rows")
                if line.strip():
                    try:
                        yield read_row(line)
                    except ProblemError as error:
                        raise ProblemError(f"{path}, line {number}: {error}") from error
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error


def read_row(row: bytes | Mapping[str, object]) -> Worked:
    """One row of either data set, told apart by its fields: a line of JSON, or what `datasets` yields.

    Raises ProblemError.
    """
    try:
        if isinstance(row, bytes):
            if len(row) > MAX_ROW:
                raise ProblemError(f"longer than {MAX_ROW >> 20} MiB")
            fields = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
            row = {name: msgspec.json.decode(fields[name]) for name in _READ if name in fields}
        if "test_list" in row:
            return _mbpp(msgspec.convert(row, type=_Mbpp))
        if "public_tests" in row:
            return _code_contests(msgspec.convert(row, type=_CodeContests))
        if "question" in row and "tests" in row:
            return _proposed(msgspec.convert(row, type=_Proposed))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProblemError(str(error)) from error
    raise ProblemError("neither a row of MBPP (test_list) nor of CodeContests (public_tests)")


_READ = frozenset(
    name
    for schema in (_Mbpp, _CodeContests, _Proposed)
    for name in (field.encode_name for field in msgspec.structs.fields(schema))
)
"""Fields of a line that are decoded at all."""


def _mbpp(row: _Mbpp) -> Worked:
    setup = "\n".join(filter(None, (row.test_setup_code, *row.test_imports)))
    tests = tuple(f"{setup}\n{test}" if setup else test for test in row.test_list)
    question = (row.text or row.prompt).strip()
    if not question:
        raise ProblemError("the question (text or prompt) is empty")
    entry = parse_tests(tests, reference=row.code).entry_point
    problem = Problem(problem_id(question, tests), question, tests, entry, Source.MBPP, reference=row.code)
    return Worked(problem, (row.code,))


def _code_contests(row: _CodeContests) -> Worked:
    cases = [*zip(row.public_tests.input, row.public_tests.output, strict=False)]
    cases += zip(row.private_tests.input, row.private_tests.output, strict=False)
    tests = tuple(_fitting(cases))
    if not tests:
        raise ProblemError(f"no tests of at most {MAX_CASES_TEXT} characters" if cases else "no tests")
    right, wrong = (tuple(_python(kind)) for kind in (row.solutions, row.incorrect_solutions))
    question = row.description.strip()
    problem = Problem(problem_id(question, tests), question, tests, "", Source.CODE_CONTESTS)
    return Worked(replace(problem, reference=right[0] if right else None), right, wrong)


def _fitting(cases: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The first that fit together; one that is too long leaves room for the next."""
    room, left = MAX_CASES_TEXT, MAX_CASES
    for given, wanted in cases:
        if len(given) + len(wanted) < room and left:
            test = json.dumps({"input": given, "output": wanted})
            if len(test) <= room:
                room, left = room - len(test), left - 1
                yield test


def _proposed(row: _Proposed) -> Worked:
    tests, question = tuple(row.tests), row.question.strip()
    entry = parse_tests(tests).entry_point if row.entry_point is None else row.entry_point
    problem = Problem(problem_id(question, tests), question, tests, entry, Source.PROPOSER, Standing.CLAIMED, row.level)
    return Worked(replace(problem, proposer=row.proposer), ())


def _python(kind: _Solutions) -> Iterator[str]:
    found = [code for language, code in zip(kind.language, kind.solution, strict=False) if language == PYTHON3]
    found = [code for code in found if len(code) <= MAX_SOLUTION]
    yield from found[:MAX_SOLUTIONS]
