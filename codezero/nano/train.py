"""Supervised training of a small Qwen2-architecture model: next-token loss on the answer, never on the prompt.

Muon (Jordan et al. 2024) for the matrices and AdamW for the rest: half the steps of AdamW alone at this size.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from codezero.models.chat import encode_completions, encode_prompts
from codezero.nano.corpus import Pair

MUON_RATE, ADAMW_RATE = 0.005, 0.004
WARM_UP = 30
"""Steps in which the rate rises."""
HOLD, FLOOR = 0.4, 0.05
"""Share of the steps at the full rate; then it falls in a line to FLOOR."""
BATCH_ROWS = 32
BUCKET = 32
"""Batches that are drawn together and divided by length."""
CONTEXT = 512


@dataclass(frozen=True)
class Shape:
    """Size of a model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int


def new_model(shape: Shape, tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """Random weights, the same for the same seed; embeddings tied."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": 10_000.0, "rope_type": "default"},
        bos_token_id=None,
        eos_token_id=end_of(tokenizer),
        pad_token_id=end_of(tokenizer),
    )
    return Qwen2ForCausalLM(config)


def train(
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    pairs: Iterator[Pair],
    *,
    steps: int,
    seed: int,
    on_step: Callable[[], None] = lambda: None,
) -> float:
    """Trains in place on texts; returns the mean loss of the last 50 steps, in nats per token of the answer."""
    return train_on(model, _batches(tokenizer, pairs, Random(seed)), steps=steps, on_step=on_step)


def train_on(
    model: Qwen2ForCausalLM,
    batches: Iterator[tuple[list[list[int]], list[list[int]]]],
    *,
    steps: int,
    on_step: Callable[[], None] = lambda: None,
) -> float:
    """As `train`, on ids: batches of (prompts, answers)."""
    optimizers = _optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps)) for optimizer in optimizers
    ]
    losses: list[float] = []
    model.train()
    for prompts, answers in islice(batches, steps):
        loss = answer_loss(model, prompts, answers)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        on_step()
    model.eval()
    return sum(losses[-50:]) / len(losses[-50:])


def rate(step: int, steps: int) -> float:
    """Share of the full learning rate: up, level, down."""
    falling = 1 - (step / steps - HOLD) / (1 - HOLD)
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, max(FLOOR, falling))


def answer_loss(model: Qwen2ForCausalLM, prompts: list[list[int]], answers: list[list[int]]) -> Tensor:
    """Mean cross entropy over the answers' tokens. Rows are right-padded; causal attention needs no mask."""
    longest = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    labels = torch.full((len(prompts), longest), -1)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    target = labels[:, 1:]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden[target >= 0]), target[target >= 0])


def end_of(tokenizer: Qwen2Tokenizer) -> int:
    return cast(int, tokenizer.eos_token_id)


def _batches(
    tokenizer: Qwen2Tokenizer, pairs: Iterator[Pair], random: Random
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Batches of rows alike in length, in random order."""
    while True:
        drawn = list(islice(pairs, BATCH_ROWS * BUCKET))
        prompts = encode_prompts(tokenizer, [prompt for prompt, _ in drawn])
        answers = [[*ids, end_of(tokenizer)] for ids in encode_completions(tokenizer, [a for _, a in drawn])]
        order = sorted(range(len(drawn)), key=lambda i: len(prompts[i]) + len(answers[i]))
        batches = [order[at : at + BATCH_ROWS] for at in range(0, len(order), BATCH_ROWS)]
        random.shuffle(batches)
        for batch in batches:
            yield [prompts[i] for i in batch], [answers[i] for i in batch]


def _optimizers(model: Qwen2ForCausalLM) -> list[Any]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if not (p.ndim == 2 and "embed" not in name)]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAMW_RATE, weight_decay=0.0, betas=(0.9, 0.98)),
    ]
