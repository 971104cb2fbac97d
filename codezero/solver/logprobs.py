"""Chunked log-probs: of chosen tokens from hidden states, never with all vocabulary x length logits at once.

TRL's fused head has kernels for this on CUDA. Elsewhere the head, a quarter of a 0.5 B model's work, skips prompts.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel
from trl.kernels import ChunkedLogProbFunction

WHOLE = 2**24
"""Most logits in one piece (64 MiB in float32); forward and backward hold up to seven of that size at once."""
TOKENS = 4096
"""Most tokens in one piece; fixed by `ChunkedLogProbFunction`."""
SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Settings with which a model changes its logits after the head."""


def chosen_logprobs(hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float) -> Tensor:
    """[N] nats of `targets` [N] after hidden states [N, H], in float32; differentiable."""
    vocabulary = int(head.weight.shape[0])  # pyright: ignore
    if len(targets) * vocabulary <= WHOLE:
        return -cross_entropy(head(hidden).float() / temperature, targets, reduction="none")
    columns = max(1, WHOLE // min(len(targets), TOKENS))
    return ChunkedLogProbFunction.apply(hidden, head.weight, head.bias, targets, temperature, columns, None, 1.0, ())[0]


def completion_logprobs(model: PreTrainedModel, inputs: Mapping[str, Tensor], temperature: float) -> Tensor:
    """[B, T] nats of a batch of `batch.collate`, zero beyond a row's end."""
    room = inputs["completion_ids"].size(1)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
        attention_mask=torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
        use_cache=False,
    ).last_hidden_state[:, -room - 1 : -1]
    real = inputs["completion_mask"].bool()
    head: Any = model.get_output_embeddings()
    flat = chosen_logprobs(hidden[real], head, inputs["completion_ids"][real], temperature)
    return flat.new_zeros(real.shape).masked_scatter(real, flat)


def fused_logprobs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """As `completion_logprobs`, by TRL's fused head, at the temperature that it was made for."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    room = inputs["completion_ids"].size(1)
    labels = ids.masked_fill(real == 0, -100)
    labels[:, :-room] = -100
    return model(input_ids=ids, attention_mask=real, labels=labels, fused_lm_head=True).log_probs[:, -room:]


def head_is_plain(model: PreTrainedModel) -> bool:
    """Are the model's logits its head's output, unscaled?"""
    config = model.config.get_text_config()
    return isinstance(model.get_output_embeddings(), nn.Linear) and not any(
        getattr(config, key, None) for key in SCALED
    )
