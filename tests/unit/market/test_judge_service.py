"""The judge's routes, with a scripted judge behind them: who is answered, with what, and what a flood costs others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import EvaluatorError
from codezero.market.judge_service import Card, JudgeParts, JudgeService, without_prompt
from codezero.types import Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict, problem_id

QUESTION, TESTS = "Write a function f(a)\n that returns a + 1.", ("assert f(1) == 2",)
PROBLEM = Problem(problem_id(QUESTION, TESTS), QUESTION, TESTS, "f", Source.SYNTHETIC, reference="SECRET")
ASK = {"user_id": "Qm", "round_number": 3, "model_name": "m"}
ITEM = {"question": QUESTION, "tests": list(TESTS), "completion": "right"}
CARD = Card("ab" * 32, "w", "3", ("likelihood",), 10_000, {}, {"auroc": 0.98})
CLIENT = TestClient[Any, Any]


class Judge:
    """Believes what says `right`."""

    def __init__(self) -> None:
        self.read_texts: list[str] = []
        self.silent, self.status = False, Status.JUDGED
        self.go = threading.Event()
        self.go.set()

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        assert self.go.wait(30)
        if self.silent:
            raise EvaluatorError("out of memory")
        texts = [group.completions[0].text for group in groups]
        self.read_texts += texts
        rewards = [0.9 if "right" in text else 0.1 for text in texts]
        verdicts = [Verdict(reward, reward, 1, 1, 1, 1, self.status, ("why",)) for reward in rewards]
        return [ScoredGroup(group, (verdict,)) for group, verdict in zip(groups, verdicts, strict=True)]

    def read(self, groups: Sequence[RolloutGroup]) -> list[tuple[int, ...] | None]:
        return [(len(group.completions[0].text),) for group in groups]

    def parts(self) -> JudgeParts:
        more: Any = {"read": self.read, "sign": bytes, "public_key": b"key", "card": CARD}
        return JudgeParts(draw=lambda: PROBLEM, score=self.score, **more)


def serve(test: Callable[[CLIENT, Judge], Awaitable[None]], **how: Any) -> None:
    async def go() -> None:
        judge = Judge()
        async with TestClient(TestServer(JudgeService(judge.parts(), **({"token": ""} | how)).app())) as client:
            await test(client, judge)

    asyncio.run(go())


async def post(client: CLIENT, path: str, body: object, **headers: str) -> tuple[int, Any]:
    async with client.post(path, json=body, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_unchanged_clients_routes(slash: str) -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        status, given = await post(client, f"/request-question{slash}", ASK)
        assert status == 200 and given["question"] == QUESTION and len(given["session_id"]) == 32
        assert given["round_number"] == 3 and "SECRET" not in str(given) and TESTS[0] not in str(given)
        echo = f"system\nYou code.\nuser\n{QUESTION}\nassistant\nright"
        body = {"session_id": given["session_id"], "round_number": 3, "user_answer": echo}
        status, result = await post(client, f"/submit-answer{slash}", body)
        assert (status, result["score"], result["prompt_removed"]) == (200, 0.9, True)
        assert result["verdict"] == {"reward": 0.9, "correctness": 0.9, "status": "judged", "reasons": ["why"]}
        assert judge.read_texts == ["right"]
        assert (await post(client, "/submit-answer", body))[0] == 404  # one answer a session
        async with client.get(f"/current_clue{slash}") as response:
            assert await response.json() == {
                "game_id": -1, "clue_id": -1, "rounds_remaining": -1, "clue": "", "choices": [],
            }  # fmt: skip

    serve(test)


def test_an_answer_to_another_round_too_long_a_one_and_a_judge_that_cannot_answer_are_no_score() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        async def submit(**changes: object) -> int:
            _, given = await post(client, "/request-question", ASK)
            body = {"session_id": given["session_id"], "round_number": 3, "user_answer": "right"}
            status, result = await post(client, "/submit-answer", body | changes)
            assert ("score" in result) is (status == 200)
            return status

        assert [await submit(round_number=4), await submit()] == [409, 200]
        assert [await submit(user_answer="x" * size) for size in (70_000, 300_000)] == [413, 413]
        judge.silent = True
        assert await submit() == 503
        judge.silent, judge.status = False, Status.UNAVAILABLE
        assert await submit() == 503

    serve(test)


@pytest.mark.parametrize(
    "body", [{}, [], ASK | {"user_id": 3}, ASK | {"round_number": True}, ASK | {"model_name": "m" * 257}]
)
def test_what_is_not_as_described_is_refused_in_one_line(body: object) -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        status, refusal = await post(client, "/request-question", body)
        assert status == 400 and "\n" not in refusal["error"]

    serve(test)


def test_a_batch_has_verdicts_and_a_receipt() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        items = [ITEM, ITEM | {"completion": "no"}, ITEM | {"tests": ["nope("]}]
        status, result = await post(client, "/v1/verdicts", {"items": items})
        assert status == 200 and [each["status"] for each in result["verdicts"]] == ["judged", "judged", "unavailable"]
        assert [reading["scores"] for reading in result["receipt"]["readings"]] == [[5], [2], None]
        assert result["calibration"] == {"auroc": 0.98}
        _, result = await post(client, "/v1/verdicts", {"items": items, "receipt": False})
        assert "receipt" not in result
        for count in (0, 65):
            assert (await post(client, "/v1/verdicts", {"items": [ITEM] * count}))[0] == 400

    serve(test)


def test_web_pages_and_strangers_are_refused() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        bearer = {"Authorization": "Bearer secret"}
        assert (await post(client, "/v1/verdicts", {"items": [ITEM]}))[0] == 401
        assert (await post(client, "/v1/verdicts", {"items": [ITEM]}, Authorization="Bearer \udcff"))[0] == 401
        assert (await post(client, "/v1/verdicts", {"items": [ITEM]}, **bearer))[0] == 200
        assert (await post(client, "/v1/verdicts", {"items": [ITEM]}, Origin="http://x", **bearer))[0] == 403
        assert (await post(client, "/request-question", ASK))[0] == 200
        async with client.post("/request-question", data=b"{}", headers={"Content-Type": "text/plain"}) as response:
            assert response.status == 415
        async with client.get("/v1/card") as response:
            assert response.status == 401
        async with client.get("/healthz") as response:
            assert response.status == 200

    serve(test, token="secret", is_open=True)


def test_a_flood_is_told_when_to_come_back_and_delays_nobody() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        answers = await asyncio.gather(*(client.post("/v1/verdicts", json={"items": [ITEM]}) for _ in range(50)))
        refused = [answer for answer in answers if answer.status in (429, 503)]
        assert len(refused) >= 40 and all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert (await post(client, "/request-question", ASK))[0] == 200  # another kind of request

    serve(test)


def test_only_so_many_wait_for_the_judge() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        judge.go.clear()
        waiting = [asyncio.create_task(post(client, "/v1/verdicts", {"items": [ITEM]})) for _ in range(10)]
        done, _ = await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result()[0] for task in done} == {503}
        judge.go.set()
        assert sorted({status for status, _ in await asyncio.gather(*waiting)}) == [200, 503]

    serve(test)


def test_other_routes_are_not_remembered() -> None:
    async def test(client: CLIENT, judge: Judge) -> None:
        async with client.get("/nothing") as response:
            assert response.status == 404
        async with client.get("/metrics") as response:
            assert "nothing" not in await response.text()

    serve(test)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"user\n{QUESTION}\nassistant\ncode", "code"),
        ("user Write a function f(a) that returns a + 1. <|im_end|>\n<|im_start|>assistant\ncode", "code"),
        (f"[INST] {QUESTION} [/INST] code", "code"),
        (f"<start_of_turn>user\n{QUESTION}<end_of_turn>\n<start_of_turn>model\ncode", "code"),
        ("code", "code"),
        (f"user\n{QUESTION}\nassistant\nSure: {QUESTION} code", f"Sure: {QUESTION} code"),
        ("Write a function f(a)", "Write a function f(a)"),
    ],
)
def test_the_prompt_in_an_answer_is_removed(text: str, left: str) -> None:
    assert without_prompt(QUESTION, text) == left


@given(st.text(min_size=1).filter(str.strip), st.text())
def test_what_is_left_was_there(question: str, text: str) -> None:
    left = without_prompt(question, text)
    assert left in text
    assert without_prompt(question, f"{question}\nassistant\nX{text}").startswith("X")
