"""The benchmarks of sampling and updating: the same work for all ways, honest ratios, and no genrl is no end."""

import json
import subprocess
import sys
from pathlib import Path

import environment
import pytest
import rollout
import torch
from card_parts import roofline
from environment import NoEnvironmentError, genrl_python
from model import EOS, NANO, WORDS_FROM, make_model, make_prompts
from rollout import Turn, report
from transformers import AutoModelForCausalLM, AutoTokenizer

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_text_becomes_the_same_ids_again(tmp_path: Path):
    """genrl keeps text only. Every word the model can sample, after any other, and prompts as long as promised."""
    make_model(tmp_path, NANO)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    words = [*range(WORDS_FROM, NANO.vocabulary), *reversed(range(WORDS_FROM, NANO.vocabulary))]
    assert tokenizer(tokenizer.decode(words, skip_special_tokens=True))["input_ids"] == words
    fewest, most = NANO.prompt_tokens
    assert all(fewest - 1 <= len(tokenizer(prompt)["input_ids"]) <= most - 1 for prompt in make_prompts(NANO))


def test_the_model_samples_words_only(tmp_path: Path):
    make_model(tmp_path, NANO)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.randint(WORDS_FROM, NANO.vocabulary, (8, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        p = model(ids).logits.softmax(-1)
    assert p[..., :WORDS_FROM].max() == 0 and EOS < WORDS_FROM
    assert p.max() < 0.5  # and these are still chosen among


def test_ratios_are_of_turns_in_the_same_round():
    ours, slow = [Turn(1, 1, 2), Turn(4, 4, 2)], [Turn(3, 3, 8), Turn(12, 12, 12)]
    made = report({"ours": ours, "genrl": slow}, tokens=24)
    assert made["ours"]["tokens_per_second"] == [7.5, 3.0, 12.0]
    assert made["ratio_vs_genrl"] == [3.0, 3.0, 3.0]
    assert made["cpu_ratio_vs_genrl"] == [5.0, 4.0, 6.0]
    assert made["genrl_tuned"] is None and made["ratio_vs_genrl_tuned"] is None and made["ratio_vs_trl"] is None


def test_genrls_environment_is_made_once_for_the_same_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[str] = []

    def run(step: str, command: list[str]) -> None:
        steps.append(step)
        (tmp_path / "genrl").mkdir(exist_ok=True)

    monkeypatch.setattr(environment, "_run", run)
    assert genrl_python(tmp_path) == genrl_python(tmp_path) == tmp_path / "genrl" / "bin" / "python"
    assert steps == ["making it", "its packages", "torch", "importing it"]


def test_without_genrls_environment_the_benchmark_says_why_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(step: str, command: list[str]) -> None:
        raise NoEnvironmentError(f"{step} failed: no network")

    monkeypatch.setattr(environment, "_run", run)
    monkeypatch.setattr(rollout, "measure", lambda shape, genrl, options: {"genrl": genrl})
    assert rollout.main(["--json", "--shapes", "nano", "--cache", str(tmp_path)]) == 0
    said = capsys.readouterr()
    why = "making it failed: no network"
    assert json.loads(said.out) == {"shapes": {"nano": {"genrl": None}}, "genrl_missing": why}
    assert "no network" in said.err


def test_a_failed_step_of_the_installation_is_one_line():
    with pytest.raises(NoEnvironmentError, match=r"^trying failed: one two$"):
        environment._run("trying", [sys.executable, "-c", "import sys; sys.exit('one\\n\\n two')"])


def test_limits_count_what_has_to_be_read_and_multiplied():
    """By hand: 3 prompts of 5 tokens, 2 completions each of 3, so steps 1 and 2 read 6 rows of 6 and 7 tokens."""
    shape = roofline.Shape(100, 8, 16, 2, 4, 2, prompts=3, group_size=2, new_tokens=3, prompt_tokens=(5, 5))
    per_token = 2 * 2 * 2 * 2 * 4
    assert roofline.decode_bytes(shape, 1000, 4, [5, 5, 5]) == 2 * 4000 + 6 * (6 + 7) * per_token
    assert roofline.update_flops(700, 300, 15, 18, 6) == 6 * (700 * 33 + 300 * 18)


@pytest.mark.long
def test_the_benchmark_runs(tmp_path: Path):
    """The real ways but genrl's, which wants a network; one layer, one round."""
    small = ["--json", "--shapes", "nano", "--layers", "1", "--tokens", "4", "--repeats", "1", "--threads", "1"]
    command = [sys.executable, str(BENCHMARKS / "rollout.py"), *small, "--prompts", "2", "--no-genrl"]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    nano = made["shapes"]["nano"]
    assert nano["rows"] == 16 and nano["genrl"] is None and made["genrl_missing"] == "left out"
    assert min(nano["ours"]["tokens_per_second"]) > 0 and min(nano["ratio_vs_trl"]) > 0
