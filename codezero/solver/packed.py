"""Log-probabilities of a group's completions with their prompt read once: what makes learning quick on a laptop.

A group of G rows shares its prompt. Rows are packed as prompt + completion + completion + ..., and a mask lets each
completion see the prompt and itself only, at the positions it would have alone. Only completion tokens reach the
output head. Same numbers as one row at a time (a test holds them together), a third of the work. For small models on
the CPU; others take TRL's own path, whose attention kernels want no such mask.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from codezero.solver.batch import Row

PADDING = -1
"""Segment of padding; the prompt's is 0, the completions' count from 1."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows with one prompt, laid end to end. L = tokens of the prompt and all completions."""

    ids: list[int]
    positions: list[int]
    segments: list[int]
    sources: list[int]
    """For each completion token, the place whose output predicts it."""


def pack(rows: Sequence[Row]) -> Pack:
    """`rows` share their prompt."""
    prompt = rows[0].prompt_ids
    ids, positions, segments, sources = list(prompt), list(range(len(prompt))), [0] * len(prompt), []
    for segment, row in enumerate(rows, start=1):
        start, length = len(ids), len(row.completion_ids)
        ids += row.completion_ids
        positions += range(len(prompt), len(prompt) + length)
        segments += [segment] * length
        sources += [len(prompt) - 1, *range(start, start + length - 1)]
    return Pack(ids, positions, segments, sources)


def packed_logprobs(model: PreTrainedModel, rows: Sequence[Row], pad_id: int, temperature: float) -> Tensor:
    """[B, longest completion] nats, zero beyond a row's end. Rows with the same prompt must stand together."""
    packs = [pack(list(group)) for _, group in groupby(rows, key=lambda row: row.prompt_ids)]
    longest = max(len(one.ids) for one in packs)

    def table(lines: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([line + [fill] * (longest - len(line)) for line in lines], device=model.device)

    positions = table([one.positions for one in packs], 0)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=table([one.ids for one in packs], pad_id),
        position_ids=positions,
        attention_mask=visible(positions, table([one.segments for one in packs], PADDING)),
        use_cache=False,
    ).last_hidden_state
    sources = torch.tensor([i * longest + place for i, one in enumerate(packs) for place in one.sources])
    head: Any = model.get_output_embeddings()
    logits = head(hidden.flatten(0, 1).index_select(0, sources)).float() / temperature
    targets = torch.tensor([token for row in rows for token in row.completion_ids])
    flat = -cross_entropy(logits, targets, reduction="none")
    real = torch.zeros(len(rows), max(len(row.completion_ids) for row in rows), dtype=torch.bool)
    for i, row in enumerate(rows):
        real[i, : len(row.completion_ids)] = True
    return flat.new_zeros(real.shape).masked_scatter(real, flat)


def visible(positions: Tensor, segments: Tensor) -> Tensor:
    """Which places each place sees, [packs, 1, L, L]: those before it in the prompt and in its own segment."""
    query, key = segments[:, :, None], segments[:, None, :]
    earlier = positions[:, None, :] <= positions[:, :, None]
    return (((key == 0) | (key == query)) & earlier)[:, None]
