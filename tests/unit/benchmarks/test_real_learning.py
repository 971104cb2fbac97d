"""An arm of the bench of real models is a run with the settings of its name, whose judge is checked afterwards."""

import json
from pathlib import Path

import pytest
import real_learning
from builders.monitor import GOOD, PEER, group

from codezero.monitor.rollouts_db import RolloutStore

FIGURES = {"figures": [], "model": "m", "truncated_share": 0.0, "undecided_share": 0.0}
EXAM = json.dumps({"a": FIGURES, "b": FIGURES, "difference": {"difference": 0.1, "low": 0.0, "high": 0.2}})


def test_an_arm_with_settings_of_its_own_is_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(real_learning, "command", lambda _, words, into: ran.append(words) or EXAM)
    (tmp_path / "mbpp.jsonl").write_text("")
    own = ["solver.learning_rate=3e-4", "run.max_iterations=5"]
    arm, where = f"judge@{','.join(own)}", ["--problems", str(tmp_path / "mbpp.jsonl"), "--into", str(tmp_path)]
    asked = ["--solver", "s", "--judge", "j", *where, "--arms", arm, "judge", "--", "solver.learning_rate=1e-5"]
    real_learning.main(asked)
    report = json.loads(capsys.readouterr().out)
    assert list(report["arms"]) == ["judge", arm] and report["arms"][arm]["greedy"]["points"] == 10.0
    varied, plain = (words for words in ran if words[0] == "run")
    assert varied[-3:] == ["solver.learning_rate=1e-5", *own] and f"run.name={arm}-0-10" in varied
    assert plain[-2:] == ["run.max_iterations=10", "solver.learning_rate=1e-5"] and "run.name=judge-0-10" in plain
    ran.clear()
    real_learning.main(asked)
    assert not ran  # nothing is missing


def test_what_a_run_s_judge_believed_is_held_against_execution_by_half(tmp_path: Path) -> None:
    kept, wrong = RolloutStore(tmp_path, PEER), GOOD.replace("sum(numbers)", "0")
    kept.begin(0)
    kept.add(1, [group(texts=(GOOD, wrong))])
    assert [half["attempts"] for half in real_learning.belief(tmp_path)] == [2]  # a run of one iteration has no halves
    kept.add(2, [group(texts=(wrong, GOOD, GOOD))])  # the first is believed
    kept.close()
    early, late = real_learning.belief(tmp_path)
    assert (early["attempts"], early["believed"], early["executed"], early["within"][0]) == (2, 0.5, 0.5, 1.0)
    assert (late["attempts"], late["executed"], late["within"][0], late["groups"]) == (3, 2 / 3, 0.0, 1)
