"""Peers that lie, each in one way, over the same transport that honest nodes use. Give one to `SimulatedNode.start`.

Each announces something in every round, in the place where honest readers look for it, and goes on until it is killed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from codezero.swarm import wire
from codezero.swarm.calls import UNANSWERED, Call, ChunkRequest
from codezero.swarm.records import LIFETIME, DHTRecord, RecordPlace, shard_of
from simulation.kademlia import key_of
from simulation.swarm import SWARM, TOKENIZER, SimulatedNode, Swarm, attempts
from simulation.transport import signed

PAUSE_SECONDS = 5.0
FLOOD = 64  # Requests that a flooder has under way at a time


class Attacker:
    """Announces a header of its own making once in each round; what it serves is up to the kinds below."""

    def __init__(self, swarm: Swarm, node: SimulatedNode) -> None:
        self.swarm, self.node = swarm, node
        self._announced = -1

    async def __call__(self) -> None:
        """One turn."""
        if self._announced < self.swarm.round:
            await self.node.transport.serve(self.answer)
            payload = await self.payload(self.swarm.round)
            if payload:
                await self.announce(payload)
        await self.mischief()
        await asyncio.sleep(PAUSE_SECONDS)

    async def answer(self, call: Call, peer: str, request: bytes) -> bytes:
        """Nothing is served."""
        return b""

    async def payload(self, round_number: int) -> bytes:
        """What to announce; nothing to try again later."""
        body = self.body(round_number)
        return wire.encode_header(header(round_number, wire.body_digest(body), len(body)))

    def body(self, round_number: int) -> bytes:
        """One that an honest node could have made."""
        group = attempts(self.node.peer, round_number, self.swarm.settings.body_bytes, self.node.random)
        return wire.encode_body([group], peer=self.node.peer, round_number=round_number)

    async def mischief(self) -> None:
        """What else it does."""

    def place(self, peer: str) -> RecordPlace:
        """Where `peer` announces in this round, if it judges the crowd as the first node does."""
        shards = self.swarm.nodes[0].exchange.sharding.shards
        shard = shard_of(self.swarm.round, peer, shards)
        return RecordPlace(SWARM, wire.GROUPS, self.swarm.round, shards, shard)

    async def announce(self, payload: bytes) -> None:
        try:
            stored = await self.node.transport.announce(
                self.place(self.node.peer), payload, self.swarm.loop.clock() + LIFETIME, confirm=False
            )
        except UNANSWERED:
            return
        if stored:
            self._announced = self.swarm.round


def header(round_number: int, digest: bytes, size: int) -> wire.Header:
    return wire.Header(
        v=wire.VERSION,
        kind=wire.GROUPS,
        round=round_number,
        digest=digest,
        size=min(size, wire.MAX_BODY),
        codec="zlib",
        tokenizer=TOKENIZER,
        count=1,
        problems=[digest[:16]],
        reward=1.0,
        time=0.0,
    )


class Hollow(Attacker):
    """Announces a body and does not have it."""


class Liar(Attacker):
    """Serves other bytes than it announced, as many."""

    async def answer(self, call: Call, peer: str, request: bytes) -> bytes:
        return self.node.random.randbytes(self.swarm.settings.body_bytes)

    async def payload(self, round_number: int) -> bytes:
        digest = wire.body_digest(self.body(round_number))
        return wire.encode_header(header(round_number, digest, self.swarm.settings.body_bytes))


class Dripper(Attacker):
    """Serves one byte at a time."""

    async def answer(self, call: Call, peer: str, request: bytes) -> bytes:
        return b"x"


class Thief(Attacker):
    """Announces another's body as its own and serves it."""

    def __init__(self, swarm: Swarm, node: SimulatedNode) -> None:
        super().__init__(swarm, node)
        self._stolen = b""

    async def answer(self, call: Call, peer: str, request: bytes) -> bytes:
        return self._stolen

    async def payload(self, round_number: int) -> bytes:
        try:
            found = await self.node.transport.headers([RecordPlace(SWARM, wire.GROUPS, round_number)], thorough=False)
            others = [one for records in found.values() for one in records.items() if one[0] != self.node.peer]
            if not others:
                return b""
            victim, payload = others[0]
            digest = wire.decode_header(payload).digest
            request = msgspec.msgpack.encode(ChunkRequest(digest, 0))
            self._stolen = await self.node.transport.ask(victim, "chunk", request)
        except (*UNANSWERED, wire.WireRefusal):
            return b""
        return wire.encode_header(header(round_number, digest, len(self._stolen))) if self._stolen else b""


class Babbler(Attacker):
    """Signs what is no header."""

    async def payload(self, round_number: int) -> bytes:
        return self.node.random.randbytes(200)


class Flooder(Attacker):
    """Asks one peer after the other for its body, many times at once."""

    async def payload(self, round_number: int) -> bytes:
        self._announced = round_number
        return b""

    async def mischief(self) -> None:
        victim = self.node.random.choice(self.swarm.nodes)
        bodies = list(victim.exchange.server.bodies)
        request = msgspec.msgpack.encode(ChunkRequest(bodies[-1] if bodies else bytes(32), 0))
        asked = (self.node.transport.ask(victim.peer, "chunk", request) for _ in range(FLOOD))
        await asyncio.gather(*asked, return_exceptions=True)


class Forger(Attacker):
    """Puts records in others' names to the nodes that keep such, signed with its own key."""

    async def payload(self, round_number: int) -> bytes:
        self._announced = round_number
        return b""

    async def mischief(self) -> None:
        victim = self.node.random.choice(self.swarm.nodes)
        place, body = self.place(victim.peer), self.body(self.swarm.round)
        payload = wire.encode_header(header(self.swarm.round, wire.body_digest(body), len(body)))
        expiry = self.swarm.loop.clock() + LIFETIME
        mine = signed(place, self.node.peer, payload, expiry, self.node.validator)
        forged = DHTRecord(mine.key, msgspec.msgpack.encode(victim.peer), mine.value, expiry)
        for holder in self.node.dht.table.nearest(key_of(forged), 5):
            self.node.dht.call_store(holder, [forged], lambda _: None)


KINDS: Mapping[str, Callable[[Swarm, SimulatedNode], Callable[[], Awaitable[None]]]] = MappingProxyType(
    {kind.__name__.lower(): kind for kind in (Hollow, Liar, Dripper, Thief, Babbler, Flooder, Forger)}
)  # By name
