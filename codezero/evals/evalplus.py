"""HumanEval+ and MBPP+ as EvalPlus publishes them: rows without expected values, which the reference computes.

Fields: task_id, prompt, entry_point, canonical_solution, base_input, plus_input, atol; in MBPP+ also assertion. A
program reads arguments from stdin, a list of calls, and prints what the function returns for each. So does the
reference, in the same sandbox; `sandbox/values.py` compares the two outside, by EvalPlus's rule."""

import inspect
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from codezero.code.assertions import FieldText
from codezero.errors import ProblemError, translated
from codezero.evals.task import EvalTask
from codezero.sandbox.values import ValueRule, value_of_json, value_to_json
from codezero.types import Problem, Source, problem_id

CASE_INPUTS, CASE_CHARACTERS = 20, 1 << 17  # of one test: one process of the sandbox
MAX_INPUTS = 10_000  # of a task
ASKED = "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
"""EvalPlus's words (codegen.py). It also begins the answer, which is not done here."""
AS_SETS = frozenset((
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum"),
    *("intersection_array", "find_dissimilar", "Diff"),
))  # fmt: skip
"""Tasks of MBPP+ whose items are compared in any order."""
BY_INPUTS = frozenset(("surface_Area", "digit_distance_nums", "find_zero"))
AFTER = f"""
import json as harness_json, sys as harness_sys
harness_write = print
def print(*values, **named):
    pass
{inspect.getsource(value_to_json)}
{inspect.getsource(value_of_json)}
harness_inputs = value_of_json(harness_json.loads(harness_sys.stdin.read()))
harness_values = [value_to_json(CALLED) for given in harness_inputs]
harness_write("\\n" + harness_json.dumps(harness_values))"""

_EVERY = frozenset(range(100))
# Which arguments of a task hold tuples, at which depths of lists: JSON has none. None: all arguments.
_TUPLES: dict[tuple[int | None, frozenset[int]], str] = {
    (None, frozenset([0])): "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
    (None, frozenset([1])): "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
    (0, frozenset([1])): "75 413 444 722 753",
    (0, frozenset([0])): "250 307 405 446 617 720 763 808",
    (1, frozenset([0])): "106 750",
    (None, frozenset([0, 1])): "259 278 401 445",
    (None, _EVERY): "580 615 791",
}
_SHAPES = {int(number): shape for shape, numbers in _TUPLES.items() for number in numbers.split()}

_Inputs = Annotated[list[list[Any]], Meta(max_length=MAX_INPUTS)]


class HumanEvalPlusRow(msgspec.Struct, frozen=True):
    task_id: Annotated[str, Meta(pattern=r"\AHumanEval/[0-9]{1,6}\Z")]
    prompt: FieldText
    entry_point: Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
    canonical_solution: FieldText
    base_input: Annotated[_Inputs, Meta(min_length=1)]
    plus_input: _Inputs | Annotated[dict[str, Any], Meta(max_length=0)]  # {}: there are none
    atol: Annotated[float, Meta(ge=0, le=1)]


class MbppPlusRow(HumanEvalPlusRow, frozen=True):
    task_id: Annotated[str, Meta(pattern=r"\AMbpp/[0-9]{1,6}\Z")]
    assertion: FieldText = ""


def read_plus(row: HumanEvalPlusRow) -> EvalTask:
    """Raises ProblemError."""
    mbpp, entry = isinstance(row, MbppPlusRow), row.entry_point
    call = f"{entry}(*given)"
    after = AFTER.replace("CALLED", f"set({call})" if mbpp and entry in AS_SETS else call)
    tests, rule = list[list[str]](), ValueRule(entry, mbpp, row.atol)
    lines = row.assertion.splitlines() if isinstance(row, MbppPlusRow) else []
    shown = tuple(line for line in lines if line.startswith("assert "))
    for field in ("base_input", "plus_input"):
        fault = f"{field} does not fit the arguments of {row.task_id}"
        with translated(ProblemError, fault, ValueError, TypeError, LookupError, OverflowError):
            inputs: list[list[Any]] = list(getattr(row, field))
            inputs = [_restored(row.task_id, given) for given in inputs] if mbpp else inputs
            tests.append(list(_tests(rule, inputs)))
            shown = shown or tuple(f"{entry}({', '.join(map(repr, given))})" for given in inputs)
    return EvalTask(
        name=row.task_id,
        prompt=f"{ASKED}\n```\n{row.prompt.strip()}\n```\n",
        tests=(*tests[0], *tests[1]),
        entry_point=entry,
        after=after,
        compared="values",
        source=Problem(problem_id(row.prompt, shown), row.prompt, shown, entry, Source.MBPP),
        reference=f"{row.prompt}{row.canonical_solution}\n{after}",
        base=len(tests[0]),
    )


def _tests(rule: ValueRule, inputs: Sequence[Sequence[Any]]) -> Iterator[str]:
    part, size = list[Any](), 0
    for number, given in enumerate(inputs, 1):
        part.append(value_to_json(given))
        size += len(json.dumps(part[-1]))
        if len(part) == CASE_INPUTS or size > CASE_CHARACTERS or number == len(inputs):
            held = msgspec.structs.replace(rule, inputs=part if rule.entry in BY_INPUTS else [])
            wanted = json.dumps(msgspec.to_builtins(held))
            yield json.dumps({"input": json.dumps(part), "output": wanted})
            part, size = [], 0


def _restored(task_id: str, given: list[Any]) -> list[Any]:
    """The arguments of a task of MBPP+ with the types that its functions get."""
    number = int(task_id.partition("/")[2])
    match number:
        case 115:
            return [[set(cast("list[Any]", each)) if isinstance(each, list) and each else {} for each in given[0]]]
        case 124:
            return [float(given[0]), complex(given[1])]
        case 252:
            return [complex(given[0])]
        case _:
            which, depths = _SHAPES.get(number, (None, frozenset[int]()))
            return [_tupled(each, depths) if which in (None, at) else each for at, each in enumerate(given)]


def _tupled(value: Any, depths: frozenset[int], depth: int = 0) -> Any:
    if isinstance(value, dict):
        return {key: _tupled(each, depths, depth + 1) for key, each in cast("dict[str, Any]", value).items()}
    if not isinstance(value, list):
        return value
    items = [_tupled(each, depths, depth + 1) for each in cast("list[Any]", value)]
    return tuple(items) if depth in depths else items
