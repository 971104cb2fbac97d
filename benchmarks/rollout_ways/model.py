"""A model and a tokenizer to measure with: the real shape, random weights, full completions.

Each token is a word of its own, so text becomes the same ids again, which genrl relies on. The model never samples EOS,
nor what is no word: every hidden state has a constant part, and their rows of the output head point away from it. So
all ways sample and learn from the same number of tokens, and none of them has to be told to go on."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %} a{% endif %}"
EOS, PAD = range(2)
SPECIAL = ("<|end|>", "<|endoftext|>")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPACE = "\u0120"  # how a byte-level vocabulary spells a space
WORDS_FROM = len(SPECIAL) + 1 + len(LETTERS)  # the first id that is a word


@dataclass(frozen=True)
class Shape:
    """Of a Qwen2 or Qwen3 model, and what is sampled from it."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    prompts: int
    group_size: int
    new_tokens: int
    prompt_tokens: tuple[int, int]  # fewest and most
    family: str = "qwen2"
    head_size: int = 0  # 0: hidden / heads


NANO = Shape(768, 96, 256, 3, 4, 2, prompts=16, group_size=8, new_tokens=48, prompt_tokens=(40, 80))
"""0.38 M parameters and the work of an iteration: the embedded solver's."""
QWEN = Shape(151_936, 896, 4864, 24, 14, 2, prompts=2, group_size=4, new_tokens=32, prompt_tokens=(48, 64))
"""494 M parameters: Qwen2.5-0.5B's."""


def make_model(folder: Path, shape: Shape, seed: int = 0) -> int:
    """Writes model and tokenizer as `from_pretrained` reads them. Returns the number of parameters."""
    model = random_model(shape, seed)
    disable_progress_bar()
    model.save_pretrained(folder)
    word_tokenizer(shape.vocabulary).save_pretrained(folder)
    return model.num_parameters()


def model_config(shape: Shape) -> PreTrainedConfig:
    return AutoConfig.for_model(
        shape.family,
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        **({"head_dim": shape.head_size} if shape.head_size else {}),
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )


def random_model(
    shape: Shape, seed: int = 0, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """Made where it is to run: nothing is written, read or moved."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(model_config(shape), dtype=dtype)
    with torch.no_grad():
        table, norm = model.model.embed_tokens.weight, model.model.norm.weight
        table[:, 0] = 50.0
        norm[0] = 0.01
        table[:WORDS_FROM, 0] = -1e4
    return model


def make_prompts(shape: Shape, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    words = list(itertools.islice(_words(), shape.vocabulary - WORDS_FROM))
    lengths = [chance.randint(*shape.prompt_tokens) - 1 for _ in range(shape.prompts)]
    return ["".join(f" {chance.choice(words)}" for _ in range(length)) for length in lengths]


def _words() -> Iterator[str]:
    """a, b, ..., aa, ab, ...: every word's beginning comes before it."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(LETTERS, repeat=length))


def word_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """A space and letters: one token each word, merged letter by letter."""
    words = list(itertools.islice(_words(), size - WORDS_FROM))
    table = {name: at for at, name in enumerate([*SPECIAL, SPACE, *LETTERS, *(SPACE + word for word in words)])}
    merges = [(SPACE + word[:-1], word[-1]) for word in words]
    tokenizer = Tokenizer(models.BPE(vocab=table, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[EOS],
        pad_token=SPECIAL[PAD],
        chat_template=TEMPLATE,
    )
