"""The learner against the written-out objective, and what must not move a weight."""

import copy
import dataclasses
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from builders.models import EOS, PAD, random_rows, tiny_policy
from oracles.grpo_loss import policy_loss, token_logprobs
from torch import Tensor

from codezero.config import SolverConfig
from codezero.models.generation import OwnLoop
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, TrainingRow, collate
from codezero.solver.learner import TrlLearner
from codezero.solver.loss import learning_rate
from codezero.solver.updater import USUAL, measure

PATHS = pytest.mark.parametrize("path", ["packed", "pieces", "trl"])
"""packed: small models. pieces: others off CUDA. trl: TRL's fused head, for CUDA; it computes the same here."""


def make(path: str = "packed", policy: LoadedModel | None = None, **config: Any) -> TrlLearner:
    settings = {"minibatches": 1, "grad_clip": 1e9, "max_new_tokens": 10} | config
    learner = TrlLearner(policy or tiny_policy(), SolverConfig(**settings))
    assert learner._packed and learner._pieces  # what this model gets on its own
    learner._packed, learner._pieces = path == "packed", path == "pieces"
    return learner


class Recorder:
    """Stands for the optimiser and notes what it would have been asked to follow."""

    def __init__(self, learner: TrlLearner):
        assert learner._optimizer, "made on first use, before another takes its place"
        self.parameters = list(learner.policy.model.parameters())
        self.gradients: list[list[Tensor]] = []
        self.param_groups = [{"lr": 0.0}]

    def step(self) -> None:
        self.gradients.append([p.grad.clone() for p in self.parameters if p.grad is not None])

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


def gradients(learner: TrlLearner, batch: Batch) -> tuple[float | None, list[list[Tensor]]]:
    """The loss and the gradient of each optimiser step, without taking one."""
    recorder = Recorder(learner)
    learner._optimizer = recorder
    return learner.update(batch).loss, recorder.gradients


def oracle(
    policy: LoadedModel, config: SolverConfig, batch: Batch, reference: Any = None
) -> tuple[float, list[Tensor]]:
    """`policy_loss` on every row, whole logits, plain padding."""
    model = policy.model
    model.zero_grad()
    inputs = collate(batch.rows, PAD, policy.device)
    with torch.no_grad():
        leash = token_logprobs(reference, inputs, config.temperature) if reference is not None else None
    loss = policy_loss(
        token_logprobs(model, inputs, config.temperature),
        inputs["old_per_token_logps"],
        inputs["advantages"],
        inputs["completion_mask"],
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        tokens=batch.token_count,
        reference=leash,
        kl_beta=config.kl_beta,
    )
    loss.backward()
    result = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return loss.item(), result


def furthest(first: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, other, strict=True))


def near_policy(learner: TrlLearner, rows: Sequence[TrainingRow], seed: int = 1) -> list[TrainingRow]:
    """The same rows as if sampled a few updates ago: ratios on both sides of the clip."""
    generator = torch.Generator().manual_seed(seed)
    now = learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])
    old = [tuple((torch.tensor(first) + 0.3 * torch.randn(len(first), generator=generator)).tolist()) for first in now]
    return [dataclasses.replace(row, logprobs=first) for row, first in zip(rows, old, strict=True)]


@PATHS
def test_loss_and_gradient_are_those_of_the_written_objective(path: str):
    learner = make(path, temperature=0.8)
    batch = Batch(tuple(near_policy(learner, random_rows(15))), idle_tokens=20)
    expected_loss, expected = oracle(learner.policy, learner.config, batch)
    found_loss, result = gradients(learner, batch)
    assert found_loss == pytest.approx(expected_loss, abs=1e-6)
    assert furthest(result[0], expected) < 1e-6 * max(1, *(float(g.abs().max()) for g in expected))


@PATHS
def test_weights_of_single_tokens_are_those_of_the_written_objective(path: str):
    learner = make(path)
    rows = near_policy(learner, random_rows(12))
    chance = random.Random(0)
    weighed = [
        dataclasses.replace(row, weights=tuple(chance.uniform(0, 2) for _ in row.completion_ids)) if i % 3 else row
        for i, row in enumerate(rows)
    ]
    expected_loss, expected = oracle(learner.policy, learner.config, Batch(tuple(weighed)))
    _, plain = oracle(learner.policy, learner.config, Batch(tuple(rows)))
    found_loss, result = gradients(learner, Batch(tuple(weighed)))
    assert found_loss == pytest.approx(expected_loss, abs=1e-6)
    assert furthest(result[0], expected) < 1e-6 * max(1, *(float(g.abs().max()) for g in expected))
    assert furthest(result[0], plain) > 1e-3


@PATHS
def test_the_leash_is_that_of_the_written_objective_and_holds_rows_of_advantage_zero_too(path: str):
    policy = tiny_policy()
    learner = make(path, policy, kl_beta=0.3)
    reference = copy.deepcopy(tiny_policy().model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.02 * torch.sin(torch.arange(parameter.numel()).view_as(parameter)))
    batch = Batch(tuple(near_policy(learner, random_rows(9))))
    expected_loss, expected = oracle(policy, learner.config, batch, reference)
    found_loss, result = gradients(learner, batch)
    assert found_loss == pytest.approx(expected_loss, abs=1e-6)
    assert furthest(result[0], expected) < 1e-5


def test_activations_may_be_recomputed_instead_of_kept():
    policy, batch = tiny_policy(), Batch(tuple(random_rows(8)))
    settings = SolverConfig(minibatches=1, grad_clip=1e9)
    sparing = TrlLearner(policy, settings, activation_checkpointing=True)
    assert policy.model.is_activation_checkpointing
    assert furthest(gradients(sparing, batch)[1][0], gradients(make(), batch)[1][0]) < 1e-6
    assert policy.model.is_activation_checkpointing


@PATHS
def test_passes_bound_memory_and_change_nothing_else(path: str):
    rows = tuple(random_rows(14))
    whole_loss, whole = gradients(make(path), Batch(rows))
    learner = make(path)
    learner.tokens_per_pass = 30
    assert len([*learner._passes(rows)]) > 3
    cut_loss, cut = gradients(learner, Batch(rows))
    assert cut_loss == pytest.approx(whole_loss, abs=1e-5)
    assert furthest(cut[0], whole[0]) < 2e-6 * max(1, *(float(g.abs().max()) for g in whole[0]))


def test_how_far_an_update_is_is_told_to_its_end():
    learner = make(minibatches=2)
    learner.tokens_per_pass = 1  # a row in each pass
    reports = list[tuple[int, int]]()
    learner._progress = lambda done, of: reports.append((done, of))
    rows = random_rows(14)
    gradients(learner, Batch(tuple(rows)))
    live = sum(row.advantage != 0 for row in rows)
    assert reports == sorted(set(reports)) and len(reports) > live / 2
    assert (reports[0], reports[-1]) == ((0, live), (live, live))


def test_minibatches_average_to_the_gradient_of_the_whole():
    batch = Batch(tuple(random_rows(16)))
    _, (whole,) = gradients(make(), batch)
    _, parts = gradients(make(minibatches=3), batch)
    assert len(parts) == 3
    mean = [sum(tensors) / 3 for tensors in zip(*parts, strict=True)]
    assert furthest(mean, whole) < 2e-6 * max(1, *(float(g.abs().max()) for g in whole))


@PATHS
def test_logprobs_in_a_padded_batch_are_those_of_a_row_alone(path: str):
    learner = make(path, temperature=0.7, micro_batch_rows=5)
    rows = random_rows(13, prompt=40)
    together = learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])
    for row, result in zip(rows, together, strict=True):
        alone = token_logprobs(learner.policy.model, collate([row], PAD, learner.policy.device), 0.7)[0]
        assert torch.allclose(torch.tensor(result), alone, atol=1e-5)


@PATHS
def test_ending_carries_gradient(path: str):
    """A rewarded stop makes stopping likelier; the gradient at the EOS logit is what does it."""
    learner = make(path, learning_rate=1e-2)
    prompt, answer = (72, 105, 258), (65, 66, EOS)
    before = learner.logprobs([prompt], [answer])[0]
    learner.update(Batch((TrainingRow(prompt, answer, before, 1.0),)))
    after = learner.logprobs([prompt], [answer])[0]
    assert after[-1] > before[-1]
    learner = make(path, policy=tiny_policy())
    _, (with_eos,) = gradients(learner, Batch((TrainingRow(prompt, answer, before, 1.0),)))
    _, (without,) = gradients(learner, Batch((TrainingRow(prompt, answer[:-1], before[:-1], 1.0),)))
    embedding = next(i for i, (name, _) in enumerate(learner.policy.model.named_parameters()) if "embed" in name)
    assert (with_eos[embedding][EOS] - without[embedding][EOS]).abs().max() > 1e-4


def test_without_advantage_no_weight_moves():
    """Exactly, also when earlier updates left momentum behind."""
    learner = make()
    learner.update(Batch(tuple(random_rows(8))))
    before = copy.deepcopy(learner.policy.model.state_dict())
    still = tuple(dataclasses.replace(row, advantage=0.0) for row in random_rows(8, seed=2))
    done = learner.update(Batch(still))
    assert (done.rows, done.loss, learner.steps) == (0, None, 1)
    assert all(torch.equal(before[name], value) for name, value in learner.policy.model.state_dict().items())
    assert learner.update(Batch(())).rows == 0


@PATHS
def test_a_loss_that_is_not_finite_is_skipped_and_counted(path: str):
    learner = make(path)
    before = copy.deepcopy(learner.policy.model.state_dict())
    rows = random_rows(8)
    broken = dataclasses.replace(rows[0], logprobs=(-math.inf,) * len(rows[0].logprobs), advantage=-1.0)
    learner.update(Batch((broken, *rows[1:])))
    assert (learner.skipped, learner.steps) == (1, 0)
    assert all(torch.equal(before[name], value) for name, value in learner.policy.model.state_dict().items())
    learner.update(Batch(tuple(rows)))
    assert (learner.skipped, learner.steps) == (1, 1)


def test_a_gradient_over_the_bound_is_shortened():
    free, bound = make(learning_rate=1e-3), make(learning_rate=1e-3, grad_clip=1e-6)
    rows = Batch(tuple(random_rows(8)))
    assert free.update(rows).grad_norm == pytest.approx(bound.update(rows).grad_norm)
    norm = math.sqrt(sum(float(p["exp_avg"].square().sum()) for p in bound._optimizer.state_dict()["state"].values()))
    assert norm == pytest.approx(0.1 * 1e-6, rel=1e-2)  # first moment: a tenth of the clipped gradient


def test_the_share_of_clipped_tokens_is_measured():
    learner = make()
    row = TrainingRow((1, 258), (10, EOS), (0.0, 0.0), 1.0)
    now = learner.logprobs([row.prompt_ids], [row.completion_ids])[0]
    half = dataclasses.replace(row, logprobs=(now[0] - 1.0, now[1]))  # the first ratio is e, the second is 1
    assert learner.update(Batch((half,))).clip_share == pytest.approx(0.5)


def test_half_precision_weights_are_lifted_because_small_steps_would_be_lost():
    policy = tiny_policy()
    policy.model.bfloat16()
    learner = make(policy=policy, learning_rate=1e-6)
    before = copy.deepcopy(policy.model.state_dict())
    learner.update(Batch(tuple(random_rows(8))))
    moved = sum(int((before[name] != value).sum()) for name, value in policy.model.state_dict().items())
    assert policy.model.dtype == torch.float32
    assert moved > 0.5 * sum(value.numel() for value in before.values())


def test_making_one_prints_nothing_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    monkeypatch.chdir(tmp_path)
    learner = make()
    learner.update(Batch(tuple(random_rows(4))))
    (tmp_path / "kept").mkdir()
    learner.save(tmp_path / "kept")
    learner.load(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert capfd.readouterr() == ("", "")


def test_a_launchers_job_is_not_joined_and_its_precision_not_taken(monkeypatch: pytest.MonkeyPatch):
    job = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in (job | {"ACCELERATE_MIXED_PRECISION": "bf16"}).items():
        monkeypatch.setenv(name, value)
    AcceleratorState._reset_state(reset_partial_state=True)  # as in a process that has not learned yet
    accelerator = make()._accelerator
    assert (accelerator.mixed_precision, accelerator.distributed_type.value) == ("no", "NO")


def test_the_rate_settles_and_never_reaches_nothing():
    config = SolverConfig(learning_rate=1e-3, settle_steps=50)
    assert learning_rate(config, 0) == 1e-3
    assert learning_rate(config, 50) == pytest.approx(5e-4)
    assert learning_rate(SolverConfig(learning_rate=1e-3), 10_000) == 1e-3


def test_the_optimiser_follows_the_settled_rate():
    learner = make(learning_rate=1e-3, settle_steps=1)
    learner.steps = 3
    learner.update(Batch(tuple(random_rows(4))))
    assert learner._optimizer.param_groups[0]["lr"] == pytest.approx(learning_rate(learner.config, learner.steps - 1))


def test_a_cpu_that_multiplies_in_bfloat16_learns_the_same_direction_and_agrees_with_its_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights, gradients and the sums over the vocabulary stay float32."""
    batch, result = Batch(tuple(random_rows(16))), list[Tensor]()
    for quick in (False, True):
        monkeypatch.setattr("codezero.solver.learner.computes_bfloat16", lambda quick=quick: quick)
        policy = dataclasses.replace(tiny_policy(hidden=64), sampled_in=torch.bfloat16)
        learner = make(policy=policy)
        (of_step,) = gradients(learner, batch)[1]
        assert {gradient.dtype for gradient in of_step} == {torch.float32}
        result.append(torch.cat([gradient.flatten() for gradient in of_step]))
        prompts = [row.prompt_ids for row in batch.rows[:4]]
        loop = OwnLoop(policy)
        drawn = loop.draw(prompts, 4, 10, 1.0, 0)
        learned = learner.logprobs([prompt for prompt in prompts for _ in range(4)], [each.ids for each in drawn])
        mismatch = measure([(each.logprobs, line) for each, line in zip(drawn, learned, strict=True)])
        assert mismatch.mean is not None and 0 < mismatch.mean < USUAL and not mismatch.alarm()
    exact, quick = result
    assert not torch.equal(exact, quick) and torch.cosine_similarity(exact, quick, dim=0) > 0.99
