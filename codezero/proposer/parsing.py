"""A proposer's prompt; its text -> a `Problem`, or a ProposalError that names the fault; its form as a grammar.

Nothing is run; the expected values in the tests are the proposer's claims. What a model writes by the grammar parses
as JSON: printable ASCII without quotation marks and backslashes, so that a string can be ended anywhere."""

import ast
import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from codezero.code.parsing import BUILTINS, called, parse
from codezero.errors import ProposalError
from codezero.problems.filters import MIN_TESTS, PROPOSED
from codezero.types import Problem, Source, Standing, problem_id

MAX_TEXT_BYTES = 8 * 1024

_FENCE = re.compile(r"^```json[ \t]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)


class ProposalReason(StrEnum):
    """Reasons to refuse a proposal: a ProposalError's message starts with one."""

    SIZE = "size"
    FENCE = "fence"
    JSON = "json"
    QUESTION = "question"
    TESTS = "tests"
    ENTRY_POINT = "entry_point"
    DUPLICATE = "duplicate"


class _Written(msgspec.Struct, frozen=True):
    question: str
    tests: str | list[str]


def refusal(reason: ProposalReason, detail: str) -> ProposalError:
    return ProposalError(f"{reason}: {detail}")


def parse_proposal(text: str, level: int, peer_id: str) -> Problem:
    """The problem in the only ```json fence of `text`, marked with the level that was asked for. Raises ProposalError
    "<reason>: <detail>" for one of `ProposalReason`."""
    written = _read_json(text)
    question = written.question.strip()
    if not 0 < len(question) <= PROPOSED.question:
        raise refusal(ProposalReason.QUESTION, f"not 1 to {PROPOSED.question} characters")
    if not all(character.isprintable() or character in "\n\t" for character in question):
        raise refusal(ProposalReason.QUESTION, "control characters")
    tests = _check_tests(written.tests)
    key, entry = problem_id(question, tests), _entry_point(question, tests)
    return Problem(key, question, tests, entry, Source.PROPOSER, Standing.CLAIMED, level, proposer=peer_id)


def _read_json(text: str) -> _Written:
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise refusal(ProposalReason.SIZE, f"longer than {MAX_TEXT_BYTES} bytes")
    fences: list[str] = _FENCE.findall(text)
    if len(fences) != 1:
        raise refusal(ProposalReason.FENCE, f"{len(fences)} whole json fences where one is asked for")
    try:
        return msgspec.json.decode(fences[0].encode(), type=_Written)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise refusal(ProposalReason.JSON, str(error)) from error


def _check_tests(written: str | list[str]) -> tuple[str, ...]:
    """One assertion each, without repeats."""
    source = written if isinstance(written, str) else "\n".join(written)
    body = _parse_test(source).body
    if not all(isinstance(statement, ast.Assert) for statement in body):
        raise refusal(ProposalReason.TESTS, "something other than assertions")
    tests = tuple(dict.fromkeys(ast.get_source_segment(source, statement) or "" for statement in body))
    if not MIN_TESTS <= len(tests) <= PROPOSED.tests:
        raise refusal(ProposalReason.TESTS, f"{len(tests)} different assertions, not {MIN_TESTS} to {PROPOSED.tests}")
    if any(len(test) > PROPOSED.test for test in tests):
        raise refusal(ProposalReason.TESTS, f"an assertion longer than {PROPOSED.test} characters")
    return tests


def _entry_point(question: str, tests: tuple[str, ...]) -> str:
    """The one function that every test calls and the question names."""
    calls = ([called(node) for node in ast.walk(_parse_test(test))] for test in tests)
    shared = set[str].intersection(*map(set[str], calls)) - BUILTINS
    named = {name for name in shared if name.isidentifier() and re.search(rf"\b{re.escape(name)}\b", question)}
    if len(named) != 1:
        detail = f"the tests share {len(named)} functions that the question names, not one"
        raise refusal(ProposalReason.ENTRY_POINT, detail)
    return named.pop()


def _parse_test(source: str) -> ast.Module:
    tree, why = parse(source)
    if tree is None:
        raise refusal(ProposalReason.TESTS, why)
    return tree


TESTS = 3
QUESTION_SHARE = 0.3  # of the tokens that are left for text; the tests share the rest
LEAST = 8  # tokens of one test below which nothing sensible is written
SLACK = 8  # tokens for the end, and for punctuation that grows together with text otherwise than the tokenizer says
_BEGIN, _BETWEEN, _NEXT, _END = '```json\n{"question": "', '", "tests": ["', '", "', '"]}\n```'
_TEXT = r"[ -!#-\[\]-~]"


def proposal_grammar(max_new_tokens: int, cost: Callable[[str], int]) -> str:
    """In llguidance's Lark dialect, of what fits into so many tokens; empty where nothing does. cost: of a text."""
    fixed = cost(_BEGIN) + cost(_BETWEEN) + (TESTS - 1) * cost(_NEXT) + cost(_END) + SLACK
    room = max_new_tokens - fixed
    question = int(QUESTION_SHARE * room)
    test = (room - question) // TESTS
    if test < LEAST:
        return ""
    tests = f" {json.dumps(_NEXT)} ".join(["test"] * TESTS)
    return f"""start: {json.dumps(_BEGIN)} question {json.dumps(_BETWEEN)} {tests} {json.dumps(_END)}
question[max_tokens={question}]: /{_TEXT}+/
test[max_tokens={test}]: /assert {_TEXT}+/"""


REQUIREMENTS = {  # of each level: its title, what solving takes, and an example
    1: ("Very easy", "one built-in operation on a number, a string or a list; no condition, no loop",
        "Write a function get_value(x) that returns x plus 3."),
    2: ("Easy", "one or two operations in a row, or one comparison of a number",
        "Write a function find_total(x) that takes x and will add 4 then multiply by 2."),
    3: ("Medium", "one loop over a list, or one condition with two branches",
        "Write a function make_list(nums) that returns a list of the square of x for each x in nums."),
    4: ("Hard", "two of these combined over a list: select, transform, sort, sum up",
        "Write a function count_score(nums) that returns the sum of the numbers in nums that are even."),
    5: ("Very hard", "three or more steps combined, with a condition on each element",
        "Write a function solve_order(nums) that returns a list of x times 2 for each x in nums that is odd, "
        "sorted in descending order."),
}  # fmt: skip

_TEMPLATE = """\
Write one new Python programming problem and three tests for it.

DIFFICULTY REQUIREMENTS (Level {level} - {title}):
- Solving it takes {asks}.
- A problem of this level: "{example}" Write a different one.

RULES
- The question is one sentence or a short paragraph, starts with "Write a function NAME(arguments) that", and says
  exactly what is returned. It can be solved in plain Python without imports, input, files or randomness.
- Every test is one line of the form: assert NAME(arguments) == expected
- The tests call the function that the question names, differ in their arguments, and do not contradict the question.\
{taken}

Answer with one block of JSON and nothing else:
```json
{{"question": "...", "tests": ["assert ...", "assert ...", "assert ..."]}}
```"""


def proposal_prompt(level: int, taken: Sequence[str] = ()) -> str:
    """The user's turn that asks for one problem of `level` 1..5. taken: names of functions that it may not have."""
    title, asks, example = REQUIREMENTS[level]
    names = ", ".join(taken)
    shown = f"\n- These were written already, write something else under another name: {names}" if taken else ""
    return _TEMPLATE.format(level=level, title=title, asks=asks, example=example, taken=shown)
