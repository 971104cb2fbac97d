"""Group relative advantages as pure tensor functions; TRL computes the loss.

Legend for shapes: G completions of a group.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import math
from collections.abc import Sequence

import torch
from torch import Tensor

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
    verdicts = [verdict for scored in groups for verdict in scored.verdicts]
    trainable = torch.tensor([counts(verdict) for verdict in verdicts], dtype=torch.bool)
    rewards = torch.tensor([verdict.reward if counts(verdict) else 0.0 for verdict in verdicts])
    if not has_spread(rewards, trainable):
        return None
    parts = advantages(rewards, trainable, scale).split([len(scored.verdicts) for scored in groups])
    return [part.tolist() for part in parts]
