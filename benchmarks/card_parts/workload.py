"""Models of real shapes with random weights, made on the card itself, and rows for them; at tiny size for a CPU."""

import functools
import gc
import math
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout_ways"))

import torch
from model import NANO, QWEN, WORDS_FROM, Shape, model_config, random_model, word_tokenizer
from safetensors.torch import save_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from codezero.models.device import choose_precision
from codezero.models.load import LoadedModel, add_adapter, use_threads
from codezero.nano import weights_directory
from codezero.solver.batch import Batch, TrainingRow

Report = dict[str, Any]
SHAPES = {
    "qwen2.5-0.5b": QWEN,
    "qwen2.5-1.5b": replace(QWEN, hidden=1536, intermediate=8960, layers=28, heads=12),
    "qwen3-0.6b": replace(
        QWEN, hidden=1024, intermediate=3072, layers=28, heads=16, kv_heads=8, family="qwen3", head_size=128
    ),
}
TINY = {
    name: replace(
        NANO, hidden=48, intermediate=96, layers=1, family=shape.family, head_size=12 if shape.head_size else 0
    )
    for name, shape in SHAPES.items()
}
LOGIT_SPREAD = 4.0
"""Standard deviation of a trained model's logits at one position."""
GROUP, RANK, ALPHA = 8, 16, 32.0
"""The settings' defaults: attempts at a problem, and of an adapter."""


@dataclass(frozen=True)
class Bench:
    """Where and how large a part is to measure."""

    tiny: bool
    folder: Path
    """For models' configurations; the weights are never written."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() and not self.tiny else "cpu")

    @property
    def precision(self) -> torch.dtype:
        return choose_precision("auto", self.device)

    @property
    def on_card(self) -> bool:
        return self.device.type == "cuda"

    def shape(self, name: str) -> Shape:
        return (TINY if self.tiny else SHAPES)[name]

    def tokens(self, count: int) -> int:
        """A length in tokens; at tiny size a 64th of it, at least 8."""
        return max(8, count // 64) if self.tiny else count

    def rows(self, count: int) -> int:
        return min(count, 4) if self.tiny else count

    @property
    def repeats(self) -> int:
        """Tries, of which the quickest counts, after one that warms up."""
        return 1 if self.tiny else 3

    def place(self, name: str) -> Path:
        """A folder from which a model's shape and tokenizer can be read. Its weights are a single number."""
        place = self.folder / ("tiny" if self.tiny else "full") / name
        if not (place / "model.safetensors").exists():
            place.mkdir(parents=True, exist_ok=True)
            disable_progress_bar()
            model_config(self.shape(name)).save_pretrained(place)
            tokenizer(self.shape(name).vocabulary).save_pretrained(place)
            save_file({"none": torch.zeros(1)}, place / "model.safetensors", metadata={"format": "pt"})
        return place

    def load(self, name: str, *, lora: bool = False, seed: int = 0, dtype: torch.dtype | None = None) -> LoadedModel:
        """A policy in the node's precision."""
        shape = self.shape(name)
        model = random_model(shape, seed, device=self.device.type, dtype=dtype or self.precision)
        use_threads(model, 0)
        loaded = LoadedModel(model, tokenizer(shape.vocabulary), str(self.place(name)), self.device)
        return add_adapter(loaded, rank=RANK, alpha=ALPHA) if lora else loaded

    def frozen(self, name: str) -> LoadedModel:
        """A judge or proposer, with a tokenizer that knows English and code."""
        loaded = self.load(name)
        loaded.model.requires_grad_(False).eval()
        return replace(loaded, tokenizer=reader_tokenizer(self.tiny))


@functools.cache
def tokenizer(vocabulary: int) -> PreTrainedTokenizerBase:
    return word_tokenizer(vocabulary)


@functools.cache
def reader_tokenizer(tiny: bool) -> PreTrainedTokenizerBase:
    """Has Yes and No. The embedded judge's, or one learned from Python's standard library."""
    if tiny:
        return AutoTokenizer.from_pretrained(weights_directory("judge"))
    from judge_cost import stdlib_tokenizer

    return stdlib_tokenizer()


def sharpened(policy: LoadedModel) -> LoadedModel:
    """With logits as far apart as a trained model's: random weights alone draw almost evenly, which hides gaps."""
    model: Any = policy.model
    with torch.no_grad():
        ids = torch.arange(WORDS_FROM, WORDS_FROM + 64, device=policy.device)[None]
        spread = model(ids).logits[..., WORDS_FROM:].float().std(-1).mean()
        model.model.norm.weight[1:] *= LOGIT_SPREAD / spread
    return policy


def prompts(shape: Shape, count: int, tokens: int, seed: int = 0) -> list[list[int]]:
    """Words at random, as ids."""
    chance = random.Random(seed)
    return [[chance.randrange(WORDS_FROM, shape.vocabulary) for _ in range(tokens)] for _ in range(count)]


def batch(shape: Shape, rows: int, prompt: int, completion: int) -> Batch:
    """Rows in groups of one prompt each, all with gradient, as if sampled from an even distribution."""
    asked = prompts(shape, -(-rows // GROUP), prompt)
    written = prompts(shape, rows, completion, seed=1)
    logprobs = (-math.log(shape.vocabulary),) * completion
    return Batch(
        tuple(
            TrainingRow(tuple(asked[row // GROUP]), tuple(ids), logprobs, 1.0 if row % 2 else -1.0)
            for row, ids in enumerate(written)
        )
    )


def free() -> None:
    """What went out of scope is given back, and the peak begins anew."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak() -> int | None:
    """Most bytes allocated on a card since `free`; None where none is used, because nobody counts then."""
    return (torch.cuda.is_available() and torch.cuda.max_memory_allocated()) or None
