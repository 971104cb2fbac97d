"""An eval that is killed goes on, samples nothing twice, and its figures say who marked and how sure they are."""

import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from builders import evals as small
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.answer import read_answer
from codezero.errors import ConfigError
from codezero.evals.figures import Choices, TaskOutcome, compare, figures_of, paired_bootstrap, pass_at_k
from codezero.evals.grading import EvaluatorGrader, Grade, SandboxGrader
from codezero.evals.run import EvalRun, EvalTotals, EvaluationLog, batch_seed
from codezero.evals.task import EvalTask
from codezero.sandbox.base import ALL_HOLD, Execution, Job, Sandbox, failed, unknown
from codezero.system.signals import Terminated
from codezero.types import Completion, RolloutGroup, ScoredGroup, Status, Verdict

TASKS = [EvalTask(f"t{number}", f"prompt {number}", ("assert f(1) == 1",), "f") for number in range(20)]
CHOICES = Choices(set="s", tasks="t", model="m", max_new_tokens=8, temperature=1.0, seed=0)


class Killed(BaseException):
    """Stands for the process's end."""


@dataclass
class Sampler:
    """Each attempt names its seed, and the batches asked for are counted."""

    asked: list[int] = field(default_factory=list[int])

    def sample(
        self, prompts: Sequence[str], *, group_size: int, generator_seed: int, **_: Any
    ) -> list[list[Completion]]:
        self.asked.append(generator_seed)
        return [
            [Completion(f"{prompt} {generator_seed} {i}", (), (), i == 0) for i in range(group_size)]
            for prompt in prompts
        ]


@dataclass
class Grader:
    label: str = "executed"
    dies_at: int = 99
    dies_of: type[BaseException] = Killed
    marked: int = 0

    def grade(self, tasks: Sequence[EvalTask], attempts: Sequence[Sequence[Completion]]) -> list[list[Grade]]:
        self.marked += 1
        if self.marked > self.dies_at:
            raise self.dies_of
        return [[Grade(True), *[Grade(None, "cannot tell")] * (len(row) - 1)] for row in attempts]


def sit(
    folder: Path,
    sampler: Sampler,
    grader: Grader,
    tasks: Sequence[EvalTask] = TASKS,
    by: str = "executed",
    samples: int = 2,
) -> EvalTotals:
    with EvaluationLog(folder, CHOICES, by) as log:
        run = EvalRun(lambda: tasks, len(tasks), samples, CHOICES, log, lambda: sampler, lambda: grader, lambda _: None)
        return run.run()


def test_an_eval_that_is_killed_goes_on_and_samples_nothing_twice(tmp_path: Path) -> None:
    """Of three batches two are attempted together, because a sampler with few rows is slow."""
    whole = sit(tmp_path / "whole", Sampler(), Grader(), samples=8)
    sampler = Sampler()
    for _ in range(3):
        with pytest.raises(Killed):
            sit(tmp_path / "killed", sampler, Grader(dies_at=0), samples=8)
        assert len(sampler.asked) == 1  # its attempts are there; only the grades are missing
    with pytest.raises(Killed):
        sit(tmp_path / "killed", sampler, Grader(dies_at=1), samples=8)
    resumed = sit(tmp_path / "killed", sampler, Grader(), samples=8)
    assert resumed == whole and sampler.asked == [batch_seed(0, 0), batch_seed(0, 2)]


def test_a_finished_eval_needs_neither_model_nor_marker(tmp_path: Path) -> None:
    first = sit(tmp_path, Sampler(), Grader())
    sampler, grader = Sampler(), Grader()
    assert sit(tmp_path, sampler, grader) == first and sampler.asked == [] and grader.marked == 0


def test_the_judge_marks_the_attempts_that_were_executed(tmp_path: Path) -> None:
    sit(tmp_path, Sampler(), Grader())
    sampler, judge = Sampler(), Grader()
    sit(tmp_path, sampler, judge, by="judged")
    assert sampler.asked == [] and judge.marked == 3


@pytest.mark.parametrize("entry", [b"[", b"{}", None, b"\xff", b"[" * 100_000])
def test_a_damaged_entry_is_refused(entry: bytes | None, tmp_path: Path) -> None:
    sit(tmp_path, Sampler(), Grader())
    with contextlib.closing(sqlite3.connect(tmp_path / CHOICES.file_name)) as file, file:
        file.execute("UPDATE batch SET entry=coalesce(?, 7) WHERE number=1 AND by=''", (entry,))
        file.execute("DELETE FROM batch WHERE number=1 AND by<>''")
    with pytest.raises(ConfigError, match="cannot be read"):
        sit(tmp_path, Sampler(), Grader())
    (tmp_path / CHOICES.file_name).write_bytes(b"not SQLite" * 1000)
    with pytest.raises(ConfigError, match="cannot be read"):
        sit(tmp_path, Sampler(), Grader())


def test_a_log_of_other_tasks_is_refused(tmp_path: Path) -> None:
    sit(tmp_path, Sampler(), Grader())
    with pytest.raises(ConfigError, match="of other tasks"):
        sit(tmp_path, Sampler(), Grader(), TASKS[1:])


def test_two_evals_do_not_share_a_ledger(tmp_path: Path) -> None:
    with EvaluationLog(tmp_path, CHOICES, "x"), pytest.raises(ConfigError, match="in use by another eval"):
        EvaluationLog(tmp_path, CHOICES, "x")


def test_more_samples_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    sampler = Sampler()
    sit(tmp_path, sampler, Grader())
    assert sit(tmp_path, sampler, Grader(), samples=5).attempts == 100
    assert sampler.asked == [batch_seed(0, 0), batch_seed(0, 0, 2)]
    assert sit(tmp_path, sampler, Grader(), samples=1).attempts == 20 and len(sampler.asked) == 2


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
def test_an_eval_that_is_stopped_says_how_far_it_is(stop: type[BaseException], tmp_path: Path) -> None:
    grader = Grader(dies_at=2, dies_of=stop)
    with pytest.raises(stop, match="16 of 20 problems done; the same command goes on"):
        sit(tmp_path, Sampler(), grader)


def test_undecided_attempts_are_shown_and_counted_nowhere(tmp_path: Path) -> None:
    sat = sit(tmp_path, Sampler(), Grader())
    assert sat.undecided == {"cannot tell": 20} and sat.attempts == 40 and sat.truncated == 20
    (average, one) = figures_of(sat.outcomes, samples=2, ks=(1, 2), label="executed", seed=0)
    assert average.value == one.value == 1.0 and one.problems == 20  # pass@2 has no problem with two decided attempts


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not() -> None:
    a = [number % 5 / 8 for number in range(60)]
    (low, high), p = paired_bootstrap(a, [value + 0.1 for value in a[:50]] + a[50:], seed=0)
    assert 0.03 < low < 0.0833 < high and p < 0.001
    (low, high), p = paired_bootstrap(a, a, seed=0)
    assert -0.1 < low < 0 < high < 0.1 and p == 1  # sixty problems without a difference leave a little doubt
    (low, high), p = paired_bootstrap([0.0, 1.0] * 30, [1.0, 0.0] * 30, seed=0)
    assert low < 0 < high and p > 0.9


def test_p_is_small_as_often_as_it_says_when_nothing_differs() -> None:
    chance = random.Random(0)
    small_ones = 0
    for seed in range(200):
        a, b = ([chance.random() for _ in range(40)] for _ in range(2))
        small_ones += paired_bootstrap(a, b, seed=seed)[1] < 0.05
    assert 2 <= small_ones <= 20


def test_two_are_compared_on_what_both_have_decided() -> None:
    a = [TaskOutcome("x", (True, True)), TaskOutcome("y", (None, None)), TaskOutcome("z", (False, False))]
    b = [TaskOutcome("x", (True, False)), TaskOutcome("y", (True, True)), TaskOutcome("z", (True, None))]
    told = compare(a, b, samples=2, label="executed", seed=0)
    assert told is not None and (told.problems, told.a, told.b, told.difference) == (2, 0.5, 0.75, 0.25)
    assert compare(a[1:2], b, samples=2, label="executed", seed=0) is None


class Scripted(Sandbox):
    """A sandbox that says what it was told to, job by job."""

    def __init__(self, *says: Execution) -> None:
        self.says, self.jobs = list(says), list[Job]()

    def run(self, job: Job) -> Execution:
        self.jobs.append(job)
        return self.says.pop(0)

    def refusal(self, job: Job) -> str:
        return ""

    def close(self) -> None: ...


LONG = EvalTask("long", "p", tuple(f'{{"input": "{n}", "output": ""}}' for n in range(12)))
TRY = [[Completion("```python\nx\n```", (), (), True)]]


@pytest.mark.parametrize(
    ("says", "passed", "run"),
    [
        ((ALL_HOLD, ALL_HOLD, ALL_HOLD), True, 3),
        ((ALL_HOLD, failed("no")), False, 2),
        ((unknown("?"), failed("no")), False, 2),
        ((ALL_HOLD, unknown("?"), ALL_HOLD), None, 3),
    ],
    ids=["all hold", "one fails", "doubt then failure", "doubt"],
)
def test_one_failure_decides_and_a_doubt_leaves_it_open(says: Any, passed: bool | None, run: int) -> None:
    sandbox = Scripted(*says)
    ((grade,),) = SandboxGrader(sandbox).grade([LONG], TRY)
    assert grade.passed is passed and len(sandbox.jobs) == run


def test_an_attempt_that_takes_too_long_is_undecided() -> None:
    clock: Callable[[], float] = iter([0.0, 0.0, 500.0]).__next__
    ((grade,),) = SandboxGrader(Scripted(ALL_HOLD), clock=clock).grade([LONG], TRY)
    assert grade.passed is None and "120 seconds" in grade.reason


def test_equal_answers_are_run_once() -> None:
    sandbox = Scripted(failed("no"))
    ((a, b, c),) = SandboxGrader(sandbox).grade([LONG], [[*TRY[0], *TRY[0], Completion("no code", (), (), True)]])
    assert (a.passed, b.passed, c.passed) == (False, False, False) and c.reason == "no Python fence" and c.without_code


class Believer:
    """Judges by one word of the program."""

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        return [ScoredGroup(group, tuple(map(self._verdict, group.completions))) for group in groups]

    def _verdict(self, completion: Completion) -> Verdict:
        code = read_answer(completion.text, "", "only").code or ""
        p = 0.9 if "Solution()" in code else 0.1
        return Verdict(p, p, 1, 1, 1, 1, Status.UNAVAILABLE if "odd" in code else Status.JUDGED, ("because",))


def test_the_judge_reads_the_whole_program() -> None:
    task = EvalTask("t", "p", ("{}",), after="print(Solution())")
    tried = [[Completion(text, (), (), True) for text in ("```python\nx\n```", "nothing", "```python\nodd\n```")]]
    (grades,) = EvaluatorGrader(Believer()).grade([task], tried)  # pyright: ignore[reportArgumentType]
    assert [grade.passed for grade in grades] == [True, False, None]


def evaluate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codezero", "eval", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_a_published_set_from_the_command_line_and_two_policies_compared(tmp_path: Path) -> None:
    small.write_rows(tmp_path / "m.jsonl", small.MBPP)
    asked = ["mbpp", "--file", "m.jsonl", "--samples", "2", "--json", "solver.max_new_tokens=12"]
    done = evaluate(*asked, "--compare", "nano", "nano", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["difference"]["p"] == 1 and told["difference"]["label"] == "executed" and told["a"]["problems"] == 5
    assert {one["name"] for one in told["a"]["figures"]} == {"average@2", "pass@1", "pass@2"}
    assert done.stderr.count("loading the solver, nano …\n") == 1  # the second of two equal policies finds all done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["humanevil"], "there is no set humanevil"),
        (["mbpp"], "give --file"),
        (["synthetic", "--samples", "4", "--k", "8"], "--k=8 cannot be estimated from 4 attempts"),
        (["synthetic", "--k", "x"], "--k=x is no list"),
        (["synthetic", "--samples", "0"], "--samples=0 is out of bounds"),
        (["synthetic", "--judged", "reward.mode=rlvr"], "would execute"),
        (["--samples", "3"], "needs the name of a set"),
        (["--skip-bad"], "--skip-bad needs the name of a set"),
        (["synthetic", "--samples", "3", "evals.temperature=0"], "draws the same attempt every time"),
        (["synthetic", "--limit", "0"], "--limit=0 is out of bounds"),
        (["synthetic", "--start", "201"], "synthetic has 200 problems"),
        (["mbpp", "--file", "x", "evals.problems=5"], "give --limit"),
        (["synthetic", "--compare", "nano", "nano", "--checkpoint", "x"], "drop --checkpoint"),
    ],
)
def test_a_wrong_eval_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from codezero.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["eval", *arguments]) == 2
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and not told.out


def test_every_bad_row_is_named_and_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from codezero.cli import main

    monkeypatch.chdir(tmp_path)
    good = small.MBPP[1:6]
    bad = [{**good[0], "task_id": 20 + number, "test_list": ["assert"]} for number in range(12)]
    small.write_rows(tmp_path / "m.jsonl", [*good, *bad])
    with (tmp_path / "m.jsonl").open("a") as file:
        file.write("{\n")
    asked = ["eval", "mbpp", "--file", "m.jsonl", "evals.temperature=0", "solver.max_new_tokens=4"]
    assert main(asked) == 2
    told = capsys.readouterr()
    assert all(f"row {number}:" in told.err for number in range(6, 16)) and "and 3 more" in told.err
    assert "loading" not in told.err and "--skip-bad" in told.err
    assert main([*asked, "--skip-bad", "--start", "2", "--limit", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["skipped_rows"], result["first"], result["problems"], result["of"]) == (13, 2, 3, 5)
    assert result["samples"] == 1 and result["figures"][0]["name"] == "average@1"
    assert main([*asked, "--skip-bad", "--limit", "3"]) == 0
    assert "problems 1-3 of 5, 1 attempt each, greedy; 13 rows" in capsys.readouterr().out


def batches(folder: Path) -> int:
    """Entries of an eval's log, which others may read while it is written."""
    try:
        (file,) = folder.glob("*.db")
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as log:
            return log.execute("SELECT COUNT(*) FROM batch").fetchone()[0]
    except (ValueError, sqlite3.OperationalError):  # not there yet
        return 0


@pytest.mark.slow
def test_a_real_eval_that_is_killed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    asked = ["synthetic", "--samples", "2", "--json", "evals.problems=24"]
    command = [sys.executable, "-m", "codezero", "eval", *asked, "--into", "killed"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not batches(tmp_path / "killed"):
            time.sleep(0.02)
        process.kill()
    assert 1 <= batches(tmp_path / "killed") < 6
    resumed = evaluate(*asked, "--into", "killed", cwd=tmp_path)
    whole = evaluate(*asked, "--into", "whole", cwd=tmp_path)
    first, second = json.loads(resumed.stdout), json.loads(whole.stdout)
    del first["kept_in"], second["kept_in"]
    assert first == second


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
