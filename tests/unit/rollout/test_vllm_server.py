"""A real vLLM server process that follows versions: its log-probabilities are those of transformers, after each."""

import importlib.util
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from builders.models import tiny_policy

from codezero.models.generation import Drawn
from codezero.models.load import LoadedModel, load_model
from codezero.rollout.build import build_servers
from codezero.rollout.client import RolloutServers
from codezero.settings import compose
from codezero.weights.versions import Publisher

PROMPTS = [[65, 66, 258], [67] * 40 + [258], [68] * 300 + [258]]  # the last fills blocks of keys, which are kept
real = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)")


def off(policy: LoadedModel, client: RolloutServers, number: int) -> float:
    """How far the log-probabilities of a draw are from transformers' own, at most; all are of this version."""
    drawn: list[Drawn] = client.draw(PROMPTS, 4, 12, 1.0, 5)
    assert {draw.version for draw in drawn} == {number}
    gaps: list[float] = []
    for prompt, draw in zip((prompt for prompt in PROMPTS for _ in range(4)), drawn, strict=True):
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*prompt, *draw.ids]])).logits[0, len(prompt) - 1 : -1]
        own = logits.log_softmax(-1).gather(-1, torch.tensor(draw.ids)[:, None])[:, 0]
        gaps.append(float((own - torch.tensor(draw.logprobs)).abs().max()))
    return max(gaps)


@real
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_engine_has_the_weights_of_every_version(tmp_path: Path) -> None:
    """The head is tied, and a vocabulary of 768 is packed apart on a CPU in float32."""
    made, generator = tiny_policy(hidden=128, vocab=768, layers=3), torch.Generator().manual_seed(1)
    made.model.save_pretrained(tmp_path / "model")
    made.tokenizer.save_pretrained(tmp_path / "model")
    policy = load_model(
        str(tmp_path / "model"), device="cpu", precision="float32", role="solver"
    )  # bars what has no text
    weights = dict(policy.model.named_parameters())
    publisher = Publisher(tmp_path / "weights")
    words = [f"model.solver={tmp_path / 'model'}", "model.device=cpu", "model.precision=float32"]
    words += ["rollout.engine=vllm", "rollout.start=1", f"run.logs={tmp_path / 'logs'}"]
    config = compose([*words, "solver.max_prompt_tokens=384", "solver.max_new_tokens=128"])
    with ExitStack() as stack:
        client = build_servers(config, policy, tmp_path / "weights", print, stack)
        for number in range(7):
            with torch.no_grad():
                for weight in weights.values():
                    moved = torch.rand(weight.shape, generator=generator) < 0.3
                    noise = 0.2 * weight.abs().mean() * torch.randn(weight.shape, generator=generator)
                    weight.copy_((weight + noise * moved * (number > 0)).bfloat16().float())
            version = publisher.publish(number, weights, anchor=number == 6)
            assert bool(version.anchor) == (number in (0, 6))
            client.follow(version)
            worst = off(policy, client, number)
            print(f"version {number}: {worst:.2g} off, pushed in {client.metrics()['rollout/push_seconds']:.2f} s")
            assert worst < 1e-4
        first, again = (client.draw(PROMPTS, 4, 12, 1.0, 5) for _ in range(2))
        assert [draw.ids for draw in first] == [draw.ids for draw in again]  # log-probabilities round by the batch
