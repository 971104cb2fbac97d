"""The published sets that `codezero eval` knows by name, and their tasks out of files of this machine.

A row is bounded before it is decoded, only the fields that a set names are decoded, and one row at a time is held; what
is wrong with one is said in one line that names it and its file.

HumanEval (Chen et al. 2021, arXiv 2107.03374): assertions of `check` that stand in a row are taken out, so that the
sandbox can inspect what they compare; in three tasks, which loop, `check` is called. MBPP: Austin et al. 2021, arXiv
2108.07732. LiveCodeBench (Jain et al. 2024, arXiv 2403.07974): private tests are JSON text as one pickled string,
compressed by zlib, in base64. No pickle is loaded: one that holds more than a string is refused. What is printed is
compared as its testing_util.py does: lines that are the same, or numbers that are equal as decimals; what a method
returns, with ==, a tuple counting as a list."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import ast
import base64
import binascii
import hashlib
import inspect
import itertools
import json
import math
import pickletools
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta

from codezero.code.assertions import FieldText, MbppRow
from codezero.code.parsing import UNPARSEABLE, parse_quietly
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evals.evalplus import HumanEvalPlusRow, MbppPlusRow, read_plus
from codezero.evals.task import EvalTask
from codezero.system.files import BadRows, data_files, decode_row, json_lines, refuse

HELD_OUT = "synthetic"  # the held-out problems of the synthetic family, which need no file
MAX_ROW = 64 << 20  # bytes of a line, and of a row of Parquet; LiveCodeBench's longest, packed, are tens of megabytes
MAX_ROWS = 20_000
MAX_GROUP = 4 << 30  # bytes that a row group of Parquet may say it unpacks to; rows are unpacked as they are read
MAX_UNPACKED = 256 << 20  # bytes of packed tests
MAX_TESTS = 1_000
MBPP_TEST = range(11, 511)  # task_id of the test split

Row = dict[str, object]
_Name = Annotated[str, Meta(min_length=1, max_length=512)]


def digest_files(files: Sequence[Path]) -> str:
    """64 hex digits over the content of the files, in order. Raises ProblemError."""
    hasher = hashlib.sha256()
    for path in files:
        with translated(ProblemError, f"{path} cannot be read", OSError), path.open("rb") as file:
            hasher.update(hashlib.file_digest(file, "sha256").digest())
    return hasher.hexdigest()


def read_rows(files: Sequence[Path], fields: Collection[str], bad: BadRows | None = None) -> Iterator[tuple[str, Row]]:
    """(where, row) of each row in order, with those of `fields` that it has. Raises ProblemError.

    bad: takes lines that are no row; None: the first of them is raised."""
    import pyarrow

    unreadable = (OSError, ValueError, pyarrow.ArrowException)
    count = 0
    for path in files:
        rows = _parquet(path, fields) if path.name.endswith(".parquet") else _lines(path, fields)
        for number in itertools.count(1):
            where = f"{path}, row {number}"
            try:
                row = next(rows, None)
            except unreadable as error:
                why = str(error) if isinstance(error, ProblemError) else f"cannot be read: {_first_line(error)}"
                raise ProblemError(f"{where}: {why}") from error
            if row is None:
                break
            count += 1
            if count > MAX_ROWS:
                raise ProblemError(f"{where}: more than {MAX_ROWS} rows")
            if isinstance(row, ProblemError):
                refuse(ProblemError(f"{where}: {row}"), bad)
            else:
                yield where, row


def _lines(path: Path, fields: Collection[str]) -> Iterator[Row | ProblemError]:
    with path.open("rb") as file:
        for line in filter(bytes.strip, json_lines(file, MAX_ROW)):
            row: Row | ProblemError = ProblemError(f"longer than {MAX_ROW >> 20} MiB")
            if len(line) <= MAX_ROW:
                try:
                    if b"Infinity" in line:  # an input of MBPP+; null where it is all that a field holds
                        row = {name: each for name, each in dict(json.loads(line)).items() if name in fields}
                        row = {name: None if each in (math.inf, -math.inf) else each for name, each in row.items()}
                    else:
                        raw = decode_row(line, dict[str, msgspec.Raw])
                        row = {name: msgspec.json.decode(raw[name]) for name in fields if name in raw}
                except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
                    row = ProblemError(f"is no JSON object: {_first_line(error)}")
            yield row


def _parquet(path: Path, fields: Collection[str]) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata: Any = file.metadata
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).total_byte_size > MAX_GROUP:
                raise ProblemError(f"row group {group} says it has more than {MAX_GROUP >> 30} GiB")
        there = [name for name in fields if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=1, columns=there):
            if batch.nbytes > MAX_ROW:
                raise ProblemError(f"longer than {MAX_ROW >> 20} MiB")
            yield from cast("list[Row]", batch.to_pylist())


def _first_line(error: BaseException) -> str:
    message = str(error).strip() or type(error).__name__
    return message.splitlines()[0][:200]


class HumanEvalRow(msgspec.Struct, frozen=True):
    task_id: _Name
    prompt: FieldText
    entry_point: _Name
    test: FieldText


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
    with translated(ProblemError, f"{what} cannot be parsed", *UNPARSEABLE):
        return parse_quietly(source)


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


# operations of a pickle that make nothing: the string may be kept for later, and there is no later
_PLAIN = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}
_STRINGS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}


def unpack(text: str) -> str:
    """The JSON text in a pickle of one string, which is read and never executed. Raises ProblemError."""
    with translated(ProblemError, "is not zlib in base64", binascii.Error, zlib.error, ValueError):
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED + 1)
    if len(data) > MAX_UNPACKED:
        raise ProblemError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
    if not inflater.eof:
        raise ProblemError("ends before its compressed data does")
    string: str | None = None
    with translated(ProblemError, "is no pickle, or is cut off", ValueError):
        for operation, argument, at in pickletools.genops(data):
            if operation.name in _STRINGS and string is None:
                string = str(argument)
            elif operation.name not in _PLAIN or (operation.name == "STOP" and at != len(data) - 1):
                raise ProblemError(f"is a pickle of more than one string {operation.name}, which is never run")
    if string is None:
        raise ProblemError("is a pickle of no string, which is never run")
    return string


CLASS_FORM = "ANSWER FORMAT: one ```python block with the whole class Solution and nothing after it."
FORM = (
    "Read the input from stdin and write the answer to stdout.\n\nANSWER FORMAT: one ```python block with the whole "
    "program and nothing after it."
)
# output that a method prints by the way is no part of its answer
BEFORE = "write_answer = print\ndef print(*values, **named):\n    pass"


def plain(value: object, outer: bool = True) -> object:
    """Values that are equal become the same text: True and 1, 2.0 and 2. Runs with answers too. The outermost tuple
    counts as a list, as the harness has it; one inside equals none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and abs(value) < 1e15 and value % 1 == 0:
        return int(value)
    if isinstance(value, (list, tuple)):
        items = [plain(item, False) for item in value]
        return items if outer or isinstance(value, list) else {"tuple": items}
    return value


AFTER = f"""import json
import sys
{inspect.getsource(plain)}
given = [json.loads(line) for line in sys.stdin.read().split("\\n") if line.strip()]
write_answer(json.dumps(plain(Solution().METHOD(*given))))"""

_LEVELS = {"easy": 1, "medium": 3, "hard": 5}


class LiveCodeBenchRow(msgspec.Struct, frozen=True):
    question_title: _Name
    question_content: FieldText
    platform: _Name
    public_test_cases: FieldText
    private_test_cases: str
    question_id: Annotated[str, Meta(max_length=512)] = ""
    difficulty: Annotated[str, Meta(max_length=64)] = ""
    starter_code: FieldText | None = ""
    metadata: FieldText | None = ""


_Method = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]


class _Test(msgspec.Struct, frozen=True):
    input: str
    output: str
    testtype: str = "stdin"


_Tests = Annotated[list[_Test], Meta(max_length=MAX_TESTS)]


class _Metadata(msgspec.Struct, frozen=True):
    func_name: _Method


def live_code_bench(row: LiveCodeBenchRow) -> EvalTask:
    """Raises ProblemError."""
    private = row.private_test_cases
    with translated(ProblemError, "private_test_cases", ProblemError):
        private = private if private.lstrip()[:1] == "[" else unpack(private)  # some mirrors have plain JSON text
    tests = list[_Test]()
    for field, text in (("public_test_cases", row.public_test_cases), ("private_test_cases", private)):
        tests += _decode(text, _Tests, f"{field} cannot be used")
    kinds = {test.testtype for test in tests}
    if kinds not in ({"stdin"}, {"functional"}):
        named = ", ".join(sorted(kinds))[:80] or "none"
        raise ProblemError(f"tests of type {named}, where all have to be stdin, or all functional")
    question, outputs, after, form = row.question_content.strip(), [test.output for test in tests], "", FORM
    if "functional" in kinds:
        refusal = "metadata does not name the function that functional tests call"
        after = AFTER.replace("METHOD", _decode(row.metadata or "", _Metadata, refusal).func_name)
        with translated(ProblemError, "the output of a functional test is no JSON", ValueError, RecursionError):
            outputs = [json.dumps(plain(json.loads(output))) for output in outputs]
        question, form = f"{question}\n\nComplete this:\n\n{(row.starter_code or '').strip()}", CLASS_FORM
    return EvalTask(
        name=f"{row.platform}/{row.question_id or row.question_title}",
        prompt=f"{question}\n\n{form}",
        tests=tuple(
            json.dumps({"input": test.input, "output": output}) for test, output in zip(tests, outputs, strict=True)
        ),
        before=BEFORE if after else "",
        after=after,
        prelude="livecodebench",
        compared="words" if after else "decimals",
        level=_LEVELS.get(row.difficulty),
    )


def _decode(text: str, form: Any, refusal: str) -> Any:
    with translated(ProblemError, refusal, msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=form)


class PublishedSet(NamedTuple):
    row: type[Any]
    read: Callable[[Any], EvalTask | None]  # None: the row is of another split; raises ProblemError
    published: str  # where its files come from
    rule: str  # of its authors' harness: what an answer need not import, and how output is compared
    others: str = ""  # figures that others have published


_PROMPTS = "an answer has the prompt's own imports"
NO_PRELUDE = "an answer imports what it uses"
_LCB = "an answer has LiveCodeBench's imports; equal decimals are the same output"
_PLUS = "an answer is cut to what its function needs; floats may differ by little; base: without the added tests"
_QWEN = "published, base / plus: Qwen2.5-Coder-0.5B-Instruct {}, 1.5B {} (arXiv 2409.12186, table 16; greedy pass@1)"


def _plus(row: type[HumanEvalPlusRow], name: str, small: str, large: str) -> PublishedSet:
    published = f"{name}.jsonl.gz of github.com/evalplus/{name.lower()}_release"
    return PublishedSet(row, read_plus, published, _PLUS, _QWEN.format(small, large))


PUBLISHED = {
    "humaneval": PublishedSet(HumanEvalRow, human_eval, "HumanEval.jsonl.gz of openai/human-eval", _PROMPTS),
    "mbpp": PublishedSet(MbppRow, mbpp, "mbpp.jsonl of google-research, or google-research-datasets/mbpp", NO_PRELUDE),
    "livecodebench": PublishedSet(
        LiveCodeBenchRow, live_code_bench, "test.jsonl to test5.jsonl of livecodebench/code_generation_lite", _LCB
    ),
    "humanevalplus": _plus(HumanEvalPlusRow, "HumanEvalPlus", "61.6 / 57.3", "70.7 / 66.5"),
    "mbppplus": _plus(MbppPlusRow, "MbppPlus", "52.4 / 43.7", "69.2 / 59.4"),
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

    bad: takes rows that cannot be used; None: the first of them is raised."""
    known = PUBLISHED[name]
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(known.row)}
    names = set[str]()
    for where, row in read_rows(files, list(fields), bad):
        try:
            with translated(ProblemError, where, msgspec.MsgspecError, ProblemError, RecursionError):
                missing = next((field for field, required in fields.items() if required and field not in row), None)
                if missing is not None:
                    raise ProblemError(f"has no field {missing}, so it is no row of {name}")
                task = known.read(msgspec.convert(row, type=known.row))
                if task and task.name in names:
                    raise ProblemError(f"a second task called {task.name[:100]}; was a file given twice?")
        except ProblemError as refusal:
            refuse(refusal, bad)
            continue
        if task is not None:
            names.add(task.name)
            yield task
    if not names and not (bad and bad.count):
        raise ProblemError(f"{', '.join(map(str, files))}: no task of {name}'s test split")
