"""Programs between stdin and stdout: the same rule in both sandboxes."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.assertions import parse_cases
from codezero.errors import ProblemError
from codezero.sandbox import jail
from codezero.sandbox.base import MAX_CASE, Execution, Job, Outcome, Sandbox, same_output
from codezero.sandbox.bubblewrap import BubblewrapSandbox
from codezero.sandbox.monty import MontySandbox

PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
DOUBLE = "print(int(input()) * 2)"


@pytest.fixture(scope="module", params=["monty", "bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "monty":
        with MontySandbox(seconds=0.5, memory_mib=32) as monty:
            yield monty
        return
    if reason := jail.why_not():
        pytest.skip(reason)
    with BubblewrapSandbox(seconds=1, memory_mib=160) as bubblewrap:
        yield bubblewrap


def case(given: str, wanted: str) -> str:
    return json.dumps({"input": given, "output": wanted})


def execute(sandbox: Sandbox, code: str, *tests: str) -> Execution:
    return sandbox.run(Job(code, tests or (case("21\n", "42\n"), case("-4", "-8")), stdio=True))


@pytest.mark.parametrize("code", [
    DOUBLE, "import sys\nn = int(sys.stdin.readline())\nsys.stdout.write(str(n * 2) + '\\n')",
    "from sys import stdin, stdout\nfor line in stdin:\n    stdout.write(str(int(line) * 2))",
    "from sys import (stdin as i,\n    stdout as o)\no.write(str(int(i.read()) * 2)); o.flush()",
    "import math, sys as s; read = s.stdin.readlines\nprint(int(read()[0]) * 2, file=s.stdout)",
    "import sys\ninput = sys.stdin.readline\nprint = sys.stdout.write\nprint(str(int(input()) * 2))",
    "import sys\nprint('noise', file=sys.stderr)\nprint(int(input()) * 2)",
    "import sys\nprint(int(input()) * 2)\nsys.exit()\nprint('never')", "print(int(input()) * 2)\nexit(0)",
    "def main():\n    import sys\n    print(int(next(iter(sys.stdin))) * 2)\n    sys.exit(0)\nmain()",
    "n = 0\ntry:\n    while True:\n        n += int(input())\nexcept EOFError:\n    print(n * 2)",
    "if __name__ == '__main__':\n    print(int(input('')) * 2, end='   \\n\\n\\n')",
    "s = 'import sys'  # not an import\nprint(int(input()) * 2 if s == 'import' + ' sys' else 0)",
])  # fmt: skip
def test_programs_read_and_print_in_many_ways(sandbox: Sandbox, code: str) -> None:
    assert execute(sandbox, code) == Execution(PASS)
    assert execute(sandbox, code, case("21\n", "42"), case("3", "7")) == Execution(
        FAIL, "test 2: prints something else"
    )


@pytest.mark.parametrize(("code", "reason"), [
    ("print(41)", "something else"), ("", "something else"), ("input('n? ')\nprint(42)", "something else"),
    ("input()\ninput()\nprint(42)", "EOFError"), ("print(42)\nexit(3)", "exits with 3"),
    ("print(42)\nraise ValueError('late')", "ValueError: late"), ("print(42)\nreturn", "'return' outside function"),
    ("print(42", "SyntaxError"), ("print(42)\nwhile True: pass", "time limit"),
    ("while True: print('x' * 10000)", "prints more than"), ("print('x' * 10**6)", "prints more than 262144 bytes"),
    ("a = []\nwhile True: a.append('x' * 10**6)", "memory limit"),
])  # fmt: skip
def test_the_programs_own_faults_fail(sandbox: Sandbox, code: str, reason: str) -> None:
    execution = execute(sandbox, code)
    assert (execution.outcome, reason in execution.reason) == (FAIL, True), execution


@pytest.mark.parametrize(
    "test",
    ["", "{}", '{"input": 1, "output": ""}', "[]", '{"input": "a"}', "[" * 10000, '"' + "x" * MAX_CASE, "\ud800"],
)
def test_tests_that_cannot_be_used_are_unknown(sandbox: Sandbox, test: str) -> None:
    assert execute(sandbox, DOUBLE, case("1", "2"), test).outcome is UNKNOWN
    assert sandbox.run(Job(DOUBLE, (), stdio=True)).outcome is UNKNOWN


def test_each_case_starts_afresh_and_all_are_run(sandbox: Sandbox) -> None:
    right, wrong = case("1", "2"), case("1", "3")
    assert execute(sandbox, DOUBLE, *[right] * 70, wrong) == Execution(FAIL, "test 71: prints something else")
    assert execute(sandbox, "print(2)\nlen = 3", right, right).outcome is PASS


def test_as_much_may_be_printed_as_is_wanted(sandbox: Sandbox) -> None:
    code, wanted = "print('x' * 300_000)", "x" * 300_000
    assert execute(sandbox, code, case("", wanted)).outcome is PASS
    assert execute(sandbox, code, case("", f"{wanted}x")).reason.endswith("prints something else")
    assert execute(sandbox, "print('x' * 700_000)", case("", wanted)).reason.endswith("prints more than 600000 bytes")


def test_text_comes_in_and_goes_out_as_it_is(sandbox: Sandbox) -> None:
    text = "größe \u2028 x\u3000y\r\nzwei"
    assert execute(sandbox, "print(len(input()))\nprint(input())", case(text, "12\nzwei")).outcome is PASS
    assert execute(sandbox, "print('größe')", case("", "größe")).outcome is PASS


@pytest.mark.parametrize(
    "code",
    ["import sys\nprint(sys.version)", "raise SystemExit(0)", "print(open(0).read())", "print(eval('42'))\nimport io"],
)
def test_what_monty_lacks_is_unknown(code: str) -> None:
    with MontySandbox() as monty:
        assert execute(monty, code).outcome is UNKNOWN


def test_a_deeper_stack_than_montys_is_unknown_when_the_program_asks_for_one() -> None:
    code = "def f(n):\n    return n and 1 + f(n - 1)\nprint(42 + 0 * f(5000))"
    with MontySandbox() as monty:
        assert execute(monty, code, case("", "42")).outcome is FAIL
        assert execute(monty, f"import sys\nsys.setrecursionlimit(9999)\n{code}", case("", "42")).outcome is UNKNOWN


@given(st.text(), st.text(alphabet=" \t\n"))
def test_space_at_the_end_never_matters(text: str, space: str) -> None:
    assert same_output(text, text + space)


@given(st.text() | st.dictionaries(st.sampled_from(["input", "output"]), st.text()).map(json.dumps))
def test_any_text_is_a_case_or_a_problem_error(text: str) -> None:
    try:
        (read,) = parse_cases([text], MAX_CASE)
    except ProblemError:
        return
    assert json.loads(text)["input"] == read.input
