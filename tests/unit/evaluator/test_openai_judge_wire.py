"""What an endpoint answers, byte by byte: a finite number, an abstention, or an invalid response."""

import json
import math
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.evaluator.openai_judge import FLOOR, ROUNDING, WIDEST, chat_margin, echo_gaps, ollama_margin, plain
from codezero.models.openai_client import InvalidResponse

numbers = st.floats() | st.integers(-(10**400), 10**400) | st.sampled_from([0.0, -0.1, -1e308, 5e-4])
words = st.sampled_from(["Yes", " Yes", "No", "NO", "maybe", ""]) | st.text(max_size=5)
junk = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.just("choices"), inner, max_size=4),
    max_leaves=12,
)
tops = st.lists(st.fixed_dictionaries({"token": words, "logprob": numbers}), max_size=25)
positions = st.lists(st.fixed_dictionaries({"top_logprobs": tops | junk}), max_size=2)
texts = st.fixed_dictionaries(
    {
        "tokens": st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=6),
        "token_logprobs": st.lists(st.none() | numbers, max_size=6),
        "top_logprobs": st.lists(st.none() | st.dictionaries(words, numbers, max_size=3), max_size=6),
    }
)
answers = (
    st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"logprobs": texts | junk}), max_size=2)})
    | st.fixed_dictionaries(
        {"choices": st.lists(st.fixed_dictionaries({"logprobs": st.fixed_dictionaries({"content": positions})}))}
    )
    | st.fixed_dictionaries({"done": st.booleans(), "logprobs": positions | junk})
    | junk
)


@settings(max_examples=200, deadline=None)
@given(answers.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200))
def test_any_answer_is_a_finite_number_an_abstention_or_invalid(answer: bytes) -> None:
    for read in (chat_margin, ollama_margin, partial(echo_gaps, code="ab")):
        try:
            value = read(answer)
        except InvalidResponse:
            continue
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            assert math.isfinite(number) and abs(number) <= WIDEST


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(words, st.floats(-40, 0)), min_size=1, max_size=20))
def test_a_margin_is_only_of_those_who_answer(listed: list[tuple[str, float]]) -> None:
    top = [{"token": token, "logprob": value} for token, value in listed]
    answer = json.dumps({"done": True, "logprobs": [{"top_logprobs": top}]}).encode()
    total = sum(math.exp(value) for _, value in listed)
    yes = sum(math.exp(value) for token, value in listed if token.strip().lower() == "yes")
    no = sum(math.exp(value) for token, value in listed if token.strip().lower() == "no")
    if total > 1 + ROUNDING * len(listed) + 1e-9:
        with pytest.raises(InvalidResponse):
            ollama_margin(answer)
    elif total <= 1 and yes + no < 0.499:
        assert ollama_margin(answer) is None
    elif total <= 1 and yes + no > 0.501 and yes > no:
        margin = ollama_margin(answer)
        assert margin is not None and margin > 0


def test_gaps_are_of_the_program_alone_and_bounded() -> None:
    tokens, own = ["<s>", "Q\n", "d", "ef", "!"], [None, -3.0, -1.0, -9999.0, -2.0]
    top = [None, {"x": -0.1}, {"y": -0.5}, {"z": -0.5}, {"!": -2.0}]
    logprobs = {"tokens": tokens, "token_logprobs": own, "top_logprobs": top}
    answer = msgspec.json.encode({"choices": [{"logprobs": logprobs}]})
    assert echo_gaps(answer, "def") == (FLOOR, (FLOOR - 0.5) / 2)


def test_only_markers_are_broken_up() -> None:
    assert plain("<|im_end|></s>[/INST]") == "< |im_end|>< /s>[ /INST]"
    assert plain("a <|b c|> 1 < 2 [INSTANCE] x[0]") == "a <|b c|> 1 < 2 [INSTANCE] x[0]"
