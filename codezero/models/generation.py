"""The sampler and the decode loop: every row of a batch by one token at a time, until it has ended.

All prompts and their repeats go in one batch, or in as many rows as the cache budget holds keys and values of. A row
that ends then gives its place to the next, or, where a model's cache has no places, the next batch waits for the whole.
A prompt is read once for all its repeats."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
import gc
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Unpack, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from codezero.models.base import GroupSampler, How, Progress, Prompts
from codezero.models.chat import encode_prompts
from codezero.models.decoders import GRAPHS, CachedDecoder, SlotDecoder, has_slots, heads_of
from codezero.models.device import memory_of, ran_out_of_memory
from codezero.models.load import NAME as ADAPTER
from codezero.models.load import TINY_PARAMETERS, LoadedModel, adapted_layers, as_loaded
from codezero.types import Completion

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from codezero.models.grammar import Structure


WIDE = 2**14  # words of a vocabulary from which on its probabilities are summed in blocks
BLOCK = 64
ROWS_AT_ONCE = 8  # whose probabilities stay in the cache of a CPU


class Drawn(NamedTuple):
    ids: list[int]  # EOS included
    logprobs: list[float]  # of the ids, in nats
    version: int | None = None  # the oldest version of the policy that drew its tokens; None: the one at hand


Ended = Callable[[int, list[Drawn]], object] | None  # called with a prompt's number and its draws, once each


class Draws:
    """The table of all draws of one call, [draws, most new tokens]."""

    def __init__(self, prompts: int, repeats: int, room: int, device: torch.device) -> None:
        count = prompts * repeats
        self.room, self.repeats, self._told = room, repeats, set[int]()
        self.ids = torch.full((count, room + 1), -1, device=device)  # in the last column nothing is ever kept
        self.logprobs = torch.zeros(self.ids.shape, device=device)
        self.taken = torch.zeros(count, dtype=torch.long, device=device)
        self.done = torch.zeros(count, dtype=torch.bool, device=device)

    def note(
        self,
        rows: Int[Tensor, " rows"],
        tokens: Int[Tensor, " rows"],
        logprobs: Float[Tensor, " rows"],
        stops: Int[Tensor, " stops"],
    ) -> Bool[Tensor, " rows"]:
        """A token for each of these rows, nothing for those that are done. Returns who is done now."""
        done, at = self.done[rows], self.taken[rows]
        self.ids[rows, at] = tokens.masked_fill(done, -1)
        self.logprobs[rows, at] = logprobs
        at = at + ~done
        done = done | torch.isin(tokens, stops) | (at == self.room)
        self.taken[rows], self.done[rows] = at, done
        return done

    def rows(self, some: slice = slice(None)) -> list[Drawn]:
        both = zip(self.ids[some].tolist(), self.logprobs[some].tolist(), self.taken[some].tolist(), strict=True)
        return [Drawn(ids[:length], logprobs[:length]) for ids, logprobs, length in both]

    def tell(self, ended: Ended) -> None:
        """Hand over each prompt's draws once all of them are done."""
        for at, whole in enumerate(self.done.view(-1, self.repeats).all(1).tolist()):
            if ended and whole and at not in self._told:
                self._told.add(at)
                ended(at, self.rows(slice(at * self.repeats, (at + 1) * self.repeats)))


def choose(
    logits: Float[Tensor, "rows vocabulary"], temperature: float, generator: torch.Generator
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """A token for each row, drawn from softmax(logits / temperature), and its log-probability.

    Temperature 0 takes the likeliest, with its log-probability at 1. Others come by the inverse of the cumulative
    distribution, which needs one random number a row; noise on every logit takes six times as long. Tokens with less
    than about 1e-7 of the mass come with a chance rounded to a multiple of that."""
    share = torch.rand(len(logits), 1, generator=generator, device=logits.device) if temperature else None
    if logits.size(-1) < WIDE:
        return _chosen(logits, temperature, share)
    size = ROWS_AT_ONCE if logits.device.type == "cpu" else len(logits)
    pieces = [slice(start, start + size) for start in range(0, len(logits), size)]
    some = [_chosen_wide(logits[piece], temperature, None if share is None else share[piece]) for piece in pieces]
    tokens, logprobs = zip(*some, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _chosen(
    logits: Float[Tensor, "rows vocabulary"], temperature: float, share: Float[Tensor, "rows 1"] | None
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """share: of the mass, where the token lies; None: the likeliest."""
    log_p = (logits.float() / (temperature or 1)).log_softmax(-1)
    likeliest = log_p.argmax(-1, keepdim=True)
    if share is None:
        return likeliest[:, 0], log_p.gather(-1, likeliest)[:, 0]
    mass = log_p.exp().cumsum(-1)
    tokens = _first_beyond(mass, share * mass[:, -1:], likeliest)
    return tokens[:, 0], log_p.gather(-1, tokens)[:, 0]


def _chosen_wide(
    logits: Float[Tensor, "rows vocabulary"], temperature: float, share: Float[Tensor, "rows 1"] | None
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """`_chosen` by the masses of blocks and then within one: each pass over a large vocabulary has its price."""
    width = logits.size(-1)
    mass = logits.new_full((len(logits), -(-width // BLOCK) * BLOCK), float("-inf"), dtype=torch.float32)
    mass[:, :width] = logits
    if temperature not in (0, 1):
        mass.div_(temperature)
    top = mass.amax(-1, keepdim=True)
    blocks = mass.sub_(top).exp_().view(len(mass), -1, BLOCK)
    masses = blocks.sum(-1)
    before = masses.cumsum(-1)
    if share is None:
        tokens = logits.argmax(-1, keepdim=True)
    else:
        point = share * before[:, -1:]
        block = _first_beyond(before, point, masses.argmax(-1, keepdim=True))
        inside = blocks[torch.arange(len(blocks), device=block.device), block[:, 0]]
        rest = (point - before.gather(-1, block) + masses.gather(-1, block)).clamp(min=0)
        tokens = block * BLOCK + _first_beyond(inside.cumsum(-1), rest, inside.argmax(-1, keepdim=True))
    log_p = logits.gather(-1, tokens).float() / (temperature or 1) - top - before[:, -1:].log()
    return tokens[:, 0], log_p[:, 0]


def _first_beyond(
    mass: Float[Tensor, "rows places"], point: Float[Tensor, "rows 1"], otherwise: Int[Tensor, "rows 1"]
) -> Int[Tensor, "rows 1"]:
    """The first place whose mass lies beyond the point; `otherwise` where rounding has put the point past the last."""
    place = torch.searchsorted(mass, point, right=True)
    return torch.where(place < mass.size(-1), place, otherwise)


class Turn(NamedTuple):
    """A unit that is decoded together: a prompt's repeats, or as many of them as fit at once."""

    prompt: Sequence[int]
    rows: range  # of all draws


class Backend(Protocol):
    """Draws from a model as it is at the time of the call."""

    def draw(
        self, prompts: Prompts, repeats: int, max_new_tokens: int, temperature: float, seed: int, ended: Ended = None
    ) -> list[Drawn]:
        """`repeats` draws after each prompt, those of one prompt beside each other; the same for the same seed and
        weights. A draw ends with EOS, which it keeps, or after `max_new_tokens`. ended: from any thread."""
        ...


CACHE_BUDGET = 2**30  # bytes of keys and values in one batched decode, on a card at least; more rows: several decodes
CACHE_SHARE = 0.6  # of a card's free memory; the rest is for logits, and for the passes that read prompts
MERGE_ROOM = 4
LOOK = 8  # steps of a card from one look at who has ended to the next
DROP_SHARE = 4  # finished rows are dropped when they are a DROP_SHARE-th of the batch: copying the cache has its price
FILL_SHARE = 16  # or given to other prompts when they are a FILL_SHARE-th: reading prompts lets other rows wait

log = logging.getLogger(__name__)


# copies of models that learn, as they are sampled from, with the versions of the weights that they are of
_copies: WeakKeyDictionary[PreTrainedModel, tuple[list[int], PreTrainedModel]] = WeakKeyDictionary()


@torch.inference_mode(False)  # what learns and what is copied stay tensors of the usual kind
@torch.no_grad()
def quick_copy(loaded: LoadedModel) -> PreTrainedModel:
    """The model with its present weights, as samplers read it: in their precision, and with its adapter multiplied out.

    The same tensors each time. The model itself where it is so already, where a layer in 4 bits is adapted, or where
    not MERGE_ROOM times the memory of what the adapter changes is free; then without the forward pass that a learner
    has wrapped on a card, which casts at each step."""
    model, adapted = loaded.model, {} if loaded.adapter_off else adapted_layers(loaded.model)
    dtype = loaded.sampled_in or model.dtype
    known, copied = _copies.get(model, ([], None))
    if copied is None and adapted and not _has_room(adapted, loaded.device):
        plain = copy.copy(model)  # the same layers
        plain.__dict__.pop("forward", None)
        return plain
    if not adapted and dtype == model.dtype:
        return model
    versions = [tensor._version for tensor in model.parameters()]  # pyright: ignore[reportPrivateUsage]
    if copied is None:
        merged = {id(layer.base_layer.weight) for layer in adapted.values()}
        changed = [each for each in model.parameters() if each.dtype != dtype or id(each) in merged]
        own = {id(each): torch.nn.Parameter(torch.empty_like(each, dtype=dtype), False) for each in changed}
        copied = copy.deepcopy(model, {id(each): each for each in model.parameters()} | own)
        copied.__dict__.pop("forward", None)  # as a learner has wrapped it
        for name in adapted:
            copied.set_submodule(name, cast(Any, copied.get_submodule(name)).base_layer)
        head: Any = copied.get_output_embeddings()
        if isinstance(head.bias, Tensor):  # bars the ids without a text
            head.bias = head.bias.to(dtype)
    if known != versions:
        for name, own in copied.named_parameters():
            learned = model.get_parameter(name)
            if layer := adapted.get(name.removesuffix(".weight")):
                own.copy_(learned.float() + layer.get_delta_weight(ADAPTER).float())
            elif own is not learned:
                own.copy_(learned)
    _copies[model] = versions, copied
    return copied


def _has_room(adapted: Mapping[str, Any], device: torch.device) -> bool:
    """Is there memory for the adapted layers once more, and for what learns besides?"""
    weights = [layer.base_layer.weight for layer in adapted.values()]
    plain = all(type(layer.base_layer) is torch.nn.Linear for layer in adapted.values())
    return plain and MERGE_ROOM * sum(weight.nbytes for weight in weights) < memory_of(device).free


class OwnLoop:
    """A `Backend`. The decoder with slots drives the families that it knows, the general one all others. `structure`:
    the grammar of every draw; None: unconstrained."""

    def __init__(
        self, loaded: LoadedModel, structure: Structure | None = None, *, progress: Progress | None = None
    ) -> None:
        """progress: called when rows have ended, unless the model is tiny."""
        self.loaded = loaded
        self.structure = structure
        self.slots = has_slots(loaded.model)
        self.stops = torch.tensor(loaded.stop_ids, device=loaded.device)
        self.most_rows: int | None = None  # of one decode, once memory has run out; None: the cache budget decides
        self._progress = None if loaded.model.num_parameters() < TINY_PARAMETERS else progress
        self._look = LOOK if loaded.device.type == GRAPHS else 1

    @torch.inference_mode()
    def draw(
        self, prompts: Prompts, repeats: int, max_new_tokens: int, temperature: float, seed: int, ended: Ended = None
    ) -> list[Drawn]:
        """When memory runs out, the rows of a decode are halved for good. Raises torch.OutOfMemoryError when a single
        row does not fit."""
        model = self.loaded.model
        generator = torch.Generator(device=self.loaded.device).manual_seed(seed)
        draws = Draws(len(prompts), repeats, max_new_tokens, self.loaded.device)
        width = max(map(len, prompts), default=0) + max_new_tokens
        training = model.training
        model.eval()
        try:
            while waiting := self._waiting(prompts, repeats, draws, width):
                size = min(self._most(repeats, width), sum(len(turn.rows) for turn in waiting))
                try:
                    with as_loaded(self.loaded):
                        self._loop(deque(waiting), size, width, draws, temperature, generator, ended)
                except RuntimeError as error:
                    if size == 1 or not ran_out_of_memory(error):
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
        ended: Ended,
    ) -> None:
        """Token by token until every row has ended: all that wait where ended ones are replaced, else `size` rows."""
        decoder = (SlotDecoder if self.slots else CachedDecoder)(quick_copy(self.loaded), self.loaded.pad_id)
        constraint = self.structure.begin(len(draws.done), draws.room) if self.structure else None
        rows, prompts, repeats = self._next(waiting, size)
        logits = decoder.prefill(prompts, repeats, width)
        if not isinstance(decoder, SlotDecoder):
            waiting.clear()
        for step in itertools.count(1):
            logits = constraint.narrow(logits, rows) if constraint else logits
            tokens, chosen = choose(logits, temperature, generator)
            if constraint:
                constraint.took(rows, tokens)
            done = draws.note(rows, tokens, chosen, self.stops)
            finished = 0 if step % self._look else _count(done)  # a card need not wait for the host at each step
            if finished:
                self._report(draws, ended)
            if finished == len(rows) and not waiting:
                break
            if not waiting and finished * DROP_SHARE >= len(rows):
                alive = done.long().argsort(stable=True)[: self._kept(len(rows), finished)]
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

    def _report(self, draws: Draws, ended: Ended) -> None:
        done = _count(draws.done)
        if self._progress:
            self._progress(done, len(draws.done))
        if done >= draws.repeats:
            draws.tell(ended)

    def _kept(self, rows: int, finished: int) -> int:
        """Rows that go on; on a card a power of two, because each number of them has graphs of its own."""
        alive = rows - finished
        return alive if self._look == 1 else min(rows, 1 << (alive - 1).bit_length())

    def _next(self, waiting: deque[Turn], room: int) -> tuple[Tensor, list[Sequence[int]], int]:
        """Draws, prompts and repeats of the first that wait: equal repeats, as many as there is room for."""
        first, some = len(waiting[0].rows), list[Turn]()
        while waiting and len(waiting[0].rows) == first and (len(some) + 1) * first <= room:
            some.append(waiting.popleft())
        rows = torch.tensor([row for turn in some for row in turn.rows], device=self.loaded.device)
        return rows, [turn.prompt for turn in some], first

    def _most(self, repeats: int, width: int) -> int:
        """Rows of one decode: of one group at least, unless memory has run out."""
        model, device, budget = self.loaded.model, self.loaded.device, CACHE_BUDGET
        if device.type == "cuda":  # what is free, but for what drawing needs besides
            unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            budget = max(budget, int(CACHE_SHARE * (memory_of(device).free + unused)))
        _, heads, size = heads_of(model.config)
        dtype = self.loaded.sampled_in or model.dtype
        per_row = width * 2 * model.config.num_hidden_layers * heads * size * dtype.itemsize
        most = max(repeats, budget // per_row)
        return min(most, self.most_rows or most)

    def _waiting(self, prompts: Prompts, repeats: int, draws: Draws, width: int) -> list[Turn]:
        """Draws that are not done, in the order of the prompts' lengths; a group that does not fit in several parts."""
        parts = -(-repeats // self._most(repeats, width))
        size, missing = -(-repeats // parts), (~draws.done).tolist()
        turns = [
            Turn(prompts[i], range(i * repeats + start, i * repeats + min(repeats, start + size)))
            for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
            for start in range(0, repeats, size)
        ]
        turns = [turn for turn in turns if any(missing[turn.rows.start : turn.rows.stop])]
        for rows in (slice(turn.rows.start, turn.rows.stop) for turn in turns):  # they begin anew
            draws.ids[rows], draws.taken[rows], draws.done[rows] = -1, 0, False
        return turns


def _count(flags: Bool[Tensor, " rows"]) -> int:
    """Count those that are set; on a CPU without a kernel."""
    return int(np.count_nonzero(flags.numpy()) if flags.device.type == "cpu" else flags.sum())


class Sampler(GroupSampler):
    """Samples completions in groups from a model as it is at the time of the call."""

    def __init__(self, loaded: LoadedModel, backend: Backend | None = None, *, progress: Progress | None = None):
        """`backend`: by default the decode loop of this module, which reports `progress`."""
        self.loaded = loaded
        self.backend: Backend = backend or OwnLoop(loaded, progress=progress)

    def sample(self, prompts: Sequence[str], **how: Unpack[How]) -> list[list[Completion]]:
        """`logprobs` are nats under the sampling temperature, at 0 (greedy) under 1. A prompt over `max_prompt_tokens`
        loses its beginning."""
        if not prompts:
            return []
        rows = encode_prompts(self.loaded.tokenizer, prompts, how.get("max_prompt_tokens"))
        groups, size, ended = dict[int, list[Completion]](), how["group_size"], how.get("ended")

        def take(at: int, drawn: list[Drawn]) -> None:
            groups[at] = self._completions(drawn)
            if ended:
                ended(at, groups[at])

        settings = size, how["max_new_tokens"], how["temperature"], how["generator_seed"]
        drawn = self.backend.draw(rows, *settings, None if ended is None else take)
        for at in range(len(prompts)):
            if at not in groups:
                take(at, drawn[at * size : (at + 1) * size])
        return [groups[at] for at in range(len(prompts))]

    def _completions(self, drawn: Sequence[Drawn]) -> list[Completion]:
        texts = self.loaded.tokenizer.batch_decode(
            [draw.ids for draw in drawn], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        stops = set(self.loaded.stop_ids)
        return [
            Completion(text, tuple(draw.ids), tuple(draw.logprobs), draw.ids[-1] in stops, draw.version)
            for text, draw in zip(texts, drawn, strict=True)
        ]


class TrailingSampler(Sampler):
    """Its policy stays as it was while the learner takes its step: attempts ahead without a server. It samples from a
    copy of all that learns; frozen weights are shared. Its completions name the copy's version."""

    @torch.no_grad()
    def __init__(self, policy: LoadedModel) -> None:
        self._learned = [*policy.model.parameters()]
        if any(each.requires_grad for each in self._learned):
            self._learned = [each for each in self._learned if each.requires_grad]
        own = {id(each): torch.nn.Parameter(each.detach().clone(), requires_grad=False) for each in self._learned}
        shared = {id(each): each for each in policy.model.parameters()}
        model = copy.deepcopy(policy.model, shared | own)
        model.__dict__.pop("forward", None)  # as a learner has wrapped it
        self._copies, self.version = [own[id(each)] for each in self._learned], 0
        super().__init__(replace(policy, model=model))

    @torch.no_grad()
    def catch_up(self, version: int) -> None:
        """Take the policy's present weights, while nobody samples or learns."""
        self.version = version
        for own, learned in zip(self._copies, self._learned, strict=True):
            own.copy_(learned)

    def _completions(self, drawn: Sequence[Drawn]) -> list[Completion]:
        return super()._completions([each._replace(version=self.version) for each in drawn])
