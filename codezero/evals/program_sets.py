"""LiveCodeBench and DeepCoder's Codeforces: sets whose answers are programs that read stdin, or a class to fill in.

AReaL has release 5 of LiveCodeBench in a form of its own (`AReaL-boba-2-RL-Code`, code_benchmark/lcb_v5/test.jsonl):
a question under one of several names, and input_output, an object or its JSON text: inputs, outputs and fn_name, which
names the method that functional tests call.

LiveCodeBench (Jain et al. 2024, arXiv 2403.07974), code generation: private_test_cases are public_test_cases (JSON
text) as one pickled string, compressed by zlib, in base64. Release 5 is `test.jsonl` to `test5.jsonl`. Tests of type
stdin are a program's; of type functional they are the arguments, a JSON value a line, and the answer of a method of
`Solution`, which is compared as a value. No pickle is loaded: one that holds more than a string is refused.

DeepCoder's Codeforces (`agentica-org/DeepCoder-Preview-Dataset`, `codeforces`), and PrimeIntellect's rows in its form:
problem, tests: JSON text of a list of {"input": .., "output": ..} whose type, where it is said, is stdin.

What is printed is compared as LiveCodeBench's testing_util.py does: lines that are the same, or numbers that are equal
as decimals; what a method returns, with ==, a tuple counting as a list. Codeforces' lines have to have the same words:
that is stricter than rllm's codeforces.py, which also takes words in another order.
"""

import base64
import binascii
import inspect
import json
import pickletools
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from codezero.errors import ProblemError, translated
from codezero.evals.task import EvalTask

MAX_UNPACKED = 256 << 20
"""Bytes."""
_PLAIN = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}
"""Operations of a pickle that make nothing: the string may be kept for later, and there is no later."""
_STRINGS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}


def unpack(text: str) -> str:
    """The JSON text inside. Raises ProblemError."""
    with translated(ProblemError, "is not zlib in base64", binascii.Error, zlib.error, ValueError):
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED + 1)
    if len(data) > MAX_UNPACKED:
        raise ProblemError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
    if not inflater.eof:
        raise ProblemError("ends before its compressed data does")
    return pickled_string(data)


def pickled_string(data: bytes) -> str:
    """The one string that a pickle of a string holds, read and not executed. Raises ProblemError."""
    text, odd = None, ""
    with translated(ProblemError, "is no pickle, or is cut off", ValueError):
        for operation, argument, at in pickletools.genops(data):
            if operation.name in _STRINGS and text is None:
                text = str(argument)
            elif operation.name not in _PLAIN or (operation.name == "STOP" and at != len(data) - 1):
                odd = operation.name
                break
    if odd or text is None:
        raise ProblemError(f"is a pickle of more than one string {odd}, which is never run")
    return text


MAX_TESTS = 1_000
_Text = Annotated[str, Meta(max_length=1 << 20)]
_Name = Annotated[str, Meta(min_length=1, max_length=512)]
_STDIN = frozenset({"", "stdin", "stdin_stdout"})

FORM = (
    "Read the input from stdin and write the answer to stdout.\n\nANSWER FORMAT: one ```python block with the whole "
    "program and nothing after it."
)
BEFORE = "write_answer = print\ndef print(*values, **named):\n    pass"
"""What a method prints by the way is no part of its answer."""


def plain(value: object, outer: bool = True) -> object:
    """Values that are equal become the same text: True and 1, 2.0 and 2. Runs with answers too.

    The outermost tuple counts as a list, as the harness has it; one inside equals none.
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and abs(value) < 1e15 and value % 1 == 0:
        return int(value)
    if isinstance(value, list) or (outer and isinstance(value, tuple)):
        return [plain(item, False) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, tuple):
        return {"tuple": [plain(item, False) for item in value]}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value


AFTER = f"""import json
import sys
{inspect.getsource(plain)}
given = [json.loads(line) for line in sys.stdin.read().split("\\n") if line.strip()]
write_answer(json.dumps(plain(Solution().METHOD(*given))))"""

_LEVELS = {"easy": 1, "medium": 3, "hard": 5}


class LiveCodeBenchRow(msgspec.Struct, frozen=True):
    question_title: _Name
    question_content: _Text
    platform: _Name
    public_test_cases: _Text
    private_test_cases: str
    question_id: Annotated[str, Meta(max_length=512)] = ""
    difficulty: Annotated[str, Meta(max_length=64)] = ""
    starter_code: _Text | None = ""
    metadata: _Text | None = ""


class CodeforcesRow(msgspec.Struct, frozen=True):
    problem: Annotated[str, Meta(min_length=1, max_length=1 << 20)]
    tests: str


_Method = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]


class _InputOutput(msgspec.Struct, frozen=True):
    inputs: Annotated[list[str | list[Any]], Meta(max_length=MAX_TESTS)]
    outputs: Annotated[list[Any], Meta(max_length=MAX_TESTS)]
    fn_name: _Method | None = None


class LcbV5Row(msgspec.Struct, frozen=True):
    input_output: str | _InputOutput
    question: _Text | None = None
    prompt: _Text | None = None
    problem: _Text | None = None
    content: _Text | None = None
    instruction: _Text | None = None
    input: _Text | None = None


class _Test(msgspec.Struct, frozen=True):
    input: str
    output: str
    testtype: str = ""
    type: str = ""

    @property
    def kind(self) -> str:
        return self.testtype or self.type


_Tests = Annotated[list[_Test], Meta(max_length=MAX_TESTS)]


class _Metadata(msgspec.Struct, frozen=True):
    func_name: _Method


def live_code_bench(row: LiveCodeBenchRow) -> EvalTask:
    """Raises ProblemError."""
    private = row.private_test_cases
    try:
        private = private if private.lstrip()[:1] == "[" else unpack(private)  # some mirrors have plain JSON text
    except ProblemError as error:
        raise ProblemError(f"private_test_cases {error}") from error
    tests = [*_tests(row.public_test_cases, "public_test_cases"), *_tests(private, "private_test_cases")]
    name, question, method = f"{row.platform}/{row.question_id or row.question_title}", row.question_content, ""
    if {test.kind for test in tests} == {"functional"}:
        fault = "metadata does not name the function that functional tests call"
        method = _decode(row.metadata or "", _Metadata, fault).func_name
        question = f"{question.strip()}\n\nComplete this:\n\n{(row.starter_code or '').strip()}"
    return _task(question, tests, method, name, _LEVELS.get(row.difficulty))


def codeforces(row: CodeforcesRow) -> EvalTask:
    """Named after its text, because the published rows have no id. Raises ProblemError."""
    return _task(row.problem, _tests(row.tests, "tests"), prelude="codeforces")


def lcb_v5(row: LcbV5Row) -> EvalTask:
    """Named after its text. Raises ProblemError and msgspec.ValidationError."""
    texts = (row.question, row.prompt, row.problem, row.content, row.instruction, row.input)
    question, cases = next((text for text in texts if text and text.strip()), None), row.input_output
    if question is None:
        raise ProblemError("has no question, under none of its names")
    cases = _decode(cases, _InputOutput, "input_output cannot be used") if isinstance(cases, str) else cases
    if not 0 < len(cases.inputs) == len(cases.outputs):
        raise ProblemError(f"input_output has {len(cases.inputs)} inputs and {len(cases.outputs)} outputs")
    if cases.fn_name is None:
        msgspec.convert([*cases.inputs, *cases.outputs], list[str])
    inputs = (given if isinstance(given, str) else "\n".join(map(json.dumps, given)) for given in cases.inputs)
    outputs = (wanted if isinstance(wanted, str) else json.dumps(wanted) for wanted in cases.outputs)
    return _task(question, list(map(_Test, inputs, outputs)), cases.fn_name or "")


def _task(
    question: str,
    tests: Sequence[_Test],
    method: str = "",
    name: str = "",
    level: int | None = None,
    prelude: str = "livecodebench",
) -> EvalTask:
    """method: of Solution, which the tests call; empty: they are a program's. name: empty: how the question begins."""
    name, question = name or " ".join(question.split())[:60], question.strip()
    if not method:
        compared = "words" if prelude == "codeforces" else "decimals"
        return EvalTask(
            name, f"{question}\n\n{FORM}", _stdin_tests(tests), level=level, prelude=prelude, compared=compared
        )
    return EvalTask(
        name=name,
        prompt=f"{question}\n\nANSWER FORMAT: one ```python block with the whole class Solution and nothing after it.",
        tests=tuple(_case(test.input, json.dumps(plain(_value(test.output)))) for test in tests),
        before=BEFORE,
        after=AFTER.replace("METHOD", method),
        level=level,
        prelude=prelude,
    )


def _tests(text: str, field: str) -> list[_Test]:
    return _decode(text, _Tests, f"{field} cannot be used")


def _decode(text: str, form: Any, fault: str) -> Any:
    with translated(ProblemError, fault, msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=form)


def _stdin_tests(tests: Sequence[_Test]) -> tuple[str, ...]:
    if not tests:
        raise ProblemError("no tests")
    odd = next((test.kind for test in tests if test.kind not in _STDIN), None)
    if odd is not None:
        raise ProblemError(f"a test of type {odd[:40]!r}, where all have to be of a program that reads stdin")
    return tuple(_case(test.input, test.output) for test in tests)


def _case(given: str, wanted: str) -> str:
    return json.dumps({"input": given, "output": wanted})


def _value(text: str) -> object:
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"the output of a functional test is no JSON: {str(error)[:100]}") from error
