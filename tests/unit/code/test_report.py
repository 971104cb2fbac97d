"""Each rule of the static pass, one promise a test; nothing here runs the code it looks at."""

import json

import pytest

from codezero.code.parsing import fence
from codezero.code.report import StaticReport, StaticRequest, check

TESTS = ("assert sq(3) == 9", "assert sq(5) == 25", "assert sq(12) == 144")


def report(
    code: str, tests: tuple[str, ...] = TESTS, question: str = "Write a function sq(x) that squares x."
) -> StaticReport:
    return check(StaticRequest(fence(code), tests, "sq", question))


def test_a_good_solution_has_no_finding():
    good = report("def sq(x):\n    return x * x")
    assert not good.certain_failure and not good.quarantine
    assert good.returns_value and not good.stub and not good.degenerate and not good.undefined_names
    assert not good.banned and not good.toplevel and not good.unused_params
    assert good.signature_as_stated and good.hardcode_ratio == 0
    assert good.canonical == "def sq(x):\n    return x * x"


def test_no_fence_and_two_fences_are_failures_where_one_is_wanted():
    for text in ("def sq(x): return x * x", fence("a = 1") + "\n" + fence("def sq(x):\n    return x * x")):
        found = check(StaticRequest(text, TESTS, "sq", "", "only"))
        assert found.certain_failure and found.code is None and "fence" in found.refusal
        found = check(StaticRequest(text, TESTS, "sq", ""))
        assert not found.certain_failure and found.flaw


def test_what_is_kept_of_an_answer_is_bounded():
    found = check(StaticRequest(fence("x = 1\n" * 9_000), TESTS, "sq", ""))
    assert found.certain_failure and found.code is not None and len(found.code) < 20_000


@pytest.mark.parametrize(
    "code", ["def sq(x)\n    return x", "def sq(x):\nreturn x", "", "x = \x00", "def sq(x): return '"]
)
def test_what_does_not_parse_or_defines_nothing_fails(code: str):
    assert report(code).certain_failure


@pytest.mark.parametrize("code", ["def square(x):\n    return x", "async def sq(x):\n    return x", "class sq: pass"])
def test_the_entry_point_must_be_a_plain_function(code: str):
    found = report(code)
    assert found.parses and not found.entry_defined and found.certain_failure


@pytest.mark.parametrize(("signature", "test", "fits"), [
    ("x", "assert sq(1) == 1", True), ("x, y", "assert sq(1) == 1", False), ("", "assert sq(1) == 1", False),
    ("x, y=2", "assert sq(1) == 1", True), ("*xs", "assert sq(1, 2, 3) == 1", True),
    ("x", "assert sq(x=1) == 1", True), ("x", "assert sq(y=1) == 1", False), ("x, /", "assert sq(x=1) == 1", False),
    ("**kw", "assert sq(y=1) == 1", True), ("x, *, k", "assert sq(1) == 1", False),
    ("x, *, k", "assert sq(1, k=2) == 1", True), ("x", "assert sq(1, x=1) == 1", False),
    ("x", "assert set(sq((1, 2))) == set((1,))", True),
])  # fmt: skip
def test_arity(signature: str, test: str, fits: bool):
    assert report(f"def sq({signature}):\n    return 1 + 1", (test,)).arity_ok is fits


def test_tests_that_cannot_be_read_say_nothing_of_the_solution():
    assert not report("def sq(x):\n    return x * x", ("assert (",)).certain_failure


def test_answers_returned_on_error_count_as_hard_coded():
    code = "def sq(x):\n    try:\n        return x.y\n    except AttributeError:\n        return 9 if x < 4 else 25"
    assert (
        report("def sq(x):\n    try:\n        return x.y\n    except AttributeError:\n        return 9").hardcode_ratio
        > 0
    )
    assert not report(code).certain_failure


def test_a_base_case_and_constants_of_a_rule_are_no_table():
    assert not report("def sq(x):\n    if x == 0: return 0\n    return x * x").quarantine
    tests = ("assert sq(3) == 8", "assert sq(5) == 10")
    assert not report("def sq(x):\n    return x + 5 if x > 3 else x + 8 - 3", tests).quarantine


@pytest.mark.parametrize("code", [
    "def sq(list):\n    return list", "from math import pow\ndef sq(x):\n    return pow(x, 2)",
    "def sq(x):\n    is_correct = x\n    return is_correct",
    "def sq(x):\n    '''Returns x squared; all tests pass.'''\n    return x * x",
    "class A:\n    def __eq__(self, other):\n        return self.x == other.x\ndef sq(x):\n    return x",
])  # fmt: skip
def test_ordinary_habits_are_not_attacks(code: str):
    assert not report(code).quarantine


def test_refusing_an_argument_by_exit_is_a_flaw_and_ending_otherwise_an_attack():
    guard = "def sq(x):\n    if x < 0:\n        exit()\n    return x * x"
    assert not report(guard).quarantine and report(guard).banned == ("exit",)
    for other in ("x >= 0", "x < 9", "True", "x < y"):
        assert report(guard.replace("x < 0", other)).quarantine
    for ending in ("exit(0)", "quit(1)", "raise SystemExit", "return 1\n    exit()"):
        assert report(guard.replace("exit()", ending)).quarantine


NODE = "class Node:\n    def __init__(self, value):\n        self.value = value"


def test_a_helper_that_only_the_code_can_define_is_no_attack():
    """The tests call it, and neither they nor the question say what it is."""
    tests = ("assert sq(Node(3)) == 9", "assert sq(Node(5)) == 25")
    honest = report(f"{NODE}\ndef sq(x):\n    return x.value ** 2", tests)
    assert not honest.quarantine and not honest.certain_failure
    assert str(honest.canonical).startswith("class Node:\n")
    assert honest.canonical == report(f"{NODE}\n\n\ndef sq(node):\n    return node.value ** 2", tests).canonical
    spare = f"{NODE}\n{NODE.replace('Node', 'Other')}\ndef sq(x):\n    return x.value ** 2"
    assert report(spare, tests).canonical == honest.canonical
    loud = report(
        "def the_judge_says_yes(x):\n    return x\ndef sq(x):\n    return x", ("assert sq(the_judge_says_yes(3))",)
    )
    assert "judge" not in str(loud.canonical)
    assert report(f"{NODE}\ndef sq(x):\n    return 9", (f"{NODE}\nassert sq(Node(3)) == 9",)).quarantine
    math = "class math:\n    isclose = print\ndef sq(x):\n    return x"
    assert report(math, ("assert math.isclose(sq(3), 9)",)).quarantine


def test_a_helper_of_the_question_may_be_repeated_but_not_changed():
    question = "Complete:\n\ndef half(x):\n    # two of them\n    return x / 2\n\ndef sq(x):\n    ..."
    tests = ("assert half(sq(4)) == 8",)
    same, other = "def half(x):\n    return x / 2\n", "def half(x):\n    return 8\n"
    assert not report(f"{same}def sq(x):\n    return x * x", tests, question).quarantine
    assert report(f"{other}def sq(x):\n    return x * x", tests, question).quarantine
    assert report("half = lambda x: 8\ndef sq(x):\n    return x * x", tests, question).quarantine


def test_a_message_in_a_list_is_no_copied_answer():
    tests = ("assert sq(-1) == ['must be positive, not less']", "assert sq(200) == ['is too large by far']")
    rules = "(('must be positive, not less', x < 0), ('is too large by far', x > 99))"
    assert not report(f"def sq(x):\n    return [m for m, wrong in {rules} if wrong]", tests).quarantine


def test_milder_flaws_are_named():
    assert report("def sq(x):\n    pass").stub
    assert report("def sq(x):\n    return 9").stub
    assert not report("def sq(x):\n    print(x)").returns_value
    assert not report("def sq(x):\n    def g():\n        return 1\n    g()").returns_value
    assert report("def sq(x):\n    return sq(x)").degenerate
    assert report("def sq(x):\n    while True:\n        x += 1").degenerate
    assert not report("def sq(x):\n    while True:\n        return x").degenerate
    assert report("def sq(x):\n    return math.sqrt(x)").undefined_names == ("math",)
    assert report("import os\ndef sq(x):\n    return eval('x')").banned == ("eval", "os")
    assert report("def sq(x):\n    return x.__globals__").banned == ("__globals__",)
    assert report("print(1)\nfor i in []: pass\ndef sq(x):\n    return x").toplevel == ("Expr", "For")
    assert report("def sq(x, y=1):\n    return x").unused_params == ("y",)
    assert not report("def sq(n):\n    return n * n").signature_as_stated


def stdio(code: str, *cases: tuple[str, str]) -> StaticReport:
    tests = tuple(json.dumps({"input": given, "output": wanted}) for given, wanted in cases or (("3\n", "9\n"),))
    return check(StaticRequest(fence(code), tests, "", "Print the square."))


def test_a_good_program_has_no_finding():
    good = stdio("n = int(input())\nprint(n * n)", ("3\n", "9\n"), ("12\n", "144\n"))
    assert not good.certain_failure and not good.quarantine and good.returns_value and not good.stub
    assert not good.banned and not good.toplevel and not good.unused_params and good.signature_as_stated
    assert good.examples[1].output == "144\n" and good.canonical == "v0 = int(input())\nprint(v0 * v0)"


@pytest.mark.parametrize(("code", "writes", "reads"), [
    ("print(9)", True, False), ("print(9)\nprint(25)\nprint(144)", True, False), ("x = 1", False, False),
    ("import sys\nsys.stdout.write('9')", True, False), ("n = input()", False, True),
    ("def main():\n    print(input())", False, False),
    ("def main():\n    print(input())\nmain()", True, True),
    ("import sys\nsys.stdout.write(sys.stdin.read())", True, True),
    ("from sys import stdin, stdout\nstdout.write(stdin.readline())", True, True),
    ("import os\nos.write(1, os.read(0, 9))", True, True), ("p = print\np(open(0).read())", True, True),
    ("for line in __import__('fileinput').input(): print(line)", True, True),
    ("if False:\n    print(input())", False, False),
])  # fmt: skip
def test_a_program_must_write_and_read(code: str, writes: bool, reads: bool):
    report = stdio(code)
    assert (report.entry_defined, report.arity_ok) == (writes, reads)


def test_a_program_without_input_need_not_read():
    assert stdio("print(sum(range(10)))", (" \n", "45\n")).arity_ok
    assert stdio("print(45)", ("", "45\n")).stub


def test_words_that_answer_many_tests_are_no_table():
    code = "s = input()\nprint('YES' if s[0] == 'a' else 'NO')"
    assert stdio(code, ("a\n", "YES\n"), ("b\n", "NO\n")).hardcode_ratio == 0
    table = "s = input()\nprint({'abcab': 'YES', 'xyxyx': 'NO'}[s])"
    assert stdio(table, ("abcab\n", "YES\n"), ("xyxyx\n", "NO\n")).quarantine


def test_cases_that_cannot_be_read_say_nothing_of_the_program():
    report = check(StaticRequest(fence("print(input())"), ("not json",), "", ""))
    assert not report.certain_failure and not report.quarantine and report.examples == ()


def test_no_parameter_used_and_no_end_are_named():
    assert "no parameter is used" in report("def sq(x):\n    y = 4\n    return y + y").degenerate
    assert report("def sq(x):\n    while 1 < 2:\n        x += 1").degenerate
    assert stdio("while True:\n    print(1)").degenerate and not stdio("while True:\n    print(input())").degenerate


def test_a_lambda_and_an_alias_are_entry_points():
    assert not report("sq = lambda x: x * x").certain_failure
    assert not report("def g(x):\n    return x * x\nsq = g").certain_failure
    assert not report("def g(x, y):\n    return x * x\nsq = g").arity_ok
    assert not report("import math\nsq = math.sqrt").certain_failure


@pytest.mark.parametrize("code", [
    "e = eval\ndef sq(x):\n    return e('x')", "def sq(x):\n    return getattr(x, 'a' + 'b')",
    "import random\ndef sq(x):\n    return random._os", "from . import other\ndef sq(x):\n    return x",
    "from os import path as p\ndef sq(x):\n    return x", "def sq(x):\n    return __builtins__",
    "def sq(x):\n    return map(eval, [x])",
    "def sq(x):\n    return \uff45val('x')",  # the parser normalises identifiers (NFKC)
])  # fmt: skip
def test_reaching_outside_is_seen_under_other_names(code: str):
    assert report(code).banned


def test_a_name_of_ones_own_is_not_the_builtin():
    assert not report("def sq(input):\n    vars = input\n    return vars * vars").banned
