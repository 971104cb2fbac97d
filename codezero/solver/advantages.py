"""Group relative advantages as pure functions; TRL computes the loss. Legend for shapes: G completions of a group."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import math
import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from codezero.types import BELIEF, Metrics, ScoredGroup, Status, Verdict

LEAST_SPREAD = 1e-4
"""Rewards in [0, 1] that lie closer together differ by rounding, not by merit."""
STD_FLOOR = 1e-4
"""Added to a standard deviation, as TRL does."""


def advantages(rewards_G: Tensor, scale: str = "none") -> Tensor:
    """How much better each completion is than its group, (G,); exactly 0 where a reward is not finite or none differs.

    A = r - mean(r), over the finite rewards. `scale="group"` divides by their standard deviation (Shao et al. 2024,
    DeepSeekMath, section 4.1.2); "none" does not, because that favours questions that are nearly always right or
    wrong (Liu et al. 2025, Dr. GRPO, section 3.1). "mean" divides by their mean, which follows log(success): rare
    successes count most (Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning", arXiv 2602.02710).
    """
    known_G = rewards_G.isfinite()
    rewards = rewards_G[known_G]
    if len(rewards) < 2 or rewards.max() - rewards.min() <= LEAST_SPREAD:
        return torch.zeros_like(rewards_G)
    centred = torch.where(known_G, rewards_G - rewards.mean(), torch.zeros_like(rewards_G))
    return centred / {"none": 1.0, "group": rewards.std() + STD_FLOOR, "mean": rewards.mean()}[scale]


def batch_normalized(advantages: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """Advantages of rows of so many tokens, less the mean over all tokens and by their standard deviation.

    Andrychowicz et al. 2020, "What Matters in On-Policy Reinforcement Learning": advantage normalization.
    """
    tokens = sum(lengths)
    mean = math.fsum(each * length for each, length in zip(advantages, lengths, strict=True)) / max(tokens, 1)
    squares = math.fsum((each - mean) ** 2 * length for each, length in zip(advantages, lengths, strict=True))
    return [(each - mean) / (math.sqrt(squares / tokens) + STD_FLOOR) for each in advantages]


def counts(verdict: Verdict) -> bool:
    """May it carry gradient? A reward that is no number would make the whole update none."""
    return verdict.trainable and math.isfinite(verdict.reward)


def joint_advantages(groups: Sequence[ScoredGroup], scale: str) -> list[list[float]] | None:
    """`advantages` over all attempts at one problem, [G] for each of `groups`; None: nothing can be learned."""
    verdicts = [verdict for scored in groups for verdict in scored.verdicts]
    weights = advantages(torch.tensor([each.reward if each.trainable else math.nan for each in verdicts]), scale)
    if not weights.any():
        return None
    return [part.tolist() for part in weights.split([len(scored.verdicts) for scored in groups])]


def merged_advantages(groups: Sequence[ScoredGroup], scale: str) -> dict[int, list[float]]:
    """By id() of each group, [G]: advantages over all these attempts at its problem; zeros without spread."""
    together: dict[str, list[ScoredGroup]] = {}
    for scored in groups:
        together.setdefault(scored.group.problem.id, []).append(scored)
    weights = {id(scored): [0.0] * len(scored.verdicts) for scored in groups}
    for same in together.values():
        weights |= {id(scored): line for scored, line in zip(same, joint_advantages(same, scale) or [], strict=False)}
    return weights


def outcomes(local: Sequence[ScoredGroup], learned: int) -> Metrics:
    """`attempts/...`: what became of own attempts, of which so many entered the update, and what kept the others out.

    Shares of all; one that was cut off is not counted as failing, wrong or right, which are of groups without spread.
    """
    flat = [joint_advantages([scored], "none") is None for scored in local]
    kinds, reasons = Counter[str](), dict[str, list[str]]()
    for scored, same in zip(local, flat, strict=True):
        for completion, verdict in zip(scored.group.completions, scored.verdicts, strict=True):
            if verdict.status is Status.UNAVAILABLE:
                reason = verdict.reasons[0] if verdict.reasons else "no reason given"
                reasons.setdefault(re.sub(r"\d+", "", reason), []).append(reason)
            kinds["cut_off"] += not completion.finished
            kinds[verdict.status] += not verdict.trainable
            if same and completion.finished and verdict.trainable:
                failing = verdict.status is Status.CERTAIN_FAILURE
                kinds["failing" if failing else "right" if verdict.correctness >= BELIEF else "wrong"] += 1
    count = sum(len(scored.verdicts) for scored in local)
    kinds |= {"learned": learned, "no_verdict": kinds[Status.UNAVAILABLE]}
    names = ("learned", "cut_off", "no_verdict", Status.QUARANTINED, "failing", "wrong", "right")
    shares: Metrics = {f"attempts/{name}_share": kinds[name] / count if count else None for name in names}
    return shares | {
        "attempts/count": count,
        "attempts/no_verdict_reason": max(reasons.values(), key=len)[0] if reasons else None,
        "train/zero_spread_share": sum(flat) / len(flat) if flat else None,
    }
