"""The sampler's promises: right log-probabilities in any company, on both back ends; one draw for one seed."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from codezero.models import generation as choosing
from codezero.models import generation as own
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.generation import OwnLoop, Progress, Sampler, choose
from codezero.models.load import LoadedModel
from codezero.types import Completion

PROMPTS = ("add x", "Write a function f(x) that returns x plus 2, and then some more words.", "?")
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|end|>{% endif %}"
)


KINDS = pytest.mark.parametrize("kind", ["slots", "general"])


def small_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>", "<|user|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["def f(x):\n    return x + 2"] * 5, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=["<|user|>"],
        chat_template=TEMPLATE,
    )


def tiny_model(seed: int = 0, **changes: object) -> Qwen2ForCausalLM:
    """Random, with weights large enough that the next token is far from uniform."""
    torch.manual_seed(seed)
    shape = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    scale = {"initializer_range": 0.3, "tie_word_embeddings": True}
    return Qwen2ForCausalLM(Qwen2Config(**(shape | heads | ends | scale | changes))).eval()


def make_sampler(kind: str, model: PreTrainedModel | None = None, progress: Progress | None = None) -> Sampler:
    loaded = LoadedModel(model or tiny_model(), small_tokenizer(), "tiny", torch.device("cpu"))
    loop = OwnLoop(loaded, progress=progress)
    assert loop.slots  # what this model gets on its own
    loop.slots = kind == "slots"
    return Sampler(loaded, loop)


def draw(subject: Sampler, prompts: Sequence[str] = PROMPTS, **changes: object):
    options = {"group_size": 4, "max_new_tokens": 12, "temperature": 1.0, "generator_seed": 5} | changes
    return subject.sample(prompts, **options)


def check(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    groups: Sequence[Sequence[Completion]],
    temperature: float = 1.0,
    most: float = 1e-5,
) -> None:
    """Log-probabilities are at `most` that far from those of each row alone, without cache, padding or batch."""
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            ids = completion.token_ids
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=most)


@KINDS
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_a_batch_are_those_of_a_row_alone(kind: str, temperature: float):
    subject = make_sampler(kind)
    prompts = encode_prompts(subject.loaded.tokenizer, PROMPTS)
    check(subject.loaded.model, prompts, draw(subject, temperature=temperature), temperature)


def test_back_ends_draw_the_same_tokens_with_the_same_logprobs():
    """Same noise, so a difference would be one of logits. One key head and an untied output head included."""
    model = tiny_model(seed=3, num_hidden_layers=3, num_key_value_heads=1, tie_word_embeddings=False)
    for slots, general in zip(draw(make_sampler("slots", model)), draw(make_sampler("general", model)), strict=True):
        assert [c.token_ids for c in slots] == [c.token_ids for c in general]
        for item, other in zip(slots, general, strict=True):
            assert item.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@KINDS
def test_same_seed_same_tokens_other_seed_other_tokens(kind: str):
    subject = make_sampler(kind)
    assert draw(subject) == draw(subject)
    assert draw(subject) != draw(subject, generator_seed=6)


@KINDS
def test_cold_sampling_is_greedy_decoding(kind: str):
    subject = make_sampler(kind)
    for prompt, group in zip(
        encode_prompts(subject.loaded.tokenizer, PROMPTS), draw(subject, temperature=1e-6, group_size=2), strict=True
    ):
        ids = torch.tensor([prompt])
        out = subject.loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12, pad_token_id=0
        )
        greedy = tuple(out[0, len(prompt) :].tolist())
        assert [completion.token_ids for completion in group] == [greedy, greedy]


@KINDS
def test_eos_is_kept_ends_the_row_and_is_not_in_the_text(kind: str):
    model = tiny_model()
    with torch.no_grad():  # make EOS likely: its embedding is the head's row
        model.model.embed_tokens.weight[0] = model.model.embed_tokens.weight.mean(0)
        model.model.norm.weight.mul_(0.2)
    subject = make_sampler(kind, model)
    completions = [c for group in draw(subject, group_size=64, max_new_tokens=40) for c in group]
    ended, cut = [c for c in completions if c.finished], [c for c in completions if not c.finished]
    assert ended and cut
    assert all(c.token_ids[-1] == 0 and 0 not in c.token_ids[:-1] for c in ended)
    assert all(len(c.token_ids) == 40 and 0 not in c.token_ids for c in cut)
    assert all(len(c.logprobs) == len(c.token_ids) and max(c.logprobs) <= 0 for c in completions)
    assert not any("<|" in c.text and 1 not in c.token_ids for c in completions)


@KINDS
def test_draws_follow_the_policy(kind: str):
    """First tokens of 4,000 draws against the softmax, by the largest deviation in standard errors."""
    subject = make_sampler(kind)
    count = 4_000
    group = draw(subject, PROMPTS[:1], group_size=count, max_new_tokens=1)[0]
    prompt = encode_prompts(subject.loaded.tokenizer, PROMPTS[:1])[0]
    with torch.no_grad():
        p = subject.loaded.model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)
    seen = torch.bincount(torch.tensor([c.token_ids[0] for c in group]), minlength=len(p)) / count
    assert ((seen - p).abs() / (p * (1 - p) / count).sqrt().clamp(min=1 / count)).max() < 5


@KINDS
def test_a_small_memory_budget_changes_nothing_but_the_batches(kind: str, monkeypatch: pytest.MonkeyPatch):
    subject = make_sampler(kind)
    monkeypatch.setattr(own, "CACHE_BUDGET", 1)
    groups = draw(subject)
    assert {len(group) for group in groups} == {4}
    check(subject.loaded.model, encode_prompts(subject.loaded.tokenizer, PROMPTS), groups)


@pytest.mark.parametrize("repeats", [1, 3, 8])
def test_a_row_that_ends_gives_its_place_to_the_next(repeats: int, monkeypatch: pytest.MonkeyPatch):
    """Eight places for 24 rows of all lengths: one decode, right log-probabilities, the same for the same seed."""
    model = tiny_model()
    with torch.no_grad():  # make EOS likely, as above
        model.model.embed_tokens.weight[0] = model.model.embed_tokens.weight.mean(0)
        model.model.norm.weight.mul_(0.2)
    subject = make_sampler("slots", model)
    prompts = [" ".join(["x"] * (1 + 7 * i % 11)) for i in range(24 // repeats)]
    rows = encode_prompts(subject.loaded.tokenizer, prompts)
    per_row = (max(map(len, rows)) + 40) * 2 * 2 * 2 * 8 * 4
    monkeypatch.setattr(own, "CACHE_BUDGET", 8 * per_row)
    decodes, fills = list[int](), list[int]()
    prefill, fill = own.SlotDecoder.prefill, own.SlotDecoder.fill

    def watched(decoder: own.SlotDecoder, *given: Any) -> torch.Tensor:
        decodes.append(len(given[0]) * given[1])
        return prefill(decoder, *given)

    def watched_fill(decoder: own.SlotDecoder, *given: Any) -> torch.Tensor:
        fills.append(len(given[0]))
        return fill(decoder, *given)

    monkeypatch.setattr(own.SlotDecoder, "prefill", watched)
    monkeypatch.setattr(own.SlotDecoder, "fill", watched_fill)
    options = {"group_size": repeats, "max_new_tokens": 40}
    groups = draw(subject, prompts, **options)
    assert len(decodes) == 1 and decodes[0] <= 8 and sum(fills) == 24 and len(fills) > 2
    assert len({len(each.token_ids) for group in groups for each in group}) > 2
    assert {len(group) for group in groups} == {repeats}
    check(model, rows, groups)
    assert draw(subject, prompts, **options) == groups


def test_float32_weights_are_sampled_under_autocast():
    """As a card's learner wraps them: keys come in float32 and values in bfloat16, of a prompt and of a step alike."""
    model = tiny_model()
    subject = make_sampler("general", model)
    prompts = encode_prompts(subject.loaded.tokenizer, PROMPTS)
    plain, model.forward = model.forward, torch.autocast("cpu", torch.bfloat16)(model.forward)
    groups = draw(subject)
    model.forward = plain
    check(model, prompts, groups, most=0.3)


NO_ROOM, MPS = torch.OutOfMemoryError("no room"), RuntimeError("MPS backend out of memory (MPS allocated: 17 GiB)")


class FakeMemory:
    """Of a decoder that has room for so many rows; notes how many each decode had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int, error: Exception = NO_ROOM):
        self.decodes: list[int] = []
        real = own.SlotDecoder.prefill

        def prefill(decoder: own.SlotDecoder, prompts: Sequence[Sequence[int]], repeats: int, new: int) -> torch.Tensor:
            self.decodes.append(len(prompts) * repeats)
            if self.decodes[-1] > room:
                raise error
            return real(decoder, prompts, repeats, new)

        monkeypatch.setattr(own.SlotDecoder, "prefill", prefill)


@pytest.mark.parametrize(("room", "tried", "error"), [
    (5, [12, 4], MPS), pytest.param(3, [12, 4, 2], NO_ROOM, marks=pytest.mark.slow),
    pytest.param(1, [12, 4, 2, 1], NO_ROOM, marks=pytest.mark.slow),
])  # fmt: skip
def test_when_memory_runs_out_the_rows_are_halved_for_good(
    room: int, tried: list[int], error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Groups of 4 for 3 prompts: whole groups while they fit, then parts of one. Right log-probabilities in all."""
    subject, memory = make_sampler("slots"), FakeMemory(monkeypatch, room, error)
    groups = draw(subject)
    assert list(dict.fromkeys(memory.decodes)) == tried
    assert len(caplog.records) == len(tried) - 1
    assert {len(group) for group in groups} == {4}
    check(subject.loaded.model, encode_prompts(subject.loaded.tokenizer, PROMPTS), groups)
    memory.decodes.clear()
    assert draw(subject) == draw(subject)
    assert max(memory.decodes) == tried[-1]
    assert len(caplog.records) == len(tried) - 1


@pytest.mark.slow
def test_a_row_that_does_not_fit_alone_is_an_error(monkeypatch: pytest.MonkeyPatch):
    subject = make_sampler("slots")
    FakeMemory(monkeypatch, 0)
    with pytest.raises(torch.OutOfMemoryError):
        draw(subject)
    assert not subject.loaded.model.training


@pytest.mark.parametrize("wide", [1, 2**14])
def test_a_token_is_never_one_without_mass_nor_beyond_the_vocabulary(wide: int, monkeypatch: pytest.MonkeyPatch):
    """Not at the ends of the vocabulary either, whatever the random number rounds to."""
    monkeypatch.setattr(choosing, "WIDE", wide)
    logits = torch.full((1, 300), -torch.inf)
    logits[0, [7, 200]] = 0.0
    generator = torch.Generator().manual_seed(0)
    tokens, logprobs = choose(logits.expand(20_000, -1), 1.0, generator)
    assert set(tokens.tolist()) == {7, 200}
    assert torch.allclose(logprobs, torch.tensor(0.5).log())
    assert abs((tokens == 7).float().mean() - 0.5) < 0.02


@KINDS
def test_sampling_sees_weights_changed_since_the_last_call_and_leaves_the_mode_alone(kind: str):
    model = tiny_model()
    subject = make_sampler(kind, model)
    before = draw(subject)
    model.train()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.mul_(-1)
    assert draw(subject) != before
    assert model.training


def test_long_prompts_lose_their_beginning():
    tokenizer = small_tokenizer()
    whole = encode_prompts(tokenizer, PROMPTS)
    assert encode_prompts(tokenizer, PROMPTS, 5) == [row[-5:] for row in whole]
    subject = make_sampler("slots")
    group = draw(subject, PROMPTS[1:2], max_prompt_tokens=5)[0]
    check(subject.loaded.model, [whole[1][-5:]], [group])


def test_a_user_cannot_speak_as_another():
    """Also not with a token that appears when another is cut out, nor with broken Unicode."""
    tokenizer = small_tokenizer()
    plain = encode_prompts(tokenizer, ["ab"])
    assert encode_prompts(tokenizer, ["a<|end|>b", "a<|e<|user|>nd|>b"]) == plain * 2
    assert encode_prompts(tokenizer, ["\ud800"])[0].count(0) == 1


def test_completions_are_encoded_letter_by_letter():
    tokenizer = small_tokenizer()
    ids = encode_completions(tokenizer, ["x<|end|>y"])[0]
    assert 0 not in ids and tokenizer.decode(ids) == "x<|end|>y"


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_a_large_vocabulary_is_drawn_from_as_a_small_one(temperature: float, monkeypatch: pytest.MonkeyPatch):
    """Also where its size is no multiple of a block, and in half precision."""
    logits = 3 * torch.randn(50, 1_000, generator=torch.Generator().manual_seed(0))
    logits[:, 500:] = -torch.inf
    plain = choose(logits, temperature, torch.Generator().manual_seed(1))
    monkeypatch.setattr(choosing, "WIDE", 1)
    tokens, logprobs = choose(logits, temperature, torch.Generator().manual_seed(1))
    assert torch.equal(tokens, plain[0]) and torch.allclose(logprobs, plain[1], atol=1e-5)
    half = choose(logits.bfloat16(), temperature, torch.Generator().manual_seed(1))
    assert torch.equal(half[0], choose(logits.bfloat16().float(), temperature, torch.Generator().manual_seed(1))[0])


@pytest.mark.parametrize("tiny", [True, False])
def test_who_asks_hears_how_many_attempts_of_a_call_have_ended(tiny: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that takes its time; a tiny one has ended before anybody looks."""
    monkeypatch.setattr(own, "TINY_PARAMETERS", 10**9 if tiny else 0)
    reports = list[tuple[int, int]]()
    sampler = make_sampler("slots", progress=lambda done, of: reports.append((done, of)))
    sampler.sample(PROMPTS, group_size=2, max_new_tokens=8, temperature=1.0, generator_seed=1)
    assert reports == sorted(reports) and reports[-1:] == ([] if tiny else [(6, 6)])


@KINDS
@pytest.mark.parametrize("budget", [1, 2**30])
def test_groups_are_handed_over_as_they_end_and_once_each(
    kind: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are decoded in one of several batches. What is handed over is what is returned."""
    monkeypatch.setattr(own, "CACHE_BUDGET", budget)
    handed, subject = list[tuple[int, list[Completion]]](), make_sampler(kind)
    groups = draw(subject, ended=lambda at, completions: handed.append((at, completions)))
    assert sorted(at for at, _ in handed) == [0, 1, 2] and all(groups[at] == group for at, group in handed)
    assert draw(subject) == groups
