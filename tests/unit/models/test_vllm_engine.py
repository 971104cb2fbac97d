"""vLLM as the back end: the sampler's promises, kept by the real engine where it is installed.

What needs no engine runs everywhere; the others are `slow` and skipped where vLLM cannot be imported.
"""

import dataclasses
import importlib.util
import math
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from builders.models import EOS, random_rows, save_merged, tiny_policy

from codezero.config import SolverConfig
from codezero.errors import ConfigError
from codezero.models import vllm_engine as vllm_loop
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel, load_model
from codezero.models.lora import add_adapter, plain_weights
from codezero.models.vllm_engine import VllmLoop, WeightChanges, drawn, requests, require_vllm
from codezero.settings import compose
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.wiring.models import load_policy

PROMPTS = [[65, 66, 258], [67] * 40 + [258], [70, 258]]
SHARE = 0.1
real = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)")


def on_disk(folder: Path, hidden: int = 128, seed: int = 0) -> LoadedModel:
    """A tiny policy and the directory it is in; `hidden` is four heads wide."""
    made = tiny_policy(seed, hidden=hidden, scale=0.1)
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return dataclasses.replace(made, name=str(folder))


def learner_of(policy: LoadedModel) -> TrlLearner:
    return TrlLearner(policy, SolverConfig(minibatches=1, micro_batch_rows=8, learning_rate=0.05))


def update(learner: TrlLearner) -> None:
    assert learner.update(Batch(random_rows(8))).rows


def reference(policy: LoadedModel, prompt: list[int], ids: list[int], temperature: float) -> torch.Tensor:
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.float().log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]


def off(policy: LoadedModel, loop: VllmLoop, temperature: float = 1.0) -> float:
    """How far the log-probabilities of a draw are from the policy's own, at most."""
    rows = loop.draw(PROMPTS, 4, 12, temperature, 5)
    asked = [prompt for prompt in PROMPTS for _ in range(4)]
    return max(
        float((torch.tensor(logprobs) - reference(policy, prompt, ids, temperature)).abs().max())
        for prompt, (ids, logprobs) in zip(asked, rows, strict=True)
    )


def test_without_vllm_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for refused in (require_vllm, lambda: load_policy(compose(["model.backend=vllm"]), lambda what: None)):
        with pytest.raises(
            ConfigError, match=r"not installed.*uv sync --no-dev --extra vllm.*model\.backend=own"
        ) as caught:
            refused()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.backend=tgi"], "choose one of: own, vllm"),
        (["model.backend_share=0"], "must be more than 0"),
        (["model.backend_share=1"], "must be at most 0.95"),
        (["model.backend=vllm", "model.gpus=2"], "the engine decodes on one card"),
        (["model.backend=vllm", "solver.temperature=0.001"], "below 0.01, where vLLM does not go"),
    ],
)
def test_wrong_settings_are_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(overrides)


def test_each_prompt_has_seeds_of_its_own_that_follow_from_the_call() -> None:
    told = requests(50, 8, 12, 0.7, 5, (256, 257))
    assert told == requests(50, 8, 12, 0.7, 5, (256, 257))
    used = {
        one["seed"] + draw for call in (5, 6) for one in requests(50, 8, 12, 0.7, call, (256,)) for draw in range(8)
    }
    assert len(used) == 2 * 50 * 8
    assert told[0] | {"seed": 0} == {
        "n": 8, "max_tokens": 12, "temperature": 0.7, "top_p": 1.0, "top_k": 0, "logprobs": 0, "ignore_eos": True,
        "stop_token_ids": [256, 257], "detokenize": False, "seed": 0,
    }  # fmt: skip


def test_of_several_log_probabilities_the_chosen_token_s_is_taken() -> None:
    at = [{7: SimpleNamespace(logprob=-1.0), 8: SimpleNamespace(logprob=-0.5)}, {EOS: SimpleNamespace(logprob=-2.0)}]
    assert drawn(SimpleNamespace(token_ids=(7, EOS), logprobs=at)) == ([7, EOS], [-1.0, -2.0])


def test_an_update_and_a_loaded_checkpoint_are_noticed_as_changes_and_a_draw_is_not(tmp_path: Path) -> None:
    """By the learner that is used: its fused optimiser writes past what tensors count of themselves."""
    policy = tiny_policy()
    learner, changes = learner_of(policy), WeightChanges(policy.model)
    first = changes.now()
    learner.save(tmp_path)
    Sampler(policy).sample(["x"], group_size=2, max_new_tokens=4, temperature=1.0, generator_seed=0)
    learner.logprobs([[65]], [[66]])
    assert changes.now() == first
    update(learner)
    second = changes.now()
    learner.load(tmp_path)
    assert len({first, second, changes.now()}) == 3
    changes.close()


def test_an_adapter_s_update_is_noticed_and_becomes_plain_weights(tmp_path: Path) -> None:
    policy = add_adapter(on_disk(tmp_path / "base"), rank=4, alpha=8.0)
    changes = WeightChanges(policy.model)
    before, names = changes.now(), set(load_model(policy.name, role="x").model.state_dict())
    update(learner_of(policy))
    assert changes.now() != before
    changes.close()
    save_merged(policy, tmp_path / "merged")
    merged, plain = load_model(str(tmp_path / "merged"), role="x").model.state_dict(), plain_weights(policy.model)
    assert set(plain) == names
    assert all(torch.equal(value, merged[name]) for name, value in plain.items())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[VllmLoop]:
    made = VllmLoop(on_disk(tmp_path_factory.mktemp("policy")), memory_share=SHARE)
    yield made
    made.close()


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_the_engine_keeps_the_back_end_s_promises(engine: VllmLoop) -> None:
    """One engine for all of them: it takes half a minute to start."""
    policy = engine.loaded
    assert off(policy, engine) < 1e-3
    assert off(policy, engine, 0.7) < 1e-3

    rows = engine.draw(PROMPTS, 4, 12, 1.0, 5)
    assert len(rows) == 12 and len({tuple(ids) for ids, _ in rows}) > 9
    assert engine.draw(PROMPTS, 4, 12, 1.0, 5) == rows
    assert engine.draw(PROMPTS, 4, 12, 1.0, 6) != rows
    assert engine.draw([], 4, 12, 1.0, 6) == []

    ended = engine.draw(PROMPTS, 64, 60, 2.0, 1)
    assert any(ids[-1] == EOS for ids, _ in ended) and any(ids[-1] != EOS for ids, _ in ended)
    assert all(EOS not in ids[:-1] and (ids[-1] == EOS or len(ids) == 60) for ids, _ in ended)
    assert all(len(ids) == len(logprobs) and max(logprobs) <= 0 for ids, logprobs in ended)

    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
    count = 4000
    seen = torch.bincount(
        torch.tensor([ids[0] for ids, _ in engine.draw(PROMPTS[:1], count, 1, 1.0, 3)]), minlength=len(logits)
    )
    p = logits.softmax(-1)
    assert ((seen / count - p).abs() / (p * (1 - p) / count).sqrt().clamp(min=1 / count)).max() < 5

    groups = Sampler(policy, engine).sample(
        ["a", "b"], group_size=3, max_new_tokens=8, temperature=1.0, generator_seed=0
    )
    assert [len(group) for group in groups] == [3, 3]
    with pytest.raises(ConfigError, match="warmer"):
        engine.draw(PROMPTS, 1, 1, 1e-3, 0)


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_weights_are_pushed_after_an_update_and_only_then(engine: VllmLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, pushes = engine.loaded, 0
    inner = engine._engine.collective_rpc

    def counted(method: str, *args: object, **kwargs: object) -> object:
        nonlocal pushes
        pushes += method == "reload_weights"
        return inner(method, *args, **kwargs)

    monkeypatch.setattr(engine._engine, "collective_rpc", counted)
    engine.draw(PROMPTS, 1, 4, 1.0, 0)
    pushes = 0
    before = engine.draw(PROMPTS, 4, 12, 1.0, 5)
    learner = learner_of(policy)
    assert engine.draw(PROMPTS, 4, 12, 1.0, 5) == before
    assert pushes == 0
    for count in (1, 2):
        update(learner)
        assert math.isfinite(worst := off(policy, engine)) and worst < 1e-3
        assert pushes == count
    assert engine.draw(PROMPTS, 4, 12, 1.0, 5) != before


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_an_adapted_policy_is_pushed_with_its_adapter(tmp_path: Path) -> None:
    policy = add_adapter(on_disk(tmp_path), rank=4, alpha=8.0)
    loop = VllmLoop(policy, memory_share=SHARE)
    try:
        before = loop.draw(PROMPTS, 4, 12, 1.0, 5)
        update(learner_of(policy))
        assert off(policy, loop) < 1e-3
        assert loop.draw(PROMPTS, 4, 12, 1.0, 5) != before
    finally:
        loop.close()


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_what_vllm_cannot_run_is_refused_in_one_line(tmp_path: Path) -> None:
    policy = on_disk(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"vLLM cannot run .*model\.backend=own") as caught:
        VllmLoop(policy, memory_share=SHARE)
    assert "\n" not in str(caught.value)


def test_a_share_that_does_not_hold_the_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = SimpleNamespace(current_platform=SimpleNamespace(device_type="cpu"))
    for name, module in {"vllm": SimpleNamespace(LLM=None), "vllm.platforms": platforms}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm_loop, "require_vllm", lambda: None)
    with pytest.raises(ConfigError, match=r"does not hold the solver's .* GiB of weights; raise model\.backend_share"):
        VllmLoop(tiny_policy(), memory_share=1e-9)


def test_a_device_that_vllm_is_not_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = SimpleNamespace(current_platform=SimpleNamespace(device_type="cuda"))
    modules = {"vllm": SimpleNamespace(LLM=None), "vllm.platforms": platforms}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm_loop, "require_vllm", lambda: None)
    with pytest.raises(ConfigError, match="built for cuda and the solver is on cpu"):
        VllmLoop(tiny_policy(), memory_share=SHARE)
