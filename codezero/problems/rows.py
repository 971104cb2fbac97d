"""Rows of MBPP, CodeContests and DeepCoder, in the form their data sets have, as problems with their known solutions.

Fields that are not used are ignored; one that is missing or of another type is refused by name. A fourth form,
`question` and `tests`, is for problems that somebody proposed.

Folders of others come as rows of MBPP's form. exercism's problem-specifications: exercises/NAME/canonical-data.json,
with description.md beside it; each property of it is a problem. QuixBugs: json_testcases/NAME.json, with
python_programs/NAME.py, which is wrong, and correct_python_programs/NAME.py beside that folder."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import ast
import bisect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta

from codezero.code.assertions import FieldText, MbppRow, parse_tests
from codezero.code.parsing import parse
from codezero.errors import ProblemError, translated
from codezero.sandbox.base import MAX_BYTES
from codezero.system.files import decode_row
from codezero.types import Problem, Source, Standing, Worked, problem_id

EXTERNAL = 6  # CodeContests' word for a difficulty that it does not know
# bytes of one line. A row of CodeContests has every solution that was handed in, and cases of megabytes.
MAX_ROW = 32 << 20
MAX_CASES = 64
# characters of all tests of one problem, of which there are at most MAX_CASES: what a peer can be sent
MAX_CASES_TEXT = 64 * 1024
MAX_ROWS = 20_000
MAX_SOLUTIONS = 20  # of a kind, for one problem
MAX_SOLUTION = 64 * 1024  # characters


class HubSet(NamedTuple):
    repository: str
    files: str  # a glob pattern; empty: all rows, those of the training split where there are splits
    revision: str  # 40 hex digits of a commit, or a branch
    small: bool = False  # is it fetched whole?


def _mbpp(files: str) -> HubSet:
    return HubSet("google-research-datasets/mbpp", files, "4bb6404fdc6cacfda99d4ac4205087b89d32030c", small=True)


SETS = {
    "mbpp": _mbpp("full/train-*.parquet"),
    "mbpp_test": _mbpp("full/test-*.parquet"),
    "mbpp_sanitized": _mbpp("sanitized/train-*.parquet"),
    "code_contests": HubSet("deepmind/code_contests", "data/train-*.parquet",
                            "802411c3010cb00d1b05bad57ca77365a3c699d6"),
    "deepcoder": HubSet("agentica-org/DeepCoder-Preview-Dataset", "primeintellect/train-*.parquet",
                        "177913a7bd43791646ef6a43645caa3c871ab3db"),
}  # fmt: skip


class _Mbpp(MbppRow, frozen=True):
    wrong: Annotated[tuple[FieldText, ...], Meta(max_length=MAX_SOLUTIONS)] = ()

    def worked(self) -> Worked:
        question, tests, entry = self.parts()
        problem = Problem(problem_id(question, tests), question, tests, entry, Source.MBPP, reference=self.code or None)
        return Worked(problem, (self.code,) if self.code else (), self.wrong)


class _Cases(msgspec.Struct, frozen=True):
    input: list[str] = []
    output: list[str] = []


class _Solutions(msgspec.Struct, frozen=True):
    language: list[int] = []
    solution: list[str] = []

    def python(self) -> tuple[str, ...]:
        written = zip(self.language, self.solution, strict=False)
        # languages: 0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java
        programs = (code for language, code in written if language == 3 and len(code) <= MAX_SOLUTION)
        return tuple(islice(programs, MAX_SOLUTIONS))


class _CodeContests(msgspec.Struct, frozen=True):
    description: FieldText
    public_tests: _Cases
    solutions: _Solutions
    difficulty: int = 0
    cf_rating: int = 0
    private_tests: _Cases = _Cases()
    incorrect_solutions: _Solutions = _Solutions()

    def worked(self) -> Worked:
        sets = (self.public_tests, self.private_tests)
        tests = _stdin_tests(pair for cases in sets for pair in zip(cases.input, cases.output, strict=False))
        right, wrong = self.solutions.python(), self.incorrect_solutions.python()
        question = self.description.strip()
        reference = right[0] if right else None
        key, source = problem_id(question, tests), Source.CODE_CONTESTS
        problem = Problem(key, question, tests, "", source, level=self.level, reference=reference)
        return Worked(problem, right, wrong)

    @property
    def level(self) -> int | None:
        """1 to 5 by the rating of Codeforces, else by the difficulty; None where the row says neither. Difficulties are
        1 EASY to 5 HARDEST, 6 EXTERNAL, and from 7 on the letters of Codeforces' problems, A first."""
        if self.cf_rating > 0:
            return 1 + bisect.bisect_right((1000, 1300, 1700, 2200), self.cf_rating)
        named = self.difficulty if self.difficulty < EXTERNAL else self.difficulty - EXTERNAL
        return min(named, 5) if named > 0 else None


class _DeepCoderTest(msgspec.Struct, frozen=True):
    input: Any
    output: Any
    type: str = ""
    fn_name: Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")] | None = None


class _DeepCoder(msgspec.Struct, frozen=True):
    """The subset `primeintellect` of DeepCoder-Preview (Luo et al. 2025)."""

    problem: FieldText
    tests: str
    solutions: list[str] = []

    def worked(self) -> Worked:
        tests = msgspec.json.decode(self.tests, type=list[_DeepCoderTest])
        kinds = {test.type or ("function_call" if test.fn_name else "stdin_stdout") for test in tests}
        names = {test.fn_name for test in tests if kinds == {"function_call"}}
        if kinds == {"stdin_stdout"}:
            pairs = msgspec.convert([(test.input, test.output) for test in tests], list[tuple[str, str]])
            entry, texts = "", _stdin_tests(pairs)
        elif len(names) == 1 and (entry := names.pop()):
            texts = _calls(entry, tests)
        else:
            raise ProblemError(f"tests of type {', '.join(sorted(kinds))[:80] or 'nothing'}: not of one known type")
        codes = (text.strip().removeprefix("```python").removesuffix("```").strip() for text in self.solutions)
        right = tuple(islice((code for code in codes if 0 < len(code) <= MAX_SOLUTION), MAX_SOLUTIONS))
        question = self.problem.strip()
        reference = right[0] if right else None
        problem = Problem(problem_id(question, texts), question, texts, entry, Source.DEEPCODER, reference=reference)
        return Worked(problem, right)


def _stdin_tests(cases: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return _fitting((json.dumps({"input": given, "output": wanted}) for given, wanted in cases), MAX_CASES_TEXT)


def _calls(entry: str, tests: Sequence[_DeepCoderTest]) -> tuple[str, ...]:
    """As assertions. Where every output is a list of one value, it is published in that list, and comes without it."""
    outputs = [test.output for test in tests]
    wrapped = all(isinstance(output, list) and len(cast("list[object]", output)) == 1 for output in outputs)
    lines: list[str] = []
    for test in tests:
        given = msgspec.json.decode(test.input) if isinstance(test.input, str) else test.input
        arguments = ", ".join(map(repr, msgspec.convert(given, list[object])))
        lines.append(f"assert {entry}({arguments}) == {(test.output[0] if wrapped else test.output)!r}")
    return _fitting(lines, MAX_BYTES - MAX_CASES)


def _fitting(tests: Iterable[str], room: int) -> tuple[str, ...]:
    """The first that fit together; one that is too long leaves room for the next. Raises ProblemError for none."""
    kept: list[str] = []
    for test in tests:
        if len(kept) < MAX_CASES and (size := len(test.encode())) <= room:
            room -= size
            kept.append(test)
    if not kept:
        raise ProblemError(f"no tests of at most {room} characters")
    return tuple(kept)


class _Proposed(msgspec.Struct, frozen=True):
    question: FieldText
    tests: Annotated[list[FieldText], Meta(max_length=200)]
    # read off the tests when it is missing; empty: the program reads stdin and writes stdout
    entry_point: Annotated[str, Meta(max_length=128)] | None = None
    level: int | None = None
    proposer: Annotated[str, Meta(max_length=128)] | None = None

    def worked(self) -> Worked:
        tests, question = tuple(self.tests), self.question.strip()
        entry = parse_tests(tests)[0] if self.entry_point is None else self.entry_point
        key, claimed = problem_id(question, tests), Standing.CLAIMED
        problem = Problem(key, question, tests, entry, Source.PROPOSER, claimed, self.level, proposer=self.proposer)
        return Worked(problem, ())


# names that others give to a question, its tests and a solution, the commonest first
COLUMNS = {
    "question": ("question", "prompt", "instruction", "text", "description", "problem", "task"),
    "tests": ("tests", "test_list", "test", "test_cases", "unit_tests", "asserts", "assertions"),
    "code": ("code", "solution", "canonical_solution", "reference", "answer", "response", "output"),
}


class NamedRow(NamedTuple):
    row: bytes | Mapping[str, object]
    columns: Mapping[str, str]  # see `parse_columns`


Row = bytes | Mapping[str, object] | NamedRow  # a line of JSON, or its fields


def parse_columns(name: str) -> tuple[str, dict[str, str]]:
    """`PATH?question=ask&tests=checks` -> the path, and the columns that it names. Raises ProblemError."""
    path, mark, named = name.partition("?")
    pairs = [pair.partition("=") for pair in named.split("&")] if mark else []
    if any(what not in COLUMNS or not column for what, _, column in pairs):
        raise ProblemError(f"{name}: write PATH?question=COLUMN&tests=COLUMN&code=COLUMN, or some of these")
    return path, {what: column for what, _, column in pairs}


def _found(fields: Mapping[str, object], named: Mapping[str, str]) -> Mapping[str, object]:
    """The fields of a row of no known kind, in the form of MBPP's. Raises ProblemError."""
    columns = {what: named.get(what) or next(filter(fields.__contains__, usual), "") for what, usual in COLUMNS.items()}
    for what in ("question", "tests"):
        if columns[what] not in fields:
            there = ", ".join(fields)[:200] or "none"
            raise ProblemError(f"no column {columns[what] or what}; there are {there}; name one: PATH?{what}=COLUMN")
    tests = fields[columns["tests"]]
    row = {"text": fields[columns["question"]], "test_list": _listed(tests) if isinstance(tests, str) else tests}
    return row | {"code": fields.get(columns["code"]) or ""}


def _listed(tests: str) -> list[str]:
    """Tests written as one text: a list in JSON or Python, or assertions one after the other."""
    if len(tests) > MAX_CASES_TEXT:
        raise ProblemError(f"tests of more than {MAX_CASES_TEXT} characters")
    fault = "the tests are neither a list nor assertions"
    if (tree := parse(tests)[0]) is None:
        raise ProblemError(fault)
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        with translated(ProblemError, fault, ValueError, TypeError, MemoryError, RecursionError, reason=False):
            return msgspec.convert(ast.literal_eval(tree.body[0].value), list[str])
    claims = [node for node in tree.body if isinstance(node, ast.Assert)]
    before = "\n".join(ast.unparse(node) for node in tree.body if not isinstance(node, ast.Assert))
    return ["\n".join(filter(None, (before, ast.unparse(claim)))) for claim in claims]


# by a field that each row of the kind has
_KINDS = {"test_list": _Mbpp, "public_tests": _CodeContests, "problem": _DeepCoder, "tests": _Proposed}


def read_row(row: Row) -> Worked:
    """One row of any kind. Raises ProblemError."""
    row, named = row if isinstance(row, NamedRow) else NamedRow(row, {})
    try:
        if isinstance(row, bytes) and len(row) > MAX_ROW:
            raise ProblemError(f"longer than {MAX_ROW >> 20} MiB")
        fields = decode_row(row, dict[str, object]) if isinstance(row, bytes) else row
        kind = None if named else next((kind for field, kind in _KINDS.items() if field in fields), None)
        if kind is None or (kind is _Proposed and "question" not in fields):
            kind, fields = _Mbpp, _found(fields, named)
        return msgspec.convert(fields, type=kind).worked()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProblemError(str(error)) from error


CANONICAL, TESTCASES = "canonical-data.json", "json_testcases"
_FAULTS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_Fields = dict[str, object]


class _Case(msgspec.Struct, frozen=True):
    property: Annotated[str, Meta(pattern=r"\A[A-Za-z][A-Za-z0-9]{0,99}\Z")] | None = None
    input: Any = None
    expected: Any = None
    cases: "list[_Case]" = []


class _Canonical(msgspec.Struct, frozen=True):
    exercise: Annotated[str, Meta(max_length=200)]
    cases: list[_Case]


def folder_files(path: Path) -> list[Path]:
    """Those below a folder that `folder_rows` reads."""
    return sorted([*path.rglob(CANONICAL), *path.rglob(f"{TESTCASES}/*.json")]) if path.is_dir() else []


def folder_rows(path: Path) -> Iterator[_Fields] | None:
    """The rows of a file of one of these folders; None: it is another. Raises ProblemError, while it is read too."""
    return _exercism(path) if path.name == CANONICAL else _quixbugs(path) if path.parent.name == TESTCASES else None


def _exercism(path: Path) -> Iterator[_Fields]:
    with translated(ProblemError, str(path), *_FAULTS):
        read = msgspec.json.decode(_read(path), type=_Canonical)
    about, calls = path.with_name("description.md"), dict[str, list[tuple[dict[str, Any], Any]]]()
    text = _read(about).decode("utf-8", "replace") if about.is_file() else read.exercise
    for case in _flat(read.cases):
        raises = isinstance(case.expected, dict) and "error" in case.expected
        if case.property and isinstance(case.input, dict) and not raises:
            calls.setdefault(case.property, []).append((case.input, case.expected))
    for name, pairs in calls.items():
        entry, keys = _snake(name), list(pairs[0][0])
        asked = f"{text}\n\nWrite a function {entry}({', '.join(map(_snake, keys))})."
        same = (([given[key] for key in keys], wanted) for given, wanted in pairs if given.keys() == {*keys})
        yield {"text": asked, "test_list": _tests(entry, same)}


def _flat(cases: list[_Case]) -> Iterator[_Case]:
    for case in cases:
        yield case
        yield from _flat(case.cases)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _quixbugs(path: Path) -> Iterator[_Fields]:
    name, pairs = path.stem, list[tuple[list[Any], Any]]()
    for number, line in enumerate(_read(path).splitlines(), 1):
        if line.strip():
            with translated(ProblemError, f"{path}, line {number}", *_FAULTS):
                given, wanted = msgspec.json.decode(line, type=tuple[Any, Any])
            pairs.append((given if isinstance(given, list) else [given], wanted))
    wrong, right = (
        _read(path.parents[1] / folder / f"{name}.py").decode("utf-8", "replace")
        for folder in ("python_programs", "correct_python_programs")
    )
    body = (parse(wrong)[0] or ast.Module([], [])).body
    texts = [
        str(node.value.value) for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    asked = next(
        (ast.unparse(node.args) for node in body if isinstance(node, ast.FunctionDef) and node.name == name), ""
    )
    text = "\n".join((*texts, f"\nWrite a function {name}({asked})."))
    yield {"text": text, "test_list": _tests(name, iter(pairs)), "code": right, "wrong": [wrong]}


def _tests(entry: str, pairs: Iterator[tuple[list[Any], Any]]) -> list[str]:
    calls = (f"assert {entry}({', '.join(map(repr, given))}) == {wanted!r}" for given, wanted in pairs)
    return list(islice(dict.fromkeys(calls), MAX_CASES))


def _read(path: Path) -> bytes:
    with translated(ProblemError, f"{path} cannot be read", OSError), path.open("rb") as file:
        data = file.read(MAX_ROW + 1)
    if len(data) > MAX_ROW:
        raise ProblemError(f"{path}: longer than {MAX_ROW >> 20} MiB")
    return data
