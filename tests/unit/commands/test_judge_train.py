"""`codezero judge train`: attempts are executed and kept, a probe comes of them, and the judge uses it."""

import json
from pathlib import Path

import pytest

from codezero.cli import main
from codezero.code.parsing import fence
from codezero.evaluator.probe import read_probe
from codezero.models.generation import Sampler


@pytest.mark.slow
def test_a_probe_of_executed_attempts_is_used_by_the_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept, out = ["--attempts", "kept.jsonl"], ["--out", "probe.json", "--json"]
    few = ["judge", "train", "--problems", "4", *kept, *out]
    assert main(few) == 2
    assert "problems have an attempt that passes and one that fails; 40 are needed" in capsys.readouterr().err
    assert main(["judge", "train", "--problems", "110", *kept, *out]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["groups"] >= 40 and figures["within_groups"][0] > 0.7
    assert len(Path("kept.jsonl").read_bytes().splitlines()) == 110
    assert read_probe(Path("probe.json")).fitted_on == "attempts of nano at 110"
    monkeypatch.setattr(Sampler, "sample", lambda *_, **__: pytest.fail("sampled again"))
    line = {"question": "Write a function add(a, b) that returns their sum.", "tests": ["assert add(1, 2) == 3"]}
    Path("attempts.jsonl").write_text(json.dumps(line | {"completions": [fence("def add(a, b):\n    return a + b")]}))
    settings = ["evaluator.canaries=80", "evaluator.probe=probe.json", "evaluator.questions=[probe]"]
    assert main(["judge", "attempts.jsonl", "--json", *settings]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"]


def test_a_probe_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "attempts.jsonl").write_text(
        json.dumps({"question": "Write f(x).", "tests": ["assert f(1) == 1"], "completions": ["x"]})
    )
    assert main(["judge", str(tmp_path / "attempts.jsonl"), f"evaluator.probe={tmp_path}/none.json"]) == 2
    assert f"evaluator.probe={tmp_path}/none.json cannot be used" in capsys.readouterr().err
