"""Everything the learner takes for granted about TRL, checked against the version that is installed.

When one of these fails after an upgrade, `learner.py` is wrong in that respect, whatever else still passes."""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders.models import PAD, random_rows, tiny_policy
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from codezero.config import SolverConfig
from codezero.errors import ModelError
from codezero.models.device import compiles_kernels
from codezero.solver import learner as learner_module
from codezero.solver.batch import Batch, collate
from codezero.solver.learner import TrlLearner
from codezero.solver.loss import prove_head

TRL_CONTRACT = (
    "GRPOTrainer.compute_loss(model, inputs) with the keys of batch.collate and num_items_in_batch",
    "it calls model(input_ids, attention_mask, labels, fused_lm_head=True) and reads log_probs and entropy",
    "GRPOTrainer.current_gradient_accumulation_steps divides every loss",
    "GRPOTrainer.beta weighs the KL to ref_per_token_logps",
    "GRPOTrainer._metrics['train'] receives the share of clipped tokens",
    "trl.trainer.utils.add_fused_lm_head makes a model answer that call, by trl.kernels.ChunkedLogProbFunction; "
    "chunked_logprob._TRITON_AVAILABLE there decides at each call whether Triton compiles it",
)
"""What the learner relies on beyond TRL's documented interface."""
DOCUMENTED = {"accelerator", "create_optimizer"}
"""Of `transformers.Trainer`."""


def trainer(**config: Any) -> Any:
    """TRL's, as the learner has it before a pass."""
    trainer = TrlLearner(tiny_policy(), SolverConfig(minibatches=1, max_new_tokens=10, **config))._trainer
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def inputs(seed: int = 0) -> dict[str, Any]:
    batch = collate(random_rows(8, seed=seed), PAD, torch.device("cpu"))
    return batch | {"num_items_in_batch": batch["completion_mask"].sum().float()}


def test_the_contract_is_short_and_names_all_that_the_learner_touches():
    assert len(TRL_CONTRACT) <= 6
    tree = ast.parse(Path(learner_module.__file__).read_text())
    touched = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self._trainer", "trainer")
    }
    named = {name for name in touched if any(f"GRPOTrainer.{name}" in line for line in TRL_CONTRACT)}
    assert touched and touched - named == DOCUMENTED


def test_the_hook_reads_these_keys_and_no_others():
    read: set[str] = set()

    class Noted(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            read.add(key)
            return super().__getitem__(key)

        def get(self, key: str, default: Any = None) -> Any:
            if key in self:
                read.add(key)
            return super().get(key, default)

    noted = Noted(inputs() | {"ref_per_token_logps": inputs()["old_per_token_logps"]})
    hook = trainer(kl_beta=0.1)
    hook.compute_loss(hook.model, noted)
    assert read == set(noted)


def test_the_hook_asks_whatever_it_is_given_for_logprobs_and_entropy():
    hook = trainer()
    requested: list[set[str]] = []
    given = inputs()
    logprobs = given["old_per_token_logps"].clone().requires_grad_()

    def answer(**options: Any) -> SimpleNamespace:
        requested.append(set(options))
        return SimpleNamespace(log_probs=logprobs, entropy=torch.zeros_like(logprobs))

    hook.compute_loss(answer, given).backward()
    assert requested == [{"input_ids", "attention_mask", "labels", "fused_lm_head"}]
    mean = -(given["advantages"][:, None] * given["completion_mask"]) / given["num_items_in_batch"]
    assert logprobs.grad is not None and torch.allclose(logprobs.grad, mean)


def test_this_attribute_divides_the_loss():
    hook = trainer()
    result: list[float] = []
    for divisor in (1, 2.5):
        hook.current_gradient_accumulation_steps = divisor
        result.append(hook.compute_loss(hook.model, inputs()).item())
    assert result[0] == pytest.approx(2.5 * result[1], rel=1e-5) and result[0] != 0


def test_advantages_may_differ_from_token_to_token():
    hook = trainer()
    given = inputs()
    spread = given["advantages"][:, None].expand_as(given["completion_mask"])
    flat, wide = (
        hook.compute_loss(hook.model, given | {"advantages": a}).item() for a in (given["advantages"], spread)
    )
    assert flat == wide


def test_beta_set_after_construction_adds_a_leash_and_loads_no_model():
    hook = trainer()
    assert hook.beta == 0 and hook.ref_model is None
    given = inputs() | {"ref_per_token_logps": torch.full_like(inputs()["old_per_token_logps"], -1.0)}
    free = hook.compute_loss(hook.model, given).item()
    hook.beta = 0.5
    assert hook.compute_loss(hook.model, given).item() > free


def test_the_share_of_clipped_tokens_is_noted_once_a_call():
    hook = trainer()
    hook.compute_loss(hook.model, inputs())
    (share,) = hook._metrics["train"]["clip_ratio/region_mean"]
    assert 0 < share < 1


def test_the_fused_head_answers_with_the_logprobs_of_the_labels():
    policy = tiny_policy()
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = policy.model(input_ids=ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
    add_fused_lm_head(policy.model, temperature=1.0)
    result = policy.model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
    assert torch.allclose(result.log_probs[0], expected, atol=1e-5)
    assert policy.model(input_ids=ids).logits.shape == (1, 4, 259)  # the sampler's way in is as before


def test_measurements_do_not_pile_up():
    learner = TrlLearner(tiny_policy(), SolverConfig(micro_batch_rows=2))
    for _ in range(3):
        learner.update(Batch(tuple(random_rows(8))))
    assert all(len(values) <= 1 for values in learner._trainer._metrics["train"].values())


def test_trl_reads_whether_triton_is_there_when_its_kernel_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a machine without a C compiler can be told to do without, after the import."""
    monkeypatch.setattr(chunked_logprob, "_TRITON_AVAILABLE", True)
    assert chunked_logprob._use_triton(torch.device("cuda"))
    monkeypatch.setattr(chunked_logprob, "_TRITON_AVAILABLE", False)
    assert not chunked_logprob._use_triton(torch.device("cuda"))


@pytest.mark.parametrize("found", [True, False])
def test_kernels_need_a_compiler_and_the_headers_of_python(
    found: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", sys.executable if found else "no-such-compiler")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert not compiles_kernels()
    (tmp_path / "Python.h").touch()
    assert compiles_kernels() is found


def test_the_fused_head_is_proven_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    prove_head(torch.device("cpu"), torch.float32)

    def fail(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler\nand more")

    monkeypatch.setattr("trl.kernels.ChunkedLogProbFunction.apply", fail)
    with pytest.raises(ModelError, match="kernels of learning do not run: Failed to find C compiler"):
        prove_head(torch.device("cpu"), torch.float32)
