"""The objective of group relative policy optimisation, written out: the tests hold the learner and TRL to it.

Legend for shapes: B rows, T completion tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel


def policy_loss(
    logprobs: Tensor,
    old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    tokens: float,
    reference: Tensor | None = None,
    kl_beta: float = 0.0,
) -> Tensor:
    """The scalar to minimise. `logprobs`, `old`, `mask` and `reference` are (B, T), `advantage` is (B,) or (B, T).

    `tokens` is what the mean is taken over (DAPO, section 3.3); it may count rows that are not here because their
    advantage is 0. With r = exp(logprobs - old), the term of a token is

        -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)        (Yu et al. 2025, DAPO, eq. 8)

    plus kl_beta * r * (exp(d) - d - 1), d = reference - logprobs (DeepSeekMath, eq. 4; r makes its gradient unbiased:
    DeepSeek-V3.2 2025, section 3.1).
    """
    ratio = (logprobs - old).exp()
    weight = advantage[:, None] if advantage.dim() == 1 else advantage
    term = -torch.min(ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight)
    if reference is not None:
        gap = reference - logprobs
        term = term + kl_beta * ratio * (gap.exp() - gap - 1)
    return (term * mask).sum() / tokens


def token_logprobs(model: PreTrainedModel, batch: dict[str, Tensor], temperature: float) -> Tensor:
    """log p of each completion token, (B, T), from whole logits: plain, and hungry for memory.

    `batch` is what `batch.collate` makes. Positions count a row's real tokens, padding not included.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    real = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    room = batch["completion_ids"].size(1)
    output = model(input_ids=ids, attention_mask=real, position_ids=positions, use_cache=False)
    logits = output.logits[:, -room - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, batch["completion_ids"][..., None])[..., 0]
