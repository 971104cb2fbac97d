"""Loading: what is right loads, what is wrong is named in one line with a remedy."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import byte_tokenizer, tiny_policy
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from unit.models.test_generation import small_tokenizer, tiny_model

from codezero.errors import ModelError
from codezero.models import load as load_module
from codezero.models.chat import encode_prompts
from codezero.models.generation import OwnLoop, Sampler, quick_copy
from codezero.models.load import load_model
from codezero.solver.batch import TrainingRow, collate
from codezero.solver.loss import completion_logprobs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tiny_model().half().save_pretrained(tmp_path)
    small_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """Another architecture, whose tokenizer class adds no tokens of its own."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=320, hidden_size=16, intermediate_size=16, num_hidden_layers=1, **heads)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    small_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def refusal(name: str | Path, **options: str) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(str(name), role="solver", **options)
    message = str(caught.value)
    assert message.startswith("solver: ") and "\n" not in message
    return message


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_half_precision_weights_become_float32_on_the_cpu(directory: Path):
    loaded = load_model(str(directory), device="cpu", role="solver")
    assert loaded.model.dtype == torch.float32
    assert torch.equal(loaded.model.model.norm.weight, tiny_model().half().float().model.norm.weight)
    assert loaded.device == torch.device("cpu") and loaded.name == str(directory)
    assert loaded.stop_ids == (0,) and loaded.pad_id == 0


def test_only_a_model_for_training_takes_gradients(directory: Path):
    frozen = load_model(str(directory), role="judge")
    policy = load_model(str(directory), role="solver", for_training=True)
    assert not any(p.requires_grad for p in frozen.model.parameters()) and not frozen.model.training
    assert all(p.requires_grad for p in policy.model.parameters()) and policy.model.training


def test_an_explicit_precision_is_kept(directory: Path):
    assert load_model(str(directory), device="cpu", precision="bfloat16", role="solver").model.dtype == torch.bfloat16


def test_a_missing_pad_token_is_the_eos(llama: Path):
    edit(llama / "tokenizer_config.json", pad_token=None)
    assert load_model(str(llama), device="cpu", role="solver").pad_id == 0


def test_more_than_one_token_may_end_a_completion(directory: Path):
    edit(directory / "generation_config.json", eos_token_id=[7, 0])
    loaded = load_model(str(directory), device="cpu", role="solver")
    assert loaded.stop_ids == (0, 7)
    sampler = Sampler(loaded)
    for completion in sampler.sample(["x"], group_size=200, max_new_tokens=30, temperature=1.5, generator_seed=0)[0]:
        assert completion.finished == (completion.token_ids[-1] in (0, 7))
        assert not {0, 7} & set(completion.token_ids[:-1])


def test_what_is_no_model_is_named(tmp_path: Path):
    assert "no config.json" in refusal(tmp_path)
    assert "not a directory" in refusal(tmp_path / "nowhere")
    assert "not a directory" in refusal("./nowhere")
    (tmp_path / "file").write_text("")
    assert "not a directory" in refusal(tmp_path / "file")


def test_an_unreachable_hub_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    message = refusal("nobody/never-existed")
    assert "nobody/never-existed" in message and "check the id and the network" in message


def test_a_tokenizer_without_eos_is_refused(llama: Path):
    edit(llama / "tokenizer_config.json", eos_token=None)
    assert "no EOS" in refusal(llama)


HARMS: dict[str, Callable[[Path], object]] = {
    "no chat template": lambda folder: (folder / "chat_template.jinja").unlink(),
    "cannot load the tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "cannot load the model": lambda folder: os.truncate(folder / "model.safetensors", 2_000),
    "cannot load": lambda folder: edit(folder / "config.json", model_type="no_such_thing"),
    "more tokens": lambda folder: tiny_model(vocab_size=64).save_pretrained(folder),
}


@pytest.mark.parametrize("reason", HARMS)
def test_a_directory_that_is_damaged_is_named(directory: Path, reason: str):
    HARMS[reason](directory)
    assert reason in refusal(directory)


def test_pickled_weights_are_refused(directory: Path):
    (directory / "model.safetensors").unlink()
    torch.save(tiny_model().state_dict(), directory / "pytorch_model.bin")
    assert "cannot load the model" in refusal(directory)


def test_code_in_a_model_directory_is_not_run(directory: Path, tmp_path: Path):
    mark = tmp_path / "ran"
    (directory / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass C: pass\n")
    edit(
        directory / "config.json",
        model_type="evil",
        auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C"},
    )
    refusal(directory)
    assert not mark.exists()


def test_a_device_that_is_not_here_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no cuda device" in refusal(directory, device="cuda")


@pytest.mark.parametrize(("thinking", "wanted"), [("on", "yes"), ("off", "no"), ("auto", "unsaid")])
def test_whether_a_model_thinks_is_said_to_its_template(tmp_path: Path, thinking: str, wanted: str) -> None:
    tokenizer = small_tokenizer()
    tokenizer.chat_template = (
        "{% if enable_thinking is defined %}{{ 'yes' if enable_thinking else 'no' }}{% else %}unsaid{% endif %}"
    )
    tiny_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu", role="solver", thinking=thinking)
    assert loaded.tokenizer.decode(encode_prompts(loaded.tokenizer, ["Q"])[0]) == wanted


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "own bias"])
def test_ids_without_a_text_are_never_drawn_and_sampler_and_learner_normalise_alike(
    tmp_path: Path, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_policy(scale=0.5, vocab=400).model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    if bias:  # which Qwen2 itself has not
        own = torch.randn(400)
        load = AutoModelForCausalLM.from_pretrained

        def biased(*given: Any, **options: Any) -> Any:
            model = load(*given, **options)
            model.lm_head.bias = torch.nn.Parameter(own.clone())
            return model

        monkeypatch.setattr("codezero.models.load.transformers.AutoModelForCausalLM.from_pretrained", biased)
    loaded = load_model(str(tmp_path), role="solver", device="cpu")
    assert loaded.barred_ids == list(range(259, 400))
    for slots in (True, False):
        loop = OwnLoop(loaded)
        loop.slots = slots
        drawn = loop.draw([[5, 6, 7]], 40, 30, 1.5, 0)
        assert max(max(each.ids) for each in drawn) < 259
        rows = [TrainingRow((5, 6, 7), tuple(each.ids), tuple(each.logprobs), 1.0) for each in drawn]
        for whole in (2**24, 1):  # by the head itself, and in pieces
            monkeypatch.setattr("codezero.solver.loss.WHOLE", whole)
            learned = completion_logprobs(loaded.model, collate(rows, loaded.pad_id, loaded.device), 1.5)
            for row, line in zip(rows, learned, strict=True):
                assert line[: len(row.logprobs)].tolist() == pytest.approx(row.logprobs, abs=1e-4)
    loaded.model.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    assert ("lm_head.bias" in saved) is bias


def store_in_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in bfloat16, which counts as a real one."""
    policy = tiny_policy()
    policy.model.to(torch.bfloat16).save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    monkeypatch.setattr(load_module, "TINY_PARAMETERS", 1_000)


def test_a_cpu_that_computes_in_bfloat16_reads_and_samples_in_it_and_learns_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_in_half(tmp_path, monkeypatch)
    monkeypatch.setattr(load_module, "computes_bfloat16", lambda: True)
    judge, solver = (load_model(str(tmp_path), device="cpu", role="x", for_training=learns) for learns in (False, True))
    assert (judge.model.dtype, judge.sampled_in) == (torch.bfloat16, None)
    assert (solver.model.dtype, solver.sampled_in) == (torch.float32, torch.bfloat16)
    copied = quick_copy(solver)
    assert copied.dtype == torch.bfloat16 and quick_copy(solver) is copied and copied is not solver.model
    loop = OwnLoop(solver)
    drawn = loop.draw([[1, 2, 3], [5]], 2, 6, 0.0, 0)
    plain = OwnLoop(replace(solver, sampled_in=None))
    for row, other in zip(drawn, plain.draw([[1, 2, 3], [5]], 2, 6, 0.0, 0), strict=True):
        assert row.ids[0] == other.ids[0] and row.logprobs[0] == pytest.approx(other.logprobs[0], abs=0.1)
    with torch.no_grad():
        solver.model.get_input_embeddings().weight.mul_(2)
    both = (model.get_input_embeddings().weight for model in (quick_copy(solver), solver.model))
    assert torch.equal(*(weight.float() for weight in both))
    monkeypatch.setattr(load_module, "computes_bfloat16", lambda: False)
    assert load_model(str(tmp_path), device="cpu", role="x").model.dtype == torch.float32


def test_weights_that_learn_on_a_card_of_bfloat16_are_sampled_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another device stands for the card; nothing is computed there."""
    store_in_half(tmp_path, monkeypatch)
    monkeypatch.setattr(load_module, "choose_device", lambda *_: torch.device("meta"))
    monkeypatch.setattr(load_module, "choose_precision", lambda *_: torch.bfloat16)
    monkeypatch.setattr(load_module, "prove_device", lambda *_: None)
    judge, solver = (load_model(str(tmp_path), role="x", for_training=learns) for learns in (False, True))
    assert (judge.sampled_in, solver.sampled_in) == (None, torch.bfloat16)
