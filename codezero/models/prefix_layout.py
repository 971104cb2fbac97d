"""The parts of prefix reading (`likelihood.py`): its rows and asks, their layout in a batch, their scores and states.

Legend for shapes: B rows of a batch, T columns, V vocabulary, C choices.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """A model's scores of each token of a text; float32 on the CPU."""

    logprob: Tensor
    """[T] nats, at temperature 1."""
    gap: Tensor
    """[T] log p(token) - log p(likeliest token), <= 0."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A text read after a row, and an answer that is scored behind it."""

    ids: Ids
    """At least one token."""
    answer: Ids = ()


@dataclass(frozen=True, slots=True)
class PrefixRow:
    head: Ids
    """At least one token. Rows with equal heads share them."""
    body: Ids
    asks: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True)
class AskScores:
    """The model's scores after an ask; float32 on the CPU."""

    choices: Tensor
    """[C] log-probabilities, nats, of the choices as the very next token."""
    answer: TokenScores
    """Of the ask's answer; empty without one."""


@dataclass(frozen=True, slots=True)
class RowScores:
    body: TokenScores | None
    """Of the body and of the end after it; None when not asked for."""
    asks: tuple[AskScores, ...]
    state: Tensor | None = None
    """[L, D] float32 on the CPU: of the body's last token, after each layer that was asked for."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The columns of one ask of every row."""

    width: int
    end: int
    """The column behind its last."""
    kept: int
    """How many of its last columns predict something that is scored."""
    column: int
    """The first of these among all kept columns."""


def fed(ask: Ask) -> Ids:
    """The tokens to read: the last token of an answer predicts nothing that is scored."""
    return (*ask.ids, *ask.answer[:-1])


def kept_of(ask: Ask) -> int:
    """Columns of logits that an ask needs; the choices are read where the answer's first token is."""
    return max(1, len(ask.answer))


def lanes_of(asks: Sequence[Sequence[Ask]]) -> list[Lane]:
    """The k-th asks of all rows share the k-th lane, so that the logits to keep are in the same columns."""
    lanes: list[Lane] = []
    end = column = 0
    for k in range(max(map(len, asks))):
        own = [of_row[k] for of_row in asks if k < len(of_row)]
        width, kept = max(len(fed(ask)) for ask in own), max(map(kept_of, own))
        end += width
        lanes.append(Lane(width, end, kept, column))
        column += kept
    return lanes


def lay_out(asks: Sequence[Sequence[Ask]], lanes: Sequence[Lane], pad_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T] each: ids; the lane of each (-1: padding); and how far into its ask each is."""
    ids = torch.full((len(asks), sum(lane.width for lane in lanes)), pad_id)
    lane_of, place = torch.full_like(ids, -1), torch.zeros_like(ids)
    for row, of_row in enumerate(asks):
        for k, ask in enumerate(of_row):
            text = fed(ask)
            own = slice(lanes[k].end - len(text), lanes[k].end)
            ids[row, own], lane_of[row, own], place[row, own] = torch.tensor(text), k, torch.arange(len(text))
    return ids, lane_of, place


def mask_apart(past: Tensor, lane_of: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, 1, T, P + T] to be added to attention: each token sees the real past [B, P] and its own lane up to itself."""
    own = (lane_of[:, :, None] == lane_of[:, None, :]) & (lane_of >= 0)[:, None, :]
    seen = torch.cat([past[:, None].expand(-1, lane_of.shape[1], -1), own.tril()], dim=-1)
    hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return hidden.masked_fill(~seen, torch.finfo(dtype).min)[:, None]


class LayerStates:
    """The state of one token of each row after some layers of a model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._last: dict[int, Tensor] = {}
        """[B, T, D] of the last forward pass, by layer."""
        self.kept: dict[int, Tensor] = {}
        """[L, D] float32 on the CPU, by row."""

    @contextlib.contextmanager
    def of(self, layers: Sequence[int]) -> Generator[None]:
        """They are read as long as the context is open. layers: counted from 1, ascending."""
        self.kept, self._last = {}, {}
        every: Any = self._model.get_decoder().layers if layers else ()
        with contextlib.ExitStack() as watched:
            for layer in layers:
                handle = every[layer - 1].register_forward_hook(partial(self._take, layer))
                watched.callback(handle.remove)
            yield
        self._last = {}

    def _take(self, layer: int, _module: Any, _given: Any, output: Any) -> None:
        self._last[layer] = output if isinstance(output, Tensor) else output[0]

    def keep(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Of the last pass: (row, its place in the batch, column)."""
        for row, place, column in places if self._last else ():
            self.kept[row] = torch.stack([states[place, column].float().cpu() for states in self._last.values()])
