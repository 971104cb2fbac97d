"""Reading what many texts share only once gives what reading each of them in full gives."""

from collections.abc import Callable
from random import Random

import pytest
import torch
from oracles.teacher_forced import teacher_forced
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from codezero.models import likelihood as prefix
from codezero.models.likelihood import Ask, AskScores, PrefixReader, PrefixRow, RowScores

VOCABULARY, END, CHOICES = 61, 60, (3, 5, 7)


def qwen(**more: object) -> PreTrainedModel:
    """Four query heads share two key heads."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=VOCABULARY, num_hidden_layers=2, initializer_range=0.3, **shape, **more)
    return Qwen2ForCausalLM(config).eval()


def llama() -> PreTrainedModel:
    torch.manual_seed(1)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=3, initializer_range=0.3, **shape)
    return LlamaForCausalLM(config).eval()


def windowed() -> PreTrainedModel:
    """Its second layer sees six tokens back: half of every text is out of its sight."""
    return qwen(use_sliding_window=True, sliding_window=6, max_window_layers=1)


MODELS: list[Callable[[], PreTrainedModel]] = [qwen, llama, windowed]


def ids(chance: Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(chance.randrange(END) for _ in range(chance.randint(least, most)))


def rows(seed: int = 0, heads: int = 4) -> list[PrefixRow]:
    """Lengths of every kind: heads of one token, empty bodies, rows without asks, answers of none to five tokens."""
    chance = Random(seed)
    shared = [ids(chance, 1 + 3 * at, 1 + 5 * at) for at in range(heads)]
    drawn = [
        PrefixRow(
            chance.choice(shared),
            ids(chance, 0, 12),
            tuple(Ask(ids(chance, 1, 9), ids(chance, 0, 5)) for _ in range(chance.randint(0, 4))),
        )
        for _ in range(20)
    ]
    chance.shuffle(drawn)
    return drawn


def alone(model: PreTrainedModel, head: tuple[int, ...], answer: tuple[int, ...]) -> AskScores:
    """By one full forward pass over this text alone."""
    (scores,) = teacher_forced(model, [head], [answer])
    with torch.no_grad():
        scored = model(input_ids=torch.tensor([head]), use_cache=False).logits[0, -1].log_softmax(-1)
    return AskScores(scored[list(CHOICES)], scores)


def close(item: AskScores, other: AskScores) -> bool:
    pairs = [
        (item.choices, other.choices),
        (item.answer.logprob, other.answer.logprob),
        (item.answer.gap, other.answer.gap),
    ]
    return all(a.shape == b.shape and torch.allclose(a, b, atol=1e-4, rtol=0) for a, b in pairs)


def check(model: PreTrainedModel, given: list[PrefixRow], scored: list[RowScores]) -> None:
    for row, scores in zip(given, scored, strict=True):
        body = alone(model, row.head, (*row.body, END))
        assert scores.body is not None and close(AskScores(body.choices, scores.body), body)
        assert len(scores.asks) == len(row.asks)
        for ask, item in zip(row.asks, scores.asks, strict=True):
            assert close(item, alone(model, (*row.head, *row.body, *ask.ids), ask.answer))


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("share", [True, False])
def test_every_score_is_that_of_a_full_forward_pass(make: Callable[[], PreTrainedModel], share: bool):
    model, given = make(), rows()
    check(model, given, PrefixReader(model, 0, share=share).read(given, end=END, choices=CHOICES))


@pytest.mark.parametrize("limit", [1, 60, 400])
def test_small_batches_change_nothing(limit: int, monkeypatch: pytest.MonkeyPatch):
    """Down to rows that do not fit any budget and are read alone."""
    monkeypatch.setattr(prefix, "TOKENS_PER_BATCH", limit)
    model, given = qwen(), rows(seed=1)
    reports = list[tuple[int, int]]()
    reader = PrefixReader(model, 0, batch_rows=3, progress=lambda done, of: reports.append((done, of)))
    check(model, given, reader.read(given, end=END, choices=CHOICES))
    assert reports == [(done, len(reports)) for done in range(1, len(reports) + 1)]


SCALED = {
    Gemma2Config: {"final_logit_softcapping": 3.0, "head_dim": 16},
    GraniteConfig: {"logits_scaling": 4.0},
    CohereConfig: {"logit_scale": 0.25},
}


@pytest.mark.parametrize("kind", SCALED)
def test_logits_are_scaled_as_the_family_does(kind: type[PreTrainedConfig]) -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    options = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "initializer_range": 0.3, "pad_token_id": 0}
    model: PreTrainedModel = AutoModelForCausalLM.from_config(kind(**shape, **options, **SCALED[kind])).eval()
    given = rows(seed=3)
    check(model, given, PrefixReader(model, 0).read(given, end=END, choices=CHOICES))


def test_272_programs_are_read_in_nine_passes_for_a_large_vocabulary() -> None:
    """Besides the one for the question: how few there are depends on the tokens, not on the vocabulary."""
    chance, model, passes = Random(0), qwen(), list[int]()
    model.config.vocab_size = 151_936
    lengths = [max(25, min(384, int(chance.lognormvariate(4.6, 0.55)))) for _ in range(272)]
    given = [PrefixRow(tuple(range(50)) * 4, tuple(chance.choices(range(END), k=length))) for length in lengths]
    model.base_model.register_forward_hook(lambda *_: passes.append(1))  # pyright: ignore
    scores = PrefixReader(model, 0).read(given, end=END)
    assert sum(passes) <= 1 + 9
    alone = PrefixReader(model, 0, batch_rows=1).read(given[:4], end=END)
    for one, other in zip(alone, scores, strict=False):
        assert one.body is not None and other.body is not None
        assert torch.allclose(one.body.logprob, other.body.logprob, atol=1e-5)


def test_few_logits_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefix, "LOGIT_PIECE", 5 * VOCABULARY)
    model, given = qwen(), rows(seed=2)
    for share in (True, False):
        check(model, given, PrefixReader(model, 0, share=share).read(given, end=END, choices=CHOICES))


def tokens_read(
    model: PreTrainedModel, given: list[PrefixRow], *, share: bool, end: int | None = END
) -> tuple[int, int]:
    """(positions, padding included; logits) that the model computed."""
    counted = [0, 0]

    def read(_module: object, _args: object, kwargs: dict[str, torch.Tensor]) -> None:
        counted[0] += kwargs["input_ids"].numel()

    def score(_module: object, _args: object, logits: torch.Tensor) -> None:
        counted[1] += logits[..., 0].numel()

    hooks = [
        model.base_model.register_forward_pre_hook(read, with_kwargs=True),  # pyright: ignore
        model.get_output_embeddings().register_forward_hook(score),  # pyright: ignore
    ]
    PrefixReader(model, 0, share=share).read(given, end=end, choices=CHOICES)
    for hook in hooks:
        hook.remove()
    return counted[0], counted[1]


def test_what_is_shared_is_read_once():
    head, body, ask = tuple(range(40)), tuple(range(10)), Ask((1, 2), ())
    given = [PrefixRow(head, (*body, at), (ask, Ask((1, 3)))) for at in range(8)]
    assert tokens_read(qwen(), given, share=True) == (39 + 8 * 12 + 16 * 2, 8 * 12 + 8 + 16)
    assert tokens_read(qwen(), given, share=False)[0] >= 8 * 51 + 16 * 53


def test_only_what_is_wanted_is_computed():
    given = [PrefixRow(tuple(range(40)), (1, 2, 3, at), (Ask((1, 2)),)) for at in range(8)]
    assert tokens_read(qwen(), given, share=True, end=None)[1] == 8 + 8
    unasked = [PrefixRow(row.head, row.body) for row in given]
    assert tokens_read(qwen(), unasked, share=True) == (39 + 8 * 5, 8 * 5 + 8)
    assert tokens_read(qwen(), unasked, share=True, end=None)[0] == 0
    (scores, *_) = PrefixReader(qwen(), 0).read(given)
    assert scores.body is None


def test_a_model_without_plain_attention_is_not_shared_and_says_why():
    assert "attention" in PrefixReader(windowed(), 0).why_not
    assert not PrefixReader(qwen(), 0).why_not and not PrefixReader(llama(), 0).why_not


def test_nothing_to_predict_from_is_refused():
    reader = PrefixReader(qwen(), 0)
    for row in (PrefixRow((), (1,)), PrefixRow((1, 2), (3,), (Ask(()),))):
        with pytest.raises(ValueError, match="without tokens"):
            reader.read([row], end=END)
    assert reader.read([]) == []


@pytest.mark.parametrize("model", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("batch_rows", [1, 128])
def test_states_are_those_of_the_whole_text(model: Callable[[], PreTrainedModel], batch_rows: int) -> None:
    drawn, network = rows(), model()
    read = PrefixReader(network, END, batch_rows=batch_rows).read(drawn, end=END, layers=(1, 2))
    for row, scores in zip(drawn, read, strict=True):
        with torch.no_grad():
            text = torch.tensor([[*row.head, *row.body]])
            whole = network.get_decoder()(input_ids=text, output_hidden_states=True).hidden_states
        if not row.body:
            assert scores.state is None
            continue
        assert scores.state is not None and scores.state.shape == (2, whole[1].shape[-1])
        torch.testing.assert_close(scores.state[0], whole[1][0, len(row.head) :].mean(0), rtol=1e-4, atol=1e-5)
    assert all(scores.state is None for scores in PrefixReader(network, END).read(drawn, end=END))
