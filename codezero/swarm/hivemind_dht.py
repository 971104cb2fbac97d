"""hivemind's peer-to-peer daemon and DHT node, hardened: bound node ids, bounded storage, checked answers.

Runs inside the network process. Every await has a deadline, because a dead daemon never answers.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownParameterType=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

import asyncio
import ctypes
import heapq
import ipaddress
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DHTLocalStorage, DictionaryDHTValue
from hivemind.p2p import P2P, P2PContext, P2PDaemonError, P2PHandlerError, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure
from hivemind.proto import dht_pb2
from hivemind.utils.multiaddr import Multiaddr
from hivemind.utils.timed_storage import ValueWithExpiration

from codezero.config import SwarmConfig
from codezero.swarm.records import MAX_CROWD, DHTRecord, PeerRecordValidator
from codezero.swarm.transport import within

START_SECONDS = 30.0
STORED_KEYS = 1024
LOSERS = 8
"""Places drawn when there is one too many; the one with the fewest known peers goes."""
STORED_BYTES = 32 << 20
PLACE_BYTES = 512 << 10
"""Of the records in one place: an answer about several stays below the 4 MiB of a message."""
HANDED_BYTES = 2 << 20
"""That a newcomer near our records is given at once. hivemind sends all and drops who cannot take it."""
ASKED_KEYS = 16
"""Most places in one question, each once."""
NAMED_NODES = 5
"""Most unknown nodes taken from one answer: invented ones must not displace real ones."""
NETWORK_ERRORS = (TimeoutError, OSError, P2PDaemonError, P2PHandlerError, ControlFailure, asyncio.IncompleteReadError)
"""What an unreachable peer or daemon may raise."""


def no_one(_peer: str) -> bool:
    return False


class LiveCalls(dict[Any, "asyncio.Future[Any]"]):
    """Calls that wait for an answer. hivemind answers also the one given up a moment ago, which ends its only reader:
    from then on the daemon is deaf, and a peer chooses the moment."""

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
    """The daemon, listening, without peers: a swarm whose bootstraps are all dead must still start."""
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


async def create_node(p2p: P2P, validator: PeerRecordValidator, knows: Callable[[str], bool] = no_one) -> DHTNode:
    """A DHT node whose id follows from its peer id and which accepts no other kind. knows: as `Storage` has it."""
    node = await within(
        START_SECONDS,
        DHTNode.create(
            p2p=p2p,
            node_id=bound_id(p2p.peer_id),
            cache_locally=False,
            cache_nearest=0,
            record_validator=validator,
            strict=False,
        ),
    )
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
    """The only node id accepted from a peer: with a free choice, five nodes can take over any key."""
    return DHTID.generate(peer.to_bytes())


class Storage(DHTLocalStorage):
    """hivemind's, bounded in bytes. Drops records at random from the fullest place: by expiry, as hivemind does, a
    flood of long-lived records would drive out everybody else's.

    knows: whose records stay, as long as there are others to drop: of peers that sent something fine.
    """

    def __init__(self, knows: Callable[[str], bool] = no_one) -> None:
        super().__init__()
        self._knows = knows
        self._sizes: dict[DHTID, int] = {}

    def get(self, key: DHTID) -> ValueWithExpiration[Any] | None:
        """A copy: a search adds to what it finds here whatever other holders say."""
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
            some = random.sample(list(self.data), LOSERS)
            del self[min(some, key=lambda there: sum(map(self._knows, self.data[there].value.data)))]
        if kept is None or kept.expiration_time < expiration_time:
            super().store(key, place, expiration_time)
        for heap in (self, place):
            _compact(heap)
        self._make_room(key, place, subkey)
        return True

    def _make_room(self, key: DHTID, place: Any, newest: Any) -> None:
        self._sizes = {there: self._sizes.get(there, 0) for there in self.data}
        self._sizes[key] = sum(len(record.value) for record in place.data.values())
        while self._sizes[key] > PLACE_BYTES or len(place.data) > MAX_CROWD:
            self._lose_one(key, keep=newest)
        while sum(self._sizes.values()) > STORED_BYTES:
            self._lose_one(max(self._sizes, key=self._sizes.__getitem__))

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
    """Keeps nothing. hivemind answers from its cache first, and anybody may write there: one record would hide all
    others of its place."""

    def store(self, *_: Any, **__: Any) -> bool:
        return False

    store_subkey = store


def _compact(storage: Any) -> None:
    """hivemind's heap of expiry times grows with each renewal of a record."""
    if len(storage.expiration_heap) > 2 * len(storage.data) + 64:
        storage.expiration_heap = list(storage.key_to_heap.values())
        heapq.heapify(storage.expiration_heap)


async def _harden(protocol: DHTProtocol, validator: PeerRecordValidator, knows: Callable[[str], bool]) -> None:
    """Replace stores and methods: no stranger with a chosen node id enters the routing table, a bad entry costs that
    entry and not the whole answer, and a question that repeats one large record fills no memory."""
    protocol.storage, protocol.cache = Storage(knows), NoCache()
    update, answer = protocol.update_routing_table, protocol.rpc_find

    async def update_routing_table(node_id: DHTID | None, peer_id: PeerID, responded: bool = True) -> None:
        if node_id is None or node_id == bound_id(peer_id):
            await update(node_id, peer_id, responded)

    async def rpc_find(request: dht_pb2.FindRequest, context: P2PContext) -> dht_pb2.FindResponse:
        if not len(set(request.keys)) == len(request.keys) <= ASKED_KEYS:
            raise ValueError("a question for too many places, or for one of them twice")
        return await answer(request, context)

    def validate_dictionary(key: bytes, dictionary: DictionaryDHTValue) -> bool:
        with dictionary.freeze():
            entries = list(dictionary.items())
            for subkey, (value, expiration_time) in entries:
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
        taken = _handed(values)  # whole places go only to a newcomer
        return await store(peer, *([column[at] for at in taken] for column in (keys, values, expiration_time)))

    protocol.call_find, protocol.call_store = call_find, call_store


def _copied(value: Any) -> Any:
    """A dictionary without its holder's claims about size and end, which could break or end a search."""
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


def _handed(places: Sequence[DictionaryDHTValue]) -> list[int]:
    """Indices of the places to hand over: the smallest first, up to HANDED_BYTES in all."""
    sizes = [sum(len(record.value) for record in place.data.values()) for place in places]
    smallest_first = sorted(range(len(places)), key=sizes.__getitem__)
    totals = itertools.accumulate(sizes[at] for at in smallest_first)
    return [at for at, total in zip(smallest_first, totals, strict=True) if total <= HANDED_BYTES]


def split_address(address: str) -> tuple[PeerID, Multiaddr]:
    """`/ip4/../tcp/../p2p/ID` as peer and way to it."""
    way, _, peer = address.rpartition("/p2p/")
    return PeerID.from_base58(peer), Multiaddr(way)
