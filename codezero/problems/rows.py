"""Rows of MBPP and CodeContests, in the form their data sets have, as problems with their known solutions.

Only what is used is read; everything else in a row is ignored. Whatever is missing or of another type is refused with
the name of the field.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.tests import parse_tests
from codezero.errors import ProblemError
from codezero.types import Problem, Source, Worked, problem_id

PYTHON3 = 3
"""CodeContests numbers its languages: 0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java."""
MAX_ROW = 4 << 20
"""Bytes of one line."""
MAX_ROWS = 20_000
MAX_SOLUTIONS = 20
"""Of a kind, for one problem."""
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
    input: list[_Text] = []
    output: list[_Text] = []


class _Solutions(msgspec.Struct, frozen=True):
    language: list[int] = []
    solution: list[_Text] = []


class _CodeContests(msgspec.Struct, frozen=True):
    description: _Text
    public_tests: _Cases
    solutions: _Solutions
    private_tests: _Cases = _Cases()
    incorrect_solutions: _Solutions = _Solutions()


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


def read_row(line: bytes) -> Worked:
    """One row of either data set, told apart by its fields. Raises ProblemError."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "test_list" in fields:
            return _mbpp(msgspec.json.decode(line, type=_Mbpp))
        if "public_tests" in fields:
            return _code_contests(msgspec.json.decode(line, type=_CodeContests))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProblemError(str(error)) from error
    raise ProblemError("neither a row of MBPP (test_list) nor of CodeContests (public_tests)")


def _mbpp(row: _Mbpp) -> Worked:
    setup = "\n".join(filter(None, (row.test_setup_code, *row.test_imports)))
    tests = tuple(f"{setup}\n{test}" if setup else test for test in row.test_list)
    question = (row.text or row.prompt).strip()
    if not question:
        raise ProblemError("the question (text or prompt) is empty")
    entry = parse_tests(tests).entry_point
    problem = Problem(problem_id(question, tests), question, tests, entry, Source.MBPP, reference=row.code)
    return Worked(problem, (row.code,))


def _code_contests(row: _CodeContests) -> Worked:
    cases = [*zip(row.public_tests.input, row.public_tests.output, strict=False)]
    cases += zip(row.private_tests.input, row.private_tests.output, strict=False)
    if not cases:
        raise ProblemError("no tests")
    tests = tuple(json.dumps({"input": given, "output": wanted}) for given, wanted in cases[:200])
    right, wrong = (tuple(_python(kind)) for kind in (row.solutions, row.incorrect_solutions))
    question = row.description.strip()
    problem = Problem(problem_id(question, tests), question, tests, "", Source.CODE_CONTESTS)
    return Worked(replace(problem, reference=right[0] if right else None), right, wrong)


def _python(kind: _Solutions) -> Iterator[str]:
    found = [code for language, code in zip(kind.language, kind.solution, strict=False) if language == PYTHON3]
    yield from found[:MAX_SOLUTIONS]
