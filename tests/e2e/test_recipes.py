"""The recipes that need no card, as their user starts them: trainer, servers and verifier are processes apart."""

import subprocess
from pathlib import Path

import pytest
from e2e.test_run import command, newest_checkpoint, rows, run, wait_for_iteration
from safetensors.torch import load_file

FEW = ["monitor.view=off", "evals.every=0", "chain.kind=clock"]


@pytest.mark.long
def test_coder_and_verifier_learn_and_go_on_after_a_kill(tmp_path: Path) -> None:
    recipe = ["recipe=nano-codegen-verifier", "solver.problems_per_iteration=4", *FEW]
    with subprocess.Popen(command(tmp_path, *recipe), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as node:
        wait_for_iteration(tmp_path, node, 1)
        node.kill()
    done = run(tmp_path, *recipe, "run.max_iterations=3")
    assert done.returncode == 0, done.stderr
    last = rows(tmp_path)[-1]
    assert last["iteration"] == 3 and last["verifier/policy_step"] >= 2 and last["train/policy_step"] >= 2
    assert 0 <= last["verifier/first"] <= 1 and last["verifier/readable"] > 0.5
    assert last["train/mismatch_alarm"] is None and last["verifier/mismatch_alarm"] is None
    folder = newest_checkpoint(tmp_path) / "solver"
    coder, verifier = (load_file(folder / path / "model.safetensors") for path in ("model", "verifier/model"))
    assert len(verifier) > len(coder)  # a layer more


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
