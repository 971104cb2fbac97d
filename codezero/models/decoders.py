"""Incremental decoding: a general decoder for every model, and a lean one for small Qwen2 models on the CPU.

The lean one is a forward pass of its own over the loaded parameters, with packed projections and key-value buffers of
fixed size. A step of a model of a few million parameters is bound by Python and dispatch, and takes a fraction of the
general decoder's time. It computes what `transformers`' Qwen2 computes; a test holds the two together.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from codezero.models.chat import pad
from codezero.models.load import TINY_PARAMETERS, has_adapter

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


def heads_of(config: Any) -> tuple[int, int, int]:
    """Attention heads, key-value heads, and the size of each."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads, getattr(config, "num_key_value_heads", None) or heads, size


def columns(ids: Int[Tensor, "rows tokens"], keep: int) -> Int[Tensor, " keep"]:
    """The last `keep` columns, as `logits_to_keep`. A number of them would take a slice whose rows lie apart,
    for which torch copies the head once a row on a CPU."""
    return torch.arange(ids.shape[1] - keep, ids.shape[1], device=ids.device)


def last_logits(
    model: PreTrainedModel, ids: Int[Tensor, "rows tokens"], mask: Tensor, positions: Tensor, cache: Cache
) -> Float[Tensor, "rows vocabulary"]:
    """The logits behind the last column; those of every column would be gigabytes for a large vocabulary."""
    return model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=columns(ids, 1),
    ).logits[:, -1]


class CachedDecoder:
    """One batched decode through `model.forward`, whatever its layers keep."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        self.model, self.pad_id = model, pad_id

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, width: int) -> Float[Tensor, "rows vocabulary"]:
        """Read each prompt once, then repeat its keys and values. Returns the next logits."""
        ids, real = pad(prompts, self.pad_id, self.model.device, left=True)
        self.cache = DynamicCache(config=self.model.config)
        positions = (real.cumsum(-1) - 1).clamp(min=0)
        logits = last_logits(self.model, ids, real.long(), positions, self.cache)
        self.cache.batch_repeat_interleave(repeats)
        self.real = real.repeat_interleave(repeats, 0)
        return logits.repeat_interleave(repeats, 0)

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        """Append one token to every row. Returns the next logits."""
        self.real = torch.cat([self.real, self.real.new_ones(len(tokens), 1)], dim=1)
        positions = self.real.sum(-1, keepdim=True) - 1
        return last_logits(self.model, tokens[:, None], self.real.long(), positions, self.cache)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Drop every row but these (indices)."""
        self.real = self.real[rows]
        self.cache.batch_select_indices(rows)


def is_lean(model: PreTrainedModel) -> bool:
    """True where `LeanDecoder` can and should drive this model."""
    config: Any = model.config
    return (
        config.model_type == "qwen2"
        and not has_adapter(model)  # which lies beside the weights that this reads
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and config.hidden_act == "silu"
        and not config.use_sliding_window
        and config.rope_parameters.get("rope_type") == "default"
        and model.num_parameters() < TINY_PARAMETERS
    )


class Layer:
    """One decoder layer's parameters; query, key and value packed, gate and up packed."""

    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.norm: Tensor = layer.input_layernorm.weight.detach()
        self.qkv = torch.cat([projection.weight for projection in projections])
        self.qkv_bias = torch.cat([projection.bias for projection in projections])
        self.out: Tensor = attention.o_proj.weight.detach()
        self.mlp_norm: Tensor = layer.post_attention_layernorm.weight.detach()
        self.gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.down: Tensor = mlp.down_proj.weight.detach()


class LeanDecoder:
    """See `CachedDecoder`. Valid for one decode, because packing copies weights that training changes."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        config: Any = model.config
        self.pad_id = pad_id
        self.heads, self.kv_heads, self.head_size = heads_of(config)
        self.eps: float = config.rms_norm_eps
        self.rope_theta: float = config.rope_parameters["rope_theta"]
        with torch.no_grad():
            self.layers = [Layer(layer) for layer in model.model.layers]
        self.embedding: Tensor = model.model.embed_tokens.weight.detach()
        self.norm: Tensor = model.model.norm.weight.detach()
        self.head: Tensor = model.lm_head.weight.detach()
        self.head_bias: Tensor | None = model.lm_head.bias
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, width: int) -> Float[Tensor, "rows vocabulary"]:
        ids, real = pad(prompts, self.pad_id, torch.device("cpu"), left=True)
        rows, self.filled = ids.shape
        # RoPE tables [width, head size] (Su et al. 2021, eq. 34)
        frequency = self.rope_theta ** -(torch.arange(0, self.head_size, 2).float() / self.head_size)
        angle = torch.outer(torch.arange(width).float(), frequency).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()
        positions = (real.cumsum(-1) - 1).clamp(min=0)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        # A padding row attends to itself: a row that attends to nothing is NaN.
        visible = torch.ones(self.filled, self.filled, dtype=torch.bool).tril() & real[:, None, None, :]
        visible = visible | torch.eye(self.filled, dtype=torch.bool)
        hidden = self.embedding[ids]
        for layer in self.layers:
            query, key, value = self._project(hidden, layer)
            query, key = _rotate(query.transpose(1, 2), cos, sin), _rotate(key.transpose(1, 2), cos, sin)
            value = value.transpose(1, 2)
            mixed = scaled_dot_product_attention(query, key, value, attn_mask=visible, enable_gqa=True)
            hidden = self._finish(hidden, mixed.transpose(1, 2).flatten(2), layer)
            self.keys.append(self._with_room(key, repeats, width))
            self.values.append(self._with_room(value, repeats, width))
        self.positions = real.sum(-1).repeat_interleave(repeats)
        self.mask = torch.zeros(rows * repeats, 1, 1, width)
        self.mask[..., : self.filled].masked_fill_(~real.repeat_interleave(repeats, 0)[:, None, None], float("-inf"))
        return self._logits(hidden[:, -1]).repeat_interleave(repeats, 0)

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        rows, slot, end = len(tokens), self.filled, self.filled + 1
        cos, sin = self.cos[self.positions][:, None], self.sin[self.positions][:, None]
        mask = self.mask[..., :end]
        hidden = self.embedding[tokens]
        for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
            query, key, value = self._project(hidden, layer)
            keys[:, :, slot], values[:, :, slot] = _rotate(key, cos, sin), value
            # Query heads that share a key head stand beside each other: [rows, kv heads, heads per kv head, size].
            query = _rotate(query, cos, sin).view(rows, self.kv_heads, -1, self.head_size)
            weights = query @ keys[:, :, :end].transpose(-1, -2) * self.head_size**-0.5 + mask
            mixed = weights.softmax(-1) @ values[:, :, :end]
            hidden = self._finish(hidden, mixed.reshape(rows, -1), layer)
        self.filled = end
        self.positions = self.positions + 1
        return self._logits(hidden)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.positions, self.mask = self.positions[rows], self.mask[rows]
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]

    def _project(self, hidden: Tensor, layer: Layer) -> tuple[Tensor, ...]:
        """Query, key and value as [..., heads, head size]."""
        packed = linear(self._normed(hidden, layer.norm), layer.qkv, layer.qkv_bias).unflatten(-1, (-1, self.head_size))
        return packed.split([self.heads, self.kv_heads, self.kv_heads], dim=-2)

    def _finish(self, hidden: Tensor, mixed: Tensor, layer: Layer) -> Tensor:
        hidden = hidden + linear(mixed, layer.out)
        gate, up = linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, -1)
        return hidden + linear(silu(gate) * up, layer.down)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, (hidden.shape[-1],), weight, self.eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        return linear(self._normed(hidden, self.norm), self.head, self.head_bias)

    def _with_room(self, states: Tensor, repeats: int, width: int) -> Tensor:
        # What is not written yet is never read, so it need not be zero.
        buffer = states.new_empty(states.shape[0] * repeats, self.kv_heads, width, self.head_size)
        buffer[:, :, : states.shape[2]] = states.repeat_interleave(repeats, 0)
        return buffer


def _rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat([-second, first], -1) * sin


TOKENS_AT_ONCE = 4096  # most tokens of prompts in one forward pass, padding included; a longer prompt is read alone
PASSED_ON = ("qwen2", "qwen3")  # families whose attention is handed what the caller gives the model besides
MASKED = ("sdpa", "eager", "shared_prompt")  # implementations of attention that take a mask of one's own


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

    def fill(self, which: Sequence[Int[Tensor, " repeats"]], layer: Any, real: Bool[Tensor, "rows tokens"]) -> None:
        """which[i]: the slots that begin with row i of `layer`, of whose columns those that are `real`."""
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
        """A token for each slot of `rows`, at `place`; what is read ends at `end`."""
        self.keys[self.rows, :, self.place] = key_states[:, :, 0].to(self.dtype)
        self.values[self.rows, :, self.place] = value_states[:, :, 0].to(self.dtype)
        return self.keys[:, :, : self.end], self.values[:, :, : self.end]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]


class SlotDecoder:
    """One batched decode through `model.forward`, whose rows can be given to other prompts."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        self.model, self.pad_id = model, pad_id

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, width: int) -> Float[Tensor, "rows vocabulary"]:
        """Read each prompt once for all its repeats. width: most tokens of a row, ever. Returns the next logits."""
        slots, device = len(prompts) * repeats, self.model.device
        self.width, self.rows = width, torch.arange(slots, device=device)
        self.layers = [SlotLayer(slots, width) for _ in range(self.model.config.get_text_config().num_hidden_layers)]
        self.cache = Cache(layers=list(self.layers))
        self.place = torch.zeros(slots, dtype=torch.long, device=device)
        return self.fill(self.rows, prompts, repeats)

    def fill(
        self, slots: Int[Tensor, " slots"], prompts: Sequence[Sequence[int]], repeats: int
    ) -> Float[Tensor, "slots vocabulary"]:
        """Give these slots to prompts. Returns the logits that begin their rows."""
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

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        """Append one token to every row. Returns the next logits."""
        end = int(self.place.max()) + 1
        hidden = torch.arange(end, device=tokens.device) > self.place[:, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype, device=tokens.device)
        mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)
        for layer in self.layers:
            layer.rows, layer.place, layer.end = self.rows, self.place, end
        logits = last_logits(self.model, tokens[:, None], mask[:, None, None], self.place[:, None], self.cache)
        self.place = (self.place + 1).clamp(max=self.width - 1)  # a row that has ended may go on until it is replaced
        return logits

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
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
