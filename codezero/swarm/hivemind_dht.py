"""hivemind's peer-to-peer daemon and DHT node, hardened, and the gossip's transport over them.

Node ids are bound, storage is bounded, answers are checked. Records lie in the Kademlia DHT; questions are unary calls
of the daemon, as hivemind buffers a stream of any length, which would let one peer fill the memory. Runs inside
the network process. Every await has a deadline, because a dead daemon never answers."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownParameterType=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

import asyncio
import ctypes
import heapq
import ipaddress
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DHTLocalStorage, DictionaryDHTValue
from hivemind.p2p import P2P, P2PContext, P2PDaemonError, P2PHandlerError, PeerID, ServicerBase
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure
from hivemind.proto import dht_pb2
from hivemind.utils.multiaddr import Multiaddr
from hivemind.utils.timed_storage import ValueWithExpiration

from codezero.config import SwarmConfig
from codezero.errors import UnreachableError, translated
from codezero.swarm.calls import BEAM, WIDE_BEAM, Answer, Call, Records, within
from codezero.swarm.records import MAX_CROWD, DHTRecord, PeerRecordValidator, RecordPlace
from codezero.swarm.wire import WireRefusal

START_SECONDS, STORE_SECONDS = 30.0, 10.0
READ_SECONDS = ASK_SECONDS = 5.0
RELAYS = 16
STORED_KEYS, STORED_BYTES = 1024, 32 << 20
PLACE_BYTES = 512 << 10  # Of the records in one place: an answer about several stays below the 4 MiB of a message
HANDED_BYTES = 2 << 20  # Given at once to a newcomer near our records; hivemind sends all, and drops who cannot take it
NAMED_NODES = 5  # Most unknown nodes taken from one answer: invented ones must not displace real ones
# Raised for an unreachable peer or daemon.
NETWORK_ERRORS = (TimeoutError, OSError, P2PDaemonError, P2PHandlerError, ControlFailure, asyncio.IncompleteReadError)


class LiveCalls(dict[Any, "asyncio.Future[Any]"]):
    """Calls that wait for an answer. hivemind answers also one just given up, and reads nothing from then on."""

    def __contains__(self, call: object) -> bool:
        return super().__contains__(call) and not self[call].done()


class Answering(dict[Any, "asyncio.Task[None]"]):
    """Calls that are being answered. hivemind keeps each that its caller gave up, for ever and with what was sent."""

    def __setitem__(self, call: Any, task: "asyncio.Task[None]") -> None:
        super().__setitem__(call, task)
        task.add_done_callback(lambda _: self.pop(call, None))


class Daemon(P2P):
    """hivemind's, without libp2p's relay, which carries anything for anybody; no flag turns it off, only a file."""

    @staticmethod
    def _make_process_args(*args: Any, **kwargs: Any) -> list[str]:
        return P2P._make_process_args(*args, f=Path(__file__).with_name("daemon.json"), **kwargs)


async def start_daemon(settings: SwarmConfig) -> P2P:
    """Start the daemon, listening, without peers: a swarm whose bootstraps are all dead must still start."""
    host = ipaddress.ip_address(settings.host)
    p2p = await within(
        START_SECONDS,
        Daemon.create(
            host_maddrs=[f"/ip{host.version}/{host}/tcp/{settings.port}"],
            identity_path=settings.identity,
            check_if_identity_free=False,
            nat_port_map=not host.is_loopback,
            announce_maddrs=settings.announce or None,
            use_relay=False,
            startup_timeout=START_SECONDS,
        ),
    )
    p2p._client.control._pending_calls, p2p._client.control._handler_tasks = LiveCalls(), Answering()
    return p2p


async def create_node(
    p2p: P2P, validator: PeerRecordValidator, knows: Callable[[str], bool] = lambda _: False
) -> DHTNode:
    """Create a DHT node whose id follows from its peer id and which accepts no other kind. knows: as in `Storage`."""
    own_id = bound_id(p2p.peer_id)
    made = DHTNode.create(
        p2p=p2p, node_id=own_id, cache_locally=False, cache_nearest=0, record_validator=validator, strict=False
    )
    node = await within(START_SECONDS, made)
    await _harden(node.protocol, validator, knows)
    return node


async def take_part(protocol: DHTProtocol, *, serving: bool) -> None:
    """Keep records for others, or ask only: who asks a holder that nobody reaches waits in vain."""
    if protocol.client_mode != serving:
        return
    for key in list(protocol.storage.data):  # where a search looks first, and where nobody stores from now on
        del protocol.storage[key]
    protocol.client_mode = not serving
    protocol.node_info = dht_pb2.NodeInfo(node_id=protocol.node_id.to_bytes()) if serving else dht_pb2.NodeInfo()
    await within(START_SECONDS, (protocol.add_p2p_handlers if serving else protocol.remove_p2p_handlers)(protocol.p2p))


def bound_id(peer: PeerID) -> DHTID:
    """Return the only node id accepted from a peer: with a free choice, five nodes can take over any key."""
    return DHTID.generate(peer.to_bytes())


class Storage(DHTLocalStorage):
    """hivemind's, bounded in bytes. Drops records at random from the fullest place: by expiry, as hivemind does, a
    flood of long-lived records would drive out everybody else's.

    knows: whose records stay, as long as there are others to drop: of peers that sent something fine."""

    def __init__(self, knows: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__()
        self._knows = knows
        self._sizes: dict[DHTID, int] = {}

    def get(self, key: DHTID) -> ValueWithExpiration[Any] | None:
        """Return a copy, as a search adds to what it finds here whatever other holders say."""
        stored = super().get(key)
        return None if stored is None else ValueWithExpiration(_copied(stored.value), stored.expiration_time)

    def store_subkey(self, key: DHTID, subkey: Any, value: bytes, expiration_time: float) -> bool:
        self._remove_outdated()
        kept = self.data.get(key)
        place: Any = DictionaryDHTValue() if kept is None else kept.value  # plain values pass no validator
        before = place.get(subkey)
        if before is not None and before.expiration_time >= expiration_time:
            return False  # hivemind would end the newer record when the older one ends
        if not place.store(subkey, value, expiration_time):
            return False
        if kept is None and len(self.data) >= STORED_KEYS:
            some = random.sample(list(self.data), 8)  # of these the place with the fewest known peers goes
            del self[min(some, key=lambda there: sum(map(self._knows, self.data[there].value.data)))]
        if kept is None or kept.expiration_time < expiration_time:
            super().store(key, place, expiration_time)
        for heap in (self, place):  # hivemind's heap of expiry times grows with each renewal of a record
            if len(heap.expiration_heap) > 2 * len(heap.data) + 64:
                heap.expiration_heap = list(heap.key_to_heap.values())
                heapq.heapify(heap.expiration_heap)
        self._sizes = {there: self._sizes.get(there, 0) for there in self.data}
        self._sizes[key] = sum(len(record.value) for record in place.data.values())
        while self._sizes[key] > PLACE_BYTES or len(place.data) > MAX_CROWD:
            self._lose_one(key, keep=subkey)
        while sum(self._sizes.values()) > STORED_BYTES:
            self._lose_one(max(self._sizes, key=self._sizes.__getitem__))
        return True

    def _lose_one(self, key: DHTID, *, keep: Any = None) -> None:
        place: Any = self.data[key].value
        if others := [subkey for subkey in place.data if subkey != keep]:
            del place[random.choice([subkey for subkey in others if not self._knows(subkey)] or others)]
        self._sizes[key] = sum(len(record.value) for record in place.data.values())
        if not place.data:
            del self[key], self._sizes[key]


def give_back(storage: Storage) -> None:
    """Drop the records that have ended, which hivemind does only as others come, and what the C library keeps."""
    storage._remove_outdated()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc alone, whose arenas grow with a flood
        trim(0)


class NoCache(DHTLocalStorage):
    """Keeps nothing. hivemind answers from its cache first, and anybody may write there: a record would hide others."""

    def store(self, *_: Any, **__: Any) -> bool:
        return False

    store_subkey = store


async def _harden(protocol: DHTProtocol, validator: PeerRecordValidator, knows: Callable[[str], bool]) -> None:
    """No peer with a chosen node id enters the routing table, a bad entry costs that entry and not the whole answer,
    and a question that repeats one large record fills no memory."""
    protocol.storage, protocol.cache = Storage(knows), NoCache()
    update, answer = protocol.update_routing_table, protocol.rpc_find

    async def update_routing_table(node_id: DHTID | None, peer_id: PeerID, responded: bool = True) -> None:
        if node_id is None or node_id == bound_id(peer_id):
            await update(node_id, peer_id, responded)

    async def rpc_find(request: dht_pb2.FindRequest, context: P2PContext) -> dht_pb2.FindResponse:
        if not len(set(request.keys)) == len(request.keys) <= 16:
            raise ValueError("a question for too many places, or for one of them twice")
        return await answer(request, context)

    def validate_dictionary(key: bytes, dictionary: DictionaryDHTValue) -> bool:
        with dictionary.freeze():
            for subkey, (value, expiration_time) in list(dictionary.items()):
                if not validator.validate(DHTRecord(key, protocol.serializer.dumps(subkey), value, expiration_time)):
                    del dictionary[subkey]
        return bool(dictionary)

    protocol.update_routing_table, protocol.rpc_find = update_routing_table, rpc_find
    protocol._validate_dictionary = validate_dictionary
    _harden_calls(protocol)
    await protocol.remove_p2p_handlers(protocol.p2p)
    await protocol.add_p2p_handlers(protocol.p2p)


def _harden_calls(protocol: DHTProtocol) -> None:
    """Believe less of others' answers, and send less to a newcomer."""
    find, store = protocol.call_find, protocol.call_store

    def believed(key: DHTID, near: dict[DHTID, PeerID]) -> dict[DHTID, PeerID]:
        others = near.keys() - {protocol.node_id}  # a search that comes back to its beginning fails
        bound = {node: near[node] for node in others if node == bound_id(near[node])}
        unknown = bound.keys() - protocol.routing_table.uid_to_peer_id.keys()
        doubted = set(sorted(unknown, key=key.xor_distance)[NAMED_NODES:])
        return {node: peer for node, peer in bound.items() if node not in doubted}

    async def call_find(peer: PeerID, keys: Sequence[DHTID]) -> dict[DHTID, Any] | None:
        answer = await find(peer, keys)
        return answer and {key: (_rebuilt(value), believed(key, near)) for key, (value, near) in answer.items()}

    async def call_store(
        peer: PeerID, keys: Sequence[DHTID], values: Sequence[Any], expiration_time: Any, *more: Any, **named: Any
    ) -> list[bool] | None:
        if not all(isinstance(value, DictionaryDHTValue) for value in values):
            return await store(peer, keys, values, expiration_time, *more, **named)
        # Whole places go only to a newcomer: the smallest first, up to HANDED_BYTES in all.
        sizes = [sum(len(record.value) for record in place.data.values()) for place in values]
        smallest_first = sorted(range(len(values)), key=sizes.__getitem__)
        totals = itertools.accumulate(sizes[at] for at in smallest_first)
        taken = [at for at, total in zip(smallest_first, totals, strict=True) if total <= HANDED_BYTES]
        return await store(peer, *([column[at] for at in taken] for column in (keys, values, expiration_time)))

    protocol.call_find, protocol.call_store = call_find, call_store


def _copied(value: Any) -> Any:
    """Copy a dictionary without its holder's claims about size and end, which could break or end a search."""
    if not isinstance(value, DictionaryDHTValue):
        return value
    copy = DictionaryDHTValue()
    for subkey, (entry, expiration_time) in value.data.items():
        copy.store(subkey, entry, expiration_time)
    return copy


def _rebuilt(value: ValueWithExpiration[Any] | None) -> ValueWithExpiration[Any] | None:
    if value is None or not isinstance(value.value, DictionaryDHTValue):
        return None
    copy = _copied(value.value)
    return ValueWithExpiration(copy, copy.latest_expiration_time)


def split_address(address: str) -> tuple[PeerID, Multiaddr]:
    """Split `/ip4/../tcp/../p2p/ID` into the peer and the way to it."""
    way, _, peer = address.rpartition("/p2p/")
    return PeerID.from_base58(peer), Multiaddr(way)


async def serve(servicer: ServicerBase, daemon: P2P, swarm: str | None = None) -> None:
    """Begin to answer with the methods of `servicer`, to whoever names the swarm; None: to all."""
    await within(10.0, servicer.add_p2p_handlers(daemon, namespace=swarm))


async def call_peer(method: Callable[..., Awaitable[BytesValue]], request: bytes, seconds: float) -> bytes:
    """Call a stub's method. Raises UnreachableError, and WireRefusal for a malformed answer."""
    with (
        translated(WireRefusal, "format: an answer that is none", DecodeError, reason=False),
        translated(UnreachableError, "a peer did not answer", *NETWORK_ERRORS),
    ):
        return (await method(BytesValue(value=request), timeout=seconds)).value


class GossipServicer(ServicerBase):
    """Serves the gossip's calls. Its name and methods are part of the protocol."""

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
    """Implements `calls.Transport`; `validator` is the one that `node` was made with."""

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
        """Read what lies under a key, by peer; None when the search did not end in time."""
        workers, beam = (4, WIDE_BEAM) if thorough else (1, BEAM)
        try:
            search = self._node.get(key, latest=thorough, num_workers=workers, beam_size=beam)
            answer = await within(READ_SECONDS, search)
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
        """Read our record back from another node: what `store` returns is true of a dead daemon too."""
        key = DHTID(int.from_bytes(place.id, "big"))
        nearest = self._node.protocol.routing_table.get_nearest_neighbors(key, k=3)
        if not nearest:  # all others are behind routers, and read it here
            return bool(await self.connected())
        for _, peer in nearest:
            try:
                answer = await within(3.0, self._node.protocol.call_find(peer, [key]))
            except NETWORK_ERRORS:
                continue
            kept = answer[key][0] if answer else None
            if kept is not None and isinstance(kept.value, DictionaryDHTValue) and self.me in kept.value.data:
                return True
        return False
