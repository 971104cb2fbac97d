"""The estimate against what a process really took, and what it has to depend on."""

import dataclasses
import subprocess
import sys

import pytest

from codezero.models.generation import CACHE_BUDGET
from codezero.models.memory import (
    ADAM_8BIT,
    GIB,
    LARGE,
    PIECE,
    SMALL,
    ModelShape,
    Need,
    Role,
    Texts,
    Training,
    adapter_numbers,
    node_need,
    sampling_bytes,
    shape_of,
    update_bytes,
)
from codezero.solver import logprobs as head

MEASURE = """
import sys
import torch
from builders.models import PAD, byte_tokenizer, peak_memory, random_rows
from transformers import Qwen2Config, Qwen2ForCausalLM
from codezero.config import SolverConfig
from codezero.models.load import LoadedModel
from codezero.models.lora import add_adapter
from codezero.models import lora
from codezero.models.memory import Role, Texts, Training, adapter_numbers, node_need
from codezero.models.device import return_freed_memory
from codezero.models.memory import shape_of_config
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.learner import TrlLearner

train, checkpointing, vocabulary = sys.argv[1], sys.argv[2] == "checkpointing", int(sys.argv[3])
B, P, T = 4, 512, 256  # of smaller tensors malloc keeps what is freed

config = Qwen2Config(vocab_size=vocabulary, hidden_size=896, intermediate_size=4864, num_hidden_layers=4,
    num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=PAD, bos_token_id=None)
shape = shape_of_config(config)
settings = SolverConfig(minibatches=1, micro_batch_rows=B, kl_beta=0.1, max_new_tokens=T)
import trl, peft, datasets
return_freed_memory()
before = peak_memory()
policy = LoadedModel(Qwen2ForCausalLM(config), byte_tokenizer(), "random", torch.device("cpu"))
lora.weights_digest = lambda name: "0" * 64  # it was never on a disk
if train == "lora":
    policy = add_adapter(policy, rank=16, alpha=32)
learner = TrlLearner(policy, settings, activation_checkpointing=checkpointing)
rows = tuple(TrainingRow(tuple(range(P)), (7,) * T, (-1.0,) * T, 1.0 - i % 2 * 2) for i in range(B))
learner.update(Batch(rows))
learner.update(Batch(rows))
adapter = adapter_numbers(shape, 16, None) if train == "lora" else 0
assert adapter == (0 if train == "full" else sum(p.numel() for p in policy.model.parameters() if p.requires_grad))
role = Role("solver", shape, Texts(P, T, B, 1), Training(adapter, True, checkpointing, B))
need = node_need([role], device="cpu", number=4)
estimate = need.total - need.process - 1.1 * (max(size for _, size in need.at_times) - dict(need.at_times)["update"])
print(peak_memory() - before, estimate)
"""


LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot tell its own peak of memory apart")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("train", "checkpointing", "vocabulary"),
    [
        pytest.param("full", "plain", 8_192, marks=LONG),
        pytest.param("lora", "checkpointing", 8_192, marks=LONG),
        pytest.param("full", "checkpointing", 8_192, marks=LONG),
        pytest.param("lora", "plain", 8_192, marks=LONG),
        pytest.param("full", "checkpointing", 151_936, marks=LONG),
        pytest.param("lora", "checkpointing", 151_936, marks=LONG),
    ],
)
def test_the_estimate_is_near_what_an_update_takes(train: str, checkpointing: str, vocabulary: int):
    """Of the shape of Qwen2.5-0.5B with four layers: never less than 0.95 of it, never more than 1.3."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, train, checkpointing, str(vocabulary)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    measured, estimated = map(float, done.stdout.split())
    print(f"{train} {checkpointing} {vocabulary}: {measured / GIB:.2f} GiB measured, {estimated / GIB:.2f} estimated")
    assert 0.95 * measured < estimated < 1.3 * measured, (measured / GIB, estimated / GIB)


WHOLE, ADAPTER = Training(0, True, True, 4), Training(9_000_000, True, True, 4)
TEXTS = Texts(512, 256, 8, 16)


def small() -> ModelShape:
    return shape_of(SMALL, "solver")


def update(training: Training, texts: Texts = TEXTS, device: str = "cpu", number: int = 4) -> float:
    return update_bytes(small(), training, texts, device=device, number=number)


def of_node(training: Training, *others: Role) -> Need:
    return node_need([Role("solver", small(), TEXTS, training), *others], device="cpu", number=4)


def test_the_shapes_of_the_pool_are_those_of_the_published_models():
    """Parameters as their model cards give them: 0.49 and 1.54 billion."""
    assert (small().parameters, shape_of(LARGE, "solver").parameters) == (494_032_768, 1_543_714_304)
    assert (small().attention, small().keys, len(small().linear)) == (896, 128, 24 * 7)


def test_an_adapter_has_as_many_numbers_as_peft_gives_it():
    by_hand = 24 * 16 * (2 * (896 + 896) + 2 * (896 + 128) + 3 * (896 + 4864))
    assert adapter_numbers(small(), 16, None) == by_hand
    assert adapter_numbers(small(), 16, ["q_proj"]) == 24 * 16 * (896 + 896)


def test_the_copy_that_is_sampled_from_is_counted_where_there_is_one():
    policy = Role("solver", small(), Texts(512, 256, 8, 1), WHOLE)
    for device, number, is_there in (("cuda", 2, True), ("cpu", 2, True), ("cpu", 4, False)):
        parts = dict(node_need([policy], device=device, number=number).always)
        assert parts.get("solver's copy") == (2 * small().parameters if is_there else None)


def test_what_saves_memory_saves_it_in_the_estimate():
    plain = Training(0, True, False, 4)
    assert update(WHOLE) < update(plain) and update(Training(0, True, True, 2)) < update(WHOLE)
    assert update(ADAPTER) < update(WHOLE) and update(WHOLE, Texts(512, 64, 8, 16)) < update(WHOLE)
    assert update(plain, number=2, device="cuda") < update(plain, device="cuda")
    need, without_leash = of_node(WHOLE), of_node(Training(0, False, True, 4))
    assert dict(need.always)["solver's KL copy"] == 4 * small().parameters
    assert dict(without_leash.always) == {name: size for name, size in need.always if "KL" not in name}
    in_eight = Training(0, False, True, 4, ADAM_8BIT)
    assert sum(size for _, size in of_node(in_eight).always) < 9 * 494_032_768
    packed = dataclasses.replace(small(), nf4=True)
    assert 0.4 * small().stored(2) < packed.stored(2) < 0.5 * small().stored(2)  # a quarter of it is the embedding
    judge = Role("judge", shape_of(LARGE, "judge"), Texts(512, 256, 8, 1))
    assert of_node(WHOLE, judge).total > need.total + 4 * judge.shape.parameters
    shared = of_node(WHOLE, dataclasses.replace(judge, shared=True))
    assert shared.always == need.always and shared.at_times == of_node(WHOLE, judge).at_times


def test_sampling_few_short_texts_needs_little_and_many_no_more_than_the_budget_of_keys_and_values():
    few, many, one = Texts(512, 256, 8, 2), Texts(512, 256, 8, 1000), Texts(512, 256, 4096, 1)
    cache = 2 * 24 * 128 * 4 * (512 + 256) * 8
    assert 2 * cache < sampling_bytes(small(), few, number=4) < 3 * cache
    assert CACHE_BUDGET < sampling_bytes(small(), many, number=4) < 1.5 * CACHE_BUDGET
    assert sampling_bytes(small(), one, number=4) > 4096 / 8 * cache


def test_only_the_busiest_of_what_is_never_at_once_counts():
    need = Need((("solver", 10.0 * GIB),), (("update", 2.0 * GIB), ("sampling", 5.0 * GIB)), 1.0 * GIB)
    assert need.total == pytest.approx((1 + 1.1 * 15) * GIB)
    assert str(need) == "17.5 GiB (solver 10.0; update 2.0, sampling 5.0)"


def test_the_piece_of_logits_is_that_of_the_learner():
    assert PIECE == head.WHOLE
