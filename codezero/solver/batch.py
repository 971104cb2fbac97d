"""What one GRPO update learns from, how its rows become tensors, and what is reported of it.

Legend for shapes: B rows, P longest prompt, T longest completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One completion and how hard it is pushed."""

    prompt_ids: tuple[TokenId, ...]
    completion_ids: tuple[TokenId, ...]
    """[T] EOS included when it was generated, so that ending carries gradient too."""
    logprobs: tuple[float, ...]
    """[T] nats at the training temperature, under the policy that the ratio is taken against."""
    advantage: float
    weights: tuple[float, ...] = ()
    """[T] what the advantage is multiplied with at each token; empty: 1 everywhere."""

    def __post_init__(self) -> None:
        if not self.prompt_ids or len(self.completion_ids) != len(self.logprobs):
            raise ValueError("a row needs a prompt, and one log-probability for each completion token")
        if self.weights and len(self.weights) != len(self.completion_ids):
            raise ValueError("a row has one weight for each completion token, or none")


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one update. Idle rows carry no gradient but count in the loss's mean, like those of advantage 0."""

    rows: tuple[TrainingRow, ...]
    idle_rows: int = 0
    idle_tokens: int = 0

    @property
    def row_count(self) -> int:
        return len(self.rows) + self.idle_rows

    @property
    def token_count(self) -> int:
        return sum(len(row.completion_ids) for row in self.rows) + self.idle_tokens


@dataclass(frozen=True, slots=True)
class Update:
    """What one update did; means over its optimiser steps."""

    loss: float | None
    grad_norm: float | None
    """Before clipping."""
    clip_share: float | None
    """Tokens whose ratio was clipped."""
    rows: int
    """Rows that carried gradient."""
    skipped: int
    """Optimiser steps left out because loss or gradient was not finite."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    loss: float
    grad_norm: float
    clip_share: float
    finite: bool


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


def collate(rows: Sequence[TrainingRow], pad_id: int, device: torch.device) -> dict[str, Tensor]:
    """TRL's batch: prompts [B, P] padded on the left, completions [B, T] on the right, masks 1 where real.

    Advantages are [B], and [B, T] where a row has weights of its own for its tokens.
    A left-padded prompt shifts a row's positions by a constant, which rotary embeddings cannot see.
    """
    longest = max(len(row.prompt_ids) for row in rows)
    room = max(len(row.completion_ids) for row in rows)
    prompt_pads = [longest - len(row.prompt_ids) for row in rows]
    completion_pads = [room - len(row.completion_ids) for row in rows]

    def table(lines: list[list[int]]) -> Tensor:
        return torch.tensor(lines, dtype=torch.long, device=device)

    return {
        "prompt_ids": table(
            [[pad_id] * pad + list(row.prompt_ids) for row, pad in zip(rows, prompt_pads, strict=True)]
        ),
        "prompt_mask": table([[0] * pad + [1] * (longest - pad) for pad in prompt_pads]),
        "completion_ids": table(
            [list(row.completion_ids) + [pad_id] * pad for row, pad in zip(rows, completion_pads, strict=True)]
        ),
        "completion_mask": table([[1] * (room - pad) + [0] * pad for pad in completion_pads]),
        "old_per_token_logps": torch.tensor(
            [list(row.logprobs) + [0.0] * pad for row, pad in zip(rows, completion_pads, strict=True)],
            dtype=torch.float32,
            device=device,
        ),
        "advantages": torch.tensor(_advantages(rows, room), dtype=torch.float32, device=device),
    }


def _advantages(rows: Sequence[TrainingRow], room: int) -> list[float] | list[list[float]]:
    if not any(row.weights for row in rows):
        return [row.advantage for row in rows]
    weights = [row.weights or (1.0,) * len(row.completion_ids) for row in rows]
    return [
        [row.advantage * weight for weight in line] + [0.0] * (room - len(line))
        for row, line in zip(rows, weights, strict=True)
    ]
