"""What is exported is what was measured: by transformers, by peft, and by llama.cpp's own server."""

import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from builders.users import short_run
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from codezero.cli import main
from codezero.environments.build import build_environment
from codezero.errors import CodeZeroError, ConfigError, ModelError
from codezero.models.generation import Sampler
from codezero.models.load import add_adapter, load_model, save_adapter
from codezero.nano import weights_directory
from codezero.ops import export as exporting
from codezero.ops.export import Exported, ExportRequest, export, modelfile
from codezero.ops.gguf import greedy_answers, write_gguf
from codezero.settings import compose

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
needs_llama = pytest.mark.skipif(not importlib.util.find_spec("xllamacpp"), reason="xllamacpp is not installed")


def take(policy: str, form: str, target: Path, verify: int = 0, quantize: str = "f16", **settings: str) -> Exported:
    config = compose([f"{key.replace('__', '.')}={value}" for key, value in settings.items()])
    return export(config, ExportRequest(policy, form, target, quantize, verify), lambda _: None)


def nano(folder: Path, **changes: object) -> Path:
    """A copy of the embedded solver with these values in its config.json."""
    shutil.copytree(weights_directory("solver"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder with an adapter of the embedded solver that changes it a little."""
    source = str(weights_directory("solver"))
    adapted = add_adapter(load_model(source, role="solver"), rank=4, alpha=8, seed=1)
    with torch.no_grad():
        for name, weight in adapted.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02, generator=torch.Generator().manual_seed(len(name)))
    folder = tmp_path / "kept" / "solver" / "adapter"
    save_adapter(adapted.model, folder)
    (folder / "base.json").write_bytes(msgspec.json.encode(adapted.base))
    return tmp_path / "kept"


def test_an_adapter_is_multiplied_out_in_the_precision_of_its_base(checkpoint: Path, tmp_path: Path) -> None:
    exported = take(str(checkpoint), "merged", tmp_path / "whole", verify=20)
    assert exported.verified and exported.verified.holds, exported.lines()
    base = load_file(weights_directory("solver") / "model.safetensors")
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    assert {name: value.dtype for name, value in whole.items()} == {name: value.dtype for name, value in base.items()}
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "whole").dtype == torch.float16
    assert not whole["model.layers.0.mlp.up_proj.weight"].equal(base["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft reads it
def test_peft_loads_the_adapter_which_names_no_folder_of_this_machine(checkpoint: Path, tmp_path: Path) -> None:
    exported = take(str(checkpoint), "adapter", tmp_path / "little", verify=20)
    assert exported.verified and exported.verified.holds, exported.lines()
    base = str(weights_directory("solver"))
    ids = torch.arange(3, 40)[None]
    by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "little")(ids).logits
    take(str(checkpoint), "merged", tmp_path / "whole")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")(ids).logits
    assert torch.allclose(by_peft.float(), merged.float(), atol=0.05)
    assert msgspec.json.decode((tmp_path / "little" / "base.json").read_bytes())["digest"] in exported_card(exported)
    for file in (tmp_path / "little").iterdir():
        assert str(Path(base).parent).encode() not in file.read_bytes()


def exported_card(exported: Exported) -> str:
    return Path(exported.card).read_text()


@needs_llama
@pytest.mark.parametrize("quantize", [pytest.param("f16", marks=pytest.mark.slow), "q8_0"])
def test_llama_cpp_answers_as_the_embedded_model_does(quantize: str, tmp_path: Path) -> None:
    exported = take("nano", "gguf", tmp_path / "nano.gguf", 20, quantize)
    assert exported.verified and exported.verified.holds, exported.lines()
    assert exported.verified.same_texts >= (19 if quantize == "f16" else 10), exported.lines()
    assert exported.export_digest in exported_card(exported) and exported.verified.line in exported_card(exported)
    assert {path.name for path in tmp_path.iterdir()} == {"nano.gguf", "nano.gguf.md"}


@needs_llama
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_llama_cpp_answers_as_a_real_model_does(tmp_path: Path) -> None:
    if not (folder := os.environ.get("CODEZERO_REAL_SOLVER")):
        pytest.skip("CODEZERO_REAL_SOLVER names no folder")
    sizes = {"model__solver": folder, "solver__max_new_tokens": "200", "solver__max_prompt_tokens": "512"}
    exported = take(folder, "gguf", tmp_path / "real.gguf", 20, model__precision="float32", **sizes)
    assert exported.verified and exported.verified.holds, exported.lines()
    assert exported.verified.same_texts >= 19, exported.lines()


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "llama3", "qwen3"])
def test_other_families_decode_alike(family: str, tmp_path: Path) -> None:
    """Random weights; the head knows letters alone, as texts that end within one would be cut off."""
    sizes = {"vocab_size": 768, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32}
    more = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.15,
        "max_position_embeddings": 512,
    }
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 64, "rope_theta": 10_000.0}
    torch.manual_seed(0)
    if family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, **more))
    else:
        stretched = {"rope_parameters": rope} if family == "llama3" else {}
        model = LlamaForCausalLM(LlamaConfig(**sizes, **more, **stretched))
    folder = nano(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "generation_config.json").unlink()
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    with torch.no_grad():
        model.lm_head.weight[[at for token, at in tokens.items() if not token.isascii() or at < 3]] = 0
    model.half().save_pretrained(folder)
    write_gguf(folder, tmp_path / "model.gguf", "model", "f16")
    environment = build_environment(compose([]))
    prompts = [environment.prompt(problem) for problem in environment.held_out(8, 1)]
    sampler = Sampler(load_model(str(folder), role="solver", precision="float32"))
    right = sampler.sample(prompts, group_size=1, max_new_tokens=12, temperature=0.0, generator_seed=0)
    answers = greedy_answers(tmp_path / "model.gguf", prompts, 12, 300)
    assert sum(a.text == b[0].text for a, b in zip(answers, right, strict=True)) >= 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "its architecture is GPT2LMHeadModel"),
        ({"quantization_config": {"quant_method": "awq"}}, r"quantised already \(awq\)"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "stretched by yarn"),
        ({"hidden_size": "wide"}, "Expected `int`"),
    ],
)
def test_a_model_that_cannot_be_converted_is_refused_by_name(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    folder = nano(tmp_path / "odd", **changes)
    with pytest.raises(ModelError, match=f"odd cannot be written as GGUF.*{reason}"):
        take(str(folder), "gguf", tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_an_unknown_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    folder = nano(tmp_path / "odd")
    text = (folder / "tokenizer.json").read_text().replace(r"\\p{N}|", r"\\p{N}{1,2}|", 1)
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match="its tokenizer is not Qwen's or Llama 3's"):
        take(str(folder), "gguf", tmp_path / "out.gguf")


def test_a_tensor_without_a_place_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = nano(tmp_path / "odd")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"model.more.weight": torch.zeros(4, 4)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"its tensor model\.more\.weight has no place"):
        take(str(folder), "gguf", tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_a_full_disk_is_known_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(CodeZeroError, match=r"has no room for the export: 0\.0 GiB are free"):
        take("nano", "merged", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_modelfile_has_the_template_the_system_turn_and_the_stop_words(tmp_path: Path) -> None:
    folder = nano(tmp_path / "chat")
    (folder / "chat_template.jinja").write_text(CHATML)
    exported = take(str(folder), "ollama", tmp_path / "out")
    lines = (tmp_path / "out" / "Modelfile").read_text()
    assert 'SYSTEM """You help."""' in lines and 'PARAMETER stop "<|im_end|>"' in lines and "temperature 1\n" in lines
    template = lines.split('"""')[1].replace("{{ .Response }}<|im_end|>\n", "")
    for mark in ("{{ if .System }}", "{{ if .Prompt }}", "{{ end }}"):
        template = template.replace(mark, "")
    shown = template.replace("{{ .System }}", "You help.").replace("{{ .Prompt }}", "Add two numbers.")
    tokenizer = load_model(str(folder), role="solver").tokenizer
    turns = [{"role": "user", "content": "Add two numbers."}]
    assert shown == tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Modelfile", "README.md", "model.gguf"]
    assert Path(exported.card) == tmp_path / "out" / "README.md"


def test_a_template_that_is_not_chatml_is_refused() -> None:
    with pytest.raises(ModelError, match="not ChatML"):
        modelfile(weights_directory("solver"), 1.0)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nano"], "give one of --merged, --adapter, --gguf, --ollama"),
        (["nano", "--merged", "a", "--gguf", "b"], "give one of .*, not 2"),
        (["nano", "--merged", "a", "--quantize", "f16"], "--quantize is of a GGUF"),
        (["nano", "--gguf", "a", "--quantize", "q3"], "choose one of: f16, q8_0, q4_k_m"),
        (["nano", "--gguf", "a", "--quantize", "q4_k_m"], "llama-quantize"),
        (["nano", "--gguf", "a", "--verify", "-1"], "--verify=-1 is out of bounds"),
        (["nano", "--merged", "there"], "there is there already"),
        (["nano", "--merged", "nowhere/a"], "nowhere is no folder"),
        (["nano", "--adapter", "a"], "whole weights, and no adapter; give --merged"),
        (["nano", "--merged", "a", "model.quantize=nf4"], "an export has whole weights; drop it"),
        (["nobody", "--merged", "a"], "nobody is no run"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert main(["export", *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.endswith("…")]
    assert re.search(reason, line), line
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="xllamacpp is not installed; run `uv sync --no-dev --extra gguf`"):
        take("nano", "gguf", tmp_path / "a.gguf", verify=1)


@pytest.mark.slow
def test_a_run_is_exported_with_its_exam(tmp_path: Path) -> None:
    short_run(tmp_path, "run.name=first", "run.max_iterations=2", "evals.every=2", "evals.problems=20")
    exported = take("first", "merged", tmp_path / "out", run__directory=str(tmp_path / "runs"))
    assert exported.iteration == 2 and exported.digest == exported.export_digest
    card = exported_card(exported)
    for words in ("| executed average@8 |", "by pairs of problems", "`nano`, digest", "evals.problems=20", "AUROC"):
        assert words in card
    assert str(tmp_path) not in card
