"""A base in four bits and moments in eight: what is packed, that gradients pass, and that a run comes back to the bit.

All of it needs the extra `bnb`, but for the line that says so."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import bits, random_rows, saved, tiny_policy
from torch import Tensor, nn

from codezero.config import SolverConfig
from codezero.errors import CheckpointError, ConfigError
from codezero.models.generation import OwnLoop
from codezero.models.hardware import check_extras
from codezero.models.load import LoadedModel, add_adapter, load_model
from codezero.models.memory import ADAM_8BIT, NF4, shape_of_config
from codezero.settings import compose
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.solver.policy_files import trained

NEEDS_BNB = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="without the extra `bnb`")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return saved(tiny_policy(hidden=256), tmp_path / "base")


def packed(base: Path, rank: int = 16) -> LoadedModel:
    return add_adapter(
        load_model(str(base), device="cpu", role="solver", for_training=True, nf4=True), rank=rank, alpha=8.0
    )


def learner(policy: LoadedModel, **config: Any) -> TrlLearner:
    return TrlLearner(policy, SolverConfig(**({"minibatches": 1, "learning_rate": 1e-2} | config)))


def scores(student: TrlLearner) -> list[tuple[float, ...]]:
    rows = random_rows(6, seed=5)
    return student.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["model.quantize=nf4"], "model.quantize=nf4: bitsandbytes is not installed; run `uv sync"),
        (["solver.optimizer=adamw_8bit"], "solver.optimizer=adamw_8bit: bitsandbytes is not installed"),
        (
            ["rollout.start=1", "rollout.engine=vllm"],
            "rollout.engine=vllm: vllm is not installed; run `uv sync --no-dev --extra vllm`",
        ),
    ],
)
def test_a_missing_extra_is_named_in_one_line(words: list[str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_extras(compose())
    config = compose(words)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        check_extras(config)
    assert str(caught.value).startswith(named) and "\n" not in str(caught.value)


@NEEDS_BNB
def test_linear_layers_but_the_head_are_packed_as_small_as_the_estimate_says(base: Path) -> None:
    model = load_model(str(base), device="cpu", role="judge", nf4=True).model
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    whole = {name for name, module in linear.items() if type(module) is nn.Linear}
    assert whole == {"lm_head"} and not any(parameter.requires_grad for parameter in model.parameters())
    layers: list[Any] = [module for name, module in linear.items() if name not in whole]
    numbers = sum(layer.in_features * layer.out_features for layer in layers)
    states = [layer.weight.quant_state for layer in layers]
    size = sum(layer.weight.nbytes for layer in layers)
    size += sum(state.absmax.nbytes + state.state2.absmax.nbytes for state in states)
    assert size / numbers == pytest.approx(NF4, rel=0.02)  # scales of short layers are rounded up
    assert numbers == sum(into * out for _, into, out in shape_of_config(model.config).linear)


@NEEDS_BNB
def test_gradients_pass_the_packed_layers_also_after_the_policy_was_sampled(base: Path) -> None:
    """They are those of the same weights unpacked. bitsandbytes' other form on CPUs with AVX512-BF16 passes none."""
    from bitsandbytes.functional import dequantize_4bit

    policy, plain = packed(base), load_model(str(base), device="cpu", role="solver", for_training=True)
    OwnLoop(policy).draw([(1, 2, 258)], 4, 6, 1.0, seed=0)
    for name, module in policy.model.named_modules():
        if type(module).__module__.startswith("bitsandbytes"):
            weight: Any = module.weight
            target = plain.model.get_submodule(name.replace(".base_layer", ""))
            target.weight.data = dequantize_4bit(weight.data, weight.quant_state).float()
    unpacked = add_adapter(plain, rank=16, alpha=8.0)
    OwnLoop(unpacked).draw([(1, 2, 258)], 4, 6, 1.0, seed=0)

    def gradients(of: LoadedModel) -> dict[str, Tensor]:
        ids = torch.tensor([[3, 4, 5, 258, 7]])
        of.model(input_ids=ids, labels=ids).loss.backward()
        return {name: weight.grad for name, weight in of.model.named_parameters() if weight.grad is not None}

    expected, result = gradients(unpacked), gradients(policy)
    assert expected.keys() == result.keys() and any(bool(value.any()) for value in result.values())
    for name, value in result.items():
        assert torch.allclose(value, expected[name], rtol=1e-3, atol=1e-5), name


@NEEDS_BNB
def test_what_is_sampled_is_what_is_learned_from(base: Path) -> None:
    student = learner(packed(base), learning_rate=0.05)
    student.update(Batch(tuple(random_rows(8))))
    drawn = OwnLoop(student.policy).draw([(1, 2, 258)], 8, 6, 1.0, seed=0)
    again = student.logprobs([(1, 2, 258)] * 8, [draw.ids for draw in drawn])
    for (_, sampled, _), computed in zip(drawn, again, strict=True):
        assert sampled == pytest.approx(computed, abs=1e-3)


@NEEDS_BNB
def test_a_run_comes_back_to_the_bit_and_its_checkpoint_holds_the_adapter_alone(base: Path, tmp_path: Path) -> None:
    """Of rank 16, so that the moments of most of its tensors are in eight bits."""
    first = learner(packed(base), optimizer="adamw_8bit")
    frozen = {name: value.clone() for name, value in first.policy.model.named_parameters() if "lora_" not in name}
    assert {weight.dtype for weight in trained(first._optimizer)} == {torch.float32}
    for seed in (1, 2):
        assert first.update(Batch(tuple(random_rows(8, seed=seed)))).grad_norm
    first.save(tmp_path / "kept")
    assert not (tmp_path / "kept/model").exists()
    kept = (tmp_path / "kept/adapter/adapter_model.safetensors").stat().st_size
    assert kept < 4.2 * sum(weight.numel() for weight in trained(first._optimizer)) + 20_000
    other = learner(packed(base), optimizer="adamw_8bit")
    other.load(tmp_path / "kept")
    for seed in (3, 4):
        rows = Batch(tuple(random_rows(8, seed=seed)))
        assert first.update(rows) == other.update(rows)
    assert bits(first.policy) == bits(other.policy) and scores(first) == scores(other)
    after = dict(first.policy.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in frozen.items())


@NEEDS_BNB
def test_moments_in_eight_bits_are_as_small_as_the_estimate_says_and_whole_weights_learn(tmp_path: Path) -> None:
    student = learner(tiny_policy(hidden=256), optimizer="adamw_8bit", learning_rate=1e-3)
    rows = Batch(tuple(random_rows(8)))
    losses = [student.update(rows).loss for _ in range(6)]
    assert losses[-1] is not None and losses[0] is not None and losses[-1] < losses[0]
    embedding = student.policy.model.get_input_embeddings().weight
    assert student._optimizer.state[embedding]["state1"].dtype == torch.float32
    large = [weight for weight in trained(student._optimizer) if weight.numel() >= 4096 and weight is not embedding]
    states = [student._optimizer.state[weight] for weight in large]
    names = ("state1", "state2", "absmax1", "absmax2")
    size = sum(state[name].nbytes for state in states for name in names)
    assert size / sum(weight.numel() for weight in large) == pytest.approx(ADAM_8BIT, rel=0.01)
    student.save(tmp_path / "kept")
    again = learner(tiny_policy(hidden=256, seed=1), optimizer="adamw_8bit", learning_rate=1e-3)
    again.load(tmp_path / "kept")
    assert again.update(rows) == student.update(rows) and bits(again.policy) == bits(student.policy)


@NEEDS_BNB
@pytest.mark.parametrize("began", ["adamw", "adamw_8bit"])
def test_a_run_goes_on_with_the_optimiser_that_it_began_with(began: str, tmp_path: Path) -> None:
    first = learner(tiny_policy(), optimizer=began)
    first.update(Batch(tuple(random_rows(4))))
    first.save(tmp_path / "kept")
    other = learner(tiny_policy(), optimizer="adamw" if began == "adamw_8bit" else "adamw_8bit")
    with pytest.raises(CheckpointError, match=r"solver\.optimizer is not that of the run's beginning"):
        other.load(tmp_path / "kept")
