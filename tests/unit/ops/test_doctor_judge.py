"""What `doctor` says of a judge behind an endpoint: which server it is, and what it can be asked."""

from collections.abc import Iterator

import pytest
from fakes.judge_server import MODEL, Judge, Server, serving

from codezero.config import EvaluatorConfig
from codezero.errors import EndpointError
from codezero.evaluator.endpoint_wire import OLLAMA_LOGPROBS, server_version
from codezero.ops import doctor_network as network
from codezero.ops.findings import CheckState, Finding

VLLM, OLLAMA = {"/version": b'{"version": "0.32.0"}'}, {"/api/version": b'{"version": "0.35.1"}'}
NO_LOGPROBS = b'{"choices": [{"message": {"content": "Yes"}}]}'


@pytest.fixture(scope="module")
def brain() -> Judge:
    return Judge()


@pytest.fixture
def server(brain: Judge) -> Iterator[Server]:
    with serving(brain) as one:
        yield one


def told(server: Server, kind: str = "openai", end: str = "", **more: list[str]) -> Finding:
    config = EvaluatorConfig(kind=kind, url=server.url + end, model=MODEL, seconds=20.0, **more)
    return network.judge(config)


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_a_server_with_everything_is_named_with_its_version(server: Server, end: str) -> None:
    server.state.versions = VLLM
    found = told(server, end=end)
    assert found.state is CheckState.OK and found.text.endswith("answers (vLLM 0.32.0)") and "weaker" not in found.text


def test_ollama_has_no_likelihood_and_that_is_said(server: Server) -> None:
    server.state.versions = OLLAMA
    found = told(server, "ollama")
    assert found.state is CheckState.WARN and "(Ollama 0.35.1), yes/no only: weaker" in found.text
    assert "docs/docker.md" in found.mend


@pytest.mark.parametrize("mode", ["no echo", "forgets the prompt"])
def test_a_server_without_log_probs_of_a_prompt_is_weaker(server: Server, mode: str) -> None:
    server.state.mode = mode
    found = told(server)
    assert found.state is CheckState.WARN and "yes/no only: weaker" in found.text
    assert "does not tell its version" in found.text


def test_who_asks_for_yes_or_no_alone_lacks_nothing(server: Server) -> None:
    server.state.mode = "no echo"
    assert told(server, questions=["yes_no"]).state is CheckState.OK


def test_a_server_too_old_for_log_probs_fails_with_its_version_beside_the_one_that_is_needed(server: Server) -> None:
    server.state.versions, server.state.mode = {"/api/version": b'{"version": "0.12.3"}'}, "bytes"
    server.state.body = b'{"message": {"content": "Yes"}}'
    found = told(server, "ollama")
    assert found.state is CheckState.FAIL
    assert "no log-probabilities" in found.text and OLLAMA_LOGPROBS in found.text and "(Ollama 0.12.3)" in found.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"0.32.0", b'{"version": 1}', b'{"version": ""}', b'{"version": "1\\n2"}', b"[" * 9000,
     b'{"version": "' + b"1" * 41 + b'"}', b'{"version": "\\u001b[31m1"}', b'{"version": "\xff"}'],
)  # fmt: skip
def test_a_version_that_is_none_is_unknown(server: Server, body: bytes) -> None:
    with pytest.raises(EndpointError):
        server_version(body)
    server.state.versions = {"/version": body, "/api/version": body}
    assert "does not tell its version" in told(server).text
