"""The embedded models: what ships is what was promised."""

from random import Random

import pytest
import torch
from transformers import AutoTokenizer

from codezero.environments.code import solver_prompt
from codezero.errors import ModelError
from codezero.models.chat import encode_prompts
from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.problems.synthetic.tasks import make_task


@pytest.mark.parametrize("role", ["solver", "judge", "proposer", "gym"])
def test_shipped_models_are_small_have_a_card_and_load_as_float32(role: str):
    directory = weights_directory(role)
    assert sum(path.stat().st_size for path in directory.iterdir()) < 2_000_000
    assert (directory / "model.safetensors").stat().st_mode & 0o444 == 0o444
    assert "What it cannot do" in (directory / "README.md").read_text()
    assert load_model(str(directory), device="cpu", role=role).model.dtype == torch.float32


def test_what_does_not_ship_is_named():
    with pytest.raises(ModelError, match="no embedded model"):
        weights_directory("poet")


def test_the_embedded_solver_is_asked_the_question_alone() -> None:
    task = make_task(Random(5))
    tokenizer = AutoTokenizer.from_pretrained(weights_directory("solver"))
    asked, bare = encode_prompts(tokenizer, [solver_prompt(task.problem), task.problem.question])
    assert asked == bare
