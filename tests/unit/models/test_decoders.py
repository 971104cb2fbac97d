"""The decoder with slots: another family's logits, what a step costs, and that nothing moves that a graph relies on."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from unit.models.test_generation import small_tokenizer, tiny_model

from codezero.models import decoders, generation
from codezero.models.decoders import CachedDecoder, SlotDecoder, has_slots
from codezero.models.generation import OwnLoop
from codezero.models.load import LoadedModel

PROMPTS = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]
SHAPE = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
         "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}  # fmt: skip
# no data passes through these: on a card they launch nothing
VIEWS = {"view", "_unsafe_view", "reshape", "transpose", "t", "expand", "slice", "select", "unsqueeze", "detach",
         "alias", "as_strided", "split", "split_with_sizes", "chunk", "unflatten", "flatten"}  # fmt: skip


def qwen3() -> PreTrainedModel:
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE)).eval()
    for name, weight in model.named_parameters():
        if "_norm" in name:  # else 1 everywhere, and nobody sees whether they are applied
            nn.init.uniform_(weight, 0.5, 1.5)
    return model


def llama() -> PreTrainedModel:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=rope, attention_bias=True, mlp_bias=True)).eval()


def steps(decoder: SlotDecoder | CachedDecoder, count: int) -> Iterator[Tensor]:
    logits = decoder.prefill(PROMPTS, 2, 5 + count)
    yield logits
    for at in range(count):
        yield decoder.step(torch.arange(len(logits)) + 20 + at)


@pytest.mark.parametrize("make", [tiny_model, qwen3, llama])
@torch.no_grad()
def test_logits_of_each_family_are_those_of_transformers(make: Callable[[], PreTrainedModel]) -> None:
    model = make()
    assert has_slots(model)
    for own, reference in zip(steps(SlotDecoder(model, 0), 4), steps(CachedDecoder(model, 0), 4), strict=True):
        gap = own.log_softmax(-1) - reference.log_softmax(-1)
        assert float(gap.abs().max()) < 1e-4


@pytest.mark.parametrize(
    "changes",
    [{"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, {"hidden_act": "gelu"},
     {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}],
)  # fmt: skip
def test_what_the_family_alone_does_not_tell_is_left_to_transformers(changes: dict[str, Any]) -> None:
    assert not has_slots(tiny_model(**changes))


class Dispatched(TorchDispatchMode):
    """Counts what torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name.split("::")[1]] += 1
        return func(*args, **(kwargs or {}))


def deep(adapter: bool) -> LoadedModel:
    """Of 24 layers and a large vocabulary, narrow."""
    model = tiny_model(num_hidden_layers=24, vocab_size=20_000)
    if adapter:
        from peft import LoraConfig

        model.add_adapter(LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"), "default")
    return LoadedModel(model, small_tokenizer(), "deep", torch.device("cpu"))


@pytest.mark.parametrize("adapter", [False, True])
def test_a_step_of_24_layers_takes_450_operators_and_asks_the_host_nothing(adapter: bool) -> None:
    loop = OwnLoop(deep(adapter))
    counts = list[Counter[str]]()
    for new in (2, 12):  # the difference is of ten steps, drawing included
        with Dispatched() as seen:
            loop.draw([[5, 6, 7]], 8, new, 1.0, 0)
        counts.append(seen.counts)
    of_steps = counts[1] - counts[0]
    assert sum(n for name, n in of_steps.items() if name not in VIEWS) <= 10 * 450
    assert not {"_local_scalar_dense", "nonzero", "item"} & of_steps.keys()


def addresses(decoder: SlotDecoder) -> list[int]:
    weights = [part.keywords["weight"] for layer in decoder.layers for part in (layer.qkv, layer.gate_up)]  # pyright: ignore
    state = [decoder.place, decoder.tokens, decoder.cos, decoder.sin, *decoder.keys, *decoder.values]
    return [tensor.data_ptr() for tensor in (*weights, *state)]


@torch.no_grad()
def test_nothing_moves_over_steps_refills_and_dropped_rows() -> None:
    decoder = SlotDecoder(tiny_model(), 0)
    logits = decoder.prefill(PROMPTS, 2, 12)
    before = addresses(decoder)
    decoder.step(logits.argmax(-1))
    decoder.fill(torch.tensor([1, 4]), [[9, 8, 7]], 2)
    decoder.step(logits.argmax(-1))
    decoder.keep(torch.tensor([4, 0, 1]))
    decoder.step(torch.tensor([1, 2, 3]))
    assert addresses(decoder) == before


@torch.no_grad()
def test_rows_that_were_kept_go_on_as_if_alone() -> None:
    model = tiny_model()
    many, one = SlotDecoder(model, 0), SlotDecoder(model, 0)
    many.prefill(PROMPTS, 1, 12)
    one.prefill([PROMPTS[2]], 1, 12)
    many.keep(torch.tensor([2, 0]))
    for token in (3, 4):
        both, alone = many.step(torch.tensor([token, 9])), one.step(torch.tensor([token]))
        assert torch.allclose(both[0], alone[0], atol=1e-5)


@pytest.mark.parametrize("sampled_in", [None, torch.bfloat16])
@pytest.mark.parametrize("adapter", [False, True])
def test_weights_are_followed_where_they_lie(sampled_in: torch.dtype | None, adapter: bool) -> None:
    """Full weights, in the precision they learn in or in another, and an adapter; an optimiser keeps its tensors."""
    loaded = deep(adapter)
    loaded = LoadedModel(loaded.model, loaded.tokenizer, "x", loaded.device, sampled_in=sampled_in)
    weights = dict(loaded.model.named_parameters())
    copied = generation.quick_copy(loaded)
    assert (copied is loaded.model) == (not adapter and sampled_in is None)
    before = OwnLoop(loaded).draw(PROMPTS, 2, 6, 0.0, 0)
    with torch.no_grad():
        for name, weight in weights.items():
            if "lora_B" in name or (not adapter and "proj.weight" in name):
                weight.add_(0.3)
    assert OwnLoop(loaded).draw(PROMPTS, 2, 6, 0.0, 0) != before
    assert generation.quick_copy(loaded) is copied
    again = dict(loaded.model.named_parameters())
    assert all(again[name] is weight and not weight.is_inference() for name, weight in weights.items())


def test_an_adapter_is_multiplied_out_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, drawn = deep(adapter=True), list[Any]()
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.05)
    for room in (0, 3):
        monkeypatch.setattr(generation, "MERGE_ROOM", room or 10**12)
        drawn.append(OwnLoop(loaded).draw(PROMPTS, 2, 8, 1.0, 0))
    for beside, merged in zip(*drawn, strict=True):
        assert beside.ids == merged.ids and beside.logprobs == pytest.approx(merged.logprobs, abs=1e-4)


def replayed(monkeypatch: pytest.MonkeyPatch, capture: Callable[[Callable[[], Tensor]], Callable[[], Tensor]]) -> Any:
    """Draws of a loop for which this machine is a card, with `capture` in place of CUDA's."""
    loop = OwnLoop(deep(adapter=False))
    plain = loop.draw(PROMPTS, 4, 40, 1.0, 0)
    monkeypatch.setattr(decoders, "GRAPHS", "cpu")
    monkeypatch.setattr(generation, "GRAPHS", "cpu")
    monkeypatch.setattr(decoders, "capture", capture)
    return plain, OwnLoop(loop.loaded).draw(PROMPTS, 4, 40, 1.0, 0)


def test_steps_are_replayed_by_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "BUCKET", 16)
    captured = list[int]()

    def capture(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        captured.append(0)
        at = len(captured) - 1

        def replay() -> Tensor:
            captured[at] += 1
            return work()

        return replay

    plain, drawn = replayed(monkeypatch, capture)
    assert 3 <= len(captured) <= 9 and sum(captured) >= 39 and min(captured) >= 1
    for one, other in zip(plain, drawn, strict=True):
        assert one.ids == other.ids and one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("why", ["out of luck", "off by"])
def test_a_graph_that_fails_or_differs_leaves_the_plain_step(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def capture(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        if why == "out of luck":
            raise RuntimeError(why)
        return lambda: work().flip(-1)

    plain, drawn = replayed(monkeypatch, capture)
    assert [each.ids for each in plain] == [each.ids for each in drawn]
    (line,) = caplog.messages
    assert "not replayed" in line and why in line
