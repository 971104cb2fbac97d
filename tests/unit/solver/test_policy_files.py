"""A policy on disk: what comes back is what was saved, and what is damaged does not come back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import EOS, bits, random_rows, tiny_policy

from codezero.config import SolverConfig
from codezero.errors import CheckpointError
from codezero.models.load import LoadedModel, load_model
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner


def make(policy: LoadedModel | None = None, **config: Any) -> TrlLearner:
    return TrlLearner(policy or tiny_policy(), SolverConfig(**({"minibatches": 1} | config)))


def test_a_saved_policy_is_a_model_like_any_other(tmp_path: Path):
    learner = make()
    learner.update(Batch(tuple(random_rows(8))))
    learner.save(tmp_path)
    loaded = load_model(str(tmp_path / "model"), device="cpu", role="solver")
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, learner.policy.model.state_dict()[name])
    assert loaded.tokenizer.eos_token_id == EOS


def test_the_learning_rate_of_the_present_run_counts(tmp_path: Path):
    first = make(learning_rate=1e-2)
    first.update(Batch(tuple(random_rows(4))))
    first.save(tmp_path)
    other = make(learning_rate=1e-5)
    other.load(tmp_path)
    assert {group["lr"] for group in other._optimizer.param_groups} == {1e-5}


@pytest.mark.parametrize("name", ["model/model.safetensors", "optimizer.safetensors", "learner.json"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_damaged_save_is_refused(tmp_path: Path, name: str, how: str):
    learner = make()
    learner.update(Batch(tuple(random_rows(4))))
    learner.save(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20]) if how == "cut" else path.unlink()
    with pytest.raises(CheckpointError):
        make().load(tmp_path)


def test_a_save_that_no_longer_is_a_model_is_refused(tmp_path: Path):
    """Not read as a model of default size, which would be 7 B parameters."""
    make().save(tmp_path)
    (tmp_path / "model/config.json").unlink()
    with pytest.raises(CheckpointError):
        make().load(tmp_path)


def test_the_save_of_another_model_is_refused(tmp_path: Path):
    make(policy=tiny_policy(hidden=48)).save(tmp_path)
    with pytest.raises(CheckpointError):
        make().load(tmp_path)


def forgetful(seed: int) -> TrlLearner:
    """Of a model with dropout, which draws from torch's own generator."""
    policy = tiny_policy(seed=seed)
    policy.model.config.attention_dropout = 0.5
    for layer in policy.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    return TrlLearner(policy, SolverConfig(minibatches=2, learning_rate=0.05))


def test_a_restarted_learner_drops_what_it_would_have_dropped(tmp_path: Path) -> None:
    whole, cut = forgetful(0), forgetful(9)
    rows = Batch(tuple(random_rows(8)))
    losses = [whole.update(rows).loss, whole.update(rows).loss]
    whole.save(tmp_path)
    cut.load(tmp_path)
    assert cut.update(rows) == whole.update(rows) and bits(cut.policy) == bits(whole.policy)
    assert losses[0] != losses[1] and whole.steps == cut.steps == 6
