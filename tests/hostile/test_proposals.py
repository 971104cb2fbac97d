"""10^4 mangled proposals, all the way a proposal goes: parsed, held to the rules, offered, and read by a peer."""

import ast
import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codezero.environments.code import CodeEnvironment
from codezero.errors import ProposalError, WireError
from codezero.problems.filters import Screen
from codezero.proposer.parsing import ProposalReason, parse_proposal
from codezero.swarm.wire import decode_proposals, encode_proposals

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
QUESTION = "Write a function add_two(x) that returns x plus 2 for every number."
TESTS = ["assert add_two(1) == 3", "assert add_two(5) == 7", "assert add_two(-2) == 0"]
GOOD = f"```json\n{json.dumps({'question': QUESTION, 'tests': TESTS})}\n```"
SCRAPS = st.sampled_from([
    "```", "```json\n", "\n```", "{", "}", '"', "\\", "\\u0000", "\\ud800", "\ud800", "\u202e", "\x00", "[" * 300,
    "(" * 200, "-" * 400, "9" * 5000, "0x" + "f" * 300, "null", "1e999", '"tests"', '"question"', "assert ",
    "assert add_two(1) == 4", "add_two", "def add_two(x):\\n    return x + 2", "lambda:" * 60, "import os\\n",
    "assert True", '", "', "]", "\\n", " " * 3000, "\ufb01", "print(1)", "x" * 9000, "😀", "",
])  # fmt: skip
STRUCTURES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(TESTS),
    lambda leaf: st.lists(leaf, max_size=4) | st.dictionaries(st.text(max_size=5), leaf, max_size=3),
    max_leaves=8,
)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A good proposal cut, filled and turned about; or a good form with anything in its fields."""
    if draw(st.booleans()):
        question = draw(st.sampled_from([QUESTION, "", 3]) | SCRAPS | STRUCTURES)
        tests = draw(st.lists(st.sampled_from(TESTS) | SCRAPS, max_size=5) | STRUCTURES)
        return f"```json\n{json.dumps({'question': question, 'tests': tests})}\n```"
    text = GOOD
    for _ in range(draw(st.integers(1, 4))):
        at, until = sorted(draw(st.integers(0, len(text))) for _ in range(2))
        kept = draw(st.sampled_from(["", text[at:until], text[at:until][::-1], text[at:until] * 2]))
        text = text[:at] + draw(SCRAPS) + kept + text[until if draw(st.booleans()) else at :]
    return text


def is_call_of(entry: str, test: str) -> bool:
    """Is it Python that asserts something of a call of the function?"""
    tree = ast.parse(test)
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return all(isinstance(one, ast.Assert) for one in tree.body) and any(
        isinstance(function, ast.Name) and function.id == entry for function in calls
    )


SEEN = Counter[str]()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_mangled_proposals_neither_crash_nor_pass_with_fewer_than_two_tests() -> None:
    SEEN.clear()
    go_all_the_way()
    assert SEEN.total() >= 10_000
    # no check that cannot fail: some get to the end, and every reason was met on the way
    assert SEEN["offered"] > 50 and set(ProposalReason) - {ProposalReason.DUPLICATE} <= SEEN.keys(), SEEN


@given(text=st.just(GOOD) | mangled(), level=st.sampled_from([1, 2, 3, 4, 5]))
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
def go_all_the_way(text: str, level: int) -> None:
    try:
        problem = parse_proposal(text, level, PEER)
    except ProposalError as error:
        reason = str(error).partition(":")[0]
        assert reason in set(ProposalReason)
        SEEN[reason] += 1
        return
    refusal = Screen(CodeEnvironment()).refuse(problem)
    if refusal is not None:
        SEEN[f"rules {refusal.reason}"] += 1
        return
    assert sum(is_call_of(problem.entry_point, test) for test in set(problem.tests)) >= 2
    try:
        _, _, (heard,) = decode_proposals(encode_proposals([problem], peer=PEER, round_number=1))
    except WireError:
        SEEN["wire"] += 1
        return
    assert (heard.question, heard.tests) == (problem.question, problem.tests)
    SEEN["offered"] += 1
