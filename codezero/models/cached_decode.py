"""Incremental decoding of any Hugging Face causal language model with its own key-value cache."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


class CachedDecoder:
    """One decode of a batch through `model.forward`, on whatever device and in whatever precision it is."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        self.model, self.pad_id = model, pad_id
        # Logits of every prompt position would be gigabytes for a large vocabulary.
        last_only = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.options: dict[str, int] = {"logits_to_keep": 1} if last_only else {}

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, room: int) -> Tensor:
        """Reads each prompt once, then repeats its keys and values. Returns logits [len(prompts) * repeats, V]."""
        del room  # this cache grows by itself
        ids, real = left_pad(prompts, self.pad_id, self.model.device)
        self.cache = DynamicCache(config=self.model.config)
        logits = self._forward(ids, real, (real.cumsum(-1) - 1).clamp(min=0))
        self.cache.batch_repeat_interleave(repeats)
        self.real = real.repeat_interleave(repeats, 0)
        return logits.repeat_interleave(repeats, 0)

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token [rows] to every row. Returns the next logits [rows, V]."""
        self.real = torch.cat([self.real, self.real.new_ones(len(tokens), 1)], dim=1)
        return self._forward(tokens[:, None], self.real, self.real.sum(-1, keepdim=True) - 1)

    def keep(self, rows: Tensor) -> None:
        """Forget every row but these (indices)."""
        self.real = self.real[rows]
        self.cache.batch_select_indices(rows)

    def _forward(self, ids: Tensor, real: Tensor, positions: Tensor) -> Tensor:
        output = self.model(
            input_ids=ids,
            attention_mask=real.long(),
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            **self.options,
        )
        return output.logits[:, -1]


def left_pad(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids [rows, longest] that all end in the last column, and which of them are real."""
    longest = max(map(len, prompts))
    ids = [[*[pad_id] * (longest - len(prompt)), *prompt] for prompt in prompts]
    real = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(real, device=device)
