"""Chunked log-probs: of chosen tokens from hidden states, never with all vocabulary x length logits at once.

TRL's fused head has kernels for this on CUDA. Elsewhere the head, a quarter of a 0.5 B model's work, skips prompts.

On the CPU the prompt of a group is read once, by shared-prompt attention. All groups are laid end to end as
prompt + completion + completion + ..., without padding, and attention is computed by parts: each prompt's tokens among
themselves, each completion's to its prompt and to themselves, at the positions they would have alone. The numbers equal
those of one row at a time (a test holds them together), for a fraction of the work.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from codezero.models.chat import pad
from codezero.models.slots import PASSED_ON, why_not_plain
from codezero.solver.batch import Pair, TrainingRow

WHOLE = 2**24
"""Most logits in one piece (64 MiB in float32); forward and backward hold up to seven of that size at once."""
TOKENS = 4096
"""Most tokens in one piece; fixed by `ChunkedLogProbFunction`."""
SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Settings with which a model changes its logits after the head."""
SHARED = "shared_prompt"
"""The name of shared-prompt attention in transformers."""


def chosen_logprobs(hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float) -> Tensor:
    """[N] nats of `targets` [N] after hidden states [N, H], in float32; differentiable."""
    vocabulary = int(head.weight.shape[0])  # pyright: ignore
    if len(targets) * vocabulary <= WHOLE:
        return -cross_entropy(head(hidden).float() / temperature, targets, reduction="none")
    from trl.kernels import ChunkedLogProbFunction

    columns = max(1, WHOLE // min(len(targets), TOKENS))
    return ChunkedLogProbFunction.apply(hidden, head.weight, head.bias, targets, temperature, columns, None, 1.0, ())[0]


def completion_logprobs(model: PreTrainedModel, inputs: Mapping[str, Tensor], temperature: float) -> Tensor:
    """[B, T] nats of a batch of `batch.collate`, zero beyond a row's end."""
    room = inputs["completion_ids"].size(1)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
        attention_mask=torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
        use_cache=False,
    ).last_hidden_state[:, -room - 1 : -1]
    real = inputs["completion_mask"].bool()
    head: Any = model.get_output_embeddings()
    flat = chosen_logprobs(hidden[real], head, inputs["completion_ids"][real], temperature)
    return flat.new_zeros(real.shape).masked_scatter(real, flat)


def fused_logprobs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """As `completion_logprobs`, by TRL's fused head, at the temperature that it was made for."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    room = inputs["completion_ids"].size(1)
    labels = ids.masked_fill(real == 0, -100)
    labels[:, :-room] = -100
    return model(input_ids=ids, attention_mask=real, labels=labels, fused_lm_head=True).log_probs[:, -room:]


def head_is_plain(model: PreTrainedModel) -> bool:
    """Are the model's logits its head's output, unscaled?"""
    config = model.config.get_text_config()
    return isinstance(model.get_output_embeddings(), nn.Linear) and not any(
        getattr(config, key, None) for key in SCALED
    )


def packs(model: PreTrainedModel) -> bool:
    """Can `packed_logprobs` read this model?"""
    plain = head_is_plain(model) and not why_not_plain(model) and not model.config.attention_dropout
    return model.config.model_type in PASSED_ON and plain


def compared(rows: Sequence[TrainingRow], learned: Sequence[Sequence[float]]) -> dict[int, Pair]:
    """The fresh ones of `rows` with the learner's figures, by `id`."""
    both = zip(rows, learned, strict=True)
    return {id(row): (row.logprobs, tuple(line[: len(row.logprobs)])) for row, line in both if row.fresh}


@dataclass(frozen=True, slots=True)
class Pack:
    """Groups laid end to end. N = tokens of all prompts and completions, P of the longest prompt, T completion."""

    ids: Tensor  # [N]
    positions: Tensor  # [N]
    sources: Tensor  # [tokens of the completions] the place whose output predicts each
    targets: Tensor  # [tokens of the completions]
    prompts: Tensor  # [groups, P] places; beyond a prompt's end place 0
    completions: Tensor  # [B, T] places; beyond a completion's end place 0
    real: Tensor  # [B, T] is there a token?
    group: Tensor  # [B]
    order: Tensor
    """[N] where each place stands in `prompts` and `completions`, one after the other."""
    seen: Tensor
    """[B, 1, T, P + T] the places of its prompt and of itself that each place of a completion sees."""


def pack(rows: Sequence[TrainingRow]) -> Pack:
    """Rows with the same prompt must stand together."""
    ids: list[int] = []
    positions: list[int] = []
    sources: list[int] = []
    prompts: list[range] = []
    completions: list[range] = []
    group: list[int] = []
    for prompt, members in groupby(rows, key=lambda row: row.prompt_ids):
        prompts.append(range(len(ids), len(ids) + len(prompt)))
        ids += prompt
        positions += range(len(prompt))
        for row in members:
            own = range(len(ids), len(ids) + len(row.completion_ids))
            ids += row.completion_ids
            positions += range(len(prompt), len(prompt) + len(own))
            sources += [prompts[-1][-1], *own[:-1]]
            completions.append(own)
            group.append(len(prompts) - 1)
    cpu, rows_group = torch.device("cpu"), torch.tensor(group)
    (prompt_places, prompted), (completion_places, real) = pad(prompts, 0, cpu), pad(completions, 0, cpu)
    standing = torch.cat([prompted.flatten(), real.flatten()]).nonzero()[:, 0]
    order = torch.empty_like(standing)
    order[torch.cat([prompt_places.flatten(), completion_places.flatten()])[standing]] = standing
    earlier = torch.ones(real.size(1), real.size(1), dtype=torch.bool).tril()
    of_prompt = prompted[rows_group][:, None].expand(-1, real.size(1), -1)
    seen = torch.cat([of_prompt, earlier.expand(len(real), -1, -1)], -1)[:, None]
    return Pack(
        ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        sources=torch.tensor(sources),
        targets=torch.tensor([token for row in rows for token in row.completion_ids]),
        prompts=prompt_places,
        completions=completion_places,
        real=real,
        group=rows_group,
        order=order,
        seen=seen,
    )


def packed_logprobs(model: PreTrainedModel, rows: Sequence[TrainingRow], temperature: float) -> Tensor:
    """[B, longest completion] nats, zero beyond a row's end. Rows with the same prompt must stand together."""
    if model.config._attn_implementation != SHARED:
        model.set_attn_implementation(SHARED)
    packed = pack(rows)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=packed.ids[None],
        position_ids=packed.positions[None],
        attention_mask={"full_attention": None},  # what each place sees is in `pack`
        use_cache=False,
        pack=packed,
    ).last_hidden_state[0]
    head: Any = model.get_output_embeddings()
    flat = chosen_logprobs(hidden.index_select(0, packed.sources), head, packed.targets, temperature)
    return flat.new_zeros(packed.real.shape).masked_scatter(packed.real, flat)


def shared_prompt_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    pack: Pack | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention [1, N, heads, size] of packed rows, query [1, heads, N, size]; without a `pack` that of torch."""
    if pack is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    rows = [states[0].transpose(0, 1) for states in (query, key, value)]  # [N, heads, size]
    prompt_query, prompt_key, prompt_value = (_taken(states, pack.prompts) for states in rows)
    own_query, own_key, own_value = (_taken(states, pack.completions) for states in rows)
    keys = torch.cat([prompt_key.index_select(0, pack.group), own_key], 2)
    values = torch.cat([prompt_value.index_select(0, pack.group), own_value], 2)
    of_prompts = _attend(prompt_query, prompt_key, prompt_value, None, scaling)
    of_completions = _attend(own_query, keys, values, pack.seen, scaling)
    both = torch.cat([states.transpose(1, 2).flatten(0, 1) for states in (of_prompts, of_completions)])
    return both.index_select(0, pack.order)[None], None


def _taken(rows: Tensor, places: Tensor) -> Tensor:
    """[N, heads, size] at places [R, L] -> [R, heads, L, size]."""
    taken = rows.flatten(1).index_select(0, places.flatten())
    return taken.view(*places.shape, *rows.shape[1:]).transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scaling: float | None) -> Tensor:
    """[R, heads, L, size]; `seen` None: each place sees those before it and itself."""
    return scaled_dot_product_attention(
        query, key, value, attn_mask=seen, is_causal=seen is None, scale=scaling, enable_gqa=True
    )


AttentionInterface.register(SHARED, shared_prompt_attention)
AttentionMaskInterface.register(SHARED, sdpa_mask)
