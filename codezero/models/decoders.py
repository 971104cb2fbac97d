"""Incremental decoding: one decoder with slots of fixed size for Qwen2, Qwen3 and Llama, and a general one.

The first is a forward pass of its own over the loaded weights: projections of one input are one product, keys and
values lie where they were first put, and no key head is repeated for the query heads that share it. A step asks the
host for nothing, so that a card replays it as a graph: a decode of few rows is bound by launches, 18 a layer instead of
40. It computes what `transformers` computes; tests hold the two together."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from codezero.models.base import Prompts
from codezero.models.chat import pad

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def heads_of(config: Any) -> tuple[int, int, int]:
    """Attention heads, key-value heads, and the size of each."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads, getattr(config, "num_key_value_heads", None) or heads, size


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
        # not the number 1: it takes a slice whose rows lie apart, for which torch copies the head once a row on a CPU
        logits_to_keep=torch.tensor([ids.shape[1] - 1], device=ids.device),
    ).logits[:, -1]


class CachedDecoder:
    """One batched decode through `model.forward`, whatever its layers keep."""

    def __init__(self, model: PreTrainedModel, pad_id: int):
        self.model, self.pad_id = model, pad_id

    def prefill(self, prompts: Prompts, repeats: int, width: int) -> Float[Tensor, "rows vocabulary"]:
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


FAMILIES = ("qwen2", "qwen3", "llama")
STATIC_ROPE = ("default", "linear", "llama3")  # kinds of position embedding that do not depend on a text's length
BUCKET = 128  # a card reads whole multiples of so many columns of keys, each number of them by a graph of its own
GRAPH_GAP = 0.05  # most nats between a graph's first logits and those of the plain step
GRAPHS = "cuda"  # the kind of device on which steps are replayed

log = logging.getLogger(__name__)


def has_slots(model: PreTrainedModel) -> bool:
    """True where `SlotDecoder` can drive this model."""
    config: Any = model.config
    rope: Any = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FAMILIES
        and {*(getattr(config, "layer_types", None) or ["full_attention"])} == {"full_attention"}
        and rope.get("rope_type") in STATIC_ROPE
        and config.hidden_act == "silu"
        and type(model.get_output_embeddings()) is nn.Linear
    )


def _side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors as one, of which they are views from then on: nothing is kept twice, and what learns is followed."""
    first = tensors[0]
    start, storage = first.storage_offset(), first.untyped_storage().data_ptr()
    ends = itertools.accumulate((each.numel() for each in tensors), initial=start)
    lies = [each.is_contiguous() and each.untyped_storage().data_ptr() == storage for each in tensors]
    if all(lies) and all(each.storage_offset() == end for each, end in zip(tensors, ends, strict=False)):
        size = (sum(map(len, tensors)), *first.shape[1:])
        return first.detach().as_strided(size, first.stride(), start)
    whole = torch.cat([each.detach() for each in tensors])
    for each, part in zip(tensors, whole.split([len(each) for each in tensors]), strict=True):
        each.data = part
    return whole


def _product(*layers: nn.Module) -> Callable[[Tensor], Tensor]:
    """Linear layers of one input as a function [..., inputs] -> [..., all outputs]; in one product where all are plain.
    Layers in 4 bits, and with an adapter, are called one by one."""
    bases: list[Any] = [each.base_layer if getattr(each, "disable_adapters", False) else each for each in layers]
    if any(type(base) is not nn.Linear for base in bases):
        return layers[0] if len(layers) == 1 else lambda given: torch.cat([layer(given) for layer in layers], -1)
    weight = _side_by_side([base.weight for base in bases])
    bias = None if bases[0].bias is None else _side_by_side([base.bias for base in bases])
    return partial(linear, weight=weight, bias=bias)


class Layer:
    """One decoder layer: query, key and value in one product, gate and up in another."""

    def __init__(self, layer: Any, shape: tuple[int, int, int]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.norm, self.mlp_norm = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        self.qkv = _product(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out, self.gate_up, self.down = (
            _product(attention.o_proj), _product(mlp.gate_proj, mlp.up_proj), _product(mlp.down_proj),
        )  # fmt: skip
        self.head_norm: Tensor | None = None  # [query and key heads, size]: Qwen3 has one for queries and one for keys
        if hasattr(attention, "q_norm"):
            norms = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
            self.head_norm = torch.cat([norm.expand(n, -1) for norm, n in zip(norms, shape[:2], strict=True)])


class SlotDecoder:
    """One batched decode, whose rows can be given to other prompts. Keys and values [slots * width, heads, size] of
    each layer, and all else that a step changes, stay where they are."""

    def __init__(self, model: PreTrainedModel, pad_id: int) -> None:
        config: Any = model.config
        self.model, self.pad_id, self.eps = model, pad_id, config.rms_norm_eps
        self.shape = self.heads, self.pairs, self.size = heads_of(config)
        inner: Any = model.model
        with torch.inference_mode(False), torch.no_grad():  # what learns may come to lie elsewhere, and learns on
            self.layers = [Layer(layer, self.shape) for layer in inner.layers]
        self.embedding: Tensor = inner.embed_tokens.weight.detach()
        self.norm: Tensor = inner.norm.weight.detach()
        self.head: Any = model.get_output_embeddings()
        self.replays, self._graphs = model.device.type == GRAPHS, dict[tuple[int, int], Replay]()

    def prefill(self, prompts: Prompts, repeats: int, width: int) -> Float[Tensor, "rows vocabulary"]:
        """Read each prompt once for all its repeats. width: most tokens of a row, ever. Returns the next logits."""
        self.rows, device, dtype = len(prompts) * repeats, self.model.device, self.embedding.dtype
        self.width = -(-width // BUCKET) * BUCKET if self.replays else width
        columns = torch.arange(self.width, device=device)
        self.columns = columns
        cos, sin = cast(Any, self.model.model).rotary_emb(self.embedding[:1, None], columns[None])
        # RoPE (Su et al. 2021, eq. 34): the halves of a head are swapped, and the first of the two negated
        self.cos, self.sin = cos[0], torch.cat([-sin[0, :, : self.size // 2], sin[0, :, self.size // 2 :]], -1)
        # what is masked is read too, and may not be NaN
        shape = self.rows * self.width, self.pairs, self.size
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in self.layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in self.layers]
        self.first = torch.arange(self.rows, device=device) * self.width  # of each slot's columns
        self.place = torch.zeros(self.rows, dtype=torch.long, device=device)  # of the next token in its slot
        self.tokens = torch.zeros_like(self.place)
        self.ends = np.zeros(self.rows, dtype=np.int64)  # `place` as the host knows it
        return self.fill(torch.arange(self.rows, device=device), prompts, repeats)

    def fill(self, slots: Int[Tensor, " slots"], prompts: Prompts, repeats: int) -> Float[Tensor, "slots vocabulary"]:
        """Give these slots to prompts. Returns the logits that begin their rows."""
        which, logits = slots.view(len(prompts), repeats), list[Tensor]()
        lengths = np.repeat([len(prompt) for prompt in prompts], repeats)
        self.place[slots] = torch.from_numpy(lengths).to(slots.device)
        self.ends[slots.cpu().numpy()] = lengths
        for some in _alike(prompts):
            # padded on the right, behind all that a causal row looks at, and overwritten by its tokens
            ids, real = pad([prompts[i] for i in some], self.pad_id, self.model.device)
            count, into = ids.shape[1], which[some, :, None] * self.width + self.columns[: ids.shape[1]]
            hidden, cos, sin = self.embedding[ids], self.cos[:count, None], self.sin[:count, None]
            for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
                query, key, value = self._project(hidden, layer, cos, sin)
                keys[into], values[into] = key[:, None], value[:, None]
                query, key, value = (each.transpose(1, 2) for each in (query, key, value))
                mixed = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
                hidden = self._finish(hidden, mixed.transpose(1, 2).flatten(2), layer)
            last = hidden[torch.arange(len(some), device=ids.device), real.sum(-1) - 1]
            logits.append(self._logits(last).repeat_interleave(repeats, 0))
        return torch.cat(logits)

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        """Append one token to every row. Returns the next logits; on a card the next step overwrites them."""
        self.tokens[: self.rows].copy_(tokens)
        end = min(int(self.ends.max()) + 1, self.width)
        self.ends = np.minimum(self.ends + 1, self.width - 1)  # a row that has ended may go on until it is replaced
        return self._replayed(-(-end // BUCKET) * BUCKET) if self.replays else self._forward(end)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Drop every row but these (indices): they become the first, in this order."""
        end, self.ends = int(self.ends.max()) + 1, self.ends[rows.cpu().numpy()]
        for states in (*self.keys, *self.values):
            lines = states.view(-1, self.width, *states.shape[1:])
            lines[: len(rows), :end] = lines[rows, :end]
        self.place[: len(rows)] = self.place[rows]
        self.rows = len(rows)

    def _forward(self, end: int) -> Float[Tensor, "rows vocabulary"]:
        """end: of the columns that are read."""
        rows = self.rows
        place, hidden = self.place[:rows], self.embedding[self.tokens[:rows]]
        cos, sin, at = self.cos[place][:, None], self.sin[place][:, None], self.first[:rows] + place
        unseen = self.columns[:end] > place[:, None]
        mask = hidden.new_zeros(rows, end).masked_fill_(unseen, float("-inf"))[:, None, None]
        for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
            query, key, value = self._project(hidden, layer, cos, sin)
            keys.index_copy_(0, at, key)
            values.index_copy_(0, at, value)
            # query heads that share a key head stand as several queries of it
            asked = query.reshape(rows, self.pairs, -1, self.size)
            seen = (each.view(-1, self.width, self.pairs, self.size)[:rows, :end] for each in (keys, values))
            key, value = (each.transpose(1, 2) for each in seen)
            shared = mask.expand(-1, 1, asked.shape[2], -1)
            mixed = scaled_dot_product_attention(asked, key, value, attn_mask=shared)
            hidden = self._finish(hidden, mixed.reshape(rows, -1), layer)
        place.add_(1).clamp_(max=self.width - 1)
        return self._logits(hidden)

    def _replayed(self, end: int) -> Float[Tensor, "rows vocabulary"]:
        """`_forward` as a graph, if its first logits are those of the plain step; else no step is one any more."""
        if replay := self._graphs.get((self.rows, end)):
            return replay()
        before = self.place.clone()
        plain = self._forward(end).clone()
        after = self.place.clone()
        try:
            replay = capture(partial(self._forward, end))
            self.place.copy_(before)
            gap = float((replay().float().log_softmax(-1) - plain.float().log_softmax(-1)).abs().max())
            why = "" if gap <= GRAPH_GAP else f"its logits are off by {gap:.2g} nats"
        except RuntimeError as error:
            replay, why = None, (str(error).strip() or "no reason given").splitlines()[0][:200]
        self.place.copy_(after)
        if replay is None or why:
            self.replays = False
            log.warning("steps are not replayed as graphs: %s; sampling is slower", why)
            return plain
        self._graphs[self.rows, end] = replay
        return plain

    def _project(self, hidden: Tensor, layer: Layer, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value as [..., heads, size], with the place in the text turned into the first two."""
        packed = layer.qkv(self._normed(hidden, layer.norm)).unflatten(-1, (-1, self.size))
        turned, value = packed.split([self.heads + self.pairs, self.pairs], dim=-2)
        if layer.head_norm is not None:
            turned = rms_norm(turned, (self.size,), eps=self.eps) * layer.head_norm
        first, second = turned.chunk(2, -1)
        turned = torch.addcmul(turned * cos, torch.cat([second, first], -1), sin)
        query, key = turned.split([self.heads, self.pairs], dim=-2)
        return query, key, value

    def _finish(self, hidden: Tensor, mixed: Tensor, layer: Layer) -> Tensor:
        hidden = hidden + layer.out(mixed)
        gate, up = layer.gate_up(self._normed(hidden, layer.mlp_norm)).chunk(2, -1)
        return hidden + layer.down(silu(gate) * up)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, (hidden.shape[-1],), weight, self.eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        return linear(self._normed(hidden, self.norm), self.head.weight, self.head.bias)


Replay = Callable[[], Tensor]


def capture(work: Replay) -> Replay:
    """`work` as a CUDA graph: a function that replays it and returns its result, at the same address each time."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def _alike(prompts: Prompts) -> Iterator[list[int]]:
    """Neighbours that are read together."""
    some: list[int] = []
    for i in range(len(prompts)):
        longest = max(len(prompts[k]) for k in (*some, i))
        if some and (len(some) + 1) * longest > TOKENS_AT_ONCE:
            yield some
            some = []
        some.append(i)
    yield some
