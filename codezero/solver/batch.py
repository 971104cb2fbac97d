"""The rows of one GRPO update, their division and tensors, and the update's figures.

Legend for shapes: B rows, P longest prompt, T longest completion.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from codezero.models.chat import pad
from codezero.solver.advantages import advantages
from codezero.types import Completion

TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]
Pair = tuple[Sequence[float], Sequence[float]]
"""Nats of a row's tokens: the sampler's, and the learner's."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One completion and its advantage."""

    prompt_ids: tuple[TokenId, ...]
    completion_ids: tuple[TokenId, ...]
    """[T] EOS included when it was generated, so that ending carries gradient too."""
    logprobs: tuple[float, ...]
    """[T] nats at the training temperature, under the policy in the ratio's denominator."""
    advantage: float
    weights: tuple[float, ...] = ()
    """[T] factors of the advantage at each token; empty: 1 everywhere."""
    fresh: bool = False
    """Are the log-probabilities the sampler's, under the policy as it is before the update?"""

    def __post_init__(self) -> None:
        if not self.prompt_ids or len(self.completion_ids) != len(self.logprobs):
            raise ValueError("a row needs a prompt, and one log-probability for each completion token")
        if self.weights and len(self.weights) != len(self.completion_ids):
            raise ValueError("a row has one weight for each completion token, or none")

    def weighed(self, factors: Sequence[float]) -> tuple[float, ...]:
        """Its weights times these, [T]."""
        if not self.weights:
            return tuple(factors)
        return tuple(weight * factor for weight, factor in zip(self.weights, factors, strict=True))

    @classmethod
    def unscored(cls, prompt: Sequence[int], completion: Sequence[int]) -> "TrainingRow":
        """Whose log-probabilities are asked for: 0 in place of them, and nothing to push."""
        return cls(tuple(prompt), tuple(completion), (0.0,) * len(completion), 0.0)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one update."""

    rows: tuple[TrainingRow, ...]
    idle_tokens: int = 0
    """Of rows that carry no gradient but count in the loss's mean, like those of advantage 0."""

    @property
    def token_count(self) -> int:
        return sum(len(row.completion_ids) for row in self.rows) + self.idle_tokens


@dataclass(frozen=True, slots=True)
class Update:
    """The figures of one update: means over its optimiser steps."""

    loss: float | None
    grad_norm: float | None
    """Before clipping."""
    clip_share: float | None
    """Tokens whose ratio was clipped."""
    rows: int
    """Rows that carried gradient."""
    compared: tuple[Pair, ...] = ()
    """Of the fresh rows that this process scored before the first step."""


def rewarded_rows(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    rewards: Sequence[float | None],
    scale: str,
    version: int,
) -> list[TrainingRow]:
    """Of the completions of one group with a known reward; none when the rewards do not differ.

    All [G]. scale: see `advantages`. version: of the policy, now.
    """
    known = torch.tensor([math.nan if reward is None else reward for reward in rewards])
    weights = advantages(known, scale)
    if not weights.any():
        return []
    return [
        TrainingRow(tuple(prompt), each.token_ids, each.logprobs, weight, fresh=each.version in (None, version))
        for prompt, each, weight, counts in zip(prompts, completions, weights.tolist(), known.isfinite(), strict=True)
        if counts
    ]


def by_prompt(rows: Sequence[TrainingRow]) -> list[list[TrainingRow]]:
    """The rows' groups, in the order of their first rows."""
    groups: dict[tuple[int, ...], list[TrainingRow]] = {}
    for row in rows:
        groups.setdefault(row.prompt_ids, []).append(row)
    return list(groups.values())


def split(rows: Sequence[TrainingRow], ranks: int) -> list[list[TrainingRow]]:
    """Whole groups for each rank: the largest first, to the rank with the fewest tokens. Every rank finds the same."""

    def tokens(group: Sequence[TrainingRow]) -> int:
        return sum(len(row.prompt_ids) + len(row.completion_ids) for row in group)

    shares: list[list[TrainingRow]] = [[] for _ in range(ranks)]
    for group in sorted(by_prompt(rows), key=tokens, reverse=True):
        min(shares, key=tokens).extend(group)
    return shares


def minibatches(rows: Sequence[TrainingRow], parts: int, seed: int) -> list[list[TrainingRow]]:
    """Whole groups, dealt at random: a group's pushes cancel within one step, and its prompt is read once."""
    groups = by_prompt(rows)
    random.Random(seed).shuffle(groups)
    return [list(chain(*groups[part::parts])) for part in range(min(parts, len(groups)))]


def micro_batches(rows: Sequence[TrainingRow], size: int) -> Iterator[list[TrainingRow]]:
    """Rows of one prompt beside each other and prompts alike in length, so that little is padded."""
    ordered = sorted(rows, key=lambda row: (len(row.prompt_ids), row.prompt_ids, len(row.completion_ids)))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def packed(rows: Sequence[TrainingRow], tokens: int) -> list[list[TrainingRow]]:
    """Parts alike in length, each of at most `tokens` with its padding, or of one row."""
    parts: list[list[TrainingRow]] = []
    prompt = completion = 0
    for (row,) in micro_batches(rows, 1):
        prompt, completion = max(prompt, len(row.prompt_ids)), max(completion, len(row.completion_ids))
        if parts and (len(parts[-1]) + 1) * (prompt + completion) <= tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
            prompt, completion = len(row.prompt_ids), len(row.completion_ids)
    return parts


def collate(rows: Sequence[TrainingRow], pad_id: int, device: torch.device) -> dict[str, Tensor]:
    """TRL's batch: prompts [B, P] padded on the left, completions [B, T] on the right, masks 1 where real.

    Advantages are [B], and [B, T] where a row has weights of its own for its tokens.
    A left-padded prompt shifts a row's positions by a constant, which rotary embeddings cannot see.
    """
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


def _padded(lines: Sequence[Sequence[float]]) -> Tensor:
    """[B, T] float32, 0 beyond a line's end."""
    return pad_sequence([torch.tensor(line, dtype=torch.float32) for line in lines], batch_first=True)
