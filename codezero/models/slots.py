"""Incremental decoding in slots: rows of fixed size in which nothing is copied to append a token.

A slot whose row has ended is given to the next prompt, so that a batch stays full. For models with plain attention, on
any device and in any precision.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from codezero.models.chat import pad
from codezero.models.decoders import last_logits

TOKENS_AT_ONCE = 4096
"""Most tokens of prompts in one forward pass, padding included; a longer prompt is read alone."""
PASSED_ON = ("qwen2", "qwen3")
"""Families whose attention is handed what the caller gives the model besides; in others it might get lost silently."""
MASKED = ("sdpa", "eager", "shared_prompt")
"""Implementations of attention that take a mask of one's own."""


def why_not_plain(model: PreTrainedModel) -> str:
    """Why keys and values cannot be kept apart from the model and masked at will; empty when they can."""
    parameters = inspect.signature(model.forward).parameters
    if "past_key_values" not in parameters or "position_ids" not in parameters:
        return f"{model.config.model_type} keeps no plain cache or takes no positions"
    if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=model.config).layers):
        return f"{model.config.model_type} has layers without full attention"
    attention = getattr(model.config, "_attn_implementation", "unknown")
    return "" if attention in MASKED else f"attention by {attention} takes no mask of one's own"


class SlotLayer(DynamicLayer):
    """Keys and values [slots, heads, width, size] of one layer. Every slot has its own end, which masks hide."""

    def __init__(self, slots: int, width: int) -> None:
        super().__init__()
        self.slots, self.width = slots, width

    def fill(self, which: Sequence[Tensor], layer: Any, real: Tensor) -> None:
        """which[i]: the slots that begin with row i of `layer`, of whose columns those that are `real` [rows, T]."""
        if not self.is_initialized:
            heads, size = layer.keys.shape[1], layer.keys.shape[3]
            self.dtype, self.device = layer.values.dtype, layer.values.device
            # what is masked is read too, and may not be NaN; autocast leaves the keys alone in float32, until they are
            # multiplied
            zeros = layer.values.new_zeros(self.slots, heads, self.width, size)
            self.keys, self.values = zeros, torch.zeros_like(zeros)
            self.is_initialized = True
        for own, new in ((self.keys, layer.keys), (self.values, layer.values)):
            for slots, states, columns in zip(which, new, real, strict=True):
                text = states[:, columns]
                own[slots, :, : text.shape[1]] = text.to(self.dtype)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """A token for each slot, at `place` [slots]; what is read ends at `end`."""
        self.keys[self.rows, :, self.place] = key_states[:, :, 0].to(self.dtype)
        self.values[self.rows, :, self.place] = value_states[:, :, 0].to(self.dtype)
        return self.keys[:, :, : self.end], self.values[:, :, : self.end]

    def aim(self, rows: Tensor, place: Tensor, end: int) -> None:
        """Where the next token goes."""
        self.rows, self.place, self.end = rows, place, end

    def keep(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]


class SlotDecoder:
    """One batched decode through `model.forward`, whose rows can be given to other prompts."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        self.model, self.pad_id = model, pad_id

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, width: int) -> Tensor:
        """Read each prompt once for all its repeats. width: most tokens of a row, ever. Returns logits [rows, V]."""
        slots, device = len(prompts) * repeats, self.model.device
        self.width, self.rows = width, torch.arange(slots, device=device)
        self.layers = [SlotLayer(slots, width) for _ in range(self.model.config.get_text_config().num_hidden_layers)]
        self.cache = Cache(layers=list(self.layers))
        self.place = torch.zeros(slots, dtype=torch.long, device=device)
        return self.fill(self.rows, prompts, repeats)

    def fill(self, slots: Tensor, prompts: Sequence[Sequence[int]], repeats: int) -> Tensor:
        """Give these slots to prompts. Returns the logits that begin their rows, [len(prompts) * repeats, V]."""
        logits: list[Tensor] = []
        which = slots.view(len(prompts), repeats)
        self.place[slots] = torch.tensor(list(map(len, prompts)), device=slots.device).repeat_interleave(repeats)
        for some in _alike(prompts):
            ids, real = pad([prompts[i] for i in some], self.pad_id, self.model.device, left=True)
            cache = DynamicCache(config=self.model.config)
            positions = (real.cumsum(-1) - 1).clamp(min=0)
            logits.append(last_logits(self.model, ids, real.long(), positions, cache).repeat_interleave(repeats, 0))
            for own, layer in zip(self.layers, cache.layers, strict=True):
                own.fill([which[i] for i in some], layer, real)
        return torch.cat(logits)

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token [rows] to every row. Returns the next logits [rows, V]."""
        end = int(self.place.max()) + 1
        hidden = torch.arange(end, device=tokens.device) > self.place[:, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype, device=tokens.device)
        mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)
        for layer in self.layers:
            layer.aim(self.rows, self.place, end)
        logits = last_logits(self.model, tokens[:, None], mask[:, None, None], self.place[:, None], self.cache)
        self.place = (self.place + 1).clamp(max=self.width - 1)  # a row that has ended may go on until it is replaced
        return logits

    def keep(self, rows: Tensor) -> None:
        """Drop every row but these (indices)."""
        self.place, self.rows = self.place[rows], self.rows[: len(rows)]
        for layer in self.layers:
            layer.keep(rows)


def _alike(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Neighbours that are read together."""
    some: list[int] = []
    for i in range(len(prompts)):
        longest = max(len(prompts[k]) for k in (*some, i))
        if some and (len(some) + 1) * longest > TOKENS_AT_ONCE:
            yield some
            some = []
        some.append(i)
    yield some
