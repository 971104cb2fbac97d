"""Answers what other peers ask: pieces of own bodies, each peer within its allowance. Knows no network."""

from collections import Counter, OrderedDict
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.swarm.schema import MAX_BODY, Digest
from codezero.swarm.transport import Call
from codezero.swarm.trust import Trust
from codezero.swarm.wire import UNDECODABLE, body_digest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body with this digest."""

    digest: Digest
    offset: Annotated[int, Meta(ge=0, le=MAX_BODY)]


class Server:
    """The bodies this node announced, by digest."""

    def __init__(self, trust: Trust) -> None:
        self.bodies: OrderedDict[bytes, bytes] = OrderedDict()
        self.counts: Counter[str] = Counter()
        self._trust = trust

    def keep(self, body: bytes) -> bytes:
        """Serve `body` until KEPT_BODIES newer ones came. Returns its digest."""
        digest = body_digest(body)
        self.bodies[digest] = body
        while len(self.bodies) > KEPT_BODIES:
            self.bodies.popitem(last=False)
        return digest

    def answer(self, call: Call, peer: str, request: bytes) -> bytes:
        """Implements `transport.Answer`: at most CHUNK bytes of a body; nothing when it is not here, or when the peer
        asks too much or is not to be dealt with."""
        if self._trust.refusal(peer):
            self.counts["refused_peer"] += 1
            return b""
        try:
            asked = msgspec.msgpack.decode(request, type=ChunkRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        piece = self.bodies.get(asked.digest, b"")[asked.offset : asked.offset + CHUNK]
        if not self._trust.spend(peer, size=len(piece)):
            self.counts["refused_allowance"] += 1
            return b""
        self.counts["bytes_out"] += len(piece)
        return piece
