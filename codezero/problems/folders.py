"""Folders of others as rows of MBPP's form: exercism's canonical cases, and QuixBugs' programs with their tests.

exercism's problem-specifications: exercises/NAME/canonical-data.json, with description.md beside it; each property of
it is a problem. QuixBugs: json_testcases/NAME.json, with python_programs/NAME.py, which is wrong, and
correct_python_programs/NAME.py beside that folder.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import ast
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from codezero.code.parsing import parse
from codezero.errors import ProblemError, translated
from codezero.problems.rows import MAX_CASES, MAX_ROW

CANONICAL, TESTCASES = "canonical-data.json", "json_testcases"
_FAULTS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_Row = dict[str, object]


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


def folder_rows(path: Path) -> Iterator[_Row] | None:
    """The rows of a file of one of these folders; None: it is another. Raises ProblemError, while it is read too."""
    return _exercism(path) if path.name == CANONICAL else _quixbugs(path) if path.parent.name == TESTCASES else None


def _exercism(path: Path) -> Iterator[_Row]:
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


def _quixbugs(path: Path) -> Iterator[_Row]:
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
