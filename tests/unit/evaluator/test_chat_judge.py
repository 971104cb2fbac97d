"""A judge that answers in words: its verdicts are counted, its silence is no verdict, its calls are bounded."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from builders.chain import endpoint
from hypothesis import given
from hypothesis import strategies as st

from codezero.config import EvaluatorConfig
from codezero.errors import EvaluatorError
from codezero.evaluator.judge_prompts import YES_MARGIN
from codezero.evaluator.openai_judge import MOST_TOKENS, ChatJudge, verdict_of
from codezero.evaluator.types import Program
from codezero.models.openai_client import InvalidResponse

PROGRAMS = [Program("Write f(x) that doubles x.", f"def f(x):\n    return {number} * x") for number in (1, 2, 3)]
WANTED = frozenset({YES_MARGIN})


class Said:
    """What a server answers by the seed of a request, and what it was asked."""

    def __init__(self) -> None:
        self.words = lambda code, seed: "Yes" if "2 * x" in code else "No"  # of the last line
        self.fails: Any = lambda code, seed: False
        self.bodies: list[dict[str, Any]] = []


@contextmanager
def serving(said: Said) -> Iterator[str]:
    def answer(request: dict[str, Any]) -> Any:
        said.bodies.append(request)
        code, seed = request["messages"][0]["content"], request["seed"]
        text = f"<think>Let me see.</think>\nVerdict: {said.words(code, seed)}"
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        return (lambda handler: handler.reply(422, body)) if said.fails(code, seed) else body

    with endpoint(answer) as url:
        yield url


def judge(url: str, **settings: Any) -> ChatJudge:
    return ChatJudge(EvaluatorConfig(kind="chat", url=url, model="thinker", **settings))


def test_the_share_of_yes_is_the_score() -> None:
    said = Said()
    said.words = lambda code, seed: "Yes" if "2 * x" in code or ("3 * x" in code and seed == 0) else "**no**."
    with serving(said) as url, judge(url) as asked:
        asked.check()
        readings = asked.read(PROGRAMS, WANTED)
        again = asked.read(PROGRAMS, WANTED)
    assert [reading.scores for reading in readings] == [(math.log(1 / 5),), (math.log(5),), (math.log(2 / 4),)]
    assert again == readings and len(said.bodies) == 1 + 3 * 4, "an answer is paid for once"
    assert {body["max_tokens"] for body in said.bodies} == {MOST_TOKENS} and "logprobs" not in said.bodies[0]


def test_an_outage_is_never_a_no() -> None:
    said = Said()
    said.fails = lambda code, seed: ("1 * x" in code and seed < 2) or ("3 * x" in code and seed == 3)
    said.words = lambda code, seed: "perhaps so" if "2 * x" in code else "No"
    with serving(said) as url, judge(url) as asked:
        lost, silent, rest = asked.read(PROGRAMS, WANTED)
    assert lost.scores is None and "refused to read it" in lost.why_not
    assert silent.scores is None and "no opinion" in silent.why_not
    assert rest.scores == (math.log(1 / 4),), "three of four verdicts are enough"


def test_no_more_calls_are_made_than_are_allowed() -> None:
    said = Said()
    with serving(said) as url, judge(url, calls=9) as asked:
        readings = asked.read(PROGRAMS, WANTED)
        later = asked.read([Program("Write g(x).", "def g(x):\n    return x")], WANTED)
    assert len(said.bodies) == 9
    assert [reading.scores is None for reading in readings] == [False, False, True]
    assert "evaluator.calls=9" in readings[2].why_not and later[0].scores is None


def test_a_server_that_is_not_there_is_an_error_and_no_verdict() -> None:
    with judge("http://127.0.0.1:9", seconds=5.0) as asked, pytest.raises(EvaluatorError, match="judge at"):
        asked.read(PROGRAMS, WANTED)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda each: json.dumps(each).encode())
)
def test_any_bytes_are_a_verdict_none_or_an_invalid_response(body: bytes) -> None:
    try:
        assert verdict_of(body) in (None, 0.0, 1.0)
    except InvalidResponse as error:
        assert "\n" not in str(error)
