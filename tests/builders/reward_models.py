"""Reward models: small random classifiers of real architectures, and one that was taught to order attempts."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from builders.models import byte_tokenizer
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from codezero.code.canonical import canonical, stated_parameters
from codezero.code.parsing import fence
from codezero.evaluator.judge_prompts import task
from codezero.evaluator.types import Program
from codezero.models.chat import encode_answered
from codezero.nano import weights_directory
from codezero.problems.synthetic.tasks import make_task, mutants, render

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EASY = (1, 2, 3)  # levels that a minute suffices for
KINDS: dict[str, tuple[Any, Any]] = {
    "qwen2": (Qwen2Config, Qwen2ForSequenceClassification),
    "llama": (LlamaConfig, LlamaForSequenceClassification),
}


def random_reward_model(folder: Path, kind: str = "qwen2", **more: Any) -> Path:
    """With the byte tokenizer, which is not the embedded solver's."""
    config, model = KINDS[kind]
    settings: dict[str, Any] = {
        "vocab_size": 264, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_labels": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024, "initializer_range": 0.2,
        "bos_token_id": None, "eos_token_id": 256, "pad_token_id": 257,
    }  # fmt: skip
    torch.manual_seed(0)
    model(config(**settings | more)).save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|answer|>", "<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    return folder


def attempted(random: Random, wrong: int) -> list[Program]:
    """A right program for an embedded problem, and `wrong` ones that fail its tests, in any style."""
    while True:
        of = make_task(random, random.choice(EASY))
        entry, style = of.problem.entry_point, Random(of.problem.id)
        texts = [render(of.spec, entry, style), *mutants(of, random, wrong, style)]
        if len(texts) > wrong:
            question = of.problem.question
            codes = [canonical(text, entry, parameters=stated_parameters(question, entry)) for text in texts]
            return [Program(question, code, entry_point=entry) for code in codes]


def trained_reward_model(folder: Path, steps: int = 150, groups: int = 16, wrong: int = 3) -> Path:
    """The embedded solver's body with a head, taught which of four programs is the right one."""
    source = weights_directory("solver")
    tokenizer, random = AutoTokenizer.from_pretrained(source), Random(0)
    torch.manual_seed(0)
    model = Qwen2ForSequenceClassification.from_pretrained(source, num_labels=1, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 20) * (1 - step / steps))
    for _ in range(steps):
        programs = [program for _ in range(groups) for program in attempted(random, wrong)]
        loss = -logits(model, tokenizer, programs).view(groups, -1).log_softmax(-1)[:, 0].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def logits(model: Any, tokenizer: Any, programs: Sequence[Program], system: str = "") -> torch.Tensor:
    """By the model's own forward pass, all in one batch."""
    rows = encode_answered(tokenizer, [(task(program), fence(program.code)) for program in programs], system)
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[tokenizer.pad_token_id] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0]
