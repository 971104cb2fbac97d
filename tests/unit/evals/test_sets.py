"""Published sets in their authors' file formats: read whole, examined rightly, and refused in one line when broken."""

import json
import pickle
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import evals as small

from codezero.commands.measure import PRELUDE_NAMES
from codezero.errors import ConfigError, ProblemError
from codezero.evals import sets
from codezero.evals.grading import SandboxGrader
from codezero.evals.sets import PUBLISHED, find_set, read_tasks
from codezero.evals.task import PRELUDES, EvalTask, imported_by, jobs, program
from codezero.sandbox.base import SAME
from codezero.sandbox.bubblewrap import open_sandbox
from codezero.sandbox.monty import MontySandbox
from codezero.types import Completion


@pytest.fixture(scope="module")
def grader() -> Iterator[SandboxGrader]:
    with open_sandbox("monty") as sandbox:
        yield SandboxGrader(sandbox)


def read(name: str, path: Path) -> list[Any]:
    return list(read_tasks(name, find_set(name, [path])))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_set_is_the_same_in_every_format(name: str, suffix: str, tmp_path: Path) -> None:
    plain = read(name, small.write_rows(tmp_path / "rows.jsonl", small.SETS[name]))
    assert read(name, small.write_rows(tmp_path / f"other{suffix}", small.SETS[name])) == plain and len(plain) == 5


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_right_answers_pass_and_wrong_ones_do_not(
    name: str, right: bool, tmp_path: Path, grader: SandboxGrader
) -> None:
    tasks = read(name, small.write_rows(tmp_path / "rows.jsonl", small.SETS[name]))
    tried = [[Completion(text, (), (), True)] for text in small.answers(name, right=right)]
    grades = grader.grade(tasks, tried)
    assert [[grade.passed for grade in one] for one in grades] == [[right]] * 5, grades


def test_the_whole_of_a_tasks_tests_is_run(tmp_path: Path, grader: SandboxGrader) -> None:
    """A job has 5 cases of a program; here the 42nd is the one that shows it."""
    task = read("livecodebench", small.write_rows(tmp_path / "r.jsonl", small.LIVECODEBENCH))[0]
    cheat = "a, b = map(int, input().split())\nprint(a + b if a < 38 else 0)"
    ((grade,),) = grader.grade([task], [[Completion(f"```python\n{cheat}\n```", (), (), True)]])
    assert len(task.tests) == 43 and grade.passed is False


def test_code_that_equals_anything_is_not_believed_inside_a_loop(tmp_path: Path) -> None:
    """HumanEval's loops compare with what they compute: no literal stands there to be changed."""
    (task,) = read("humaneval", small.write_rows(tmp_path / "r.jsonl", small.HUMANEVAL[3:4]))
    forged = "class Any:\n    def __eq__(self, other):\n        return True\ndef back(s):\n    return Any()"
    with MontySandbox() as sandbox:
        (job,) = jobs(task, forged)
        assert sandbox.run(job).cheats


def test_helpers_and_imports_of_the_prompt_stand_before_answers_and_the_tests_that_use_them(tmp_path: Path) -> None:
    """Tests are examined outside the jail, where the answer is not."""
    tasks = read("humaneval", small.write_rows(tmp_path / "r.jsonl", small.HUMANEVAL))
    assert "def shift" in program(tasks[3], "def back(s): ...") and "def shift" in tasks[3].prompt
    assert tasks[2].tests[1].startswith("import math\n") and "import" not in tasks[1].tests[0]


def test_names_that_sites_import_are_imported_only_when_used() -> None:
    made = imported_by("livecodebench", "def f(xs: List[int]):\n    return heapq.nsmallest(1, xs), sqrt(2), self.deque")
    assert made.splitlines()[3:] == ["from math import sqrt", "from typing import List", "import heapq"]


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("length", [3, 300, 100_000], ids=lambda length: f"{length}_long")
def test_a_pickled_string_is_read_without_running_it(protocol: int, length: int) -> None:
    text = json.dumps(["é" * length])
    assert sets.unpack(small.packed(text, protocol)) == text


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("run",)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (pickle.dumps(Hostile()), "never run"),
        (pickle.dumps(["a", "b"]), "never run"),
        (pickle.dumps("a", 0), "never run"),
        (pickle.dumps("a")[:-1], "cut off"),
        (pickle.dumps("a") + b"more", "never run"),
        (b"\x80\x04X\xff\xff\xff\x7fab.", "cut off"),
        (b"", "cut off"),
    ],
)
def test_a_pickle_that_is_more_than_a_string_is_refused(
    held: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProblemError, match=said):
        sets.unpack(b64encode(zlib.compress(held)).decode())
    assert capsys.readouterr().out == ""


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MAX_UNPACKED", 1 << 20)
    bomb = b64encode(zlib.compress(bytes(64 << 20))).decode()
    with pytest.raises(ProblemError, match="more than 1 MiB"):
        sets.unpack(bomb)


def changed(name: str, number: int, **fields: Any) -> small.Rows:
    return [*small.SETS[name][:number], small.SETS[name][number] | fields]


BROKEN = {
    "a number where text belongs": ("humaneval", changed("humaneval", 1, prompt=7), "row 2: Expected `str`"),
    "no test function": ("humaneval", changed("humaneval", 0, test="x = 1"), "no function check"),
    "a prompt that defines another": ("humaneval", changed("humaneval", 0, prompt="def g(): pass"), "not define twice"),
    "a prompt that does not parse": ("humaneval", changed("humaneval", 0, prompt="def ("), "prompt cannot be parsed"),
    "tests nested out of reach": ("humaneval", changed("humaneval", 0, test="(" * 9999), "test cannot be parsed"),
    "a task twice": ("humaneval", small.HUMANEVAL[:1] * 2, "row 2: a second task called HumanEval/0"),
    "another set's rows": ("humaneval", small.MBPP, "row 1: has no field prompt"),
    "tests that are no list": ("mbpp", changed("mbpp", 1, test_list="assert"), "Expected `array`"),
    "only other splits": ("mbpp", small.MBPP[:1], "no task of mbpp's test split"),
    "a long text": ("mbpp", changed("mbpp", 1, text="x" * (1 << 21)), "length <= 1048576"),
    "a private pickle": ("livecodebench", changed("livecodebench", 0, private_test_cases="AAAA"), "zlib in base64"),
    "no function named": ("livecodebench", changed("livecodebench", 2, metadata="{}"), "metadata does not name"),
    "a function that is code": ("livecodebench",
        changed("livecodebench", 2, metadata=json.dumps({"func_name": "f();import os"})), "metadata does not name"),
    "tests of two kinds": ("livecodebench",
        changed("livecodebench", 0, public_test_cases=small.LIVECODEBENCH[2]["public_test_cases"]),
        "type functional, stdin, where"),
    "a test of another kind": ("livecodebench",
        changed("livecodebench", 0, private_test_cases='[{"input": "", "output": "", "testtype": "file"}]'),
        "type file, stdin, where"),
    "an output that is no JSON": ("livecodebench",
        changed("livecodebench", 2, public_test_cases='[{"input": "1", "output": "x", "testtype": "functional"}]'),
        "is no JSON"),
    "no tests": ("livecodebench", changed("livecodebench", 0, public_test_cases="[]", private_test_cases="[]"),
        "type none"),
    **{f"tests that are {what}":
           ("livecodebench", changed("livecodebench", 0, public_test_cases=text), "public_test_cases cannot be used")
       for what, text in (("cut off", '[{"input": '), ("too many", json.dumps([{}] * 2000)), ("deep", "[" * 100_000))},
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(BROKEN))
def test_a_broken_row_is_one_line(what: str, tmp_path: Path) -> None:
    name, made, said = BROKEN[what]
    with pytest.raises(ProblemError) as caught:
        read(name, small.write_rows(tmp_path / "rows.jsonl", made))
    assert said in str(caught.value) and "\n" not in str(caught.value) and "rows.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "held", "said"),
    [
        ("x.jsonl", b"[1]\n", "no JSON object"),
        ("x.jsonl", b"\xff\xfe{}\n", "neither JSON lines nor"),
        ("x.jsonl", b"", "no task"),
        ("x.jsonl.gz", b"not gzip", "cannot be read"),
        ("x.parquet", b"PAR1 not really PAR1", "cannot be read"),
    ],
)
def test_a_file_that_is_something_else_is_one_line(file: str, held: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(held)
    with pytest.raises(ProblemError, match=said) as caught:
        read("humaneval", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_line_that_is_too_long_is_refused_before_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MAX_ROW", 1000)
    for suffix in (".jsonl", ".jsonl.gz", ".parquet"):
        path = small.write_rows(tmp_path / f"rows{suffix}", changed("humaneval", 0, test="x" * 5000))
        with pytest.raises(ProblemError, match="longer than"):
            read("humaneval", path)


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("synthetic", ["x.jsonl"], "needs none"),
        ("mbpp", ["nowhere.jsonl"], "is not there"),
        ("mbpp", ["/"], "--file"),
    ],
)
def test_a_wrong_choice_of_files_is_one_line(name: str, files: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        find_set(name, [tmp_path if file == "/" else Path(file) for file in files])


def test_a_harness_lends_what_it_imports_and_a_prelude_takes_its_place(jailed: None) -> None:
    typed = [[Completion("```python\ndef twice(xs: List[int]) -> int:\n    return 2 * sum(xs)\n```", (), (), True)]]
    task = EvalTask("t", "p", ("assert twice([1, 2]) == 6",), "twice")
    with open_sandbox("auto") as sandbox:
        for prelude, passed in (("none", False), ("typing", True), ("livecodebench", True)):
            ((grade,),) = SandboxGrader(sandbox).grade([replace(task, prelude=prelude)], typed)
            assert grade.passed is passed, (prelude, grade)
    assert PRELUDES.keys() == {*PRELUDE_NAMES}


def test_tests_that_cannot_be_decided_are_told_once_and_run_for_no_attempt(grader: SandboxGrader) -> None:
    odd = EvalTask("odd", "p", ("import asyncio\nfor x in [1]:\n    assert asyncio.run(f(x)) == 1",), "f")
    assert list(grader.refusals([odd, replace(odd, name="even", tests=("assert f(1) == 1",))])) == ["odd"]
    attempts = [Completion(f"```python\ndef f(x): return {n}\n```", (), (), True) for n in range(2)]
    ((first, second),) = grader.grade([odd], [attempts])
    assert first.passed is second.passed is None and first.reason == second.reason


@pytest.mark.parametrize(
    ("wanted", "printed", "words", "decimals"),
    [
        ("1.50\n", "1.5\n", False, True), ("300000000000000000000", "3e+20", False, True),
        ("1 2", "1  2.0", False, True), ("a b", "a  b", True, False), ("A B", "A\u00a0B", False, False),
        ("3", "3\x00", False, False), ("YES", "Yes", False, False), ("1\n2", "1 2", False, False),
        ("1.414213562373", "1.414214", False, False), ("x\n", "x  \n\n", True, True), ("", "\n \n", True, True),
        ("1\n\n2", "1\n2", False, False),
    ],
)  # fmt: skip
def test_output_is_compared_as_each_harness_does(wanted: str, printed: str, words: bool, decimals: bool) -> None:
    for pair in ((wanted, printed), (printed, wanted)):
        assert (SAME["words"](*pair), SAME["decimals"](*pair)) == (words, decimals)
