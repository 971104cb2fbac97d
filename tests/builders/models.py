"""A small random model and its tokenizer, made on the spot: the real thing in every respect but skill."""

import gzip
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from builders.real_data import real_data
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from codezero.models.load import LoadedModel
from codezero.solver.batch import TrainingRow
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict, problem_id

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|answer|>{% endif %}"
EOS, PAD = 256, 257


def peak_memory() -> int:
    """Bytes of this process at its largest, on Linux; its ru_maxrss begins with what its parent had."""
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match
    return 1024 * int(match[1])


def forget_peak() -> None:
    """Have `peak_memory` begin anew, with what this process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, then end, padding and "now answer"."""
    vocabulary = {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {"<|end|>": EOS, "<|endoftext|>": PAD, "<|answer|>": 258}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|answer|>"],
        chat_template=TEMPLATE,
    )


def real_words(folder: Path) -> Path:
    """Qwen3's architecture, tokenizer, chat template and vocabulary, in 2.4 M random weights; skips without files."""
    source = real_data("qwen3-tokenizer") / "qwen3-tokenizer"
    folder.mkdir(parents=True)
    shutil.copy(source / "tokenizer_config.json", folder)
    (folder / "tokenizer.json").write_bytes(gzip.decompress((source / "tokenizer.json.gz").read_bytes()))
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=2_048, tie_word_embeddings=True,
        eos_token_id=151_645, pad_token_id=151_643, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def tiny_policy(
    seed: int = 0, *, hidden: int = 32, layers: int = 2, scale: float = 0.2, vocab: int = 259
) -> LoadedModel:
    """Qwen2 with weights large enough (`scale`) that the next token is far from uniform."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=scale,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return LoadedModel(Qwen2ForCausalLM(config).eval(), byte_tokenizer(), "tiny", torch.device("cpu"))


def random_rows(
    count: int, group_size: int = 4, seed: int = 0, *, prompt: int = 12, length: int = 10
) -> list[TrainingRow]:
    """Rows of different lengths, `group_size` to a prompt, ending in EOS; every fourth advantage is 0."""
    chance = random.Random(seed)
    rows: list[TrainingRow] = []
    for i in range(count):
        if i % group_size == 0:
            question = tuple(chance.randrange(256) for _ in range(chance.randint(prompt // 2, prompt)))
        ids = (*(chance.randrange(256) for _ in range(chance.randint(1, length - 1))), EOS)
        old = tuple(chance.uniform(-9, -1) for _ in ids)
        rows.append(TrainingRow(question, ids, old, 0.0 if i % 4 == 3 else chance.uniform(-1, 1)))
    return rows


def saved(policy: LoadedModel, folder: Path) -> Path:
    """A directory to load it from."""
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def bits(policy: LoadedModel) -> list[bytes]:
    """Of every weight, to see that two policies are the same."""
    return [weight.detach().cpu().contiguous().numpy().tobytes() for weight in policy.model.parameters()]


def problem(number: int = 0) -> Problem:
    question, tests = f"Write a function f(x) that returns {number}.", (f"assert f(1) == {number}",)
    return Problem(problem_id(question, tests), question, tests, "f", Source.SYNTHETIC)


def judged(
    number: int,
    rewards: Sequence[float],
    texts: Sequence[str] = (),
    *,
    peer_id: str = "peer",
    status: Sequence[Status] = (),
    tokens: Sequence[tuple[int, ...]] = (),
) -> ScoredGroup:
    """A group whose attempts got these rewards; texts default to different ones."""
    texts = texts or [f"answer {i}" for i in range(len(rewards))]
    completions = tuple(
        Completion(text, ids := tokens[i] if tokens else (65 + i, EOS), (-1.0,) * len(ids), True)
        for i, text in enumerate(texts)
    )
    statuses = status or [Status.JUDGED] * len(rewards)
    verdicts = tuple(
        Verdict(reward, reward, 1.0, 1.0, 1.0, 1.0, state) for reward, state in zip(rewards, statuses, strict=True)
    )
    return ScoredGroup(RolloutGroup(problem(number), completions, peer_id, 0, 0), verdicts)
