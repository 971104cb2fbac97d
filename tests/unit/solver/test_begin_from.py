"""A policy begins from what its user has: an adapter of peft, a checkpoint of a run; what cannot be is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import bits, random_rows, saved, tiny_policy
from peft import LoraConfig, PeftModel, get_peft_model

from codezero.config import SolverConfig
from codezero.errors import CheckpointError, ConfigError
from codezero.models.load import add_adapter, load_model
from codezero.ops.measure import find_policy, load_found
from codezero.settings import compose
from codezero.solver.batch import Batch
from codezero.solver.build import load_policy
from codezero.solver.checkpoint import PolicyFingerprint, write_manifest
from codezero.solver.learner import TrlLearner

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # by peft
ASKED = torch.tensor([[72, 101, 108, 108, 111]])


def say(_: object) -> None: ...


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """Written by peft, whose B is not zero."""
    model = load_model(str(base), device="cpu", role="solver").model
    settings = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    adapted: Any = get_peft_model(model, settings)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def answers(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ASKED).logits


def changed(folder: Path, **settings: object) -> Path:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.mark.parametrize("words", [["model.solver={adapter}"], ["model.solver={base}", "model.adapter={adapter}"]])
def test_an_adapter_of_peft_learns_on(base: Path, adapter: Path, words: list[str]) -> None:
    config = compose([word.format(base=base, adapter=adapter) for word in words])
    model = config.model
    assert (model.solver, model.train, model.lora_rank, model.lora_alpha) == (str(base), "lora", 3, 6.0)
    assert sorted(model.lora_targets) == ["down_proj", "q_proj"]
    policy = load_policy(config, say)
    of_peft = PeftModel.from_pretrained(load_model(str(base), device="cpu", role="solver").model, str(adapter))
    assert torch.allclose(answers(policy.model), answers(of_peft), atol=1e-5)
    plain = load_model(str(base), device="cpu", role="solver").model
    assert not torch.allclose(answers(policy.model), answers(plain), atol=1e-2)
    before = bits(policy)
    TrlLearner(policy, SolverConfig(learning_rate=1e-2)).update(Batch(tuple(random_rows(8))))
    assert bits(policy) != before


def test_an_eval_names_an_adapter_as_its_policy(base: Path, adapter: Path) -> None:
    config = compose([f"model.solver={base}", "model.device=cpu"])
    whole, adapted = find_policy(config, str(base)), find_policy(config, str(adapter))
    assert adapted.source == str(base) and adapted.adapter == adapter and adapted.digest != whole.digest
    assert find_policy(compose([f"model.solver={adapter}"]), "") == adapted
    learned = load_policy(compose([f"model.solver={adapter}"]), say)
    assert torch.allclose(answers(load_found(config, adapted, say).model), answers(learned.model), atol=1e-5)


@pytest.mark.parametrize("train", ["full", "lora"])
def test_a_checkpoint_of_a_run_is_a_policy_to_begin_with(base: Path, tmp_path: Path, train: str) -> None:
    policy = load_model(str(base), device="cpu", role="solver", for_training=train == "full")
    policy = policy if train == "full" else add_adapter(policy, rank=2, alpha=4.0)
    learner = TrlLearner(policy, SolverConfig(learning_rate=1e-2))
    learner.update(Batch(tuple(random_rows(8))))
    folder = tmp_path / "run" / "checkpoints" / "00000003"
    (folder / "solver").mkdir(parents=True)
    learner.save(folder / "solver")
    config = compose([f"model.solver={folder}"])
    assert config.model.train == train
    assert torch.allclose(answers(load_policy(config, say).model), answers(policy.model), atol=1e-5)
    with pytest.raises(ConfigError, match=r"is a run; begin with one of its checkpoints"):
        compose([f"model.solver={tmp_path / 'run'}"])


def test_an_eval_of_a_run_takes_its_best_checkpoint(base: Path, tmp_path: Path) -> None:
    learner = TrlLearner(load_model(str(base), device="cpu", role="solver", for_training=True), SolverConfig())
    place = tmp_path / "runs" / "mine" / "checkpoints"
    for folder in (place / "best" / "00000003", place / "00000005"):
        (folder / "solver").mkdir(parents=True)
        learner.save(folder / "solver")
        write_manifest(folder, int(folder.name), ["solver"], PolicyFingerprint())
    config = compose([f"run.directory={tmp_path / 'runs'}"])
    assert find_policy(config, "mine").name == "mine/best/00000003"
    assert find_policy(config, str(place / "best" / "00000003")).name == "mine/best/00000003"
    assert find_policy(config, str(place / "00000005")).name == "mine/00000005"


def test_what_cannot_be_begun_with_is_said_in_one_line(base: Path, adapter: Path, tmp_path: Path) -> None:
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "model.gguf").write_bytes(b"GGUF")
    refused = [
        ([f"model.solver={tmp_path / 'gguf'}"], "a GGUF cannot be learned on; give the model"),
        ([f"model.solver={tmp_path / 'gguf' / 'model.gguf'}"], "a GGUF cannot be learned on; give the model"),
        ([f"model.solver={adapter}", "model.train=full"], "drop model.train=full"),
        ([f"model.adapter={tmp_path / 'nowhere'}"], "nowhere/adapter_config.json is of no adapter"),
    ]
    assert compose([f"model.solver={'x' * 5000}"]).model.solver == "x" * 5000, (
        "what is too long for a path is no folder"
    )
    for words, line in refused:
        with pytest.raises(ConfigError, match=line):
            compose(words)
    for settings, line in [
        (
            {"base_model_name_or_path": "/not/here"},
            r"is an adapter of /not/here; give model\.solver=BASE model\.adapter",
        ),
        ({"base_model_name_or_path": None}, "is an adapter of a base without name"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 0}, r"\.r"),
        ({"base_model_name_or_path": "${oc.env:HOME}/x"}, "base_model_name_or_path"),
        ({"target_modules": ["${oc.env:HOME}"]}, "target_modules"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ]:
        before = (adapter / "adapter_config.json").read_text()
        with pytest.raises(ConfigError, match=line) as raised:
            compose([f"model.solver={changed(adapter, **settings)}"])
        assert "\n" not in str(raised.value)
        (adapter / "adapter_config.json").write_text(before)
    config = compose([f"model.solver={changed(adapter, r=4)}"])
    with pytest.raises(CheckpointError, match="another shape"):
        load_policy(config, say)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        compose([f"model.solver={adapter}"])


def test_an_adapter_of_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    policy = add_adapter(load_model(str(base), device="cpu", role="solver"), rank=2, alpha=4.0)
    TrlLearner(policy, SolverConfig()).save(tmp_path)
    saved(tiny_policy(seed=1), tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"is another model; set model\.solver="):
        load_policy(compose([f"model.solver={tmp_path / 'other'}", f"model.adapter={tmp_path / 'adapter'}"]), say)
