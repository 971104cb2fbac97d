"""A loss of one's own: what it is given, that passes add up to the step, and what is refused."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import random_rows, saved, tiny_policy
from torch import Tensor, nn
from transformers import Gemma2Config, Gemma2ForCausalLM

from codezero.config import SolverConfig
from codezero.errors import ConfigError, OwnCodeError
from codezero.models.load import add_adapter
from codezero.solver import loss as module
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.solver.loss import LossInputs, chosen_logprobs, head_is_plain

BATCH = Batch(tuple(random_rows(16)), idle_tokens=11)


def clipped(inputs: LossInputs) -> Tensor:
    """TRL's `dapo`."""
    ratio = (inputs.logprobs - inputs.old_logprobs).exp()
    bounded = ratio.clamp(0.8, 1.28)
    each = -torch.min(ratio * inputs.advantages, bounded * inputs.advantages)
    return (each * inputs.mask).sum() / inputs.mask.sum()


def gradient(monkeypatch: pytest.MonkeyPatch, function: Callable[[LossInputs], Any] | None, **config: Any) -> Any:
    """The loss and gradient of one step."""
    monkeypatch.setattr(module, "load_object", lambda *_: function)
    chosen = {"loss": "custom", "loss_function": "own.py:f"} if function else {}
    settings = SolverConfig(minibatches=1, grad_clip=1e9, max_new_tokens=10, **chosen, **config)
    learner = TrlLearner(tiny_policy(), settings)
    monkeypatch.setattr(learner._optimizer, "step", lambda: None)
    grads: list[Tensor] = []
    copied = (each.grad.clone() for each in learner.policy.model.parameters() if each.grad is not None)
    monkeypatch.setattr(learner, "_clip_gradients", lambda: grads.extend(copied) or 1.0)
    return learner.update(BATCH), grads


@pytest.mark.parametrize("size", [64, 5, 1])
def test_a_mean_over_tokens_is_that_of_the_step_however_it_is_divided(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    wanted, theirs = gradient(monkeypatch, None)
    update, ours = gradient(monkeypatch, clipped, micro_batch_rows=size)
    assert update.loss == pytest.approx(wanted.loss, rel=1e-4) and update.clip_share is None
    for item, other in zip(ours, theirs, strict=True):
        assert torch.allclose(item, other, rtol=1e-3, atol=1e-6)


def test_one_that_leaves_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        OwnCodeError, match=r"^solver.loss_function=own.py:f left with sys.exit\(None\) \(.*test_loss.py:\d+\)"
    ):
        gradient(monkeypatch, lambda inputs: sys.exit())


def test_it_is_given_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[LossInputs] = []
    gradient(monkeypatch, lambda inputs: seen.append(inputs) or clipped(inputs), kl_beta=0.1)
    (inputs,) = seen
    shape = (16, max(len(row.completion_ids) for row in BATCH.rows))
    assert inputs.reference_logprobs is not None
    for tensor in (inputs.logprobs, inputs.old_logprobs, inputs.reference_logprobs, inputs.advantages, inputs.mask):
        assert tensor.shape == shape
    assert inputs.mask.sum() == sum(len(row.completion_ids) for row in BATCH.rows)
    assert torch.allclose(inputs.logprobs * inputs.mask, inputs.reference_logprobs * inputs.mask, atol=1e-4)
    assert (inputs.advantages * (1 - inputs.mask)).abs().sum() == 0 and not inputs.old_logprobs.requires_grad
    pairs = zip(inputs.prompt_ids, inputs.prompt_mask, inputs.completion_ids, inputs.mask, strict=True)
    read = [(tuple(a[b > 0].tolist()), tuple(c[d > 0].tolist())) for a, b, c, d in pairs]
    assert sorted(read) == sorted((row.prompt_ids, row.completion_ids) for row in BATCH.rows)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda inputs: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda inputs: 0.5, "returned a float; a loss is a tensor of one number that has a gradient"),
        (lambda inputs: inputs.logprobs, "returned a Tensor; a loss"),
        (lambda inputs: inputs.mask.sum(), "returned a Tensor; a loss"),
    ],
)
def test_what_is_no_loss_ends_the_run_in_one_line(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[LossInputs], Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"^solver.loss_function=own.py:f {words}"):
        gradient(monkeypatch, function)


def test_memory_that_does_not_suffice_makes_the_passes_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def greedy(inputs: LossInputs) -> Tensor:
        sizes.append(len(inputs.mask))
        if len(inputs.mask) > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return clipped(inputs)

    update, _ = gradient(monkeypatch, greedy)
    assert sizes[0] > 4 >= max(sizes[-3:]) and update.loss is not None


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_in_pieces_the_numbers_and_gradients_are_the_same(bias: bool, frozen: bool, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    head = nn.Linear(8, 300, bias=bias).requires_grad_(not frozen)
    targets = torch.randint(300, (50,))
    hidden = torch.randn(50, 8, requires_grad=True)
    pull = torch.randn(50)

    def measured() -> list[torch.Tensor]:
        result = chosen_logprobs(hidden, head, targets, 0.7)
        learned = [hidden, *(each for each in head.parameters() if not frozen)]
        return [result.detach(), *torch.autograd.grad((result * pull).sum(), learned)]

    whole = measured()
    monkeypatch.setattr(module, "WHOLE", 1000)
    for item, other in zip(whole, measured(), strict=True):
        assert torch.allclose(item, other, atol=1e-5)


def test_in_bfloat16_the_pull_of_sure_tokens_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = nn.Linear(64, 300, bias=False).requires_grad_(False)
    targets = torch.arange(50)
    hidden = (28 * head.weight[targets]).bfloat16().float().requires_grad_()
    head.weight.copy_(head.weight.bfloat16())
    monkeypatch.setattr(module, "WHOLE", 1000)
    exact = chosen_logprobs(hidden, head, targets, 0.7)
    assert 0.98 < exact.exp().median() < 0.9995
    with torch.autocast("cpu", torch.bfloat16):
        half = chosen_logprobs(hidden, head, targets, 0.7)
    wanted, pulled = (torch.autograd.grad(each.sum(), hidden)[0] for each in (exact, half))
    off = (pulled - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert off.max() < 0.1, "rounded before the difference, it was of the size of the pull itself"


def test_a_head_whose_logits_are_changed_afterwards_is_left_to_trl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = Gemma2Config(vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=1, **heads)
    model = Gemma2ForCausalLM(config)
    assert model.config.final_logit_softcapping and not head_is_plain(model)
    monkeypatch.setattr("codezero.solver.learner.computes_bfloat16", lambda: True)
    policy = dataclasses.replace(tiny_policy(), model=model.bfloat16())
    policy = dataclasses.replace(policy, name=str(saved(policy, tmp_path / "model")))
    learner = TrlLearner(add_adapter(policy, rank=2, alpha=4.0), SolverConfig(minibatches=1, max_new_tokens=10))
    assert learner.update(BATCH).loss is not None
