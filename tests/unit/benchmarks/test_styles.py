"""Programs in another style, and wrong ones beside them: what the sandbox says of them, and figures of known verdicts.

Does not show what a judge makes of them; the benchmark does.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import styles
from styles_parts.built import BUILT
from styles_parts.kept import HELD_BACK
from styles_parts.programs import INPUTS, MIXED, SECONDS, Pair, Program, Study, Workshop, distance, mbpp, synthetic
from styles_parts.rewriting import Kind, Rule, rewrites

from codezero.problems.synthetic.tasks import make_task
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.types import Status, Verdict

KINDS = {**BUILT, **HELD_BACK}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    with MontySandbox(seconds=SECONDS) as made:
        yield made


def once(before: str, after: str, source: str) -> list[str]:
    return rewrites(Kind("", (Rule(before, after),)), source)


def test_a_rule_is_applied_at_each_place_where_it_fits() -> None:
    assert once("A > B", "B < A", "x = 1 > 2 > 3\ny = (a > b) + (c > d)") == [
        "x = 1 > 2 > 3\ny = (b < a) + (c > d)",
        "x = 1 > 2 > 3\ny = (a > b) + (d < c)",
    ]
    assert once("A * A", "A ** 2", "f(x) * f(x) + x * y") == ["f(x) ** 2 + x * y"]
    assert once("A > K", "A >= NEXT_K", "x > 3, x > y") == ["(x >= 4, x > y)"]
    assert once(
        "if C:\n    P\nelse:\n    Q", "if not C:\n    Q\nelse:\n    P", "if a:\n    b\n    c\nelse:\n    d"
    ) == ["if not a:\n    d\nelse:\n    b\n    c"]
    assert once("A + T", "f'{A}{T}'", "s + 'x'") == ["f'{s}x'"]


def test_names_that_a_rule_brings_along_are_nobodys() -> None:
    source = "def f(out):\n    return [i for i in out]"
    (text,) = once("return [E for X in S]", "out = []\nfor X in S:\n    out.append(E)\nreturn out", source)
    assert text == "def f(out):\n    out_ = []\n    for i in out:\n        out_.append(i)\n    return out_"
    (text,) = once("def F(x):\n    P", "def F(x: int):\n    P", "def f(x):\n    return x")
    assert text == "def f(x: int):\n    return x"


def test_the_two_sets_share_no_kind_and_both_have_every_family() -> None:
    assert not BUILT.keys() & HELD_BACK.keys() and MIXED not in KINDS
    assert {kind.family for kind in BUILT.values()} == {kind.family for kind in HELD_BACK.values()}
    assert 0.3 < len(HELD_BACK) / len(KINDS) < 0.4


def test_every_kind_says_the_same_differently(sandbox: MontySandbox) -> None:
    random, equal = Random("kinds"), Counter[str]()
    for task in (make_task(random) for _ in range(200)):
        problem = task.problem
        for name in KINDS.keys() - equal.keys():
            codes = rewrites(KINDS[name], str(problem.reference))
            equal[name] += any(sandbox.run(Job(code, problem.tests)).outcome is Outcome.PASS for code in codes)
        equal = +equal
    assert equal.keys() == KINDS.keys()


def test_pairs_are_what_they_are_called(sandbox: MontySandbox) -> None:
    left = Counter[str]()
    workshop = Workshop(sandbox, KINDS, 0, left)
    studies = synthetic(5, 0)
    made = [(study, workshop.pairs(study)) for study in studies]
    assert {study.level for study in studies} == set("12345") and all(len(study.more) >= INPUTS for study in studies)
    assert sum(len(pairs) for _, pairs in made) > 50 and left["wrong: not told apart by the tests"]
    for study, pairs in made:
        tests = study.problem.tests
        for pair in pairs:
            assert sandbox.run(Job(pair.right.code, tests + study.more)).outcome is Outcome.PASS
            assert sandbox.run(Job(pair.wrong.code, tests)).outcome is Outcome.FAIL
    near = [abs(pair.right.distance - pair.wrong.distance) <= 2 for _, pairs in made for pair in pairs]
    assert sum(near) / len(near) > 0.9
    assert Workshop(sandbox, KINDS, 0, left).pairs(studies[3]) == made[3][1]


def test_distance_counts_tokens_and_not_layout() -> None:
    assert distance("x=1", "x  =  1") == 0
    assert distance("return_ = x > 3", "return_ = not x <= 3") == 2


ROW = {
    "task_id": 1, "text": "Write a function to count the big ones.",
    "code": "def big(nums, k):\r\n    n = 0\r\n    for x in nums:\r\n        if x > k: n += 1\r\n    return n",
    "test_list": ["assert big([1, 5, 7], 4) == 2", "assert big([4, 2, 9], 8) == 1", "assert big([6, 3], 2) == 2"],
}  # fmt: skip


def test_rows_of_mbpp_are_tried_on_inputs_near_those_of_their_tests(tmp_path: Path, sandbox: MontySandbox) -> None:
    other = {**ROW, "task_id": 2, "code": "import os\ndef big(nums, k):\n    return os.getpid()"}
    file = tmp_path / "mbpp.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in (ROW, other)))
    left = Counter[str]()
    (study,) = mbpp(file, 5, 0, sandbox, left)
    assert "assert big([5, 7], 4) == 2" in study.more and len(study.more) >= INPUTS and study.level == "mbpp"
    assert left.total() == 1
    assert Workshop(sandbox, KINDS, 0, left).pairs(study)


def verdict(correctness: float, status: Status = Status.JUDGED) -> Verdict:
    return Verdict(0.0, correctness, 1.0, 1.0, 1.0, 1.0, status)


def row(study: Study, right: float, wrong: float, status: Status = Status.JUDGED) -> styles.Row:
    program = Program("swapped arms", "", 2)
    return styles.Row(study, Pair(program, program), verdict(right, status), verdict(wrong))


def test_figures_of_known_verdicts() -> None:
    (study,) = synthetic(1, 0)
    other = replace(study, problem=replace(study.problem, id="other", level=2))
    rows = (row(study, 0.9, 0.2), row(study, 0.3, 0.95), row(other, 0.5, 0.5), row(other, 0, 0, Status.UNAVAILABLE))
    found = styles.figures([styles.Scored(study, verdict(0.9), rows)])
    overall = found["overall"]
    assert overall["right"]["believed"] == round(2 / 3, 4) and overall["right"]["abstained"] == 0.25
    assert overall["near_misses"]["believed"] == 0.5 and overall["near_misses"]["n"] == 4
    assert overall["pairs"]["auroc"] == 0.5 and overall["pairs"]["pairs"] == 3 and overall["pairs"]["problems"] == 2
    assert overall["surely_mistaken"] == round(1 / 7, 4)
    assert found["reference"]["believed"] == 1 and found["by_level"].keys() == {"1", "2"}
    assert found["by_kind"]["swapped arms"] == overall


def test_the_benchmark_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--set", "all", "--problems", "5", "evaluator.canaries=80"]
    assert styles.main(words) == 0
    report = json.loads(capsys.readouterr().out)
    for name in ("built", "kept"):
        part = report["synthetic"][name]
        assert part.keys() == {"overall", "reference", "by_level", "by_kind", "left_out"}
        assert part["overall"]["right"]["n"] == part["overall"]["near_misses"]["n"] > 10
        assert all(each["family"] for each in part["by_kind"].values())
    assert report["judge"]["judge/weight"] is not None
    assert styles.main(["--problems", "1", "--show", MIXED, "evaluator.canaries=80"]) == 0
    assert "# right, " in capsys.readouterr().out


def test_execution_in_the_place_of_the_judge_tells_all_pairs_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert styles.main(["--json", "--problems", "3", "reward.mode=rlvr"]) == 0
    overall = json.loads(capsys.readouterr().out)["synthetic"]["built"]["overall"]
    assert overall["right"]["believed"] == overall["pairs"]["auroc"] == 1
    assert overall["near_misses"]["believed"] == overall["right"]["abstained"] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--data", "/nowhere/mbpp.jsonl"], "/nowhere/mbpp.jsonl cannot be read"),
        (["--data", __file__], "neither JSON lines nor a JSON array"),
        (["--show", "haiku"], "no kind haiku"),
        (["--show", next(iter(HELD_BACK)), "--set", "built"], "no kind"),
        (["evaluator.modle=nano"], "modle"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert styles.main(["--json", "--problems", "1", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and why in err
