"""Newcomers and a founder who do not trust each other, over the real network: each costs the other little.

Does not show: a flood that fills the line itself."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.swarm import WITH_HIVEMIND, address_of, daemons, fast_identity, free_port

from codezero.swarm.supervisor import Answered, Question
from codezero.swarm.trust import Limits

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.usefixtures("left_sockets"),
    *WITH_HIVEMIND,
]
HUGE = 3 << 20


def founder_of(daemon: Any, trainer: Callable[[bytes], bytes | None]) -> Any:
    """The servicer of an honest founder, whose trainer answers so; None: never."""
    from codezero.swarm.network_monitor import FounderServicer

    def send(question: Question) -> None:
        if (answer := trainer(question.body)) is not None:
            asyncio.get_running_loop().call_soon(servicer.take, Answered(question.id, answer))

    servicer = FounderServicer(daemon.peer_id.to_base58(), send)
    return servicer


def test_a_founder_who_sends_junk_or_too_much_or_nothing_costs_one_line(tmp_path: Path) -> None:
    async def meet() -> dict[bytes, Answered]:
        from google.protobuf.wrappers_pb2 import BytesValue
        from hivemind.p2p import P2PContext, ServicerBase

        from codezero.swarm.network_monitor import ask_founder

        class FounderServicer(ServicerBase):
            """The hostile one, under the same name."""

            async def rpc_ask(self, request: BytesValue, context: P2PContext) -> BytesValue:
                match request.value:
                    case b"huge":
                        return BytesValue(value=b"x" * HUGE)
                    case b"above":
                        return BytesValue(value=b"x" * ((1 << 20) + 1))
                    case b"slow":
                        await asyncio.sleep(60)
                    case b"fails":
                        raise ValueError("on purpose\n" * 1000)
                return BytesValue()

        async with daemons(tmp_path, "founder", "newcomer") as (hostile, newcomer):
            await FounderServicer().add_p2p_handlers(hostile)
            way = await address_of(hostile)
            numbers = itertools.count()

            async def ask(body: bytes, address: str = way) -> Answered:
                return await ask_founder(newcomer, Question(next(numbers), body, address, seconds=3.0))

            replies = {body: await ask(body) for body in (b"huge", b"above", b"slow", b"fails", b"")}
            peer = way.rpartition("/")[2]
            replies[b"nobody"] = await ask(b"", f"/ip4/127.0.0.1/tcp/9/p2p/Qm{'a' * 44}")
            replies[b"none"] = await ask(b"", f"/nonsense/x/p2p/{peer}")
            replies[b"impostor"] = await ask(b"", way.replace(peer, (await address_of(newcomer)).rpartition("/")[2]))
            return replies

    replies = asyncio.run(meet())
    for reply in replies.values():
        assert not reply.body and reply.failure and "\n" not in reply.failure and len(reply.failure) < 400
    assert "1048576 bytes" in replies[b"above"].failure
    assert "not the founder's" in replies[b""].failure


def test_newcomers_who_flood_or_send_too_much_leave_the_founder_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def trainer(question: bytes) -> bytes | None:
        asked.append(question)
        return None if question == b"hangs" else b"x" * HUGE if question == b"huge" else b"answer to " + question

    async def meet() -> dict[str, Any]:
        from google.protobuf.wrappers_pb2 import BytesValue

        from codezero.swarm import network_monitor
        from codezero.swarm.network_monitor import MAX_QUESTION, FounderServicer, ask_founder

        monkeypatch.setattr(network_monitor, "CHAIN_SECONDS", 1.0)
        monkeypatch.setattr(network_monitor, "EACH", Limits(requests_per_second=0.01, requests_burst=60))
        async with daemons(tmp_path, "founder", "eve", "ann") as (founder, eve, ann):
            await founder_of(founder, trainer).add_p2p_handlers(founder)
            way = await address_of(founder)
            await ask_founder(eve, Question(0, b"", way, seconds=20.0))  # connects

            async def flood(body: bytes, count: int = 1) -> list[bytes]:
                method = FounderServicer.get_stub(eve, founder.peer_id).rpc_ask
                calls = (method(BytesValue(value=body), timeout=20) for _ in range(count))
                return [answer.value for answer in await asyncio.gather(*calls)]

            seen: dict[str, Any] = {"usual": await flood(b"question"), "huge": await flood(b"huge")}
            seen["large"] = await flood(b"x" * (MAX_QUESTION + 1))
            hung = asyncio.ensure_future(flood(b"hangs", 40))
            await asyncio.sleep(0.3)
            seen["meanwhile"] = await ask_founder(ann, Question(1, b"ann", way, seconds=20.0))
            seen["hung"] = await hung
            for _ in range(20):
                await flood(b"more", 8)
            seen["after"] = await ask_founder(ann, Question(2, b"ann", way, seconds=20.0))
            return seen

    seen = asyncio.run(meet())
    assert seen["usual"] == [b"answer to question"] and seen["huge"] == seen["large"] == [b""]
    assert max(map(len, asked)) < 1000
    assert seen["hung"] == 40 * [b""] and asked.count(b"hangs") <= 8
    assert 30 <= asked.count(b"more") <= 60
    assert seen["meanwhile"].body == seen["after"].body == b"answer to ann"


def test_any_number_of_peer_ids_has_one_allowance_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood() -> int:
        from google.protobuf.wrappers_pb2 import BytesValue

        from codezero.swarm import network_monitor

        monkeypatch.setattr(network_monitor, "ALL", Limits(requests_per_second=0.01, requests_burst=20))
        peers = [fast_identity(seed).peer_id for seed in range(1, 80)]
        founder: Any = SimpleNamespace(peer_id=SimpleNamespace(to_base58=lambda: fast_identity(99).peer_id))
        servicer = founder_of(founder, lambda question: question)
        answers = [await servicer.rpc_ask(BytesValue(value=b"?"), SimpleNamespace(remote_id=peer)) for peer in peers]
        return sum(answer.value == b"?" for answer in answers)

    assert asyncio.run(flood()) == 20


def test_a_founder_who_comes_back_is_asked_again(tmp_path: Path) -> None:
    async def meet() -> list[Answered]:
        from codezero.swarm.network_monitor import ask_founder

        replies: list[Answered] = []
        port = free_port()
        async with daemons(tmp_path, "newcomer") as (newcomer,):
            for _ in range(2):
                async with daemons(tmp_path, "founder", port=port) as (founder,):
                    await founder_of(founder, lambda question: question).add_p2p_handlers(founder)
                    address = await address_of(founder)
                    reply = Answered(1)
                    while not reply.body:  # a connection whose end nobody has noticed yet fails first
                        reply = await ask_founder(newcomer, Question(1, b"?", address, seconds=10.0))
                    replies.append(reply)
        return replies

    assert [reply.body for reply in asyncio.run(meet())] == [b"?", b"?"]
