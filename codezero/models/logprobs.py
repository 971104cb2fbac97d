"""Log-probabilities of completions that are already written: one forward pass, nothing sampled, no gradient."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

LOGIT_BUDGET = 2**27
"""Most logits alive in one forward pass; bounds memory for large vocabularies (512 MiB in float32)."""


@dataclass(frozen=True)
class TokenScores:
    """What a model thinks of each token of a completion; float32 on the CPU."""

    logprob: Tensor
    """[T] nats, at temperature 1."""
    gap: Tensor
    """[T] log p(token) - log p(likeliest token), <= 0."""


@torch.no_grad()
def teacher_forced(
    model: PreTrainedModel,
    pad_id: int,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    batch_rows: int = 128,
) -> list[TokenScores]:
    """Scores of `completions[i]` after `prompts[i]`, in order. Prompts must not be empty; completions may be."""
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    if not all(prompts):
        raise ValueError("a prompt without tokens predicts nothing")
    scores: list[TokenScores] = [TokenScores(torch.empty(0), torch.empty(0))] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for batch in _batches(order, rows, batch_rows, LOGIT_BUDGET // model.config.vocab_size):
        starts = [len(prompts[i]) for i in batch]
        for i, score in zip(batch, _score(model, pad_id, [rows[i] for i in batch], starts), strict=True):
            scores[i] = score
    return scores


def _batches(
    order: Sequence[int], rows: Sequence[Sequence[int]], most_rows: int, most_tokens: int
) -> Iterator[list[int]]:
    """Neighbours in length, so that little is padded; a batch that is too big for the budget is one row."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == most_rows or (len(batch) + 1) * len(rows[i]) > most_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _score(
    model: PreTrainedModel, pad_id: int, rows: Sequence[Sequence[int]], starts: Sequence[int]
) -> Iterator[TokenScores]:
    """Right-padded, so causal attention needs no mask. Position t predicts token t + 1."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits
    for row, start, row_logits in zip(rows, starts, logits, strict=True):
        own = row_logits[start - 1 : len(row) - 1].float()
        chosen = own.gather(-1, torch.tensor(row[start:], device=own.device)[:, None])[:, 0]
        best = own.amax(-1) if len(own) else own.new_empty(0)
        yield TokenScores((chosen - own.logsumexp(-1)).cpu(), (chosen - best).cpu())
