"""The rows of one GRPO update: their advantages, division and tensors, and the update's figures."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Annotated

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from codezero.models.chat import pad
from codezero.types import BELIEF, Metrics, ScoredGroup, Status, Verdict

if TYPE_CHECKING:
    from jaxtyping import Float

TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]
Pair = tuple[Sequence[float], Sequence[float]]  # nats of a row's tokens: the sampler's, and the learner's


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One completion and its advantage."""

    prompt_ids: tuple[TokenId, ...]
    completion_ids: tuple[TokenId, ...]  # [T] EOS included when it was generated, so that ending carries gradient too
    logprobs: tuple[float, ...]  # [T] nats at the training temperature, under the policy in the ratio's denominator
    advantage: float
    weights: tuple[float, ...] = ()  # [T] factors of the advantage at each token; empty: 1 everywhere
    fresh: bool = False  # are the log-probabilities the sampler's, under the policy as it is before the update?

    def __post_init__(self) -> None:
        if not self.prompt_ids or len(self.completion_ids) != len(self.logprobs):
            raise ValueError("a row needs a prompt, and one log-probability for each completion token")
        if self.weights and len(self.weights) != len(self.completion_ids):
            raise ValueError("a row has one weight for each completion token, or none")


Rows = Sequence[TrainingRow]
IdRows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one update."""

    rows: tuple[TrainingRow, ...]
    idle_tokens: int = 0  # of rows that carry no gradient but count in the loss's mean, like those of advantage 0

    @property
    def token_count(self) -> int:
        return sum(len(row.completion_ids) for row in self.rows) + self.idle_tokens


@dataclass(frozen=True, slots=True)
class Update:
    """The figures of one update: means over its optimiser steps."""

    loss: float | None
    grad_norm: float | None  # before clipping
    clip_share: float | None  # tokens whose ratio was clipped
    rows: int  # rows that carried gradient
    compared: tuple[Pair, ...] = ()  # of the fresh rows that this process scored before the first step


def by_prompt(rows: Rows) -> list[list[TrainingRow]]:
    """The rows' groups, in the order of their first rows."""
    groups: dict[tuple[int, ...], list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault(row.prompt_ids, []).append(row)
    return list(groups.values())


def split(rows: Rows, ranks: int) -> list[list[TrainingRow]]:
    """Whole groups for each rank: the largest first, to the rank with the fewest tokens. Every rank finds the same."""

    def tokens(group: Rows) -> int:
        return sum(len(row.prompt_ids) + len(row.completion_ids) for row in group)

    shares: list[list[TrainingRow]] = [[] for _ in range(ranks)]
    for group in sorted(by_prompt(rows), key=tokens, reverse=True):
        min(shares, key=tokens).extend(group)
    return shares


def minibatches(rows: Rows, parts: int, seed: int) -> list[list[TrainingRow]]:
    """Whole groups, dealt at random: a group's pushes cancel within one step, and its prompt is read once."""
    groups = by_prompt(rows)
    random.Random(seed).shuffle(groups)
    return [list(chain(*groups[part::parts])) for part in range(min(parts, len(groups)))]


def packed(rows: Rows, tokens: int, *, shared: bool = False) -> list[list[TrainingRow]]:
    """Parts alike in length, rows of one prompt beside each other; each of at most `tokens`, or of one row."""
    parts: list[list[TrainingRow]] = []
    for row in sorted(rows, key=lambda row: (len(row.prompt_ids), row.prompt_ids, len(row.completion_ids))):
        if parts and size([*parts[-1], row], shared=shared) <= tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def size(rows: Rows, *, shared: bool) -> int:
    """Tokens of rows in one pass: with their padding, or without where neighbours share their prompt."""
    if shared:
        prompts = sum(len(prompt) for prompt, _ in groupby(rows, key=lambda row: row.prompt_ids))
        return prompts + sum(len(row.completion_ids) for row in rows)
    return len(rows) * (max(len(row.prompt_ids) for row in rows) + max(len(row.completion_ids) for row in rows))


def collate(rows: Rows, pad_id: int, device: torch.device) -> dict[str, Tensor]:
    """TRL's batch: prompts [B, P] padded on the left, completions [B, T] on the right, masks 1 where real.

    Advantages are [B], and [B, T] where a row has weights of its own for its tokens.
    A left-padded prompt shifts a row's positions by a constant, which rotary embeddings cannot see."""
    prompts, prompted = pad([row.prompt_ids for row in rows], pad_id, device, left=True)
    completions, completed = pad([row.completion_ids for row in rows], pad_id, device)
    pushes = torch.tensor([row.advantage for row in rows], dtype=torch.float32)
    if any(row.weights for row in rows):
        weights = [row.weights or (1.0,) * len(row.completion_ids) for row in rows]
        pushes = _padded([[row.advantage * each for each in line] for row, line in zip(rows, weights, strict=True)])
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompted.long(),
        "completion_ids": completions,
        "completion_mask": completed.long(),
        "old_per_token_logps": _padded([row.logprobs for row in rows]).to(device),
        "advantages": pushes.to(device),
    }


def _padded(lines: Sequence[Sequence[float]]) -> Float[Tensor, "rows tokens"]:
    """Lines in float32, 0 beyond the end of each."""
    return pad_sequence([torch.tensor(line, dtype=torch.float32) for line in lines], batch_first=True)


LEAST_SPREAD = 1e-4  # rewards in [0, 1] that lie closer together differ by rounding, not by merit
STD_FLOOR = 1e-4  # added to a standard deviation, as TRL does


def advantages(rewards_G: Float[Tensor, " group"], scale: str = "none") -> Float[Tensor, " group"]:
    """The lead of each completion over its group; exactly 0 where a reward is not finite or none differs.

    A = r - mean(r), over the finite rewards. `scale="group"` divides by their standard deviation (Shao et al. 2024,
    DeepSeekMath, section 4.1.2); "none" does not, because that favours questions that are nearly always right or
    wrong (Liu et al. 2025, Dr. GRPO, section 3.1). "mean" divides by their mean, which follows log(success): rare
    successes count most (Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning", arXiv 2602.02710)."""
    known_G = rewards_G.isfinite()
    rewards = rewards_G[known_G]
    if len(rewards) < 2 or rewards.max() - rewards.min() <= LEAST_SPREAD:
        return torch.zeros_like(rewards_G)
    centred = torch.where(known_G, rewards_G - rewards.mean(), torch.zeros_like(rewards_G))
    return centred / {"none": 1.0, "group": rewards.std() + STD_FLOOR, "mean": rewards.mean()}[scale]


def counts(verdict: Verdict) -> bool:
    """May it carry gradient? A reward that is no number would make the whole update none."""
    return verdict.trainable and math.isfinite(verdict.reward)


def merged_advantages(groups: Sequence[ScoredGroup], scale: str) -> dict[int, list[float]]:
    """`advantages` over all these attempts at a problem, by id() of each group; zeros without spread."""
    together: dict[str, list[ScoredGroup]] = {}
    for scored in groups:
        together.setdefault(scored.group.problem.id, []).append(scored)
    weights: dict[int, list[float]] = {}
    for same in together.values():
        verdicts = [verdict for scored in same for verdict in scored.verdicts]
        line = advantages(torch.tensor([each.reward if each.trainable else math.nan for each in verdicts]), scale)
        parts = line.split([len(scored.verdicts) for scored in same])
        weights |= {id(scored): part.tolist() for scored, part in zip(same, parts, strict=True)}
    return weights


def has_spread(groups: Sequence[ScoredGroup], scale: str = "none") -> bool:
    """Can anything be learned of these?"""
    return any(map(any, merged_advantages(groups, scale).values()))


def outcomes(local: Sequence[ScoredGroup], learned: int) -> Metrics:
    """`attempts/...`: what became of own attempts, of which so many entered the update, and what kept the others out.
    Shares of all; one that was cut off is not counted as failing, wrong or right, which are of groups without
    spread."""
    flat = [not has_spread([scored]) for scored in local]
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
