"""Models of real shape go the same way as the embedded ones. Weights are random: nothing here shows skill."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from unit.models.test_load import qwen_half_billion


def run(folder: Path, models: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    settings = [f"model.solver={models}", f"evaluator.model={models}", f"proposer.model={models}"]
    settings += [f"run.directory={folder}", "run.name=run", f"run.logs={folder / 'logs'}", "monitor.view=off"]
    settings += [
        f"swarm.identity={folder / 'swarm.pem'}",
        "evaluator.canaries=80",
        "run.max_iterations=1",
        "chain.kind=clock",
    ]
    settings += ["solver.problems_per_iteration=2", "solver.group_size=2", "solver.max_new_tokens=8"]
    settings += ["evals.problems=5", "evals.samples=2", "proposer.every=1", "proposer.max_new_tokens=16", *overrides]
    command = [sys.executable, "-m", "codezero", "run", *settings]
    return subprocess.run(command, capture_output=True, text=True, timeout=1700)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("layers", "vocabulary"),
    [(1, 8_192), pytest.param(24, 151_936, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_a_directory_of_real_shape_solves_judges_and_proposes(layers: int, vocabulary: int, tmp_path: Path) -> None:
    models = tmp_path / "models"
    qwen_half_billion(layers, models, vocabulary)
    done = run(tmp_path, models)
    assert done.returncode == 0, done.stderr
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["iteration"] == 1 and last["eval/average_at_2"] == 0.0
    # A judge of random weights has no skill, and must not be believed.
    assert last["judge/weight"] == 0.0
    assert last["proposer/refused"] >= 1
    saved = tmp_path / "run" / "checkpoints" / "00000001" / "solver" / "model"
    model = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    assert model.config.num_hidden_layers == layers
