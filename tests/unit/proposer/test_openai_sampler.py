"""A proposer behind an endpoint, against a real server: what it is asked, and what is made of a bad one."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.judge_server import CHAT, Handler, Server, serving

from codezero.config import ProposerConfig
from codezero.errors import ConfigError, ProposalError
from codezero.proposer.openai_sampler import SCHEMA, OpenAISampler
from codezero.proposer.parsing import ProposalReason, parse_proposal
from codezero.proposer.proposer import ModelProposer

PROBLEM = {"question": "Write a function add_two(x) that returns x plus 2.",
           "tests": ["assert add_two(1) == 3", "assert add_two(5) == 7"]}  # fmt: skip
Reply = Callable[[dict[str, Any]], dict[str, Any]]


def writes(text: str | None) -> Reply:
    return lambda asked: {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}


@pytest.fixture
def server() -> Iterator[Server]:
    """The test's judge server, answering as a proposer; `answer` is what it says."""
    with serving(None) as one:  # type: ignore[arg-type]  # no judge is asked
        handler: type[Handler] = one.RequestHandlerClass  # type: ignore[assignment]
        handler.ok = lambda self, asked: self.send(200, json.dumps(self.reply(asked)).encode())
        handler.reply = staticmethod(writes(json.dumps(PROBLEM)))
        handler.unconstrained = lambda self, asked: (
            self.send(400, b"") if "response_format" in asked else self.ok(asked)
        )
        yield one


def says(server: Server, reply: Reply) -> None:
    server.RequestHandlerClass.reply = staticmethod(reply)


def proposer(sampler: OpenAISampler, attempts: int = 1) -> ModelProposer:
    settings = ProposerConfig(max_new_tokens=200, temperature=0.7, attempts=attempts, taken=4)
    return ModelProposer(sampler, settings, peer_id="peer", seed=0)


def sampler(server: Server, seconds: float = 5.0) -> OpenAISampler:
    settings = ProposerConfig(url=server.url, model="model", seconds=seconds)
    return OpenAISampler(settings)


def test_a_proposal_is_asked_for_in_the_schema_and_read_without_a_fence(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEZERO_PROPOSER_KEY", "sk-secret")
    with sampler(server) as one:
        (problem,) = proposer(one).propose([3])
    assert (problem.question, list(problem.tests), problem.level) == (PROBLEM["question"], PROBLEM["tests"], 3)
    (asked,) = server.state.bodies
    assert asked["model"] == "model" and asked["max_tokens"] == 200 and asked["temperature"] == 0.7
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "Level 3" in asked["messages"][0]["content"]
    assert server.state.keys == {"Bearer sk-secret"} and set(server.state.paths) == {CHAT}


def test_a_server_that_cannot_constrain_is_asked_without_from_then_on(server: Server) -> None:
    says(server, writes(f"Here it is.\n```json\n{json.dumps(PROBLEM)}\n```"))
    server.state.mode = "unconstrained"
    with sampler(server) as one:
        assert len(proposer(one).propose([1])) == len(proposer(one).propose([1])) == 1
    assert ["response_format" in body for body in server.state.bodies] == [True, False, False]


@pytest.mark.parametrize("mode", ["503", "401", "404", "redirects", "closes", "huge"])
def test_a_server_that_answers_nothing_costs_this_rounds_proposals_and_is_left_alone(server: Server, mode: str) -> None:
    server.state.mode = mode
    with sampler(server) as one:
        with pytest.raises(ProposalError, match=server.url) as caught:
            proposer(one).propose([1])
        assert "\n" not in str(caught.value)
        asked = len(server.state.bodies)
        with pytest.raises(ProposalError, match="next try in"):
            proposer(one).propose([1])
        assert len(server.state.bodies) == asked


def test_a_slow_server_takes_no_longer_than_the_deadline(server: Server) -> None:
    server.state.mode, server.state.seconds = "slow", 60.0
    with sampler(server, seconds=0.5) as one, pytest.raises(ProposalError, match=r"did not answer in 0\.5 s"):
        proposer(one).propose([1])


@pytest.mark.parametrize("text", [None, "", "{}", "I would rather not.", "{" * 5000, "\ud800"])
def test_whatever_it_writes_is_a_refusal_or_a_named_error(server: Server, text: str | None) -> None:
    says(server, writes(text))
    with sampler(server) as one:
        try:
            ((completion,),) = one.sample(["x"], group_size=1, max_new_tokens=9, temperature=1.0, generator_seed=0)
        except ProposalError:
            return
    with pytest.raises(ProposalError) as caught:
        parse_proposal(completion.text, 1, "peer")
    assert str(caught.value).partition(":")[0] in set(ProposalReason)


def test_what_was_answered_counts_where_another_question_failed(server: Server) -> None:
    server.state.mode = "stumbles"
    says(server, lambda asked: writes(json.dumps(PROBLEM) if "Level 1" in str(asked) else None)(asked))
    with sampler(server) as one:
        assert [problem.level for problem in proposer(one).propose([2, 1])] == [1]


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"proposer\.url"):
        OpenAISampler(ProposerConfig(url="ftp://x"))
