"""Judges of any kind beside each other: what a word names, what the figures say, and which files are refused."""

import json
from pathlib import Path

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG
from builders.models import tiny_policy
from builders.reward_models import random_reward_model

from codezero.cli import main
from codezero.code.parsing import fence
from codezero.errors import ModelChoiceError
from codezero.evaluator.types import Program, Reading
from codezero.ops.rate import JudgeRating, rating, settings_of

TWICE = "def pick_item(nums):\n    return [x for x in nums if x >= 4]"
LINE = {
    "question": FILTER.question,
    "tests": list(FILTER.tests),
    "completions": [fence(RIGHT), fence(WRONG), fence(TWICE), "no code", fence(WRONG)],
    "passed": [True, False, True, False, None],
}
OWN = "def score(question, code):\n    return float('> 3' in code or '>= 4' in code)\n"


def rated(names: tuple[str, ...], *groups: list[tuple[tuple[float | None, ...] | None, bool]]) -> JudgeRating:
    """(scores, passed) of each attempt of each group."""
    rows = [(number, scores, passed) for number, group in enumerate(groups) for scores, passed in group]
    programs = [Program("Do it.", f"x = {at}") for at in range(len(rows))]
    items = [(number, program, passed) for (number, _, passed), program in zip(rows, programs, strict=True)]
    readings = {program: Reading(scores) for (_, scores, _), program in zip(rows, programs, strict=True)}
    return rating("judge", "custom", names, items, readings, 0.5)


def test_what_tells_problems_apart_is_no_skill_within_groups() -> None:
    """The score of an attempt is how easy its problem is."""
    easy: list[tuple[tuple[float | None, ...] | None, bool]] = [((1.0,), True)] * 3 + [((1.0,), False)]
    hard: list[tuple[tuple[float | None, ...] | None, bool]] = [((0.0,), True)] + [((0.0,), False)] * 3
    row = rated(("score",), *[easy, hard] * 30)
    assert row.within and row.within.area == 0.5 and row.within.groups == 60
    assert row.over_problems and row.over_problems[1] > 0.6
    assert row.believed == 120 and row.precision and row.precision[:1] == (0.75,)
    assert row.precision[1] < 0.75 < row.precision[2] and row.ece is not None and row.ece < 0.05


def test_scores_are_weighed_together_by_the_attempts_at_other_problems() -> None:
    """Neither score orders alone what both do."""
    cases = [((3.0, 0.0), True), ((0.0, 3.0), True), ((2.0, 0.0), False), ((0.0, 2.0), False), ((3.0, 3.0), True)]
    row = rated(("first", "second"), *[[*cases, ((0.0, 0.0), False)]] * 40)
    assert row.within and row.within.area == 1.0 and row.precision == pytest.approx((1.0, 0.95, 1.0), abs=0.05)


def test_attempts_without_a_verdict_are_counted_and_nothing_is_made_of_them() -> None:
    row = rated(("score",), [(None, True), ((None,), False), ((1.0,), True), ((0.0,), False)])
    assert (row.read, row.without) == (2, 0.5) and row.within and row.within.pairs == 1
    silent = rated(("score",), [(None, True), (None, False)])
    assert (silent.read, silent.without) == (0, 1.0)
    assert silent.within is silent.over_problems is silent.precision is silent.ece is None


def test_a_word_names_a_judge_of_its_kind(tmp_path: Path) -> None:
    reward, language = random_reward_model(tmp_path / "reward"), tmp_path / "language"
    tiny_policy().model.save_pretrained(language)
    words = {
        "nano": ["local", "nano"],
        str(reward): ["reward_model", str(reward)],
        str(language): ["local", str(language)],
        "some/name@http://host:1": ["openai", "some/name"],
        "ollama:qwen:1.5b@https://host": ["ollama", "qwen:1.5b"],
        "judge.py:score": ["custom", "judge.py:score"],
    }
    for word, values in words.items():
        assert [each.partition("=")[2] for each in settings_of(word)][:2] == values
    with pytest.raises(ModelChoiceError, match=r"nowhere is not a directory; give a model directory or"):
        settings_of(str(tmp_path / "nowhere"))


def test_a_table_of_judges_on_kept_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept.jsonl").write_text(json.dumps(LINE) + "\n")
    Path("own.py").write_text(OWN)
    random_reward_model(Path("reward"))
    words = ["judge", "rate", "own.py:score", "./reward", "--attempts", "kept.jsonl"]
    assert main([*words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {key: table[key] for key in ("problems", "attempts", "asked", "passed")} == {
        "problems": 1, "attempts": 5, "asked": 3, "passed": 2,
    }  # fmt: skip
    own, reward = table["judges"]
    assert (own["kind"], own["within"][0], own["without"]) == ("custom", 1.0, 0.0)
    assert (reward["kind"], reward["names"], reward["read"]) == ("reward_model", ["reward_model"], 3)
    assert main(words) == 0
    assert "within groups" in (shown := capsys.readouterr().out) and "1.00 [" in shown


@pytest.mark.slow
def test_without_a_file_the_solvers_attempts_are_executed_and_rated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["judge", "rate", "nano", "evals.problems=30", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["problems"], table["attempts"]) == (30, 240)
    assert table["judges"][0]["within"][0] > 0.8 and table["judges"][0]["precision"][0] > 0.8


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (LINE | {"passed": [True]}, "5 completions and 1 outcomes in `passed`"),
        ({key: value for key, value in LINE.items() if key != "passed"}, "missing required field `passed`"),
        (LINE | {"tests": ["assert"]}, "test 1"),
        (LINE | {"passed": "yes"}, "array"),
        (LINE | {"completions": ["no code"], "passed": [False]}, "no attempt is left to a judge"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: dict[str, object], why: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (path := tmp_path / "kept.jsonl").write_text(f"\n{json.dumps(line)}\n")
    assert main(["judge", "rate", f"{tmp_path}/own.py:score", "--attempts", str(path)]) == 2
    assert why in (error := capsys.readouterr().err) and ("line 2" in error or "no attempt" in error)


def test_judges_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "rate"]) == 2 and "name the judges" in capsys.readouterr().err
