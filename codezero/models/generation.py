"""The sampler and the decode loop: every row of a batch by one token at a time, until it has ended.

All prompts and their repeats go in one batch, or in several of rows alike in length when their keys and values would
not fit the cache budget. A prompt is read once for all its repeats.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import gc
import logging
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from codezero.models.chat import encode_prompts
from codezero.models.decoders import CachedDecoder, LeanDecoder, heads_of, is_lean
from codezero.models.load import LoadedModel
from codezero.models.lora import as_loaded
from codezero.types import Completion

if TYPE_CHECKING:
    from codezero.models.grammar import Structure

Part = tuple[list[int], int]
"""One batched decode: these prompts (indices), each so many times."""


class Drawn(NamedTuple):
    ids: list[int]
    """EOS included."""
    logprobs: list[float]
    """Of the ids, in nats."""
    version: int | None = None
    """The oldest version of the policy among those that drew its tokens; None: the one at hand."""


class Backend(Protocol):
    """Draws from a model as it is at the time of the call."""

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """`repeats` draws after each prompt, those of one prompt beside each other; the same for the same seed and
        weights. A draw ends with EOS, which it keeps, or after `max_new_tokens`."""
        ...


CACHE_BUDGET = 2**30
"""Most bytes of keys and values in one batched decode; more rows are decoded in several."""
DROP_SHARE = 4
"""Finished rows are dropped when they are a DROP_SHARE-th of the batch: copying the cache has its price."""

log = logging.getLogger(__name__)


_copies: "WeakKeyDictionary[PreTrainedModel, tuple[list[int], PreTrainedModel]]" = WeakKeyDictionary()
"""Of models that learn, in the precision they are sampled in, with the versions of the weights they were made of."""


def quick_copy(loaded: LoadedModel) -> PreTrainedModel:
    """The model with its present weights, in the precision that samplers are to use; itself where it has that."""
    model, dtype = loaded.model, loaded.sampled_in
    if dtype is None or loaded.base is not None:
        return model
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.dtype == torch.float32]
    versions = [tensor._version for tensor in tensors]  # pyright: ignore[reportPrivateUsage]
    known, made = _copies.get(model, ([], None))
    if made is None:
        memo = {id(tensor): torch.nn.Parameter(tensor.detach().to(dtype), False) for tensor in model.parameters()}
        made = copy.deepcopy(model, memo)
        head: Any = made.get_output_embeddings()
        if isinstance(head.bias, Tensor):  # bars the ids without a text
            head.bias = head.bias.to(dtype)
    elif known != versions:
        for own, learned in zip(made.parameters(), model.parameters(), strict=True):
            own.copy_(learned)
    _copies[model] = versions, made
    return made


class OwnLoop:
    """A `Backend`. The lean decoder drives small Qwen2 models on the CPU, the general one all others. `structure`:
    the grammar of every draw; None: unconstrained."""

    def __init__(self, loaded: LoadedModel, structure: "Structure | None" = None):
        self.loaded = loaded
        self.structure = structure
        self.lean = is_lean(loaded.model)
        self.stops = torch.tensor(loaded.stop_ids, device=loaded.device)
        self.most_rows: int | None = None
        """Of one decode, once memory has run out; None: the cache budget alone decides."""

    @torch.inference_mode()
    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """When memory runs out, the rows of a decode are halved for good. Raises torch.OutOfMemoryError when a single
        row does not fit."""
        model = self.loaded.model
        generator = torch.Generator(device=self.loaded.device).manual_seed(seed)
        drawn: list[list[Drawn]] = [[] for _ in prompts]
        training = model.training
        model.eval()
        try:
            waiting = self._parts(prompts, range(len(prompts)), repeats, max_new_tokens)
            while waiting:
                part, times = waiting[0]
                size = len(part) * times
                begun = generator.get_state()
                try:
                    with as_loaded(self.loaded):
                        rows = self._loop([prompts[i] for i in part], times, max_new_tokens, temperature, generator)
                except torch.OutOfMemoryError:
                    if size == 1:
                        raise
                    rows = None
                if rows is None:  # outside the handler: while the error lives, so do the tensors of the loop's frame
                    gc.collect()
                    torch.cuda.empty_cache()
                    self.most_rows = size // 2
                    log.warning("memory ran out sampling %d rows at once; from here on at most %d", size, size // 2)
                    generator.set_state(begun)
                    waiting = list(chain(*(self._parts(prompts, *larger, max_new_tokens) for larger in waiting)))
                    continue
                for at, i in enumerate(part):
                    drawn[i] += rows[at * times : (at + 1) * times]
                waiting.pop(0)
        finally:
            model.train(training)
        return [row for group in drawn for row in group]

    def _loop(
        self,
        prompts: Sequence[Sequence[int]],
        repeats: int,
        max_new_tokens: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[Drawn]:
        """Token by token until every row has ended."""
        decoder = (LeanDecoder if self.lean else CachedDecoder)(quick_copy(self.loaded), self.loaded.pad_id)
        logits = decoder.prefill(prompts, repeats, max_new_tokens)
        constraint = self.structure.begin(len(logits), max_new_tokens) if self.structure else None
        ids = torch.full((len(logits), max_new_tokens), -1, device=logits.device)
        logprobs = torch.zeros(ids.shape, device=logits.device)
        rows = torch.arange(len(logits), device=logits.device)  # of `ids`, for each row still being decoded
        done = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        for at in range(max_new_tokens):
            if constraint:
                logits = constraint.narrow(logits, rows)
            tokens, chosen = choose(logits, temperature, generator)
            if constraint:
                constraint.took(rows, tokens)
            ids[rows, at] = tokens.masked_fill(done, -1)
            logprobs[rows, at] = chosen
            done = done | torch.isin(tokens, self.stops)
            finished = int(done.sum())
            if finished == len(rows) or at + 1 == max_new_tokens:
                break
            if finished * DROP_SHARE >= len(rows):
                alive = (~done).nonzero()[:, 0]
                rows, tokens, done = rows[alive], tokens[alive], done[alive]
                decoder.keep(alive)
            logits = decoder.step(tokens)
        lengths = (ids >= 0).sum(-1).tolist()
        both = zip(ids.tolist(), logprobs.tolist(), lengths, strict=True)
        return [Drawn(row[:length], row_logprobs[:length]) for row, row_logprobs, length in both]

    def _parts(self, prompts: Sequence[Sequence[int]], indices: Sequence[int], repeats: int, room: int) -> list[Part]:
        """Prompts alike in length, as many as the cache budget and `most_rows` hold (at least one row)."""
        most = self.most_rows or len(indices) * repeats
        if most < repeats:  # a group in several decodes, each of which reads the prompt
            sizes = [min(most, repeats - start) for start in range(0, repeats, most)]
            return [([i], size) for i in sorted(indices, key=lambda i: len(prompts[i])) for size in sizes]
        config = self.loaded.model.config
        _, heads, size = heads_of(config)
        per_token = repeats * 2 * config.num_hidden_layers * heads * size * self.loaded.model.dtype.itemsize
        parts: list[Part] = []
        chunk: list[int] = []
        for i in sorted(indices, key=lambda i: len(prompts[i])):
            grown = len(chunk) + 1
            if chunk and (grown * repeats > most or grown * (len(prompts[i]) + room) * per_token > CACHE_BUDGET):
                parts.append((chunk, repeats))
                chunk = []
            chunk.append(i)
        return [*parts, (chunk, repeats)] if chunk else parts


class Sampler:
    """Samples completions in groups from a model as it is at the time of the call. A `protocols.GroupSampler`."""

    def __init__(self, loaded: LoadedModel, backend: Backend | None = None):
        """`backend`: by default the decode loop of this module."""
        self.loaded = loaded
        self.backend: Backend = backend or OwnLoop(loaded)

    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        max_prompt_tokens: int | None = None,
    ) -> list[list[Completion]]:
        """`group_size` completions for each user text, in order; the same for the same seed and weights.

        `logprobs` are nats under the sampling temperature, at 0 (greedy) under 1. A prompt over `max_prompt_tokens`
        loses its beginning.
        """
        if not prompts:
            return []
        rows = encode_prompts(self.loaded.tokenizer, prompts, max_prompt_tokens)
        drawn = self.backend.draw(rows, group_size, max_new_tokens, temperature, generator_seed)
        texts = self.loaded.tokenizer.batch_decode(
            [draw.ids for draw in drawn], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        stops = set(self.loaded.stop_ids)
        completions = [
            Completion(text, tuple(draw.ids), tuple(draw.logprobs), draw.ids[-1] in stops, draw.version)
            for text, draw in zip(texts, drawn, strict=True)
        ]
        return [completions[i : i + group_size] for i in range(0, len(completions), group_size)]


def choose(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A token for each row, drawn from softmax(logits / temperature), and its log-probability; both [rows].

    Temperature 0 takes the likeliest, with its log-probability at 1. Others come by the inverse of the cumulative
    distribution, which needs one random number a row; noise on every logit takes six times as long. Tokens with less
    than about 1e-7 of the mass come with a chance rounded to a multiple of that.
    """
    log_p = (logits.float() / (temperature or 1)).log_softmax(-1)
    likeliest = log_p.argmax(-1, keepdim=True)
    if not temperature:
        return likeliest[:, 0], log_p.gather(-1, likeliest)[:, 0]
    mass = log_p.exp().cumsum(-1)
    point = torch.rand(len(mass), 1, generator=generator, device=mass.device) * mass[:, -1:]
    # The first token whose mass lies beyond the point, so never one without any. Rounding may put it past the last.
    tokens = torch.searchsorted(mass, point, right=True)
    tokens = torch.where(tokens < mass.size(-1), tokens, likeliest)
    return tokens[:, 0], log_p.gather(-1, tokens)[:, 0]
