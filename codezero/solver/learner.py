"""The optimiser of the policy: `trl.GRPOTrainer` as a library of loss, optimiser and precision; never `train()`.

Rows come sampled, judged and weighed, so of TRL only the loss is called (`compute_loss`), or the user's own instead.
`test_trainer.py` lists what that relies on beyond TRL's documented interface, and checks it against the installed one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
from accelerate.utils import release_memory
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from codezero.config import SolverConfig
from codezero.errors import CheckpointError, ConfigError, ModelError, translated
from codezero.models.base import Progress
from codezero.models.device import computes_bfloat16, ran_out_of_memory
from codezero.models.load import (
    LoadedModel,
    has_adapter,
    load_adapter,
    save_adapter,
    with_inputs_as_they_are,
    without_adapter,
)
from codezero.solver import loss as losses
from codezero.solver import policy_files as files
from codezero.solver.batch import Batch, IdRows, Pair, Rows, TrainingRow, Update, collate, minibatches, packed, size
from codezero.types import mean

if TYPE_CHECKING:
    from jaxtyping import Float

logger = logging.getLogger(__name__)

TOO_LONG = (
    "the solver ran out of memory on a single row; lower solver.max_prompt_tokens and solver.max_new_tokens, or set "
    "model.activation_checkpointing=on, or a smaller model.solver"
)
T = TypeVar("T")


class TrlLearner:
    """Owns the policy's optimiser. The model is trained in place, so its samplers sample the newest policy.

    Weights in half precision become float32 (steps of 1e-6 are lost in bfloat16's 8 bits), and the computation stays in
    half precision on CUDA, and in bfloat16 on a CPU that multiplies in it; frozen weights beneath an adapter stay as
    they are. When memory runs out, passes are smaller from then on. Raises ConfigError where it sees many GPUs."""

    def __init__(
        self,
        policy: LoadedModel,
        config: SolverConfig,
        *,
        activation_checkpointing: bool = False,
        changed: Callable[[int], object] = lambda version: None,
        progress: Progress = lambda done, of: None,
    ) -> None:
        """changed: called with the policy's new version. progress: called with how many rows of an update have been
        read, and how many there are."""
        if policy.device.type == "cuda" and torch.cuda.device_count() > 1:
            raise ConfigError("several GPUs are visible; trainer.ranks uses so many, CUDA_VISIBLE_DEVICES=0 one")
        self.policy, self.config = policy, config
        self.steps = self.skipped = self.updates = 0  # steps taken, steps left out as not finite, the policy's version
        self._changed, self._progress = changed, progress
        self._half = policy.sampled_in or policy.model.dtype
        self._adapted = has_adapter(policy.model)
        if not self._adapted:
            policy.model.float()
        on_cpu = policy.device.type == "cpu"
        self._packed = losses.packs(policy.model)
        halves = computes_bfloat16() if on_cpu else policy.device.type == "cuda" and self._packed
        self._quick = self._half.itemsize == 2 and halves  # else the model itself sees to it
        # TRL's own path has kernels for CUDA; elsewhere it would also score every token of the prompts.
        self._pieces = policy.device.type != "cuda" and losses.head_is_plain(policy.model)
        prompts = config.micro_batch_rows / (config.group_size if self._packed else 1)
        longest = config.micro_batch_rows * config.max_new_tokens + math.ceil(prompts) * config.max_prompt_tokens
        self.tokens_per_pass = longest  # fewer once memory ran out
        self._own_loss = losses.own_loss(config.loss_function) if config.loss == "custom" else None
        if activation_checkpointing:
            policy.model.activation_checkpointing_enable()
        policy.model.eval()
        leashed = config.kl_beta and not self._adapted
        self._reference: Any = copy.deepcopy(policy.model).requires_grad_(False) if leashed else None
        if policy.device.type == "cuda":  # where samplers call the forward that is wrapped for mixed precision
            if slower := losses.without_triton():
                logger.warning("%s", slower)
            self._prepare_once()

    def __getattr__(self, name: str) -> Any:
        """TRL's parts, built once something is learned or loaded: the first exam does not wait for its import."""
        if name not in ("_trainer", "_accelerator", "_model", "_optimizer"):
            raise AttributeError(name)
        self._prepare_once()
        return getattr(self, name)

    def _prepare_once(self) -> None:
        self._trainer: Any = losses.make_trainer(self.policy, self.config, self._half, self._reference)
        self._trainer.beta = self.config.kl_beta
        self._accelerator = self._trainer.accelerator
        self._model, self._optimizer = self._prepare(self._half)
        self.policy.model.eval()

    def update(self, batch: Batch) -> Update:
        """One pass over the rows, in `minibatches` optimiser steps. Without gradient to follow no weight moves. Rows of
        advantage 0 are not computed (unless a KL leash pulls on them too), but count in the mean."""
        live = [row for row in batch.rows if row.completion_ids and (row.advantage or self.config.kl_beta)]
        parts = minibatches(live, self.config.minibatches, self.updates)
        share = batch.token_count / self.config.minibatches
        pairs: list[dict[int, Pair]] = [{} for _ in parts]
        self._read = 0, len(live)
        self._progress(*self._read)
        self._model.train()
        torch.manual_seed(self.updates)  # of dropout, where a model has it: a restarted run draws the same
        self.updates += 1
        try:
            # TRL's own path is without autocast
            with with_inputs_as_they_are(self.policy.model, self._quick and (self._packed or self._pieces)):
                steps = [self._step(rows, share, seen) for rows, seen in zip(parts, pairs, strict=True)]
        finally:
            self._model.eval()
        done = [step for step in steps if step is not None]
        self.steps += len(done)
        self.skipped += len(steps) - len(done)
        self._changed(self.updates)
        return Update(
            loss=mean(loss for loss, _, _ in done),
            grad_norm=mean(norm for _, norm, _ in done),
            clip_share=None if self._own_loss else mean(clipped for _, _, clipped in done),
            rows=len(live),
            compared=tuple(pairs[0].values()) if pairs else (),
        )

    @torch.no_grad()
    def logprobs(self, prompts: IdRows, completions: IdRows) -> list[tuple[float, ...]]:
        """Nats of each completion's tokens under the present policy at the training temperature, in order."""
        pairs = zip(map(tuple, prompts), map(tuple, completions), strict=True)
        rows = [TrainingRow(prompt, completion, (0.0,) * len(completion), 0.0) for prompt, completion in pairs]
        scores = {id(row): torch.zeros(len(row.completion_ids)) for row in rows}
        live = [row for row in rows if row.completion_ids]

        def score_all() -> None:
            for micro in self._passes(live):
                for row, line in zip(micro, self._scores(micro), strict=True):
                    scores[id(row)] = line[: len(row.completion_ids)]

        with with_inputs_as_they_are(self.policy.model, self._quick):
            self._within_memory(score_all, live)
        return self._gathered([scores[id(row)] for row in rows])

    def save(self, folder: Path) -> None:
        """`folder/model` as `from_pretrained` reads it, or `folder/adapter` as peft does; the rest beside it."""
        policy = self.policy
        if policy.base is not None:
            save_adapter(policy.model, folder / files.ADAPTER)
            (folder / files.ADAPTER / files.BASE).write_bytes(msgspec.json.encode(policy.base))
        else:
            policy.model.save_pretrained(folder / files.MODEL)
            policy.tokenizer.save_pretrained(folder / files.MODEL)
        save_file(files.moments(self._optimizer), folder / files.OPTIMIZER)
        files.LearnerCounters(self.steps, self.skipped, self.updates).write(folder)

    def load(self, folder: Path) -> None:
        """Become bit for bit what was saved; the learning rate stays as configured. Raises CheckpointError."""
        policy, counters = self.policy, files.LearnerCounters.read(folder)
        eight_bit = self.config.optimizer == "adamw_8bit"
        with translated(CheckpointError, f"the solver in {folder} cannot be read", *files.UNREADABLE):
            if policy.base is not None:
                files.check_base(policy.base, folder / files.ADAPTER)
                load_adapter(policy.model, folder / files.ADAPTER)
            elif (folder / files.MOMENTS).is_dir():
                raise ValueError("a trainer saved it; set trainer.ranks")
            else:
                policy.model.load_state_dict(files.read_weights(policy.model, folder / files.MODEL))
            state: dict[int, dict[str, Any]] = {}
            for key, value in load_file(folder / files.OPTIMIZER).items():
                index, _, name = key.partition(".")
                state.setdefault(int(index), {})[name] = value
            parameters, first = files.trained(self._optimizer), "state1" if eight_bit else "exp_avg"
            for index, entry in state.items():
                if first not in entry:
                    raise ValueError("solver.optimizer is not that of the run's beginning")
                if index >= len(parameters) or entry[first].shape != parameters[index].shape:
                    raise ValueError("the optimiser is of another model")
                if eight_bit:
                    entry["step"] = int(entry["step"])
            self._optimizer.load_state_dict(self._optimizer.state_dict() | {"state": state})
        self.steps, self.skipped, self.updates = counters.steps, counters.skipped, counters.updates
        self._changed(self.updates)

    def _prepare(self, half: torch.dtype) -> tuple[Any, Any]:
        """The model that computes, on one device the same object with its forward wrapped, and its optimiser."""
        if self._reference is not None:
            self._reference = self._accelerator.prepare_model(self._reference, evaluation_mode=True)
        return self._accelerator.prepare(self.policy.model, self._trainer.create_optimizer())

    def _step(self, rows: Rows, share_tokens: float, pairs: dict[int, Pair]) -> tuple[float, float, float] | None:
        """(loss, gradient norm, clipped share), None where one is not finite; `pairs` receives those of fresh rows."""

        def follow() -> tuple[float, float]:
            self._optimizer.zero_grad()  # what a try before this one may have left
            parts = list[tuple[float, float]]()
            for micro in self._passes(rows):
                parts.append(self._backward(micro, share_tokens, pairs))
                done, of = self._read
                self._read = min(of, done + len(micro)), of  # those of a try that ran out of memory come again
                self._progress(*self._read)
            return sum(loss for loss, _ in parts), sum(clipped for _, clipped in parts)

        loss, clipped = self._sums(*self._within_memory(follow, rows))
        norm = self._clip_gradients()
        finite = math.isfinite(loss) and math.isfinite(norm)
        if not finite:
            what = "gradient" if math.isfinite(loss) else "loss"
            logger.error("after %d optimiser steps one is left out: its %s is not finite", self.steps, what)
        # A float16 scaler skips the step by itself, and must see the overflow to lower its scale.
        if finite or self._accelerator.scaler is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = losses.learning_rate(self.config, self.steps)
            self._optimizer.step()
            # a fused step does not, and copies that are sampled from follow the versions
            torch.autograd.graph.increment_version([*self._model.parameters()])
        self._optimizer.zero_grad()
        return (loss, norm, clipped / sum(len(row.completion_ids) for row in rows)) if finite else None

    def _passes(self, rows: Rows) -> Iterable[list[TrainingRow]]:
        return packed(rows, self.tokens_per_pass, shared=self._packed)

    def _scores(self, rows: Rows) -> Float[Tensor, "rows tokens"]:
        """Nats of the completions of one pass, float32 on the host."""
        inputs = collate(rows, self.policy.pad_id, self.policy.device)
        return self._forward(self._model, rows, inputs).float().cpu()

    def _gathered(self, scores: Sequence[Tensor]) -> list[tuple[float, ...]]:
        """Scores of all processes that score rows."""
        return [tuple(line.tolist()) for line in scores]

    def _sums(self, loss: float, clipped: float) -> tuple[float, float]:
        """Sums over all processes that compute a part of the step."""
        return loss, clipped

    def _clip_gradients(self) -> float:
        """Clip them; returns their norm before."""
        return float(self._accelerator.clip_grad_norm_(self._model.parameters(), self.config.grad_clip))

    def _within_memory(self, work: Callable[[], T], rows: Rows) -> T:
        """The result of `work`, which reads `rows` in passes, of fewer tokens until memory suffices."""
        while True:
            try:
                return work()
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
                if all(len(part) == 1 for part in self._passes(rows)):
                    why = str(error).splitlines()[0][:200]
                    raise ModelError(f"{TOO_LONG}, or set model.train=lora ({why})") from error
                tried = min(self.tokens_per_pass, size(rows, shared=self._packed))
                self.tokens_per_pass = tried // 2
            # Outside the handler: while the error lives, so do the frames that hold the tensors.
            release_memory()
            logger.warning("out of memory with %d tokens at once; %d from here on", tried, self.tokens_per_pass)

    def _backward(self, rows: Rows, share_tokens: float, pairs: dict[int, Pair]) -> tuple[float, float]:
        """Adds the rows' gradient. Returns their part of the loss and how many tokens were clipped."""
        inputs = collate(rows, self.policy.pad_id, self.policy.device)
        tokens = sum(len(row.completion_ids) for row in rows)
        if self.config.kl_beta:
            with torch.no_grad():
                inputs["ref_per_token_logps"] = self._reference_logprobs(rows, inputs)
        if self._own_loss is not None:
            logprobs = self._forward(self._model, rows, inputs).float()
            pairs.update(losses.compared(rows, logprobs.tolist()))
            loss = self._own_loss(inputs, logprobs) * (tokens / share_tokens)
            self._accelerator.backward(loss)
            return loss.item(), 0.0

        def scores_of(**options: object) -> Any:
            """TRL's source of log-probabilities: the model on CUDA; elsewhere less is computed for the same rows."""
            if self._packed or self._pieces:
                logprobs = self._forward(self._model, rows, inputs)
                scores = SimpleNamespace(log_probs=logprobs, entropy=torch.zeros_like(logprobs))
            else:
                scores = self._model(**options)
            pairs.update(losses.compared(rows, scores.log_probs[:, -inputs["completion_ids"].size(1) :].tolist()))
            return scores

        inputs["num_items_in_batch"] = torch.tensor(share_tokens, device=self.policy.device)  # what dapo divides by
        self._trainer.current_gradient_accumulation_steps = 1
        measured = self._trainer._metrics["train"]
        measured.clear()
        loss = self._trainer.compute_loss(scores_of, inputs)
        self._accelerator.backward(loss)
        return loss.item(), tokens * measured["clip_ratio/region_mean"][0]

    def _reference_logprobs(self, rows: Rows, inputs: dict[str, Tensor]) -> Float[Tensor, "rows tokens"]:
        """Nats under the initial model: a frozen copy, or the policy with its adapter switched off."""
        if self._reference is not None:
            return self._forward(self._reference, rows, inputs)
        with without_adapter(self.policy.model):
            return self._forward(self._model, rows, inputs)

    def _forward(self, model: PreTrainedModel, rows: Rows, inputs: dict[str, Tensor]) -> Float[Tensor, "rows tokens"]:
        """Nats of the completions, without TRL's loss; products are in half precision where that is quick."""
        with torch.autocast(self.policy.device.type, self._half, enabled=self._quick):
            if self._packed:
                return losses.packed_logprobs(model, rows, self.config.temperature)
            if self._pieces:
                return losses.completion_logprobs(model, inputs, self.config.temperature)
            return losses.fused_logprobs(model, inputs)
