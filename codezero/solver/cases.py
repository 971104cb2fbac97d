"""Test cases as a verifier is asked for them and writes them, and the feedback that they are to a solver."""

import ast
import json
import re
from collections.abc import Sequence

import msgspec

from codezero.code.assertions import cases_of
from codezero.code.parsing import UNPARSEABLE
from codezero.errors import ProblemError, translated
from codezero.sandbox.base import Execution, Job, Outcome
from codezero.types import Problem, Style

MAX_TEXT, MAX_CASE = 64 * 1024, 2_000
"""Characters of what a verifier writes, and of a case's input or output."""
LEAST_LEFT = 0.25
"""Share of a question that has to be left without its examples, or they stay."""
_FENCE = re.compile(r"^```json[ \t]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(r"^\W*(examples?|samples?)\b", re.IGNORECASE)
_HEADING = re.compile(r"^\W*(constraints?|notes?|hints?|limits?|scoring|follow[- ]?up)\b", re.IGNORECASE)


class _Case(msgspec.Struct, frozen=True):
    input: str
    output: str


def verifier_prompt(problem: Problem, program: str, count: int) -> str:
    """The question without its examples, which would be copied; then the form of the answer (which the embedded
    verifier's template drops) and the program."""
    question = _without_examples(problem.question)
    called = f"the arguments of {problem.entry_point} and the value that it returns, both as Python writes them"
    what = "the text of stdin and that of stdout" if problem.style is Style.STDIO else called
    return (
        f"{question}\n\nANSWER FORMAT: think about where the program below may be wrong. Then write {count} test cases "
        f'in one ```json block, [{{"input": "..", "output": ".."}}, ..]: {what}.\n\nThe program:\n{program}'
    )


def _without_examples(question: str) -> str:
    kept: list[str] = []
    inside = False
    for line in question.split("\n"):
        inside = not _HEADING.match(line) if inside else bool(_EXAMPLE.match(line))
        kept += [] if inside else [line]
    text = "\n".join(kept)
    return text if len(text) >= LEAST_LEFT * len(question) else question


def read_cases(problem: Problem, text: str, count: int) -> tuple[str, ...]:
    """The first `count` cases in the last ```json block, as tests in the problem's form. Raises ProblemError."""
    blocks: list[str] = _FENCE.findall(text) if len(text) <= MAX_TEXT else []
    if not blocks:
        raise ProblemError("there is no whole ```json block")
    with translated(ProblemError, "the cases are no list of input and output", msgspec.MsgspecError, RecursionError):
        cases = msgspec.json.decode(blocks[-1].encode("utf-8", "replace"), type=list[_Case])[:count]
    if len(cases) < count:
        raise ProblemError(f"there are {len(cases)} cases, and {count} were asked for")
    if any(max(len(case.input), len(case.output)) > MAX_CASE for case in cases):
        raise ProblemError(f"a case is longer than {MAX_CASE} characters")
    read = _assertion if problem.style is Style.CALL else _stdio
    return tuple(read(problem, case) for case in cases)


def _assertion(problem: Problem, case: _Case) -> str:
    """Of literals only: an expression could be true whatever the program does."""
    try:
        arguments, value = ast.literal_eval(f"({case.input.strip()},)"), ast.literal_eval(case.output.strip())
        return f"assert {problem.entry_point}({', '.join(map(repr, arguments))}) == {value!r}"
    except UNPARSEABLE as error:
        raise ProblemError(f"a case is not made of Python's literals: {str(error)[:100]}") from error


def _stdio(problem: Problem, case: _Case) -> str:
    known = cases_of(problem.tests)
    several = known and all("\n" in example.input.strip() for example in known)
    if several and "\n" not in case.input.strip():
        raise ProblemError("a case's input has one line, and this program reads several")
    return json.dumps({"input": case.input, "output": case.output})


def untested(why: str) -> str:
    """Feedback where the cases cannot be used."""
    return f"\n\nAn attempt before this one could not be tested: {why}"


def printing(program: str, test: str) -> Job:
    """Of an assertion that `read_cases` made: the program, and it prints what the call returns, not what it should."""
    claim = ast.parse(test).body[0]
    assert isinstance(claim, ast.Assert) and isinstance(claim.test, ast.Compare)
    wanted = ast.unparse(claim.test.comparators[0])
    case = json.dumps({"input": "", "output": wanted})
    return Job(f"{program}\nprint(repr({ast.unparse(claim.test.left)}))", (case,), stdio=True)


def feedback(tests: Sequence[str], executions: Sequence[Execution]) -> str:
    """What a solver is told of its attempt: each case, and what came of it; empty where none is known to fail."""
    if all(execution.outcome is not Outcome.FAIL for execution in executions):
        return ""
    lines = [
        f"- {test.removeprefix('assert ')}: {f'gives {done.printed}' if done.printed else done.reason or 'passes'}"
        for test, done in zip(tests, executions, strict=True)
    ]
    return "\n\nAn attempt before this one was tested:\n" + "\n".join(lines)
