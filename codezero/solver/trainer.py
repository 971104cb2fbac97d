"""A `trl.GRPOTrainer` for its loss and optimiser: it writes nothing, prints nothing and never generates."""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false

import tempfile

import torch
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from codezero.config import SolverConfig
from codezero.models.load import LoadedModel


def make_trainer(
    policy: LoadedModel, config: SolverConfig, half: torch.dtype, reference: PreTrainedModel | None
) -> GRPOTrainer:
    """For a policy that computes in `half`, which on CUDA may have 16 bits. reference: of the KL term."""
    on_cuda = policy.device.type == "cuda"
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
