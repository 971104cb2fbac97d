"""The gossip's transport over hivemind: records in its Kademlia DHT, questions as unary calls of its daemon.

hivemind buffers a stream of any announced length, which would let one peer fill the memory.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from codezero.errors import UnreachableError, translated
from codezero.swarm.hivemind_dht import NETWORK_ERRORS, bound_id
from codezero.swarm.records import PeerRecordValidator, RecordPlace
from codezero.swarm.schema import WireRefusal
from codezero.swarm.transport import BEAM, WIDE_BEAM, Answer, Call, Records, within

SERVE_SECONDS = 10.0
STORE_SECONDS = 10.0
READ_SECONDS = 5.0
ASK_SECONDS = 5.0
RELAYS = 16
CONFIRM_SECONDS = 3.0
WIDE_WORKERS = 4
WITNESSES = 3
"""Nodes that are asked for a record that was just stored, until one has it."""


async def serve(servicer: ServicerBase, daemon: P2P, swarm: str | None = None) -> None:
    """Begin to answer with the methods of `servicer`, to whoever names the swarm; None: to all."""
    await within(SERVE_SECONDS, servicer.add_p2p_handlers(daemon, namespace=swarm))


async def call_peer(method: Callable[..., Awaitable[BytesValue]], request: bytes, seconds: float) -> bytes:
    """The answer of a stub's method. Raises UnreachableError, and WireRefusal for a malformed answer."""
    try:
        return (await method(BytesValue(value=request), timeout=seconds)).value
    except DecodeError as error:
        raise WireRefusal("format", "an answer that is none") from error
    except NETWORK_ERRORS as error:
        raise UnreachableError(f"a peer did not answer: {error}") from error


class GossipServicer(ServicerBase):
    """What peers may call. Its name and methods are part of the protocol."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def rpc_chunk(self, request: BytesValue, context: P2PContext) -> BytesValue:
        return BytesValue(value=await self._answer("chunk", str(context.remote_id), request.value))

    async def rpc_feedback(self, request: BytesValue, context: P2PContext) -> BytesValue:
        return BytesValue(value=await self._answer("feedback", str(context.remote_id), request.value))

    async def rpc_headers(self, request: BytesValue, context: P2PContext) -> BytesValue:
        return BytesValue(value=await self._answer("headers", str(context.remote_id), request.value))

    async def rpc_relay(self, request: BytesValue, context: P2PContext) -> BytesValue:
        return BytesValue(value=await self._answer("relay", str(context.remote_id), request.value))


class HivemindTransport:
    """Implements `transport.Transport`; `validator` is the one that `node` was made with."""

    def __init__(self, node: DHTNode, validator: PeerRecordValidator) -> None:
        self._node, self._validator, self._swarm = node, validator, validator.swarm
        self.me = node.peer_id.to_base58()

    async def serve(self, answer: Answer) -> None:
        await serve(GossipServicer(answer), self._node.p2p, self._swarm)

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        return await self._store(place, header, expiry) and (not confirm or await self._is_elsewhere(place))

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        # One search for each place: hivemind's joint one asks nodes about places that they have nothing to do with.
        read = await asyncio.gather(*(self._read(place.key, thorough=thorough) for place in places))
        if places and all(records is None for records in read):
            raise UnreachableError("the DHT did not answer")
        return {place: records for place, records in zip(places, read, strict=True) if records}

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        stub = GossipServicer.get_stub(self._node.p2p, PeerID.from_base58(peer), namespace=self._swarm)
        return await call_peer(getattr(stub, f"rpc_{call}"), request, ASK_SECONDS)

    async def connected(self) -> Mapping[str, str]:
        with translated(UnreachableError, "the daemon did not answer", *NETWORK_ERRORS):
            peers = await within(ASK_SECONDS, self._node.p2p.list_peers())
        return {info.peer_id.to_base58(): str(info.addrs[0]) for info in peers if info.addrs}

    def relays(self, peer: str) -> Sequence[str]:
        # A node meets those with ids near its own when it joins, and all nodes where they are few.
        author = bound_id(PeerID.from_base58(peer))
        nearest = self._node.protocol.routing_table.get_nearest_neighbors(author, k=RELAYS, exclude=author)
        return [neighbour.to_base58() for _, neighbour in nearest]

    async def _read(self, key: str, *, thorough: bool) -> dict[str, bytes] | None:
        """By peer what lies under a key; None when the search did not end in time."""
        workers, beam = (WIDE_WORKERS, WIDE_BEAM) if thorough else (1, BEAM)
        try:
            answer = await within(
                READ_SECONDS, self._node.get(key, latest=thorough, num_workers=workers, beam_size=beam)
            )
        except NETWORK_ERRORS:
            return None
        records = answer.value if answer and isinstance(answer.value, dict) else {}
        return {peer: record.value for peer, record in records.items()}

    async def _store(self, place: RecordPlace, payload: bytes, expiry: float) -> bool:
        self._validator.declare(place)
        node, asks_only = self._node, self._node.protocol.client_mode
        if asks_only and not node.protocol.routing_table.uid_to_peer_id:  # hivemind would not end the search in order
            raise UnreachableError("there is nobody to keep a record")
        store = node.store(place.key, payload, expiry, subkey=self.me, beam_size=BEAM, exclude_self=asks_only)
        with translated(UnreachableError, "the DHT did not answer", *NETWORK_ERRORS):
            return bool(await within(STORE_SECONDS, store))

    async def _is_elsewhere(self, place: RecordPlace) -> bool:
        """Was our record read back from another node? What `store` returns is true of a dead daemon too."""
        key = DHTID(int.from_bytes(place.id, "big"))
        nearest = self._node.protocol.routing_table.get_nearest_neighbors(key, k=WITNESSES)
        if not nearest:  # all others are behind routers, and read it here
            return bool(await self.connected())
        for _, peer in nearest:
            try:
                answer = await within(CONFIRM_SECONDS, self._node.protocol.call_find(peer, [key]))
            except NETWORK_ERRORS:
                continue
            kept = answer[key][0] if answer else None
            if kept is not None and isinstance(kept.value, DictionaryDHTValue) and self.me in kept.value.data:
                return True
        return False
