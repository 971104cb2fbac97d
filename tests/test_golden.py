"""What users and programs rely on stays as it is while the code moves: settings, views, a run and its checkpoint.

`golden/yesterday.tar.gz` is a run of a LoRA adapter on the embedded solver that is taught several styles.
The wire format has its own vectors (`test_wire.py`), the contract its own artifact (`test_artifact.py`)."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.monitor import read_metrics

from codezero.cli import main
from codezero.inspection.status import RunFiles
from codezero.monitor.metrics_file import FILE_NAME

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = [
    "run.name=yesterday", "model.train=lora", "model.lora_rank=2", "solver.problems_per_iteration=2", "seed=1",
    "evals.problems=5", "evaluator.canaries=80", "chain.kind=clock", "login.page=off", "monitor.view=off",
]  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the run in it, from which commands are started."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(GOLDEN / "yesterday.tar.gz") as archive:
        archive.extractall(tmp_path / "runs", filter="data")
    return tmp_path / "runs"


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text())


def test_every_setting_keeps_its_name_value_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().out == (GOLDEN / "config_show.yaml").read_text()


def test_status_of_yesterdays_run_is_the_same(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "run.name=yesterday"]) == 0
    shown, expected = json.loads(capsys.readouterr().out), golden("status.json")
    assert {key: value for key, value in shown.items() if key in expected} == expected


def test_the_pages_view_of_yesterdays_run_is_the_same(runs: Path) -> None:
    shown = json.loads(msgspec.json.encode(RunFiles(runs / "yesterday").view("yesterday")))
    expected = golden("view.json")
    exams = [{key: exam[key] for key in shape} for exam, shape in zip(shown["exams"], expected["exams"], strict=True)]
    judge = {key: shown["judge"][key] for key in expected["judge"]}
    assert {key: (shown | {"exams": exams, "judge": judge})[key] for key in expected} == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_yesterdays_checkpoint_goes_on(runs: Path) -> None:
    command = [sys.executable, "-m", "codezero", "run", *SETTINGS, "run.max_iterations=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "goes on with yesterday at iteration 3, executed average@8 42.5 %" in done.stdout
    rows = list(read_metrics(runs / "yesterday" / FILE_NAME))
    assert [row["iteration"] for row in rows] == [0, 1, 2, 3, 4]
