"""The estimate against what a process really took, and what it has to depend on."""

import subprocess
import sys
from pathlib import Path

import pytest

from codezero.models.memory import GIB, PIECE, Need, Shape, Texts, Training, adapter_numbers, node_need, update_bytes
from codezero.models.pool import LARGE, LARGE_FROM, SMALL, choose_solver, shape_of
from codezero.solver import head

MEASURE = """
import resource, sys
import torch
from builders_models import PAD, byte_tokenizer, random_rows
from transformers import Qwen2Config, Qwen2ForCausalLM
from codezero.config import SolverConfig
from codezero.models.load import LoadedModel
from codezero.models.lora import add_adapter
from codezero.models import lora
from codezero.models.memory import Texts, Training, adapter_numbers, node_need
from codezero.models.pool import shape_of_config
from codezero.solver.batch import Batch, Row
from codezero.solver.learner import TrlLearner

train, checkpointing, vocabulary = sys.argv[1], sys.argv[2] == "checkpointing", int(sys.argv[3])
B, P, T = 4, 256, 128

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

config = Qwen2Config(vocab_size=vocabulary, hidden_size=896, intermediate_size=4864, num_hidden_layers=4,
    num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=PAD, bos_token_id=None)
shape = shape_of_config(config)
settings = SolverConfig(minibatches=1, micro_batch_rows=B, kl_beta=0.1, max_new_tokens=T)
import trl, peft, datasets
before = peak()
policy = LoadedModel(Qwen2ForCausalLM(config), byte_tokenizer(), "random", torch.device("cpu"))
lora.weights_digest = lambda name: "0" * 64  # it was never on a disk
if train == "lora":
    policy = add_adapter(policy, rank=16, alpha=32)
learner = TrlLearner(policy, settings, activation_checkpointing=checkpointing)
rows = tuple(Row(tuple(range(i, i + P)), (7,) * T, (-1.0,) * T, 1.0 - i % 2 * 2) for i in range(B))
learner.update(Batch(rows))
learner.update(Batch(rows))
adapter = adapter_numbers(shape, 16, None) if train == "lora" else 0
assert adapter == (0 if train == "full" else sum(p.numel() for p in policy.model.parameters() if p.requires_grad))
need = node_need(shape, Training(adapter, True, checkpointing, B), Texts(P, T, B), device="cpu", number=4)
estimate = need.total - need.process - 1.1 * (max(size for _, size in need.at_times) - dict(need.at_times)["update"])
print(peak() - before, estimate)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("vocabulary", [8_192, pytest.param(151_936, marks=pytest.mark.slow)])
@pytest.mark.parametrize("checkpointing", ["plain", "checkpointing"])
@pytest.mark.parametrize("train", ["full", "lora"])
def test_the_estimate_is_near_what_an_update_takes(train: str, checkpointing: str, vocabulary: int):
    """Of the shape of Qwen2.5-0.5B with four layers: never less than 0.9 of it, never more than 1.5."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, train, checkpointing, str(vocabulary)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    measured, estimated = map(float, done.stdout.split())
    print(f"{train} {checkpointing} {vocabulary}: {measured / GIB:.2f} GiB measured, {estimated / GIB:.2f} estimated")
    assert 0.9 * measured < estimated < 1.5 * measured, (measured / GIB, estimated / GIB)
