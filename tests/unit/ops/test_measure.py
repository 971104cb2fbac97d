"""The policy of an eval: a run's newest whole checkpoint, with or without an adapter, or any model."""

import shutil
from pathlib import Path

import pytest
from builders.users import short_run

from codezero.config import NodeConfig
from codezero.errors import CheckpointError, ModelError
from codezero.ops.measure import find_policy, load_found
from codezero.settings import compose


@pytest.fixture(scope="module", params=["full", pytest.param("lora", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    base = tmp_path_factory.mktemp(request.param)
    words = ["run.name=mine", "run.max_iterations=2", "evals.every=0", "solver.learning_rate=0.05"]
    short_run(base, *words, f"model.train={request.param}")
    return base / "runs" / "mine"


def config_for(run: Path) -> NodeConfig:
    return compose([f"run.directory={run.parent}"])


def quiet(_: str) -> None: ...


@pytest.mark.slow
def test_a_runs_newest_checkpoint_is_loaded_as_it_was_trained(run: Path) -> None:
    config = config_for(run)
    policy = find_policy(config, "mine")
    assert policy.name == "mine/00000002" and policy.run == run
    initial = find_policy(config, "")
    assert initial.name == "nano" and initial.digest != policy.digest and initial.run is None
    same = find_policy(config, str(run / "checkpoints" / "00000002"))
    assert same.digest == policy.digest and same.run == run
    trained, fresh = load_found(config, policy, quiet), load_found(config, initial, quiet)
    ids = fresh.tokenizer("Write a function", return_tensors="pt")["input_ids"]
    assert not trained.model(ids).logits.equal(fresh.model(ids).logits)
    assert not any(one.requires_grad for one in trained.model.parameters()) and not trained.model.training


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (spoiled,) = (copy / "checkpoints" / "00000002" / "solver").glob("*/*.safetensors")
    spoiled.write_bytes(spoiled.read_bytes()[:-1] + b"!")
    assert find_policy(config_for(run), str(copy)).name == "copy/00000001"
    for folder in (copy / "checkpoints").iterdir():
        (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used: 00000002"):
        find_policy(config_for(run), str(copy))


def test_what_is_neither_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        find_policy(compose([f"run.directory={tmp_path}"]), "nobody/nothing")
    assert "\n" not in str(caught.value) and "nobody/nothing" in str(caught.value)
