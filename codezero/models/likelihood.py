"""The likelihood of many texts with common beginnings: shared parts are read once, asks from the keys and values of
what they follow.

A row is a head (shared by several rows), a body (scored token by token, and whose states can be read) and asks (read
after head and body, none of which sees another). Every result equals that of a full forward pass over the ask's whole
text, whatever else is in the batch. A model whose cache is not plain full attention (sliding windows, recurrent layers)
reads whole texts instead."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from codezero.models.base import Progress
from codezero.models.chat import pad
from codezero.models.decoders import why_not_plain

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Ids = tuple[int, ...]


class TokenScores(NamedTuple):
    """A model's scores of each token of a text; float32 on the CPU."""

    logprob: Float[Tensor, " tokens"]  # nats, at temperature 1
    gap: Float[Tensor, " tokens"]  # log p(token) - log p(likeliest token), <= 0


class Ask(NamedTuple):
    """A text read after a row, and an answer that is scored behind it."""

    ids: Ids  # at least one token
    answer: Ids = ()


class PrefixRow(NamedTuple):
    head: Ids  # at least one token. Rows with equal heads share them.
    body: Ids
    asks: tuple[Ask, ...] = ()


class AskScores(NamedTuple):
    """The model's scores after an ask; float32 on the CPU."""

    choices: Float[Tensor, " choices"]  # log-probabilities, nats, of the choices as the very next token
    answer: TokenScores  # of the ask's answer; empty without one


class RowScores(NamedTuple):
    body: TokenScores | None  # of the body and of the end after it; None when not requested
    asks: tuple[AskScores, ...]
    state: Float[Tensor, "layers width"] | None = None  # mean over the body's tokens, after each layer requested


def fed(ask: Ask) -> Ids:
    """The tokens to read: the last token of an answer predicts nothing that is scored."""
    return (*ask.ids, *ask.answer[:-1])


LOGIT_PIECE = 2**25  # most logits alive at once (128 MiB in float32): those of a pass are computed in pieces
TOKENS_PER_BATCH = 32_768  # most tokens alive at once, cached ones and padding included; a longer row is read alone
WASTE, SLACK = 0.1, 200  # padding of a batch: a share of its tokens, and so many that a pass of their own costs more

_Item = TypeVar("_Item")
_BODY = -1  # in place of the number of an ask: the row's own body
_Key = tuple[int, int]
_Scored = tuple[_Key, AskScores]


def batches(
    items: Iterable[_Item], length: Callable[[_Item], int], most: int, cached: int = 0
) -> Iterator[list[_Item]]:
    """Items alike in length, as many as fit and at least one. most: rows. cached: tokens that each of them follows."""
    batch, tokens = list[_Item](), 0
    for item in sorted(items, key=length):
        rows, longest = len(batch) + 1, length(item)
        tokens += longest
        if batch and (
            rows > most
            or rows * (cached + longest) > TOKENS_PER_BATCH
            or rows * longest - tokens > WASTE * tokens + SLACK
        ):
            yield batch
            batch, tokens = [], longest
        batch.append(item)
    if batch:
        yield batch


class PrefixReader:
    """Reads with `model` as it is; nothing is sampled and no gradient taken."""

    def __init__(
        self,
        model: PreTrainedModel,
        pad_id: int,
        *,
        batch_rows: int = 128,
        share: bool = True,
        progress: Progress = lambda done, of: None,
    ) -> None:
        """`batch_rows` bounds the rows of a forward pass. `share` False reads every text in full. `progress`: called as
        texts are scored."""
        self.why_not = why_not_plain(model) if share else "not asked to"  # why nothing is shared; empty when it is
        self._progress = progress
        self._model, self._backbone = model, cast(Any, model.base_model)
        self._last: dict[int, Float[Tensor, "rows tokens width"]] = {}  # states of the last forward pass, by layer
        self._states: dict[int, Float[Tensor, "layers width"]] = {}  # those to return, float32 on the CPU, by row
        self._pad_id = pad_id
        self._batch_rows = batch_rows

    @torch.no_grad()
    def read(
        self,
        rows: Sequence[PrefixRow],
        *,
        end: int | None = None,
        choices: Sequence[int] = (),
        layers: Sequence[int] = (),
    ) -> list[RowScores]:
        """Scores of each row, in order. `end` is the token scored after a body; None: bodies are not scored, and no
        states of `layers` (counted from 1) are read."""
        if not all(row.head and all(ask.ids for ask in row.asks) for row in rows):
            raise ValueError("a head or an ask without tokens predicts nothing")
        scores: dict[_Key, AskScores] = {}
        of = sum((end is not None) + len(row.asks) for row in rows)
        with self._watching(layers):
            for key, scored in self._scored(rows, end, choices):
                scores[key] = scored
                self._progress(len(scores), of)
        return [
            RowScores(
                scores[i, _BODY].answer if (i, _BODY) in scores else None,
                tuple(scores[i, k] for k in range(len(row.asks))),
                self._states.get(i),
            )
            for i, row in enumerate(rows)
        ]

    @contextlib.contextmanager
    def _watching(self, layers: Sequence[int]) -> Generator[None]:
        """Note the states of each forward pass after `layers`, which ascend from 1, while the context is open."""

        def take(layer: int, _module: Any, _given: Any, output: Any) -> None:
            self._last[layer] = output if isinstance(output, Tensor) else output[0]

        self._states, self._last = {}, {}
        every: Any = self._model.get_decoder().layers if layers else ()
        with contextlib.ExitStack() as watched:
            for layer in layers:
                watched.callback(every[layer - 1].register_forward_hook(partial(take, layer)).remove)
            yield
        self._last = {}

    def _scored(self, rows: Sequence[PrefixRow], end: int | None, choices: Sequence[int]) -> Iterator[_Scored]:
        """Heads, then the bodies behind them, then the asks behind those: each level in batches of its own."""
        owners: dict[Ids, list[int]] = {}
        whole: dict[_Key, Ask] = {}
        for i, row in enumerate(rows):
            if end is None and not row.asks:
                continue
            # The last token of a head is read with the body, because it predicts the body's first: one is too few.
            if not self.why_not and len(row.head) > 1:
                owners.setdefault(row.head, []).append(i)
                continue
            if end is not None:
                whole[i, _BODY] = Ask(row.head, (*row.body, end))
            whole |= {(i, k): Ask((*row.head, *row.body, *ask.ids), ask.answer) for k, ask in enumerate(row.asks)}
        for heads in batches(owners, len, self._batch_rows):
            nothing = torch.ones(len(heads), 0, dtype=torch.bool, device=self._model.device)
            start = _Past(DynamicCache(config=self._model.config), nothing)
            past, _ = self._extend(start, [head[:-1] for head in heads])
            place = {i: at for at, head in enumerate(heads) for i in owners[head]}
            yield from self._behind(rows, past, place, end, choices)
        for keys, _, scores in self._level(whole, None, {}, choices):
            yield from zip(keys, scores, strict=True)

    def _behind(
        self, rows: Sequence[PrefixRow], past: _Past, place: dict[int, int], end: int | None, choices: Sequence[int]
    ) -> Iterator[_Scored]:
        """Bodies and asks; `past` holds in row `place[i]` the head of row i, without its last token."""
        bodies: dict[_Key, Ask] = {}
        for i in place:
            last, body = rows[i].head[-1], rows[i].body
            bodies[i, _BODY] = Ask((last, *body)) if end is None else Ask((last,), (*body, end))
        for keys, grown, scores in self._level(bodies, past, place, choices):
            if end is not None:
                yield from zip(keys, scores, strict=True)
            followed = {i: at for at, (i, _) in enumerate(keys) if rows[i].asks}
            asks = {(i, k): ask for i in followed for k, ask in enumerate(rows[i].asks)}
            for ask_keys, _, answers in self._level(asks, grown, followed, choices):
                yield from zip(ask_keys, answers, strict=True)

    def _level(
        self, texts: Mapping[_Key, Ask], past: _Past | None, place: Mapping[int, int], choices: Sequence[int]
    ) -> Iterator[tuple[list[_Key], _Past | None, list[AskScores]]]:
        """Batches of `texts`, those of row i behind row `place[i]` of the past, and the past that each leads to."""

        cached = past.real.shape[1] if past else 0
        for keys in batches(texts, lambda key: len(fed(texts[key])), self._batch_rows, cached):
            asks, grown = [texts[key] for key in keys], None
            if past is not None:
                grown, hidden = self._extend(past.branch([place[i] for i, _ in keys]), list(map(fed, asks)))
            else:  # right-padded, so that causal layers of any kind need no mask
                ids, _ = pad(list(map(fed, asks)), self._pad_id, self._model.device)
                hidden = self._backbone(input_ids=ids, use_cache=False).last_hidden_state
            for at, (i, k) in enumerate(keys if self._last else ()):
                if k == _BODY and (body := len(asks[at].answer) - 1):  # the end is no part of it
                    own = slice(len(fed(asks[at])) - body, len(fed(asks[at])))
                    self._states[i] = torch.stack([each[at, own].float().mean(0).cpu() for each in self._last.values()])
            yield keys, grown, score_asks(self._model, hidden, asks, choices)

    def _extend(self, past: _Past, texts: Sequence[Sequence[int]]) -> tuple[_Past, Tensor]:
        """`past` with `texts` read after it, padded on the right, and the last layer's states of these."""
        ids, real = pad(texts, self._pad_id, self._model.device)
        both = torch.cat([past.real, real], dim=1)
        hidden = self._backbone(
            input_ids=ids,
            attention_mask=both.long(),
            position_ids=past.real.sum(-1, keepdim=True) + real.cumsum(-1) - 1,
            past_key_values=past.cache,
            use_cache=True,
        ).last_hidden_state
        return _Past(past.cache, both), hidden


class _Past(NamedTuple):
    """The text read so far: keys and values, and which of them stand for text."""

    cache: DynamicCache
    real: Bool[Tensor, "rows past"]  # False is padding

    def branch(self, rows: Sequence[int]) -> _Past:
        """A past with these rows of this one, which stays as it is."""
        which = torch.tensor(rows, device=self.real.device)
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        cache.batch_select_indices(which)
        return _Past(cache, self.real[which])


def logits_of(model: PreTrainedModel, states: Float[Tensor, "rows width"]) -> Float[Tensor, "rows vocabulary"]:
    """float32 logits of the last layer's states, scaled and capped as the model's family does."""
    config = model.config.get_text_config()
    logits = cast(Any, model.get_output_embeddings())(states).float()
    for factor in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        logits = logits * (getattr(config, factor, None) or 1)
    logits = logits / (getattr(config, "logits_scaling", None) or 1)
    cap = getattr(config, "final_logit_softcapping", None)
    return (logits / cap).tanh() * cap if cap else logits


def score_asks(
    model: PreTrainedModel, states: Float[Tensor, "rows tokens width"], asks: Sequence[Ask], choices: Sequence[int]
) -> list[AskScores]:
    """Teacher-forced log-probabilities in nats: log p = logit - logsumexp of the logits.

    states: of what is `fed` of each ask, behind which there may be padding."""
    lengths, first = [len(ask.answer) for ask in asks], [len(ask.ids) - 1 for ask in asks]
    rows = torch.arange(len(asks)).repeat_interleave(torch.tensor(lengths))
    columns = torch.tensor([at + i for at, length in zip(first, lengths, strict=True) for i in range(length)])
    targets = torch.tensor([token for ask in asks for token in ask.answer], device=states.device)[:, None]
    wanted, beside = states[rows, columns.long()], list[Tensor]()
    piece = max(1, LOGIT_PIECE // model.config.get_text_config().vocab_size)
    scored = [torch.zeros(2, 0, device=states.device)]
    for some, own in zip(wanted.split(piece), targets.split(piece), strict=True):
        logits = logits_of(model, some)
        chosen = logits.gather(-1, own)[:, 0]
        scored.append(torch.stack([chosen - logits.logsumexp(-1), chosen - logits.amax(-1)]))
    for some in states[torch.arange(len(asks)), first].split(piece) if choices else ():
        beside.append(logits_of(model, some).log_softmax(-1)[:, list(choices)].cpu())
    named = torch.cat(beside) if choices else torch.zeros(len(asks), 0)
    of_each = torch.cat(scored, 1).cpu().split(lengths, 1)
    return [AskScores(named[at], TokenScores(*own)) for at, own in enumerate(of_each)]
