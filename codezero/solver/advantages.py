"""Group relative policy optimisation as pure tensor functions.

`advantages` and `has_spread` are what every update uses. `policy_loss` and `token_logprobs` spell the objective out:
the learner leaves both to TRL, and the tests hold TRL to what is written here.

Legend for shapes: G completions of a group, B rows, T completion tokens.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from codezero.types import ScoredGroup, Verdict

LEAST_SPREAD = 1e-4
"""Rewards in [0, 1] that lie closer together differ by rounding, not by merit."""
STD_FLOOR = 1e-4
"""Added to the standard deviation of a group, as TRL does."""


def has_spread(rewards_G: Tensor, trainable_G: Tensor) -> bool:
    """Do the trainable rewards differ? Without a difference nothing can be learned from a group."""
    rewards = rewards_G[trainable_G]
    return len(rewards) > 1 and bool(rewards.max() - rewards.min() > LEAST_SPREAD)


def advantages(rewards_G: Tensor, trainable_G: Tensor, scale: str = "none") -> Tensor:
    """How much better each completion is than its group, (G,); exactly 0 where untrainable or without spread.

    A = r - mean(r), over the trainable rows. `scale="group"` divides by their standard deviation (Shao et al. 2024,
    DeepSeekMath, section 4.1.2); "none" does not, because that favours questions that are nearly always right or
    wrong (Liu et al. 2025, Dr. GRPO, section 3.1).
    """
    if not has_spread(rewards_G, trainable_G):
        return torch.zeros_like(rewards_G)
    rewards = rewards_G[trainable_G]
    centred = torch.where(trainable_G, rewards_G - rewards.mean(), torch.zeros_like(rewards_G))
    return centred / (rewards.std() + STD_FLOOR) if scale == "group" else centred


def group_advantages(scored: ScoredGroup, scale: str) -> list[float] | None:
    """`advantages` of a judged group's completions, [G]; None when nothing can be learned from it."""
    joint = joint_advantages([scored], scale)
    return joint[0] if joint else None


def counts(verdict: Verdict) -> bool:
    """May it carry gradient? A reward that is no number would make the whole update none."""
    return verdict.trainable and math.isfinite(verdict.reward)


def joint_advantages(groups: Sequence[ScoredGroup], scale: str) -> list[list[float]] | None:
    """`advantages` over all attempts at one problem, whoever made them: in the order of `groups`, [G] each.

    None when nothing can be learned from them.
    """
    verdicts = [verdict for one in groups for verdict in one.verdicts]
    trainable = torch.tensor([counts(verdict) for verdict in verdicts], dtype=torch.bool)
    rewards = torch.tensor([verdict.reward if counts(verdict) else 0.0 for verdict in verdicts])
    if not has_spread(rewards, trainable):
        return None
    parts = advantages(rewards, trainable, scale).split([len(one.verdicts) for one in groups])
    return [part.tolist() for part in parts]


def policy_loss(
    kind: str,
    logprobs: Tensor,
    old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    rows: float,
    tokens: float,
    max_length: int,
    reference: Tensor | None = None,
    kl_beta: float = 0.0,
) -> Tensor:
    """The scalar to minimise. `logprobs`, `old`, `mask` and `reference` are (B, T), `advantage` is (B,) or (B, T).

    `rows` and `tokens` are what the mean is taken over; they may count rows that are not here because their
    advantage is 0. With r = exp(logprobs - old), the term of a token is
      - dapo, grpo, bnpo, dr_grpo: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)  (Yu et al. 2025, DAPO, eq. 8)
      - cispo: -sg(min(r, 1 + clip_high)) A logprobs                                  (MiniMax-M1 2025, eq. 4)
    plus kl_beta * r * (exp(d) - d - 1), d = reference - logprobs (DeepSeekMath, eq. 4; r makes its gradient unbiased:
    DeepSeek-V3.2 2025, section 3.1)
    and their mean is
      - dapo, cispo, bnpo: over all tokens (DAPO, section 3.3)
      - grpo: over the tokens of a row, then over rows (DeepSeekMath, eq. 3)
      - dr_grpo: over rows of `max_length` tokens, whatever they hold (Dr. GRPO, section 3.2)
    """
    ratio = (logprobs - old).exp()
    weight = advantage[:, None] if advantage.dim() == 1 else advantage
    if kind == "cispo":
        term = -ratio.clamp(max=1 + clip_high).detach() * weight * logprobs
    else:
        term = -torch.min(ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight)
    if reference is not None:
        gap = reference - logprobs
        term = term + kl_beta * ratio * (gap.exp() - gap - 1)
    if kind == "grpo":
        return ((term * mask).sum(-1) / mask.sum(-1).clamp(min=1)).sum() / rows
    if kind == "dr_grpo":
        return (term * mask).sum() / (rows * max_length)
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
