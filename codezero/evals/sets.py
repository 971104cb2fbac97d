"""The sets that `codezero eval` knows by name, and a set's tasks out of files; HumanEval and MBPP.

HumanEval (Chen et al. 2021, arXiv 2107.03374): `HumanEval.jsonl`, gzipped or not, or Parquet: task_id, prompt,
entry_point, test. Its test is a function `check(candidate)`. Assertions that stand in a row are taken out, so that the
sandbox can inspect what they compare; in three tasks, which loop, `check` is called.

MBPP (Austin et al. 2021, arXiv 2108.07732): `mbpp.jsonl` or Parquet: task_id, text (prompt in the sanitised set),
test_list, test_setup_code or test_imports. Its test split is task_id 11 to 510. `challenge_test_list` is not read.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from codezero.code.assertions import MbppRow
from codezero.code.parsing import UNPARSEABLE, parse_quietly
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evals.program_sets import CodeforcesRow, LcbV5Row, LiveCodeBenchRow, codeforces, lcb_v5, live_code_bench
from codezero.evals.rows import read_rows
from codezero.evals.task import EvalTask
from codezero.system.lines import BadRows, data_files, refuse

MAX_TEXT = 1 << 20
"""Characters of one text. HumanEval's longest test has less than 100,000."""
MBPP_TEST = range(11, 511)
"""task_id of the test split."""

_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_Name = Annotated[str, Meta(min_length=1, max_length=128)]
HELD_OUT = "synthetic"
"""The held-out problems of the synthetic family, which need no file."""


class HumanEvalRow(msgspec.Struct, frozen=True):
    task_id: _Name
    prompt: _Text
    entry_point: _Name
    test: _Text


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
    question, tests, entry = row.parts()
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
        return parse_quietly(source)
    except UNPARSEABLE as error:
        raise ProblemError(f"{what} cannot be parsed: {str(error).splitlines()[0]}") from error


def _before(prompt: str, entry: str) -> list[ast.stmt]:
    """Imports and helpers before the prompt's function: tests may call them, and answers leave them out."""
    tree = _parse(prompt, "prompt")
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return tree.body[:place]
    raise ProblemError(f"prompt does not define {entry}")


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
    with translated(ProblemError, "test is nested too deeply", RecursionError, MemoryError, reason=False):
        if not all(isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.Assign)) for node in body):
            lines = [ast.unparse(node) for node in (*others, check)]
            return ("\n".join((*lines, f"assert check({entry}) is None")),)
        for name in (node for node in ast.walk(check) if isinstance(node, ast.Name)):
            name.id = entry if name.id == check.args.args[0].arg else name.id
        setup = [ast.unparse(node) for node in others]
        tests: list[str] = []
        for node in body:
            line = ast.unparse(node)
            if isinstance(node, ast.Assert):
                tests.append("\n".join((*setup, line)))
            else:
                setup.append(line)
    if not tests:
        raise ProblemError("test asserts nothing")
    return tuple(tests)


def _says_nothing(node: ast.stmt) -> bool:
    """METADATA, docstrings, `assert True`."""
    match node:
        case ast.Assign(targets=[ast.Name(id="METADATA")]) | ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case _:
            return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and bool(node.test.value)


@dataclass(frozen=True, slots=True)
class PublishedSet:
    row: type[Any]
    read: Callable[[Any], EvalTask | None]
    """None: the row is of another split. Raises ProblemError."""
    published: str
    """Where its files come from."""
    rule: str
    """Of its authors' harness: what an answer need not import, and how output is compared."""
    named: bool = True
    """Have its rows names? Where they have none, two tasks may begin alike, and get numbers."""


_PROMPTS = "an answer has the prompt's own imports"
NO_PRELUDE = "an answer imports what it uses"
_LCB = "an answer has LiveCodeBench's imports; equal decimals are the same output"
_CODEFORCES = "an answer has rllm's imports; the same words in each line are the same output"
PUBLISHED = {
    "humaneval": PublishedSet(HumanEvalRow, human_eval, "HumanEval.jsonl.gz of openai/human-eval", _PROMPTS),
    "mbpp": PublishedSet(MbppRow, mbpp, "mbpp.jsonl of google-research, or google-research-datasets/mbpp", NO_PRELUDE),
    "livecodebench": PublishedSet(
        LiveCodeBenchRow, live_code_bench, "test.jsonl to test5.jsonl of livecodebench/code_generation_lite", _LCB
    ),
    "lcb_v5": PublishedSet(
        LcbV5Row, lcb_v5, "code_benchmark/lcb_v5/test.jsonl of inclusionAI/AReaL-boba-2-RL-Code", _LCB, named=False
    ),
    "codeforces": PublishedSet(
        CodeforcesRow,
        codeforces,
        "codeforces/ of agentica-org/DeepCoder-Preview-Dataset on the hub",
        _CODEFORCES,
        named=False,
    ),
}
NAMES = (HELD_OUT, *PUBLISHED)


def find_set(name: str, given: Sequence[Path]) -> list[Path]:
    """The files of a set; none for the held-out one. Raises ConfigError for what cannot be."""
    if name not in NAMES:
        raise ConfigError(f"there is no set {name}; choose one of: {', '.join(NAMES)}")
    if name == HELD_OUT:
        if given:
            raise ConfigError(f"--file: the {HELD_OUT} set needs none; it is made from evals.seed")
        return []
    if not given:
        raise ConfigError(f"{name} is read from a file of this machine; give --file, {PUBLISHED[name].published}")
    missing = next((path for path in given if not path.exists()), None)
    if missing is not None:
        raise ConfigError(f"--file={missing} is not there; give {PUBLISHED[name].published}")
    with translated(ConfigError, "--file", ProblemError):
        return [file for path in given for file in data_files(path)]


def read_tasks(name: str, files: Sequence[Path], bad: BadRows | None = None) -> Iterator[EvalTask]:
    """One task at a time. Raises ProblemError that names file and row, also when there is none or a name twice.

    bad: takes rows that cannot be used; None: the first of them is raised.
    """
    known = PUBLISHED[name]
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(known.row)}
    names: set[str] = set()
    for where, row in read_rows(files, list(fields), bad):
        try:
            with translated(ProblemError, where, msgspec.MsgspecError, ProblemError, RecursionError):
                missing = next((field for field, required in fields.items() if required and field not in row), None)
                if missing is not None:
                    raise ProblemError(f"has no field {missing}, so it is no row of {name}")
                task = known.read(msgspec.convert(row, type=known.row))
                if task and known.named and task.name in names:
                    raise ProblemError(f"a second task called {task.name[:100]}; was a file given twice?")
        except ProblemError as fault:
            refuse(fault, bad)
            continue
        if task is None:
            continue
        if not known.named:
            task = replace(task, name=f"{len(names) + 1}: {task.name}")
        names.add(task.name)
        yield task
    if not names and not (bad and bad.count):
        raise ProblemError(f"{', '.join(map(str, files))}: no task of {name}'s test split")
