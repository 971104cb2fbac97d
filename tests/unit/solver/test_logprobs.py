"""Log-probabilities in pieces: the same numbers, and the whole logits are never there."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM

from codezero.solver import logprobs as head_module
from codezero.solver.logprobs import chosen_logprobs, head_is_plain

MEASURE = """
import sys
import torch
from builders.models import peak_memory, random_rows, tiny_policy
from codezero.config import SolverConfig
from codezero.solver import logprobs as head
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner

head.WHOLE = 2**21  # a smaller piece of a smaller whole: the same proportions in less time
learner = TrlLearner(tiny_policy(hidden=16, vocab=60_000), SolverConfig(minibatches=1, max_new_tokens=128))
assert learner._packed and learner._pieces
learner._packed = sys.argv[1] == "packed"
learner.update(Batch(tuple(random_rows(2))))
before = peak_memory()
rows = tuple(random_rows(40, length=128, seed=1))
learner.update(Batch(rows))
after = peak_memory()
tokens = sum(len(row.completion_ids) for row in rows if row.advantage)
print(after - before, tokens * 60_000 * 4)
"""


@pytest.mark.parametrize("bias", [False, True])
def test_in_pieces_the_numbers_and_gradients_are_the_same(bias: bool, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    head = nn.Linear(8, 300, bias=bias)
    targets = torch.randint(300, (50,))
    hidden = torch.randn(50, 8, requires_grad=True)
    pull = torch.randn(50)

    def measured() -> list[torch.Tensor]:
        found = chosen_logprobs(hidden, head, targets, 0.7)
        return [found.detach(), *torch.autograd.grad((found * pull).sum(), [hidden, *head.parameters()])]

    whole = measured()
    monkeypatch.setattr(head_module, "WHOLE", 1000)
    for one, other in zip(whole, measured(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot tell its own peak of memory apart")
@pytest.mark.parametrize("path", ["packed", "pieces"])
def test_vocabulary_times_length_is_never_in_memory(path: str):
    """One copy of the logits would be more than everything that the update takes in addition; four were usual."""
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken, whole = map(int, done.stdout.split())
    assert whole > 350_000_000 and taken < 0.5 * whole, (taken, whole)


def test_a_head_whose_logits_are_changed_afterwards_is_left_to_trl():
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = Gemma2Config(vocab_size=99, hidden_size=16, intermediate_size=16, num_hidden_layers=1, **heads)
    model = Gemma2ForCausalLM(config)
    assert model.config.final_logit_softcapping and not head_is_plain(model)
