"""The sampler and the decode loop: every row of a batch by one token at a time, until it has ended.

All prompts and their repeats go in one batch, or in as many rows as the cache budget holds keys and values of. A row
that ends then gives its place to the next, or, where a model's cache has no places, the next batch waits for the whole.
A prompt is read once for all its repeats.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import gc
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from codezero.models.chat import encode_prompts
from codezero.models.choosing import Drawn, Draws, choose
from codezero.models.decoders import CachedDecoder, LeanDecoder, heads_of, is_lean
from codezero.models.load import LoadedModel
from codezero.models.lora import as_loaded
from codezero.models.slots import SlotDecoder, why_not_plain
from codezero.types import Completion

if TYPE_CHECKING:
    from codezero.models.grammar import Structure


class Turn(NamedTuple):
    """What is decoded together: a prompt's repeats, or as many of them as fit at once."""

    prompt: Sequence[int]
    rows: range
    """Of all draws."""


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
FILL_SHARE = 16
"""Or given to other prompts when they are a FILL_SHARE-th: each reading of prompts lets the other rows wait."""

log = logging.getLogger(__name__)


_copies: "WeakKeyDictionary[PreTrainedModel, tuple[list[int], PreTrainedModel]]" = WeakKeyDictionary()
"""Of models that learn, in the precision they are sampled in, with the versions of the weights they were made of."""


def quick_copy(loaded: LoadedModel) -> PreTrainedModel:
    """The model with its present weights, in the precision that samplers are to use; itself where it has that. A base
    and its adapter have it, if not through the forward that a learner has wrapped on a card, which casts each step."""
    model, dtype = loaded.model, loaded.sampled_in
    if loaded.base is not None:
        plain = copy.copy(model)  # the same layers
        plain.__dict__.pop("forward", None)
        return plain
    if dtype is None:
        return model
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.dtype == torch.float32]
    versions = [tensor._version for tensor in tensors]  # pyright: ignore[reportPrivateUsage]
    known, made = _copies.get(model, ([], None))
    if made is None:
        memo = {id(tensor): torch.nn.Parameter(tensor.detach().to(dtype), False) for tensor in model.parameters()}
        made = copy.deepcopy(model, memo)
        made.__dict__.pop("forward", None)  # as a learner has wrapped it
        head: Any = made.get_output_embeddings()
        if isinstance(head.bias, Tensor):  # bars the ids without a text
            head.bias = head.bias.to(dtype)
    elif known != versions:
        for own, learned in zip(made.parameters(), model.parameters(), strict=True):
            own.copy_(learned)
    _copies[model] = versions, made
    return made


class OwnLoop:
    """A `Backend`. The lean decoder drives small Qwen2 models on the CPU, one with slots those of plain attention, the
    general one all others. `structure`: the grammar of every draw; None: unconstrained."""

    def __init__(self, loaded: LoadedModel, structure: "Structure | None" = None):
        self.loaded = loaded
        self.structure = structure
        self.lean = is_lean(loaded.model)
        self.slots = not why_not_plain(loaded.model)
        self.stops = torch.tensor(loaded.stop_ids, device=loaded.device)
        self.most_rows: int | None = None
        """Of one decode, once memory has run out; None: the cache budget alone decides."""
        self.progress: Callable[[Draws], object] = lambda draws: None
        """Called after each token of every row."""

    @torch.inference_mode()
    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """When memory runs out, the rows of a decode are halved for good. Raises torch.OutOfMemoryError when a single
        row does not fit."""
        model = self.loaded.model
        generator = torch.Generator(device=self.loaded.device).manual_seed(seed)
        draws = Draws(len(prompts) * repeats, max_new_tokens, self.loaded.device)
        width = max(map(len, prompts), default=0) + max_new_tokens
        training = model.training
        model.eval()
        try:
            while waiting := self._waiting(prompts, repeats, draws, width):
                size = min(self._most(repeats, width), sum(len(turn.rows) for turn in waiting))
                try:
                    with as_loaded(self.loaded):
                        self._loop(deque(waiting), size, width, draws, temperature, generator)
                except torch.OutOfMemoryError:
                    if size == 1:
                        raise
                    self.most_rows = size // 2
                else:
                    continue
                # outside the handler: while the error lives, so do the tensors of the loop's frame
                gc.collect()
                torch.cuda.empty_cache()
                log.warning("memory ran out sampling %d rows at once; from here on at most %d", size, size // 2)
        finally:
            model.train(training)
        return draws.rows()

    def _loop(
        self,
        waiting: deque[Turn],
        size: int,
        width: int,
        draws: Draws,
        temperature: float,
        generator: torch.Generator,
    ) -> None:
        """Token by token, in `size` rows, until every row has ended: all that wait where ended ones are replaced, else
        as many as fit."""
        decoder = self._decoder()
        constraint = self.structure.begin(len(draws.done), draws.room) if self.structure else None
        rows, prompts, repeats = self._next(waiting, size)
        logits = decoder.prefill(prompts, repeats, width)
        if not isinstance(decoder, SlotDecoder):
            waiting.clear()
        while True:
            logits = constraint.narrow(logits, rows) if constraint else logits
            tokens, chosen = choose(logits, temperature, generator)
            if constraint:
                constraint.took(rows, tokens)
            done = draws.note(rows, tokens, chosen, self.stops)
            finished = int(done.sum())
            self.progress(draws)
            if finished == len(rows) and not waiting:
                break
            if not waiting and finished * DROP_SHARE >= len(rows):
                alive = (~done).nonzero()[:, 0]
                rows, tokens = rows[alive], tokens[alive]
                decoder.keep(alive)
            if finished < len(done):
                logits = decoder.step(tokens)
            if not waiting or not isinstance(decoder, SlotDecoder):
                continue
            if finished >= max(len(waiting[0].rows), len(rows) // FILL_SHARE):
                new, prompts, repeats = self._next(waiting, finished)
                free = done.nonzero()[: len(new), 0]
                rows[free] = new
                logits[free] = decoder.fill(free, prompts, repeats)

    def _decoder(self) -> "LeanDecoder | SlotDecoder | CachedDecoder":
        kind = LeanDecoder if self.lean else SlotDecoder if self.slots else CachedDecoder
        return kind(quick_copy(self.loaded), self.loaded.pad_id)

    def _next(self, waiting: deque[Turn], room: int) -> tuple[Tensor, list[Sequence[int]], int]:
        """Draws, prompts and repeats of the first that wait: equal repeats, as many as there is room for."""
        first, some = len(waiting[0].rows), list[Turn]()
        while waiting and len(waiting[0].rows) == first and (len(some) + 1) * first <= room:
            some.append(waiting.popleft())
        rows = torch.tensor([row for turn in some for row in turn.rows], device=self.loaded.device)
        return rows, [turn.prompt for turn in some], first

    def _most(self, repeats: int, width: int) -> int:
        """Rows of one decode: of one group at least, unless memory has run out."""
        model, quick = self.loaded.model, self.loaded.sampled_in if self.loaded.base is None else None
        _, heads, size = heads_of(model.config)
        per_row = width * 2 * model.config.num_hidden_layers * heads * size * (quick or model.dtype).itemsize
        most = max(repeats, CACHE_BUDGET // per_row)
        return min(most, self.most_rows or most)

    def _waiting(self, prompts: Sequence[Sequence[int]], repeats: int, draws: Draws, width: int) -> list[Turn]:
        """What is not done, in the order of the prompts' lengths. A group that does not fit comes in several parts, of
        which each reads the prompt."""
        parts = -(-repeats // self._most(repeats, width))
        size, missing = -(-repeats // parts), (~draws.done).tolist()
        turns = [
            Turn(prompts[i], range(i * repeats + start, i * repeats + min(repeats, start + size)))
            for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
            for start in range(0, repeats, size)
        ]
        turns = [turn for turn in turns if any(missing[turn.rows.start : turn.rows.stop])]
        for turn in turns:
            draws.forget(turn.rows)
        return turns


class Sampler:
    """Samples completions in groups from a model as it is at the time of the call. A `protocols.GroupSampler`."""

    def __init__(self, loaded: LoadedModel, backend: Backend | None = None):
        """`backend`: by default the decode loop of this module."""
        self.loaded = loaded
        self.backend: Backend = backend or OwnLoop(loaded)

    def report_to(self, progress: Callable[[int, int], None]) -> None:
        """Have the own loop of a model that is not tiny say how many draws of a call have ended, and of how many."""
        if isinstance(self.backend, OwnLoop) and not self.backend.lean:
            self.backend.progress = lambda draws: progress(int(draws.done.sum()), len(draws.done))

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
