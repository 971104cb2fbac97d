"""What newcomers ask of the founder's node on its one port: the invitation, and questions for its chain.

Bytes in, bytes out: the trainer's process judges what they say. Whoever has a peer id may ask, as nobody is a member
before; what that costs the founder is bounded for each peer and in all.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, ServicerBase

from codezero.errors import UnreachableError
from codezero.swarm.hivemind_dht import NETWORK_ERRORS, split_address
from codezero.swarm.hivemind_transport import call_peer
from codezero.swarm.identity import open_to_all
from codezero.swarm.messages import Answered, Question
from codezero.swarm.schema import WireRefusal
from codezero.swarm.trust import Limits, PeerTrust

MAX_QUESTION, MAX_ANSWER = 320 << 10, 1 << 20
"""Bytes. The largest question is a transaction in hexadecimal digits, the largest answer a page of events."""
SECONDS = 10.0
"""For the chain's answer, from the question's arrival."""
AT_ONCE, WAITING, WAITING_EACH = 4, 64, 8
"""Questions that the trainer's process has at one time; that wait or are there, in all and of one peer."""
EACH = Limits(requests_per_second=16, requests_burst=512, bytes_per_second=256 << 10, bytes_burst=16 << 20)
ALL = Limits(requests_per_second=128, requests_burst=2048, bytes_per_second=2 << 20, bytes_burst=64 << 20)


class FounderServicer(ServicerBase):
    """What newcomers may call. Its name and method are part of the protocol."""

    def __init__(self, me: str, send: Callable[[Question], None]) -> None:
        """`send` brings a question to the trainer, whose replies go to `take`."""
        self._me, self._send = me, send
        self._each, self._all = PeerTrust(open_to_all, limits=EACH), PeerTrust(open_to_all, limits=ALL)
        self._busy: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)

    async def rpc_ask(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """Nothing asks for the invitation, all else the chain. Nothing answers who is refused."""
        peer, question, answer = str(context.remote_id), request.value, b""
        if len(question) > MAX_QUESTION or self._busy[peer] >= WAITING_EACH or self._busy.total() >= WAITING:
            return BytesValue()
        if not self._spend(peer, len(question)):
            return BytesValue()
        self._busy[peer] += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS), self._slots:
                    answer = await self._ask_trainer(question)
        finally:
            self._busy -= Counter([peer])  # which also forgets who has nothing left
        return BytesValue(value=answer if len(answer) <= MAX_ANSWER and self._spend(peer, len(answer), 0) else b"")

    def take(self, reply: Answered) -> None:
        """Of the trainer; one that comes too late is dropped."""
        if (waiting := self._asked.get(reply.id)) is not None and not waiting.done():
            waiting.set_result(reply.body)

    async def _ask_trainer(self, question: bytes) -> bytes:
        id = next(self._ids)
        self._asked[id] = asyncio.get_running_loop().create_future()
        try:
            self._send(Question(id, question))
            return await self._asked[id]
        finally:
            del self._asked[id]

    def _spend(self, peer: str, size: int, requests: int = 1) -> bool:
        return self._each.spend(peer, requests, size) and self._all.spend(self._me, requests, size)


async def ask_founder(daemon: P2P, question: Question) -> Answered:
    """Dial a founder's node and ask it, within the question's seconds. Raises nothing for what the node does."""
    try:
        peer, way = split_address(question.address)
        async with asyncio.timeout(question.seconds):
            await daemon._client.connect(peer, [way])  # at once where there is a connection
            answer = await call_peer(FounderServicer.get_stub(daemon, peer).rpc_ask, question.body, question.seconds)
        if answer and len(answer) <= MAX_ANSWER:
            return Answered(question.id, answer)
        failure = f"more than {MAX_ANSWER} bytes" if answer else "nothing: it is not the founder's, or refuses for now"
        return Answered(question.id, failure=f"{question.address} answers with {failure}")
    except (UnreachableError, WireRefusal, *NETWORK_ERRORS, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or "no answer in time"
        return Answered(question.id, failure=f"{question.address} cannot be asked: {reason}")
