"""`bench judge` on the embedded models: it runs, keeps its attempts, and tells one question from another."""

import json
from pathlib import Path

import judge
import pytest
from judge_cost import say

from codezero.commands.evaluate import read_groups
from codezero.config.judging import QUESTIONS
from codezero.models.generation import Sampler
from codezero.ops.judge import Wanted, problems_of

LITTLE = ["--json", "--samples", "4"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_without_arguments_it_measures_cost_worth_and_every_question(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"problems": 6, "layers": 1, "tokens": 4, "solutions": 2, "dry-runs": 1, "repeats": 1}
    assert judge.main([*LITTLE, *(f"--{name}={size}" for name, size in sizes.items())]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["embedded"]["verdict_seconds"] > 0 < report["cpu_seconds"]["logit"]
    assert report["auroc_judge"] > 0.8 and {*report["skill"]["questions"]} == {*QUESTIONS}


@pytest.mark.slow
def test_another_judge_reads_the_attempts_that_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ["--attempts", str(tmp_path / "kept.jsonl"), *LITTLE]
    assert judge.main(["--problems", "3", *kept]) == 0
    capsys.readouterr()
    assert judge.main(["--problems", "12", *kept]) == 0  # goes on
    first = json.loads(capsys.readouterr().out)["skill"]
    assert (first["problems"], first["attempts"]) == (12, 48) and sum(1 for _ in read_groups(Path(kept[1]))) == 12
    likelihood = first["questions"]["likelihood"]
    skill = likelihood["scores"]["agreement"]
    assert likelihood["seconds_an_attempt"] > 0 and skill["pairs"] >= skill["groups"] > 0
    assert skill["within_groups"][0] > 0.8 < skill["over_problems"][0]
    monkeypatch.setattr(Sampler, "sample", lambda *_, **__: pytest.fail("sampled again"))
    assert judge.main(["--problems", "12", *kept]) == 0
    again = json.loads(capsys.readouterr().out)["skill"]
    assert again["questions"]["likelihood"]["scores"] == likelihood["scores"]
    assert judge.main(["--problems", "12", *kept, "--solver", "another"]) == 2
    assert "is of the solver nano" in capsys.readouterr().err


def test_rows_of_mbpp_are_chosen_by_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"task_id": number, "text": f"Write f{number}.", "code": "", "test_list": [f"assert f{number}(1) == {number}"]}
        for number in (600, 601, 974, 975)
    ]
    file = tmp_path / "mbpp.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in [*rows, {"task_id": 700, "text": "x", "test_list": ["no"]}]))
    problems = problems_of(Wanted(str(file), "601-974"), say)
    assert [problem.entry_point for problem in problems] == ["f601", "f974"]
    assert "1 rows" in capsys.readouterr().err
    assert judge.main([*LITTLE, "--problems", str(file), "--rows", "1-2"]) == 2
    assert "no usable row of --rows=1-2" in capsys.readouterr().err
    assert judge.main([*LITTLE, "--problems", str(file), "--rows", "x"]) == 2
