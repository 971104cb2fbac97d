"""`codezero ask`: attempts of a solver and of the model it began as, judged and executed.

Does not show: a trained run, which test_measure.py finds; a copy of the embedded solver stands for its model."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.monitor import verdict

from codezero.cli import main
from codezero.commands.evaluate import AskRequest, newest_policy
from codezero.config import EvalsConfig, NodeConfig, RunConfig
from codezero.environments.code import CodeEnvironment
from codezero.monitor.cards import AskResult, JudgedProblem, PolicyAttempts, print_answers
from codezero.nano import weights_directory
from codezero.sandbox.base import Execution, Outcome
from codezero.types import Completion, RolloutGroup, ScoredGroup, Status, Verdict

FEW = ["evaluator.canaries=80", "evaluator.questions=[likelihood]", "--samples", "4"]
PROBLEM = CodeEnvironment().held_out(1, EvalsConfig().seed)[0]
RIGHT, WRONG = (f"```python\ndef {PROBLEM.entry_point}(s):\n    return {value}\n```" for value in ("s[:2]", "s"))


@pytest.mark.slow
def test_a_held_out_problem_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(weights_directory("solver"), tmp_path / "trained")
    assert main(["ask", "--problem", "1", "--checkpoint", "./trained", "--json", *FEW]) == 0
    result = json.loads(capsys.readouterr().out)
    before, after = result["policies"]
    assert (result["problem"], result["level"], result["task"]) == (1, 1, PROBLEM.question)
    assert before["starting_model"] and not after["starting_model"] and not result["notes"]
    assert before["attempts"] == after["attempts"] and len(before["attempts"]) == 4
    assert {attempt["executed"] for attempt in before["verdicts"]} <= {"pass", "fail"}


def policy(
    name: str, texts: Sequence[str], verdicts: Sequence[Verdict], outcomes: Sequence[Outcome] = ()
) -> PolicyAttempts:
    completions = tuple(Completion(text, (), (), finished=True) for text in texts)
    scored = ScoredGroup(RolloutGroup(PROBLEM, completions, "ask", 0, 0), tuple(verdicts))
    executed = tuple(map(Execution, outcomes)) if outcomes else None
    return PolicyAttempts(name, name == "nano", JudgedProblem(scored, executed, same_family=True))


def test_equal_attempts_are_shown_once_with_verdict_and_truth_and_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = verdict(0.0, "too long", status=Status.UNAVAILABLE)
    right, wrong, unread = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN
    before = policy("nano", [RIGHT, WRONG, WRONG], [verdict(0.9), *[verdict(0.8)] * 2], [right, wrong, wrong])
    after = policy("run/\x1b[2J", [RIGHT, RIGHT, "words"], [*[verdict(0.9)] * 2, unknown], [right, right, unread])
    print_answers(AskResult(PROBLEM, 7, [before, after], {}, ["a note"]))
    shown = capsys.readouterr().out
    assert "before: nano" in shown and "1 of 3 pass" in shown and "2 of 3 pass, 1 unknown" in shown
    assert shown.count("2 x executed") == 2 and "judge: unknown, too long" in shown and "\x1b" not in shown
    assert "THE JUDGE IS MISTAKEN: it believed 2 of 2 attempts that fail" in shown
    assert "--problem 7 asks it again" in shown and "a note" in shown
    assert " ".join(shown.split()).endswith("`codezero run` trains on") and "draws another, " in shown


def test_without_tests_nothing_is_said_to_be_executed(capsys: pytest.CaptureFixture[str]) -> None:
    print_answers(AskResult(PROBLEM, None, [policy("nano", [RIGHT], [verdict(0.9)])], {}))
    shown = capsys.readouterr().out
    assert "the judge believes 1 of 1" in shown and "executed:" not in shown
    assert "next: `codezero run` trains on; then the same command" in shown and "draws another" not in shown


def test_the_newest_run_with_a_checkpoint_is_asked_with_the_models_it_was_begun_with(tmp_path: Path) -> None:
    for name in ("trained", "empty"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text('{"model.solver": "./own", "evaluator.model": "nano"}')
    (tmp_path / "trained" / "checkpoints" / "00000005").mkdir(parents=True)
    config, place = newest_policy(NodeConfig(run=RunConfig(directory=str(tmp_path))), "")
    assert place == str(tmp_path / "trained") and config.model.solver == "./own"
    assert newest_policy(NodeConfig(run=RunConfig(directory=str(tmp_path / "none"))), "")[1] == ""


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("Write a function add(a, b) that adds.", "add"),
        ("Finish `total(xs)`", "total"),
        ("def f(x): what?", "f"),
        ("Reverse a list (in place)", "solution"),
        (PROBLEM.question, PROBLEM.entry_point),
    ],
)
def test_what_a_task_calls_its_function(task: str, name: str) -> None:
    from codezero.commands.evaluate import _in_words  # pyright: ignore[reportPrivateUsage]

    assert _in_words(AskRequest(task, (), None, None, 1, "").text, ()).entry_point == name
