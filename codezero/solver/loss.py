"""The loss, TRL's with its optimiser or one of the user's own, and the learning rate of a step.

Legend for shapes: B rows, T longest completion.
"""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging

from codezero.config import SolverConfig
from codezero.config.contradictions import LOSSES
from codezero.config.learning import named
from codezero.errors import ConfigError
from codezero.models import isolate
from codezero.models.device import ran_out_of_memory
from codezero.models.load import LoadedModel
from codezero.plugins import blamed, load_object

if TYPE_CHECKING:
    from trl import GRPOTrainer


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The rows of one forward pass. Those of advantage 0 are in none, unless solver.kl_beta is set: their loss is 0."""

    logprobs: Tensor
    """[B, T] nats of the completions' tokens under the policy, with gradient; anything beyond a completion's end."""
    old_logprobs: Tensor
    """[B, T] the same under the policy that sampled, or that stands in the ratio's denominator."""
    reference_logprobs: Tensor | None
    """[B, T] the same under the initial model; None without solver.kl_beta."""
    advantages: Tensor
    """[B, T] of its row, times the importance weight where the token is an earlier policy's."""
    mask: Tensor
    """[B, T] 1 for a token, 0 beyond the completion's end."""


def own_loss(spec: Any) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """`solver.loss_function`, called with `collate`'s tensors and the log-probabilities of one pass.

    A step takes several passes, and ranks share them. What the function makes of one counts as a mean over its tokens:
    it is weighed by their share of the step's. A mean over rows is therefore that of the step only about. Raises
    ConfigError, also for what is no number with a gradient.
    """
    what = f"solver.loss_function={named(spec)}"
    function = load_object(spec, "solver.loss_function", ("__call__",), LOSSES)

    def loss(inputs: dict[str, Tensor], logprobs: Tensor) -> Tensor:
        old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].to(logprobs.dtype)
        advantages = inputs["advantages"]
        pushes = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
        given = LossInputs(logprobs, old, inputs.get("ref_per_token_logps"), pushes * mask, mask)
        try:
            made = function(given)
        except (Exception, SystemExit) as error:
            if ran_out_of_memory(error):  # smaller passes follow
                raise
            with blamed(ConfigError, what):
                raise
        if not (isinstance(made, Tensor) and made.dim() == 0 and made.requires_grad):
            kind = type(made).__name__
            raise ConfigError(f"{what} returned a {kind}; a loss is a tensor of one number that has a gradient")
        return made

    return loss


def learning_rate(config: SolverConfig, steps: int) -> float:
    """rate / (1 + steps / settle_steps): its sum has no bound, so a run never stops learning; that of its squares has
    one, so the policy comes to rest (Robbins & Monro 1951). Constant when `settle_steps` is 0.
    """
    return config.learning_rate / (1 + steps / config.settle_steps if config.settle_steps else 1)


def make_trainer(
    policy: LoadedModel, config: SolverConfig, half: torch.dtype, reference: PreTrainedModel | None
) -> "GRPOTrainer":
    """TRL's, for its loss and optimiser: it writes nothing, prints nothing and never generates.

    For a policy that computes in `half`, which on CUDA may have 16 bits. reference: of the KL term.
    """
    from datasets import Dataset  # nobody waits for these before something is learned
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer.utils import add_fused_lm_head

    on_cuda = policy.device.type == "cuda"
    isolate()  # for who uses it without the commands
    hf_logging.disable_progress_bar()  # of writing shards
    with tempfile.TemporaryDirectory() as nowhere:
        settings = GRPOConfig(
            nowhere,
            loss_type="dapo",
            epsilon=config.clip_low,
            epsilon_high=config.clip_high,
            temperature=config.temperature,
            max_completion_length=config.max_new_tokens,
            learning_rate=config.learning_rate,
            optim="adamw_bnb_8bit" if config.optimizer == "adamw_8bit" else "adamw_torch_fused",
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            weight_decay=config.weight_decay,
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
        trainer = GRPOTrainer(
            model=policy.model,
            reward_funcs=_never_asked,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["unused", "unused"]}),
            processing_class=policy.tokenizer,
        )
    for parameter in policy.model.parameters():
        if parameter.requires_grad:  # TRL makes an adapter on a quantized base bfloat16, in which small steps are lost
            parameter.data = parameter.data.float()
    if reference is not None:
        add_fused_lm_head(reference, temperature=config.temperature)
    return trainer


def _never_asked(**_: object) -> list[float | None]:
    raise AssertionError("rewards come from the evaluator")
