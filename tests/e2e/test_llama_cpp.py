"""llama.cpp's server, from its package, as other programs' users have it: a judge, and a writer of problems."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from builders.models import real_words
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from codezero.code.parsing import fence
from codezero.config import EvaluatorConfig, ProposerConfig
from codezero.evaluator import judge_prompts as prompts
from codezero.evaluator.openai_judge import GAPS, OpenAIJudge
from codezero.evaluator.types import Program
from codezero.nano import weights_directory
from codezero.ops import doctor_network as network
from codezero.ops.doctor import CheckState
from codezero.ops.gguf import llama_server, write_gguf
from codezero.proposer.openai_sampler import OpenAISampler
from codezero.proposer.proposer import ModelProposer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION = "Write a function f(x) that returns x."
PROGRAMS = [Program(QUESTION, f"def f(x):\n    return {value}") for value in ("x", "x + 1", "-x")]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("xllamacpp"), reason="xllamacpp is not installed"),
]


@pytest.fixture
def opinionated(tmp_path: Path) -> tuple[Path, Qwen3ForCausalLM]:
    """A random model that answers Yes or No to everything, by how it reads what it is asked."""
    folder = real_words(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": CHATML}))
    config = Qwen3Config.from_pretrained(folder, tie_word_embeddings=False)
    torch.manual_seed(0)
    model, tokenizer = Qwen3ForCausalLM(config), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.15)
        model.model.embed_tokens.weight.normal_()
        model.model.embed_tokens.weight[:, 1] = 5  # the same after each token: what the two words share
        for word, sign in (("Yes", 1), ("No", -1)):
            (token,) = tokenizer.encode(word)
            model.lm_head.weight[token] = torch.tensor([20.0 * sign, 5.0] + [0.0] * 14)
    model.save_pretrained(folder)
    return folder, model.float().eval()


def margin(folder: Path, model: Qwen3ForCausalLM, code: str) -> float:
    """log p(Yes) - log p(No) after both orders of the question, as transformers computes it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (yes,), (no,) = tokenizer.encode("Yes"), tokenizer.encode("No")
    margins: list[float] = []
    for order in prompts.ORDERS:
        turns = [QUESTION, fence(code), prompts.yes_or_no(prompts.ABOUT_ALL, order)]
        chat = [{"role": ("user", "assistant")[at % 2], "content": turn} for at, turn in enumerate(turns)]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0, -1]
        margins.append(float(logits[yes] - logits[no]))
    return sum(margins) / len(margins)


def test_it_judges_by_the_margins_that_transformers_computes(
    opinionated: tuple[Path, Qwen3ForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a request for the likelihood of a program and answers another one: those scores are left out."""
    folder, model = opinionated
    write_gguf(folder, tmp_path / "judge.gguf", "judge", "f16")
    with llama_server(tmp_path / "judge.gguf", 8192) as (address, key):
        monkeypatch.setenv("CODEZERO_JUDGE_KEY", key)
        config = EvaluatorConfig(kind="openai", url=f"http://{address}", model="judge", seconds=60.0)
        finding = network.judge(config)
        with OpenAIJudge(config) as judge:
            judge.check()
            readings = judge.read(PROGRAMS, frozenset({*GAPS, prompts.YES_MARGIN}))
            names = judge.names
    assert finding.state is CheckState.WARN and "yes/no only: weaker" in finding.text
    bias = sum(margin(folder, model, code) for code in prompts.CONTENT_FREE) / len(prompts.CONTENT_FREE)
    expected = [margin(folder, model, program.code) - bias for program in PROGRAMS]
    scores = [dict(zip(names, reading.scores or (), strict=True)) for reading in readings]
    assert [each[prompts.YES_MARGIN] for each in scores] == pytest.approx(expected, abs=0.02)
    assert max(expected) - min(expected) > 0.1
    assert all(each[name] is None for each in scores for name in GAPS)


def test_it_writes_problems_as_the_embedded_proposer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(weights_directory("proposer"), tmp_path / "proposer.gguf", "proposer", "f16")
    with llama_server(tmp_path / "proposer.gguf", 8192) as (address, key):
        monkeypatch.setenv("CODEZERO_PROPOSER_KEY", key)
        config = ProposerConfig(
            url=f"http://{address}", model="proposer", seconds=60.0, max_new_tokens=200, attempts=4, taken=4
        )
        with OpenAISampler(config) as sampler:
            problems = ModelProposer(sampler, config, peer_id="peer", seed=0).propose([1, 2])
    assert {problem.level for problem in problems} == {1, 2}
