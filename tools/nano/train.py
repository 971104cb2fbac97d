"""Tokenizer and supervised training of a small Qwen2-architecture model: next-token loss on the answer alone.

The tokenizer is a byte-level BPE of 768 tokens. It splits text as Qwen2's does (digits stay single), because that is
how `AutoTokenizer` splits for every model of that architecture, whatever `tokenizer.json` says.

Muon (Jordan et al. 2024) for the matrices and AdamW for the rest: half the steps of AdamW alone at this size.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, cast

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from codezero.models.chat import encode_completions, encode_prompts

Pair = tuple[str, str]
"""What the user says, and the answer."""
Batch = tuple[list[list[int]], list[list[int]]]
"""Prompts and answers, as ids."""
MUON_RATE, ADAMW_RATE = 0.005, 0.004
WARM_UP = 30
"""Steps in which the rate rises."""
HOLD, FLOOR = 0.4, 0.05
"""Share of the steps at the full rate; then it falls in a line to FLOOR."""
BATCH_ROWS = 32
BUCKET = 32
"""Batches that are drawn together and divided by length."""
CONTEXT = 512
VOCABULARY = 768
HIDDEN, HEADS, FEED_FORWARD = 96, 4, 256
END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"


def chat_template(user: str) -> str:
    """Template of a conversation. user: what it makes of a user's `text`."""
    return (
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'user' -%}" + USER + "{%- set text = message['content'] -%}" + user + "{%- elif "
        "message['role'] == 'assistant' -%}" + ASSISTANT + "{{ message['content'] }}" + END + "{%- endif -%}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt -%}" + ASSISTANT + "{%- endif -%}"
    )


def tokenizer_of(texts: Iterator[str], chat_template: str) -> Qwen2Tokenizer:
    """Learned from the texts."""
    splitter = Qwen2Tokenizer().backend_tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = splitter.normalizer
    tokenizer.pre_tokenizer = splitter.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],  # pyright: ignore[reportArgumentType]
        eos_token=END,
        pad_token=END,
        unk_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def new_model(layers: int, tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """Random weights, the same for the same seed; embeddings tied."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
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
    batches: Iterator[Batch],
    *,
    steps: int,
    on_step: Callable[[], None] = lambda: None,
) -> float:
    """Train in place. Returns the mean loss of the last 50 steps, in nats per token of the answer."""
    optimizers = _optimizers(model)
    schedules = [LambdaLR(optimizer, lambda step: rate(step, steps)) for optimizer in optimizers]
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
    rows = list(zip(prompts, answers, strict=True))
    ids = pad_sequence([torch.tensor(prompt + answer) for prompt, answer in rows], batch_first=True)
    labels = [torch.tensor([-1] * len(prompt) + answer) for prompt, answer in rows]
    target = pad_sequence(labels, batch_first=True, padding_value=-1)[:, 1:]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden[target >= 0]), target[target >= 0])


def end_of(tokenizer: Qwen2Tokenizer) -> int:
    return cast(int, tokenizer.eos_token_id)


def batches_of(tokenizer: Qwen2Tokenizer, pairs: Iterator[Pair], random: Random) -> Iterator[Batch]:
    """Endless batches alike in length, in random order."""
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
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAMW_RATE, weight_decay=0.0, betas=(0.9, 0.98)),
    ]
