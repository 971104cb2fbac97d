"""The likelihood of many texts with common beginnings: shared parts are read once, asks from the keys and values of
what they follow.

A row is a head (shared by several rows), a body (scored token by token, and whose states can be read) and asks (read
after head and body, none of which sees another). Every result equals that of a full forward pass over the ask's whole
text, whatever else is in the batch. The asks of a row stand side by side behind its keys and values, kept apart by the
attention mask, each with positions as if it came next. A model whose cache is not plain full attention (sliding
windows, recurrent layers) reads whole texts instead.

Legend for shapes: B rows of a batch, P tokens of the past, T new tokens, V vocabulary.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from codezero.models.chat import pad
from codezero.models.decoders import columns
from codezero.models.prefix_layout import (
    Ask,
    AskScores,
    Ids,
    Lane,
    LayerStates,
    PrefixRow,
    RowScores,
    TokenScores,
    fed,
    kept_of,
    lanes_of,
    lay_out,
    mask_apart,
)
from codezero.models.slots import why_not_plain

LOGIT_BUDGET = 2**27
"""Most logits alive in one forward pass; bounds memory for large vocabularies (512 MiB in float32)."""
TOKENS_PER_BATCH = 32_768
"""Most tokens alive at once, cached ones and padding included; a single longer row is read alone."""
SLACK = 32
"""Tokens by which a row may outgrow twice the shortest of its batch: shorter rows cost as much as the longest."""

_Item = TypeVar("_Item")
_BODY = -1
"""In place of the number of an ask: the row's own body."""
_Key = tuple[int, int]
_Scored = tuple[_Key, AskScores]


class PrefixReader:
    """Reads with `model` as it is; nothing is sampled and no gradient taken."""

    def __init__(self, model: PreTrainedModel, pad_id: int, *, batch_rows: int = 128, share: bool = True) -> None:
        """`batch_rows` bounds the rows of a forward pass. `share` False reads every text in full."""
        self.why_not = why_not_plain(model) if share else "not asked to"
        """Why nothing is shared; empty when it is."""
        self.progress: Callable[[int, int], object] = lambda done, of: None
        """Called as texts are scored."""
        self._model = model
        self._states = LayerStates(model)
        self._pad_id = pad_id
        self._batch_rows = batch_rows
        # half: log-sum-exp makes a copy
        self._columns = max(1, LOGIT_BUDGET // 2 // model.config.get_text_config().vocab_size)

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
        # The last token of a head is read with the body, because it predicts the body's first: one token is too few.
        wanted = [i for i, row in enumerate(rows) if end is not None or row.asks]
        shared = [i for i in wanted if not self.why_not and len(rows[i].head) > 1]
        whole = sorted(set(wanted) - set(shared))
        scores: dict[_Key, AskScores] = {}
        of = sum((end is not None) + len(row.asks) for row in rows)
        with self._states.of(layers):
            for key, scored in chain(
                self._shared(rows, shared, end, choices), self._unshared(rows, whole, end, choices)
            ):
                scores[key] = scored
                self.progress(len(scores), of)
        states = self._states.kept
        return [
            RowScores(
                scores[i, _BODY].answer if (i, _BODY) in scores else None,
                tuple(scores[i, k] for k in range(len(row.asks))),
                states.get(i),
            )
            for i, row in enumerate(rows)
        ]

    def _shared(
        self, rows: Sequence[PrefixRow], which: Sequence[int], end: int | None, choices: Sequence[int]
    ) -> Iterator[_Scored]:
        """Heads, then the bodies behind them, then the asks behind those: each level in batches of its own."""
        owners: dict[Ids, list[int]] = {}
        for i in which:
            owners.setdefault(rows[i].head, []).append(i)
        for heads in self._batches(owners, len, lambda heads: (max(map(len, heads)), 1)):
            nothing = torch.ones(len(heads), 0, dtype=torch.bool, device=self._model.device)
            start = _Past(DynamicCache(config=self._model.config), nothing)
            past, _ = self._extend(start, [head[:-1] for head in heads], keep=1)
            place = {i: at for at, head in enumerate(heads) for i in owners[head]}
            yield from self._bodies(rows, past, place, end, choices)

    def _bodies(
        self, rows: Sequence[PrefixRow], past: "_Past", place: dict[int, int], end: int | None, choices: Sequence[int]
    ) -> Iterator[_Scored]:
        """`past` holds in row `place[i]` the head of row i, without its last token."""

        def size(batch: Sequence[int]) -> tuple[int, int]:
            longest = 1 + max(len(rows[i].body) for i in batch)
            return past.width + longest, 1 if end is None else longest

        for batch in self._batches(place, lambda i: 1 + len(rows[i].body), size):
            texts = [(rows[i].head[-1], *rows[i].body) for i in batch]
            keep = 1 if end is None else max(map(len, texts))
            grown, logits = self._extend(past.branch([place[i] for i in batch]), texts, keep=keep)
            if end is not None:
                self._states.keep((i, at, len(rows[i].body)) for at, i in enumerate(batch))
                scores = score_answers(logits, [0] * len(batch), [(*rows[i].body, end) for i in batch], choices)
                yield from (((i, _BODY), scored) for i, scored in zip(batch, scores, strict=True))
            del logits
            followed = {i: at for at, i in enumerate(batch) if rows[i].asks}
            yield from self._asks(rows, grown, followed, choices)

    def _asks(
        self, rows: Sequence[PrefixRow], past: "_Past", place: dict[int, int], choices: Sequence[int]
    ) -> Iterator[_Scored]:
        """`past` holds in row `place[i]` the head and body of row i."""

        def size(batch: Sequence[int]) -> tuple[int, int]:
            lanes = lanes_of([rows[i].asks for i in batch])
            return past.width + sum(lane.width for lane in lanes), sum(lane.kept for lane in lanes)

        for batch in self._batches(place, lambda i: sum(len(fed(ask)) for ask in rows[i].asks), size):
            branch = past.branch([place[i] for i in batch])
            lanes = lanes_of([rows[i].asks for i in batch])
            logits = self._side_by_side(branch, [rows[i].asks for i in batch], lanes)
            for k, lane in enumerate(lanes):
                having = [at for at, i in enumerate(batch) if k < len(rows[i].asks)]
                asks = [rows[batch[at]].asks[k] for at in having]
                own = logits[having, lane.column : lane.column + lane.kept]
                scores = score_answers(
                    own, [lane.kept - kept_of(ask) for ask in asks], [ask.answer for ask in asks], choices
                )
                yield from (((batch[at], k), scored) for at, scored in zip(having, scores, strict=True))

    def _side_by_side(self, past: "_Past", asks: Sequence[Sequence[Ask]], lanes: "Sequence[Lane]") -> Tensor:
        """Logits [B, sum of kept, V] of every row's asks, each in its lane and ending where the lane ends."""
        ids, lane_of, place = (tensor.to(self._model.device) for tensor in lay_out(asks, lanes, self._pad_id))
        columns = [at for lane in lanes for at in range(lane.end - lane.kept, lane.end)]
        kept = torch.tensor(columns, device=ids.device)
        return self._logits(past, ids, mask_apart(past.real, lane_of, self._model.dtype), place, kept)

    def _extend(self, past: "_Past", texts: Sequence[Sequence[int]], *, keep: int) -> "tuple[_Past, Tensor]":
        """`past` with `texts` read after it, padded on the right, and the logits of the last `keep` columns."""
        ids, real = pad(texts, self._pad_id, self._model.device)
        both = torch.cat([past.real, real], dim=1)
        return _Past(past.cache, both), self._logits(past, ids, both.long(), real.cumsum(-1) - 1, keep)

    def _logits(self, past: "_Past", ids: Tensor, mask: Tensor, place: Tensor, keep: int | Tensor) -> Tensor:
        """Of the columns to keep: all would be gigabytes for a large vocabulary. `place` [B, T]: behind the past."""
        return self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=past.real.sum(-1, keepdim=True) + place,
            past_key_values=past.cache,
            use_cache=True,
            logits_to_keep=keep if isinstance(keep, Tensor) else columns(ids, keep),
        ).logits

    def _unshared(
        self, rows: Sequence[PrefixRow], which: Sequence[int], end: int | None, choices: Sequence[int]
    ) -> Iterator[_Scored]:
        """Every text in full, right-padded, so that causal layers of any kind need no mask."""
        texts: dict[_Key, Ask] = {}
        for i in which:
            row = rows[i]
            if end is not None:
                texts[i, _BODY] = Ask(row.head, (*row.body, end))
            texts |= {(i, k): Ask((*row.head, *row.body, *ask.ids), ask.answer) for k, ask in enumerate(row.asks)}

        def size(keys: Sequence[_Key]) -> tuple[int, int]:
            longest = max(len(fed(texts[key])) for key in keys)
            return longest, longest - min(len(texts[key].ids) for key in keys) + 1

        for keys in self._batches(texts, lambda key: len(fed(texts[key])), size):
            longest, keep = size(keys)
            ids, _ = pad([fed(texts[key]) for key in keys], self._pad_id, self._model.device)
            logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=columns(ids, keep)).logits
            bodies = [(at, i, k) for at, (i, k) in enumerate(keys) if k == _BODY]
            self._states.keep((i, at, len(fed(texts[i, k])) - 1) for at, i, k in bodies)
            starts = [len(texts[key].ids) - 1 - (longest - keep) for key in keys]
            yield from zip(
                keys, score_answers(logits, starts, [texts[key].answer for key in keys], choices), strict=True
            )

    def _batches(
        self,
        items: Iterable[_Item],
        length: Callable[[_Item], int],
        size: Callable[[Sequence[_Item]], tuple[int, int]],
    ) -> Iterator[list[_Item]]:
        """Items alike in length, as many as fit and at least one. `size`: (tokens, columns of logits) of a row."""
        batch: list[_Item] = []
        for item in sorted(items, key=length):
            tokens, columns = size([*batch, item])
            rows = len(batch) + 1
            if batch and (
                rows > self._batch_rows
                or rows * tokens > TOKENS_PER_BATCH
                or rows * columns > self._columns
                or length(item) > 2 * length(batch[0]) + SLACK
            ):
                yield batch
                batch = []
            batch.append(item)
        if batch:
            yield batch


@dataclass(frozen=True)
class _Past:
    """What has been read: keys and values, and which of them stand for text."""

    cache: DynamicCache
    real: Tensor
    """[B, P] bool; False is padding."""

    @property
    def width(self) -> int:
        return self.real.shape[1]

    def branch(self, rows: Sequence[int]) -> "_Past":
        """A past with these rows of this one, which stays as it is."""
        which = torch.tensor(rows, device=self.real.device)
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        cache.batch_select_indices(which)
        return _Past(cache, self.real[which])


def score_answers(
    logits: Tensor, starts: Sequence[int], answers: Sequence[Sequence[int]], choices: Sequence[int]
) -> list[AskScores]:
    """Teacher-forced log-probabilities in nats: log p = logit - logsumexp of the logits.

    Logits [B, T, V]; column `starts[b]` predicts the first token of `answers[b]`, and the choices.
    """
    logits = logits.float()
    targets = torch.zeros(logits.shape[:2], dtype=torch.long)
    for at, (start, answer) in enumerate(zip(starts, answers, strict=True)):
        targets[at, start : start + len(answer)] = torch.tensor(answer, dtype=torch.long)
    chosen = logits.gather(-1, targets.to(logits.device)[..., None])[..., 0]
    total = logits.logsumexp(-1)
    logprobs, gaps = (chosen - total).cpu(), (chosen - logits.amax(-1)).cpu()
    rows, columns = torch.arange(len(starts)), torch.tensor(starts)
    first = (logits[rows, columns][:, list(choices)] - total[rows, columns][:, None]).cpu()
    return [
        AskScores(first[at], TokenScores(*(scores[at, start : start + len(answer)] for scores in (logprobs, gaps))))
        for at, (start, answer) in enumerate(zip(starts, answers, strict=True))
    ]
