"""Serves own bodies to the peers that ask, each within its allowance.

Unary calls only: hivemind buffers a stream of any announced length, which would let one peer fill the memory.
"""

# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownArgumentType=false

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, ServicerBase
from msgspec import Meta

from codezero.swarm.schema import MAX_BODY, Digest
from codezero.swarm.wire import UNDECODABLE, body_digest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32
WINDOW_SECONDS = 60.0
PEER_BYTES = 32 << 20
PEER_REQUESTS = 240
"""What one peer may ask for in WINDOW_SECONDS."""
COUNTED_PEERS = 1024


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body with this digest."""

    digest: Digest
    offset: Annotated[int, Meta(ge=0, le=MAX_BODY)]


class Allowance:
    """Bytes and requests that each peer has used in the current window."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: OrderedDict[str, tuple[float, int, int]] = OrderedDict()

    def spend(self, peer: str, count: int) -> bool:
        """Note a request that costs `count` bytes; False when the peer has had its share."""
        now = self._clock()
        began, spent, requests = self._used.pop(peer, (now, 0, 0))
        if now - began >= WINDOW_SECONDS:
            began, spent, requests = now, 0, 0
        granted = spent + count <= PEER_BYTES and requests < PEER_REQUESTS
        self._used[peer] = (began, spent + count if granted else spent, requests + 1)
        while len(self._used) > COUNTED_PEERS:
            self._used.popitem(last=False)
        return granted


class GossipServicer(ServicerBase):
    """The bodies this node announced, by digest. Its name and method are part of the protocol."""

    def __init__(self) -> None:
        self.bodies: OrderedDict[bytes, bytes] = OrderedDict()
        self.counts: Counter[str] = Counter()
        self._allowance = Allowance()

    def keep(self, body: bytes) -> bytes:
        """Serve `body` until KEPT_BODIES newer ones came. Returns its digest."""
        digest = body_digest(body)
        self.bodies[digest] = body
        while len(self.bodies) > KEPT_BODIES:
            self.bodies.popitem(last=False)
        return digest

    async def rpc_chunk(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """At most CHUNK bytes of a body; nothing when it is not here or the peer asks too much."""
        try:
            asked = msgspec.msgpack.decode(request.value, type=ChunkRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return BytesValue()
        piece = self.bodies.get(asked.digest, b"")[asked.offset : asked.offset + CHUNK]
        if not self._allowance.spend(str(context.remote_id), len(piece)):
            self.counts["refused_allowance"] += 1
            return BytesValue()
        self.counts["bytes_out"] += len(piece)
        return BytesValue(value=piece)
