"""An adapter: what it changes, what it must not, and that it comes back on its own base and on no other."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import random_rows, saved, tiny_policy
from torch import Tensor

from codezero.config import SolverConfig
from codezero.errors import CheckpointError, ConfigError
from codezero.models.generation import OwnLoop
from codezero.models.load import (
    LoadedModel,
    add_adapter,
    has_adapter,
    load_model,
    plain_weights,
    with_inputs_as_they_are,
    without_adapter,
)
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner


def adapted(base: Path, **options: Any) -> LoadedModel:
    settings = {"rank": 4, "alpha": 8.0} | options
    return add_adapter(load_model(str(base), device="cpu", role="solver", for_training=True), **settings)


def make(base: Path, **config: Any) -> TrlLearner:
    return TrlLearner(adapted(base), SolverConfig(**({"minibatches": 1, "learning_rate": 1e-2} | config)))


def weights(learner: TrlLearner) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in learner.policy.model.named_parameters()}


def scores(learner: TrlLearner) -> Tensor:
    rows = random_rows(6, seed=5)
    lines = learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])
    return torch.tensor([value for line in lines for value in line])


def test_a_fresh_adapter_changes_no_logprob(base: Path):
    plain = TrlLearner(load_model(str(base), device="cpu", role="solver", for_training=True), SolverConfig())
    assert torch.equal(scores(make(base)), scores(plain))


@pytest.mark.parametrize("autocast", [True, False])
def test_under_autocast_an_adapter_takes_its_inputs_as_they_are(base: Path, autocast: bool) -> None:
    model, kinds = adapted(base).model, set[torch.dtype]()
    downs = [module for name, module in model.named_modules() if name.endswith("down_proj.lora_A.default")]
    for module in downs:
        module.register_forward_pre_hook(lambda _, given: kinds.add(given[0].dtype))
    with torch.autocast("cpu", torch.bfloat16), with_inputs_as_they_are(model, autocast):
        model(torch.tensor([[1, 2, 3]]))
    assert downs and kinds == {torch.bfloat16 if autocast else torch.float32}


def test_a_step_moves_the_adapter_and_nothing_else(base: Path):
    learner = make(base)
    before = weights(learner)
    assert learner.update(Batch(tuple(random_rows(8)))).rows
    moved = {name for name, value in weights(learner).items() if not torch.equal(value, before[name])}
    assert moved and all(".lora_" in name for name in moved)
    optimised = sum(p.numel() for group in learner._optimizer.param_groups for p in group["params"])
    assert optimised == sum(value.numel() for name, value in before.items() if ".lora_" in name)


def test_saved_loaded_and_stepped_is_as_if_nothing_had_happened(base: Path, tmp_path: Path):
    first = make(base, minibatches=2, kl_beta=0.1)
    first.update(Batch(tuple(random_rows(16))))
    first.save(tmp_path / "kept")
    other = make(base, minibatches=2, kl_beta=0.1)
    other.load(tmp_path / "kept")
    for seed in (3, 4):
        rows = Batch(tuple(random_rows(16, seed=seed)))
        assert first.update(rows) == other.update(rows)
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(first).items())
    kept = {path.name for path in (tmp_path / "kept/adapter").iterdir()}
    assert kept == {"adapter_model.safetensors", "adapter_config.json", "base.json"}
    assert not (tmp_path / "kept/model").exists()


def test_the_leash_with_the_adapter_off_is_that_of_a_frozen_copy(base: Path):
    learner = make(base, kl_beta=0.3)
    reference = copy.deepcopy(learner.policy.model)
    learner.update(Batch(tuple(random_rows(8))))
    batch = Batch(tuple(random_rows(8, seed=7)))
    leashed = copy.deepcopy(weights(learner)), learner.update(batch).loss
    other = make(base, kl_beta=0.3)
    other.update(Batch(tuple(random_rows(8))))
    other._reference = reference.requires_grad_(False).eval()
    assert all(torch.equal(value, leashed[0][name]) for name, value in weights(other).items())
    assert other.update(batch).loss == pytest.approx(leashed[1], abs=1e-6)
    free = make(base)
    free.update(Batch(tuple(random_rows(8))))
    assert free.update(batch).loss != pytest.approx(leashed[1], abs=1e-6)  # the leash does pull


def test_switched_off_it_is_the_base_and_on_again_it_learns_on(base: Path):
    learner = make(base)
    first = scores(learner)
    learner.update(Batch(tuple(random_rows(8))))
    second = scores(learner)
    assert not torch.allclose(first, second, atol=1e-3)
    with without_adapter(learner.policy.model):
        assert torch.equal(scores(learner), first)
    assert torch.equal(scores(learner), second)
    assert learner.update(Batch(tuple(random_rows(8)))).grad_norm


def test_the_sampler_draws_from_the_adapted_policy(base: Path, tmp_path: Path):
    learner = make(base, learning_rate=0.1)
    learner.update(Batch(tuple(random_rows(8))))
    assert has_adapter(learner.policy.model)
    drawn = OwnLoop(learner.policy).draw([(1, 2, 258)], 8, 6, 1.0, seed=0)
    lines = learner.logprobs([(1, 2, 258)] * 8, [draw.ids for draw in drawn])
    with without_adapter(learner.policy.model):
        plain = learner.logprobs([(1, 2, 258)] * 8, [draw.ids for draw in drawn])
    for (_, sampled, _), now, then in zip(drawn, lines, plain, strict=True):
        assert sampled == pytest.approx(now, abs=1e-4)
        assert sampled != pytest.approx(then, abs=1e-3)


def test_it_can_be_merged_into_an_ordinary_model(base: Path):
    learner, merged, before = make(base), tiny_policy(seed=3), tiny_policy().model.state_dict()
    learner.update(Batch(tuple(random_rows(8))))
    weights = plain_weights(learner.policy.model)
    merged.model.load_state_dict(weights)
    assert torch.allclose(scores(TrlLearner(merged, SolverConfig())), scores(learner), atol=1e-4)
    assert weights.keys() == before.keys()
    assert torch.equal(weights["model.embed_tokens.weight"], before["model.embed_tokens.weight"])


def test_samplers_pass_by_the_forward_that_a_learner_wraps(base: Path):
    """On a card it casts every weight in every step; what is learned is sampled all the same."""
    policy = adapted(base)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the wrapped forward was called")

    vars(policy.model)["forward"] = refused
    loop = OwnLoop(policy)
    before = loop.draw([[1, 2, 3]], 2, 6, 0.0, 0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.5)
    assert loop.draw([[1, 2, 3]], 2, 6, 0.0, 0) != before


def test_another_base_is_refused_by_name(base: Path, tmp_path: Path):
    make(base).save(tmp_path / "kept")
    other = make(saved(tiny_policy(1), tmp_path / "other"))
    with pytest.raises(CheckpointError, match=r"was trained on .*base \(weights .*other \(weights"):
        other.load(tmp_path / "kept")


def test_the_same_base_elsewhere_is_the_same(base: Path, tmp_path: Path):
    first = make(base)
    first.update(Batch(tuple(random_rows(8))))
    first.save(tmp_path / "kept")
    other = make(saved(tiny_policy(0), tmp_path / "moved"))
    other.load(tmp_path / "kept")
    assert torch.equal(scores(first), scores(other))


def test_adapter_and_whole_weights_are_not_mixed_up(base: Path, tmp_path: Path):
    make(base).save(tmp_path / "adapter")
    whole = TrlLearner(tiny_policy(), SolverConfig())
    whole.save(tmp_path / "whole")
    with pytest.raises(CheckpointError, match=r"model\.train=lora"):
        whole.load(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="whole weights"):
        make(base).load(tmp_path / "whole")


@pytest.mark.parametrize("name", ["adapter/adapter_model.safetensors", "adapter/base.json", "optimizer.safetensors"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_damaged_adapter_is_refused(base: Path, tmp_path: Path, name: str, how: str):
    learner = make(base)
    learner.update(Batch(tuple(random_rows(4))))
    learner.save(tmp_path / "kept")
    path = tmp_path / "kept" / name
    path.write_bytes(path.read_bytes()[:-20]) if how == "cut" else path.unlink()
    with pytest.raises(CheckpointError):
        make(base).load(tmp_path / "kept")


def test_an_adapter_of_another_rank_is_refused(base: Path, tmp_path: Path):
    TrlLearner(adapted(base, rank=2), SolverConfig()).save(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="rank"):
        make(base).load(tmp_path / "kept")


@pytest.mark.slow
def test_targets_are_checked_and_the_head_takes_none(base: Path):
    assert adapted(base, targets=["q_proj", "v_proj"]).base is not None
    for target, text in (("q_prj", "no linear layer"), ("lm_head", "no linear layer that takes")):
        with pytest.raises(ConfigError, match=text):
            adapted(base, targets=[target])


def test_a_half_precision_base_stays_and_the_adapter_is_float32(base: Path):
    policy = load_model(str(base), device="cpu", precision="bfloat16", role="solver", for_training=True)
    learner = TrlLearner(add_adapter(policy, rank=2, alpha=4.0), SolverConfig(minibatches=1))
    assert learner.update(Batch(tuple(random_rows(8)))).grad_norm
    kinds = {".lora_" in name: value.dtype for name, value in weights(learner).items()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
