"""HumanEval and MBPP: sets whose answers are functions and whose tests are assertions.

HumanEval (Chen et al. 2021, arXiv 2107.03374): `HumanEval.jsonl`, gzipped or not, or Parquet: task_id, prompt,
entry_point, test. Its test is a function `check(candidate)`; the assertions in it are taken out where they stand in a
row, so that the sandbox can inspect what they compare, and where they do not (three tasks loop), `check` is called.

MBPP (Austin et al. 2021, arXiv 2108.07732): `mbpp.jsonl` or Parquet: task_id, text (prompt in the sanitised set),
test_list, test_setup_code or test_imports. Its test split is task_id 11 to 510. `challenge_test_list` is no part of
the usual figure and is not read.
"""

import ast
import warnings
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_tests
from codezero.errors import ProblemError
from codezero.evals.task import EvalTask

MAX_TEXT = 1 << 20
"""Characters of one text. HumanEval's longest test has less than 100,000."""
MBPP_TEST = range(11, 511)
"""task_id of the test split."""

_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_Name = Annotated[str, Meta(min_length=1, max_length=128)]


class HumanEvalRow(msgspec.Struct, frozen=True):
    """What is read of a row."""

    task_id: _Name
    prompt: _Text
    entry_point: _Name
    test: _Text


class MbppRow(msgspec.Struct, frozen=True):
    """What is read of a row."""

    task_id: int
    test_list: Annotated[list[_Text], Meta(min_length=1, max_length=200)]
    text: _Text = ""
    prompt: _Text = ""
    test_setup_code: _Text = ""
    test_imports: Annotated[list[_Text], Meta(max_length=200)] = []
    code: _Text = ""
    """Only for the name of the function, where the tests leave it open."""


def human_eval(row: HumanEvalRow) -> EvalTask:
    """Raises ProblemError."""
    before = _before(row.prompt, row.entry_point)
    imports = [node for node in before if isinstance(node, (ast.Import, ast.ImportFrom))]
    return EvalTask(
        name=row.task_id,
        prompt=f"Complete this function:\n\n{row.prompt.rstrip()}\n\nANSWER FORMAT: one ```python block with the "
        f"whole function {row.entry_point} and nothing after it.",
        tests=_assertions(row.test, row.entry_point, imports),
        entry_point=row.entry_point,
        before="\n".join(map(ast.unparse, before)),
    )


def mbpp(row: MbppRow) -> EvalTask | None:
    """None for a row of another split. Raises ProblemError."""
    if row.task_id not in MBPP_TEST:
        return None
    question = (row.text or row.prompt).strip()
    if not question:
        raise ProblemError("the question (text or prompt) is empty")
    setup = "\n".join(filter(None, (row.test_setup_code, *row.test_imports)))
    tests = tuple(f"{setup}\n{test}" if setup else test for test in row.test_list)
    entry = parse_tests(tests, reference=row.code).entry_point
    shown = "\n".join(row.test_list)
    return EvalTask(
        name=f"mbpp/{row.task_id}",
        prompt=f"{question}\n\nIt must pass:\n{shown}\n\nANSWER FORMAT: one ```python block that defines {entry} and "
        "nothing after it.",
        tests=tests,
        entry_point=entry,
    )


def _parse(source: str, what: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ProblemError(f"{what} cannot be parsed: {str(error).splitlines()[0]}") from error


def _before(prompt: str, entry: str) -> list[ast.stmt]:
    """Imports and helpers that stand before the function in the prompt: tests may call them, and answers leave them
    out."""
    tree = _parse(prompt, "prompt")
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return tree.body[:place]
    raise ProblemError(f"prompt does not define {entry}")


class _Renamed(ast.NodeTransformer):
    """`candidate` is the function itself."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _assertions(test: str, entry: str, imports: Sequence[ast.Import | ast.ImportFrom]) -> tuple[str, ...]:
    """`imports`: the prompt's. Tests use them too, and are examined where the answer, which has them, is not."""
    tree = _parse(test, "test")
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None or len(check.args.args) != 1:
        raise ProblemError("test has no function check(candidate)")
    used = {node.id for node in ast.walk(check) if isinstance(node, ast.Name)}
    shared = [node for node in imports if used & {alias.asname or alias.name for alias in node.names}]
    others = [*shared, *(node for node in tree.body if node is not check and not _says_nothing(node))]
    body = [node for node in check.body if not _says_nothing(node)]
    try:
        if not all(isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.Assign)) for node in body):
            lines = [ast.unparse(node) for node in (*others, check)]
            return ("\n".join((*lines, f"assert check({entry}) is None")),)
        renamed = _Renamed(check.args.args[0].arg, entry)
        setup = [ast.unparse(node) for node in others]
        tests: list[str] = []
        for node in body:
            line = ast.unparse(renamed.visit(node))
            if isinstance(node, ast.Assert):
                tests.append("\n".join((*setup, line)))
            else:
                setup.append(line)
    except (RecursionError, MemoryError) as error:
        raise ProblemError("test is nested too deeply") from error
    if not tests:
        raise ProblemError("test asserts nothing")
    return tuple(tests)


def _says_nothing(node: ast.stmt) -> bool:
    """METADATA, docstrings, `assert True`."""
    match node:
        case ast.Assign(targets=[ast.Name(id="METADATA")]) | ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.Assert(test=ast.Constant(value=held)):
            return bool(held)
        case _:
            return False
