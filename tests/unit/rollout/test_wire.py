"""What servers read and what they answer is data: anything may come, and the right thing alone gets through."""

import math
from collections.abc import Generator
from typing import Any

import httpx2
import msgspec
import pytest
from builders.mutating import replaced
from builders.rollout import VersionedPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.errors import EndpointError
from codezero.rollout.client import Sampling, parse_answer, requests, serving
from codezero.rollout.little import LittleServer, LittleSettings
from codezero.weights.versions import VersionSource

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PARAMS = requests(1, Sampling(2, 4, 1.0, 5, [0, 1]))[0]
GOOD = {
    "model": "policy", "token_ids": [5, 6], "sampling_params": msgspec.to_builtins(PARAMS), "cache_salt": "0" * 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def generate(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a server in this process that takes 3 attempts and 32 tokens."""
    policy = VersionedPolicy(tmp_path_factory.mktemp("wire") / "weights")
    policy.publish()
    limits = LittleSettings("", "", "cpu", "float32", 0, rows=3, context=32)
    server = LittleServer(policy.loaded, VersionSource(policy.folder), limits)
    with serving(server.app(), "127.0.0.1:0", "test", "") as port:
        yield f"http://127.0.0.1:{port}/inference/v1/generate"


def paths(tree: Any) -> list[list[Any]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [[], *([key, *rest] for key, value in inner for rest in paths(value))]


def post(url: str, body: bytes) -> httpx2.Response:
    return httpx2.post(url, content=body, timeout=60, trust_env=False)


def test_the_request_of_the_client_is_taken(generate: str) -> None:
    answer = post(generate, msgspec.json.encode(GOOD))
    assert answer.status_code == 200
    assert len(parse_answer(answer.content.replace(b"default", b"7"), PARAMS, 768, {7})) == 2


@pytest.mark.parametrize(("path", "value"), [
    (["model"], "other"), (["token_ids"], []), (["token_ids"], [768]), (["token_ids"], [-1]), (["token_ids"], [10**30]),
    (["token_ids"], [5] * 29), (["sampling_params", "n"], 4), (["sampling_params", "n"], 0),
    (["sampling_params", "max_tokens"], 31), (["sampling_params", "max_tokens"], 1 << 62),
    (["sampling_params", "temperature"], -1), (["sampling_params", "logit_bias"], {"5": 1}),
    (["sampling_params", "logit_bias"], {"x": -1}), (["sampling_params", "temperature"], "1"),
    (["sampling_params", "seed"], -1), (["sampling_params", "stop_token_ids"], [768]),
    (["sampling_params", "stop_token_ids"], [0] * 65), (["sampling_params", "logprobs"], 1),
    (["sampling_params", "top_p"], 0.9), (["sampling_params"], None), (["cache_salt"], "x" * 64),
])  # fmt: skip
def test_a_request_out_of_bounds_gets_one_line(generate: str, path: list[Any], value: Any) -> None:
    answer = post(generate, msgspec.json.encode(replaced(GOOD, path, value)))
    assert answer.status_code == 400 and len(answer.text.splitlines()) == 1


def test_a_field_that_nobody_asked_for_is_refused(generate: str) -> None:
    assert post(generate, msgspec.json.encode({**GOOD, "source": "http://elsewhere"})).status_code == 400
    update = generate.replace("inference/v1/generate", "update_weights")
    target = {"number": 0, "state": "0" * 64}
    for body in ({"update_info": {**target, "path": "/etc"}}, {"update_info": target, "url": "x"}, {}, []):
        assert post(update, msgspec.json.encode(body)).status_code == 400


def test_a_large_body_is_not_read(generate: str) -> None:
    assert post(generate, b" " * 100_000).status_code == 413


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_no_request_breaks_the_server(generate: str, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths(GOOD)))
    body = msgspec.json.encode(replaced(GOOD, path, data.draw(JSON)))
    assert post(generate, body).status_code in (200, 400)


@settings(max_examples=50)
@given(body=st.binary(max_size=200))
def test_no_bytes_break_the_server(generate: str, body: bytes) -> None:
    assert post(generate, body).status_code == 400


def choice(index: int, ids: list[int], versions: list[list[Any]] | None = None) -> dict[str, Any]:
    spans = [["7", 0, len(ids)]] if versions is None else versions
    return {
        "index": index,
        "token_ids": ids,
        "logprobs": {"content": [{"logprob": -0.5, "token_id": token, "rank": 1} for token in ids]},
        "weight_versions": [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans],
    }


ANSWER: dict[str, Any] = {"choices": [choice(1, [5, 6, 7, 8]), choice(0, [5, 0], [["8", 1, 2]])], "request_id": "x"}
ANSWER["choices"][1]["weight_versions"].insert(0, {"version": "7", "start": 0, "end": 1})


def parsed(answer: Any) -> Any:
    return parse_answer(msgspec.json.encode(answer), PARAMS, 768, {7, 8})


def test_an_answer_is_read_in_the_order_of_its_indices_with_its_oldest_version() -> None:
    assert parsed(ANSWER) == [([5, 0], [-0.5] * 2, 7), ([5, 6, 7, 8], [-0.5] * 4, 7)]


@pytest.mark.parametrize("choices", [
    [choice(0, [5, 0])], [choice(0, [5, 0]), choice(0, [5, 0])],
    [choice(0, [5, 0]), choice(1, [5, 0]), choice(2, [5, 0])], [choice(0, [5, 0]), choice(1, [5])],
    [choice(0, [5, 0]), choice(1, [0, 5, 6, 7])], [choice(0, [5, 0]), choice(1, [5, 6, 7, 8, 9])],
    [choice(0, [5, 0]), choice(1, [768, 0])], [choice(0, [5, 0]), choice(1, [5, 0], [["6", 0, 2]])],
    [choice(0, [5, 0]), choice(1, [5, 0], [["default", 0, 2]])], [choice(0, [5, 0]), choice(1, [5, 0], [["7", 0, 1]])],
    [choice(0, [5, 0]), choice(1, [5, 0], [["7", 1, 2]])],
    [choice(0, [5, 0]), choice(1, [5, 0], [["7", 0, 1], ["8", 0, 2]])],
    [choice(0, [5, 0]), {**choice(1, [5, 0]), "logprobs": {"content": [{"logprob": -1}]}}],
    [choice(0, [5, 0]), {**choice(1, [5, 0]), "logprobs": {"content": [{"logprob": -1}, {"logprob": 0.1}]}}],
    [choice(0, [5, 0]), {**choice(1, [5, 0]), "logprobs": {}}],
])  # fmt: skip
def test_an_answer_that_no_server_may_give_is_refused(choices: list[Any]) -> None:
    with pytest.raises(EndpointError):
        parsed({"choices": choices})


def test_an_infinite_log_probability_is_refused() -> None:
    with pytest.raises(EndpointError):
        parse_answer(msgspec.json.encode(ANSWER).replace(b"-0.5", b"-1e999"), PARAMS, 768, {7, 8})


@settings(max_examples=400)
@given(data=st.data())
def test_whatever_is_answered_is_refused_or_sound(data: st.DataObject) -> None:
    answer = replaced(ANSWER, data.draw(st.sampled_from(paths(ANSWER))), data.draw(JSON | st.integers(-1, 8)))
    try:
        drawn = parsed(answer)
    except EndpointError:
        return
    assert len(drawn) == 2
    for draw in drawn:
        assert 0 < len(draw.ids) == len(draw.logprobs) <= 4 and draw.version in (7, 8)
        assert all(0 <= token < 768 for token in draw.ids)
        assert all(math.isfinite(logprob) and logprob <= 0 for logprob in draw.logprobs)


@settings(max_examples=100)
@given(body=st.binary(max_size=100))
def test_no_bytes_of_an_answer_do_more_than_be_refused(body: bytes) -> None:
    with pytest.raises(EndpointError):
        parse_answer(body, PARAMS, 768, {7})


def test_ids_without_a_text_are_barred_in_the_form_of_vllm() -> None:
    params = Sampling(1, 4, 0.0, 5, [0], logit_bias={7: -1e4})
    assert b'"logit_bias":{"7":-10000.0}' in msgspec.json.encode(params)
