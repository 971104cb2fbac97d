"""vLLM as the back end: the sampler's promises, kept by the real engine where it is installed.

What needs no engine runs everywhere; the others are `slow` and skipped where vLLM cannot be imported.
"""

import copy
import dataclasses
import importlib.util
import math
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders.models import EOS, judged, problem, random_rows, save_merged, tiny_policy

from codezero.config import SolverConfig
from codezero.errors import ConfigError, ModelError
from codezero.models import vllm_engine as vllm_loop
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel, load_model
from codezero.models.lora import add_adapter, plain_weights
from codezero.models.vllm_engine import VllmLoop, drawn, requests
from codezero.settings import compose
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.solver.mismatch import USUAL, measure
from codezero.solver.solver import GrpoSolver
from codezero.types import ScoredGroup

PROMPTS = [[65, 66, 258], [67] * 40 + [258], [70, 258]]
SHARE = 0.1
real = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)")


def on_disk(folder: Path, hidden: int = 128, seed: int = 0, vocab: int = 259) -> LoadedModel:
    """A tiny policy and the directory it is in; `hidden` is four heads wide."""
    made = tiny_policy(seed, hidden=hidden, scale=0.1, vocab=vocab)
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


def test_an_updated_adapter_becomes_plain_weights(tmp_path: Path) -> None:
    policy = add_adapter(on_disk(tmp_path / "base"), rank=4, alpha=8.0)
    names = set(load_model(policy.name, role="x").model.state_dict())
    update(learner_of(policy))
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
def test_the_engine_has_the_weights_of_the_newest_update(engine: VllmLoop) -> None:
    before = engine.draw(PROMPTS, 4, 12, 1.0, 5)
    learner = learner_of(engine.loaded)
    assert engine.draw(PROMPTS, 4, 12, 1.0, 5) == before
    for _ in range(2):
        update(learner)
        assert math.isfinite(worst := off(engine.loaded, engine)) and worst < 1e-3
    assert engine.draw(PROMPTS, 4, 12, 1.0, 5) != before


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_a_solver_that_samples_by_the_engine_agrees_with_its_learner(engine: VllmLoop) -> None:
    """Also in the iteration after an update, when the engine has new weights."""
    settings = SolverConfig(group_size=8, max_new_tokens=24, minibatches=1, learning_rate=0.01)
    solver = GrpoSolver(
        settings,
        sampler=Sampler(engine.loaded, engine),
        learner=TrlLearner(engine.loaded, settings),
        peer_id="me",
        seed=0,
        engine=True,
    )
    verdicts = judged(0, [0.0, 1.0] * 4).verdicts
    for _ in range(3):
        groups = solver.rollout([problem(0), problem(1)], 0)
        metrics = solver.step([ScoredGroup(group, verdicts) for group in groups], [])
        assert (metrics["train/mismatch_rows"], metrics["train/mismatch_masked"], metrics["train/rows"]) == (16, 0, 16)
        assert metrics["train/mismatch_alarm"] is None and 0 <= float(metrics["train/mismatch_kl"] or 0) < 1e-8
    assert solver.learner.steps == 3


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


def moved(policy: LoadedModel, *parts: str) -> None:
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if any(part in name for part in parts):
                weight += 0.05 * torch.randn_like(weight)


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_a_tied_head_that_is_packed_apart_is_pushed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 768 tokens a CPU's engine packs the head, beside the embedding. It arrives by the name that it has in the
    policy, though no file of a tied model has it; without, engine and policy part, and the push is refused."""
    policy = on_disk(tmp_path, vocab=768)
    loop = VllmLoop(policy, memory_share=SHARE)
    try:
        for parts in (("embed",), ("embed",), ("norm", "proj")):
            moved(policy, *parts)
            assert off(policy, loop) < 1e-4
        whole = vllm_loop.plain_weights
        monkeypatch.setattr(vllm_loop, "plain_weights", lambda model: {
            name: value for name, value in whole(model).items() if name != "lm_head.weight"
        })  # fmt: skip
        moved(policy, "embed")
        with pytest.raises(ModelError, match=r"nats a token from the policy .* model\.backend=own"):
            off(policy, loop)
        monkeypatch.setattr(vllm_loop, "plain_weights", whole)
        moved(policy, "embed")
        assert off(policy, loop) < 1e-4

        inner = loop._engine.collective_rpc
        monkeypatch.setattr(
            loop._engine, "collective_rpc", lambda method, **more: method == "reload_weights" or inner(method, **more)
        )
        loop._apart = math.inf  # as few bits as it may have
        moved(policy, "norm")
        with pytest.raises(ModelError, match="answers as before"):
            off(policy, loop)
    finally:
        loop.close()


@real
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_a_bfloat16_engine_is_near_enough_for_a_float32_learner(tmp_path: Path) -> None:
    """The metric and the check after a push tell its noise from weights that are missing."""
    policy = on_disk(tmp_path, vocab=768)
    policy.model.to(torch.bfloat16).save_pretrained(tmp_path)
    loop = VllmLoop(policy, memory_share=SHARE)
    try:
        learner = learner_of(policy)
        assert policy.model.dtype == torch.float32
        for _ in range(2):
            update(learner)
            pairs = [
                (logprobs, reference(policy, prompt, ids, 1.0).tolist())
                for prompt in PROMPTS
                for ids, logprobs in loop.draw([prompt], 4, 12, 1.0, 5)
            ]
            found = measure(pairs)
            assert found.mean is not None and 1e-4 < found.mean < USUAL and not found.alarm()
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


class StandIn:
    """What `VllmLoop` asks of an engine: a copy of the policy, which takes of a push what `takes` leaves."""

    def __init__(self, policy: LoadedModel, takes: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]):
        self.model, self.takes, self.cached = copy.deepcopy(policy.model), takes, True

    def reset_prefix_cache(self) -> None:
        self.cached = False

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        assert method == "reload_weights"
        self.model.load_state_dict(self.takes(dict(kwargs["weights_iterator"])), strict=False)
        self.cached = True

    def generate(self, prompts: list[dict[str, list[int]]], settings: list[Any], use_tqdm: bool) -> list[Any]:
        assert not self.cached, "keys and values of earlier weights"
        (ids,) = [torch.tensor(prompt["prompt_token_ids"]) for prompt in prompts]
        with torch.no_grad():
            scores = self.model(input_ids=ids[None]).logits[0].log_softmax(-1)
        each = [
            {int(token): SimpleNamespace(logprob=float(row[token]))}
            for row, token in zip(scores, ids[1:], strict=False)
        ]
        return [SimpleNamespace(prompt_logprobs=[None, *each])]


@pytest.mark.parametrize(
    ("takes", "problem"),
    [
        (lambda pushed: pushed, ""),
        (lambda pushed: {}, r"0\.\d+ nats a token from the policy after its weights were pushed.*model\.backend=own"),
        (lambda pushed: {name: torch.full_like(value, math.nan) for name, value in pushed.items()}, "nan nats a token"),
    ],
    ids=["whole", "nothing", "garbage"],
)
def test_a_push_that_does_not_arrive_ends_the_run_in_one_line(
    takes: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("vllm", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(SamplingParams=SimpleNamespace))
    policy = tiny_policy()
    stand_in = StandIn(policy, lambda pushed: pushed)
    monkeypatch.setattr(vllm_loop, "_engine", lambda loaded, share: stand_in)
    loop = VllmLoop(policy, memory_share=SHARE)
    loop._push()
    stand_in.takes = takes
    moved(policy, "embed", "norm")
    if not problem:
        loop._push()
    else:
        with pytest.raises(ModelError, match=problem) as caught:
            loop._push()
        assert "\n" not in str(caught.value)


def test_steps_too_small_to_see_are_no_failed_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may leave every bit of a coarse engine as it was; many of them add up."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    policy = tiny_policy()
    monkeypatch.setattr(vllm_loop, "_engine", lambda loaded, share: StandIn(policy, lambda pushed: {}))
    loop = VllmLoop(policy, memory_share=SHARE)
    pushes = 0
    with pytest.raises(ModelError, match="answers as before"):
        while pushes < 1000:
            loop._push()
            pushes += 1
            with torch.no_grad():
                policy.model.get_input_embeddings().weight.mul_(1.0003)
    assert 2 < pushes < 1000


def test_a_share_that_does_not_hold_the_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = SimpleNamespace(current_platform=SimpleNamespace(device_type="cpu"))
    for name, module in {"vllm": SimpleNamespace(LLM=None), "vllm.platforms": platforms}.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ConfigError, match=r"does not hold the solver's .* GiB of weights; raise model\.backend_share"):
        VllmLoop(tiny_policy(), memory_share=1e-9)


def test_a_device_that_vllm_is_not_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = SimpleNamespace(current_platform=SimpleNamespace(device_type="cuda"))
    modules = {"vllm": SimpleNamespace(LLM=None), "vllm.platforms": platforms}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ConfigError, match="built for cuda and the solver is on cpu"):
        VllmLoop(tiny_policy(), memory_share=SHARE)
