"""The recipes that need no card, as their user starts them: trainer and servers are processes apart."""

from pathlib import Path

import pytest
from e2e.test_run import newest_checkpoint, rows, run

FEW = ["monitor.view=off", "evals.every=0", "chain.kind=clock"]


@pytest.mark.long
def test_deltas_lead_to_the_weights_that_whole_versions_lead_to(tmp_path: Path) -> None:
    weights = []
    for name in ("full", "delta"):
        folder = tmp_path / name
        folder.mkdir()
        identity = f"swarm.identity={tmp_path / 'swarm.pem'}"
        done = run(folder, f"recipe=nano-single-{name}", "run.max_iterations=5", identity, *FEW)
        assert done.returncode == 0, done.stderr
        weights.append((newest_checkpoint(folder) / "solver" / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.long
def test_the_single_recipe_lifts_executed_success(tmp_path: Path) -> None:
    settings = ["monitor.view=off", "chain.kind=clock", "evals.every=60", "evals.problems=200", "run.max_iterations=60"]
    done = run(tmp_path, "recipe=nano-single-full", "solver.problems_per_iteration=16", *settings)
    assert done.returncode == 0, done.stderr
    exams = [row["eval/average_at_8"] for row in rows(tmp_path) if row.get("eval/average_at_8") is not None]
    assert exams[0] < 0.4 and exams[-1] >= 0.55
