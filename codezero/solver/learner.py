"""The optimiser of the policy: `trl.GRPOTrainer` as a library of loss, optimiser and precision; never `train()`.

We bring rows that are sampled, judged and weighed already, so of TRL only the loss is called (`compute_loss`), on
batches of our own making. What that relies on beyond TRL's documented interface is listed in `TRL_CONTRACT`, and
`tests/test_trl_contract.py` checks each entry against the installed version. Does not sample, judge or choose rows.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateImportUsage=false

import copy
import json
import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from codezero.config import SolverConfig
from codezero.errors import ConfigError
from codezero.models.decode import is_lean
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, Row, collate
from codezero.solver.packed import packed_logprobs
from codezero.solver.weights import load_policy, read_counters, save_policy

TRL_CONTRACT = (
    "GRPOTrainer.compute_loss(model, inputs) with the keys of batch.collate and num_items_in_batch",
    "it calls model(input_ids, attention_mask, labels, fused_lm_head=True) and reads log_probs and entropy",
    "GRPOTrainer.current_gradient_accumulation_steps divides every loss",
    "GRPOTrainer.beta weighs the KL to ref_per_token_logps",
    "GRPOTrainer._metrics['train'] receives the share of clipped tokens",
    "trl.trainer.utils.add_fused_lm_head makes a model answer that call",
)
BETAS = (0.9, 0.99)
"""Of AdamW. The second moment forgets in a hundred steps: rewards come and go faster than in pre-training."""
COUNTERS = "learner.json"


@dataclass(frozen=True, slots=True)
class Update:
    """What one update did; means over its optimiser steps."""

    loss: float | None
    grad_norm: float | None
    """Before clipping."""
    clip_share: float | None
    """Tokens whose ratio was clipped."""
    rows: int
    """Rows that carried gradient."""
    skipped: int
    """Optimiser steps left out because loss or gradient was not finite."""


@dataclass(frozen=True, slots=True)
class Step:
    loss: float
    grad_norm: float
    clip_share: float
    finite: bool


class TrlLearner:
    """Owns the policy's optimiser. The model is trained in place, so whoever samples from it samples the newest policy.

    Weights in half precision are lifted to float32 (steps of 1e-6 are lost in bfloat16's 8 bits) and computed with
    in that half precision on CUDA. Raises ConfigError when several GPUs are visible to this one process.
    """

    def __init__(self, policy: LoadedModel, config: SolverConfig, *, activation_checkpointing: bool = False):
        if policy.device.type == "cuda" and torch.cuda.device_count() > 1:
            raise ConfigError("several GPUs are visible and a node uses one; set CUDA_VISIBLE_DEVICES=0")
        self.policy, self.config = policy, config
        self.steps = 0
        """Optimiser steps taken."""
        self.skipped = 0
        self.updates = 0
        half = policy.model.dtype
        policy.model.float()
        self._packed = is_lean(policy.model)
        self._reference: Any = _frozen_copy(policy.model, config.temperature) if config.kl_beta else None
        self._trainer: Any = _trainer(policy, config, half)
        self._trainer.beta = config.kl_beta
        if activation_checkpointing:
            policy.model.activation_checkpointing_enable()
        self._accelerator = self._trainer.accelerator
        # On one device the prepared model is the same object, its forward wrapped for mixed precision.
        self._model, self._optimizer = self._accelerator.prepare(policy.model, self._trainer.create_optimizer())
        if self._reference is not None:
            self._reference = self._accelerator.prepare_model(self._reference, evaluation_mode=True)
        policy.model.eval()

    def update(self, batch: Batch) -> Update:
        """One pass over the rows, in `minibatches` optimiser steps. Without gradient to follow no weight moves.

        Rows of advantage 0 are not computed (unless a KL leash pulls on them too), but count in the mean.
        """
        live = [row for row in batch.rows if row.completion_ids and (row.advantage or self.config.kl_beta)]
        minibatches = self._minibatches(live)
        share = (batch.row_count / self.config.minibatches, batch.token_count / self.config.minibatches)
        self._model.train()
        try:
            steps = [self._step(rows, *share) for rows in minibatches]
        finally:
            self._model.eval()
        done = [step for step in steps if step.finite]
        self.steps += len(done)
        self.skipped += len(steps) - len(done)
        return Update(
            loss=_mean([step.loss for step in done]),
            grad_norm=_mean([step.grad_norm for step in done]),
            clip_share=_mean([step.clip_share for step in done]),
            rows=len(live),
            skipped=len(steps) - len(done),
        )

    @torch.no_grad()
    def logprobs(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """Nats of each completion's tokens under the present policy at the training temperature, in order."""
        rows = [
            Row(tuple(prompt), tuple(completion), (0.0,) * len(completion), 0.0)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        found: dict[int, tuple[float, ...]] = {id(row): () for row in rows}
        for micro in self._micro_batches([row for row in rows if row.completion_ids]):
            inputs = collate(micro, self.policy.pad_id, self.policy.device)
            scores = self._forward(self._model, micro, inputs).tolist()
            found |= {id(row): tuple(score[: len(row.logprobs)]) for row, score in zip(micro, scores, strict=True)}
        return [found[id(row)] for row in rows]

    def save(self, folder: Path) -> None:
        """Model, tokenizer, optimiser and counters."""
        save_policy(self.policy, self._optimizer, folder)
        counters = {"steps": self.steps, "skipped": self.skipped, "updates": self.updates}
        (folder / COUNTERS).write_text(json.dumps(counters))

    def load(self, folder: Path) -> None:
        """Become bit for bit what `save` wrote. Raises CheckpointError."""
        counters = read_counters(folder / COUNTERS, ("steps", "skipped", "updates"))
        load_policy(self.policy, self._optimizer, folder)
        self.steps, self.skipped, self.updates = counters

    def _step(self, rows: Sequence[Row], share_rows: float, share_tokens: float) -> Step:
        """One optimiser step. Micro-batches bound memory; their gradients add up to that of the whole."""
        loss, clipped = 0.0, 0.0
        for micro in self._micro_batches(rows):
            micro_loss, micro_clipped = self._backward(micro, share_rows, share_tokens)
            loss, clipped = loss + micro_loss, clipped + micro_clipped
        norm = float(self._accelerator.clip_grad_norm_(self._model.parameters(), self.config.grad_clip))
        finite = math.isfinite(loss) and math.isfinite(norm)
        # A float16 scaler skips the step by itself, and must see the overflow to lower its scale.
        if finite or self._accelerator.scaler is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate(self.config, self.steps)
            self._optimizer.step()
        self._optimizer.zero_grad()
        return Step(loss, norm, clipped / sum(len(row.completion_ids) for row in rows), finite)

    def _backward(self, rows: Sequence[Row], share_rows: float, share_tokens: float) -> tuple[float, float]:
        """Adds the rows' gradient. Returns their part of the loss and how many tokens were clipped."""
        inputs = collate(rows, self.policy.pad_id, self.policy.device)
        tokens = sum(len(row.completion_ids) for row in rows)
        if self._reference is not None:
            with torch.no_grad():
                inputs["ref_per_token_logps"] = self._forward(self._reference, rows, inputs)
        # dapo and cispo divide by this number. The others take the mean over what they are given, so what is divided
        # by besides makes it the mean over this step's share of the whole batch.
        inputs["num_items_in_batch"] = torch.tensor(share_tokens, device=self.policy.device)
        over_rows, over_tokens = share_rows / len(rows), share_tokens / tokens
        divisor = {"grpo": over_rows, "dr_grpo": over_rows, "bnpo": over_tokens}.get(self.config.loss, 1)
        self._trainer.current_gradient_accumulation_steps = divisor
        measured = self._trainer._metrics["train"]
        measured.clear()
        loss = self._trainer.compute_loss(self._scorer(rows), inputs)
        self._accelerator.backward(loss)
        name = "cispo_clip_ratio" if self.config.loss == "cispo" else "clip_ratio/region_mean"
        return loss.item(), tokens * measured[name][0]

    def _scorer(self, rows: Sequence[Row]) -> Any:
        """What TRL asks for log-probabilities: the model, or for a small one its packed form of the same rows."""
        if not self._packed:
            return self._model

        def answer(**_: object) -> SimpleNamespace:
            logprobs = packed_logprobs(self._model, rows, self.policy.pad_id, self.config.temperature)
            return SimpleNamespace(log_probs=logprobs, entropy=torch.zeros_like(logprobs))

        return answer

    def _forward(self, model: PreTrainedModel, rows: Sequence[Row], inputs: dict[str, Tensor]) -> Tensor:
        """[B, T] nats of the completions, without TRL's loss."""
        if self._packed:
            return packed_logprobs(model, rows, self.policy.pad_id, self.config.temperature)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        room = inputs["completion_ids"].size(1)
        labels = ids.masked_fill(real == 0, -100)
        labels[:, :-room] = -100
        return model(input_ids=ids, attention_mask=real, labels=labels, fused_lm_head=True).log_probs[:, -room:]

    def _minibatches(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Whole groups, dealt at random: a group's pushes cancel within one step, and its prompt is read once."""
        groups: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(row.prompt_ids, []).append(row)
        dealt = list(groups.values())
        random.Random(self.updates).shuffle(dealt)
        self.updates += 1
        parts = self.config.minibatches
        return [[row for group in dealt[i::parts] for row in group] for i in range(min(parts, len(dealt)))]

    def _micro_batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows of one prompt beside each other and prompts alike in length, so that little is padded."""
        ordered = sorted(rows, key=lambda row: (len(row.prompt_ids), row.prompt_ids, len(row.completion_ids)))
        for start in range(0, len(ordered), self.config.micro_batch_rows):
            yield ordered[start : start + self.config.micro_batch_rows]


def _trainer(policy: LoadedModel, config: SolverConfig, half: torch.dtype) -> GRPOTrainer:
    """A GRPOTrainer that writes nothing, prints nothing and is never asked to generate."""
    on_cuda = policy.device.type == "cuda"
    with tempfile.TemporaryDirectory() as nowhere:
        settings = GRPOConfig(
            nowhere,
            loss_type=config.loss,
            epsilon=config.clip_low,
            # TRL's cispo takes the largest ratio itself, not its distance from 1
            epsilon_high=config.clip_high + (config.loss == "cispo"),
            temperature=config.temperature,
            max_completion_length=config.max_new_tokens,
            learning_rate=config.learning_rate,
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            weight_decay=0.0,
            beta=0.0,  # set later: TRL would load a second model by name, and ours may have none
            per_device_train_batch_size=2,
            num_generations=2,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            activation_checkpointing=False,
            bf16=on_cuda and half == torch.bfloat16,
            fp16=on_cuda and half == torch.float16,
            use_cpu=policy.device.type == "cpu",
            max_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        return GRPOTrainer(
            model=policy.model,
            reward_funcs=_never_asked,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["unused", "unused"]}),
            processing_class=policy.tokenizer,
        )


def learning_rate(config: SolverConfig, steps: int) -> float:
    """rate / (1 + steps / settle_steps): its sum has no bound, so a run never stops learning; that of its squares has
    one, so the policy comes to rest (Robbins & Monro 1951). Constant when `settle_steps` is 0.
    """
    return config.learning_rate / (1 + steps / config.settle_steps if config.settle_steps else 1)


def _never_asked(**_: object) -> list[float | None]:
    raise AssertionError("rewards come from the evaluator")


def _frozen_copy(model: PreTrainedModel, temperature: float) -> PreTrainedModel:
    """The policy as it was before the first update: what the KL leash is tied to."""
    reference = copy.deepcopy(model).requires_grad_(False).eval()
    add_fused_lm_head(reference, temperature=temperature)
    return reference


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
