"""The gossip's transports in one process, with the same records and rules: over a board, and over the simulated DHT.

The latter has the deadlines and ways of `hivemind_dht.py`, and `Neighbourhood` is its way back in. What one of a
thousand validators accepted need not be taken apart again."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

import msgspec

from codezero.errors import UnreachableError
from codezero.swarm.calls import BEAM, WIDE_BEAM, Answer, Call, Records, within
from codezero.swarm.identity import Identity
from codezero.swarm.records import DHTRecord, Envelope, PeerRecordValidator, RecordPlace, parse_key
from simulation.kademlia import WORKERS, DHTNode, Found, node_id
from simulation.network import Network

pack = msgspec.msgpack.encode


@dataclass(slots=True)
class Board:
    """What all nodes of a process share: the records, and who answers."""

    clock: Callable[[], float] = time.time
    records: dict[bytes, dict[bytes, DHTRecord]] = field(default_factory=dict[bytes, dict[bytes, DHTRecord]])
    """By key and subkey."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])  # By peer id
    addresses: dict[str, str] = field(default_factory=dict[str, str])  # Of the peers that all others are connected with
    hidden: set[str] = field(default_factory=set[str])  # Who is behind a router and connected with the hubs alone
    hubs: set[str] = field(default_factory=set[str])

    def store(self, record: DHTRecord, validator: PeerRecordValidator) -> bool:
        """As a holder with this validator would: a later expiry replaces an earlier one."""
        place = self.records.setdefault(record.key, {})
        before = place.get(record.subkey)
        if not validator.validate(record) or (before and before.expiration_time >= record.expiration_time):
            return False
        place[record.subkey] = record
        return True

    def read(self, key: bytes, validator: PeerRecordValidator) -> dict[str, bytes]:
        """By peer what a reader with this validator believes of the living records of a place."""
        now = self.clock()
        place = self.records.get(key, {})
        for subkey in [subkey for subkey, record in place.items() if record.expiration_time <= now]:
            del place[subkey]
        return dict(opened(record, validator) for record in place.values() if validator.validate(record))


def signed(place: RecordPlace, peer: str, payload: bytes, expiry: float, by: PeerRecordValidator) -> DHTRecord:
    """The record that `by` would store."""
    by.declare(place)
    bare = DHTRecord(place.id, pack(peer), pack(payload), expiry)
    return DHTRecord(bare.key, bare.subkey, by.sign_value(bare), expiry)


def opened(record: DHTRecord, validator: PeerRecordValidator) -> tuple[str, bytes]:
    """Peer and payload of a validated record."""
    payload = msgspec.msgpack.decode(validator.strip_value(record), type=bytes)
    return msgspec.msgpack.decode(record.subkey, type=str), payload


class MemoryTransport:
    """Implements `calls.Transport` on a `Board`. Nothing is slow, nothing is lost."""

    def __init__(self, board: Board, me: str, validator: PeerRecordValidator) -> None:
        self._board, self._me, self._validator = board, me, validator

    @property
    def me(self) -> str:
        return self._me

    @property
    def neighbours(self) -> int:
        return len(self._board.answers.keys() - {self._me})

    async def serve(self, answer: Answer) -> None:
        self._board.answers[self._me] = answer

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        stored = self._board.store(signed(place, self._me, header, expiry, self._validator), self._validator)
        return stored and (not confirm or self.neighbours > 0)

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        return {place: self._board.read(place.id, self._validator) for place in places}

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        if peer not in self._board.answers:
            raise UnreachableError(f"{peer} is not here")
        if peer in self._board.hidden - {self._me} and self._me not in self._board.hubs:
            raise UnreachableError(f"{peer} is behind a router")
        return await self._board.answers[peer](call, self._me, request)

    async def connected(self) -> Mapping[str, str]:
        hidden = self._board.hidden if self._me in self._board.hubs else set[str]()
        return {peer: address for peer, address in self._board.addresses.items() if peer != self._me} | dict.fromkeys(
            hidden, ""
        )

    def relays(self, peer: str) -> Sequence[str]:
        return sorted(self._board.hubs - {peer, self._me})


ACCEPTED = 1 << 16  # Records remembered


class Accepted:
    """Records that some node's validator accepted, and where each lies. Only what all nodes agree on is remembered."""

    def __init__(self) -> None:
        self.places: OrderedDict[DHTRecord, tuple[RecordPlace, str]] = OrderedDict()


class SharedValidator(PeerRecordValidator):
    """The real rules; format, key, owner and signature of one record are checked by the first node that sees it.

    The clock, the open round and the members differ between nodes and are checked by each. What was
    refused is not remembered: a forgery costs everybody the whole check.
    """

    def __init__(self, identity: Identity, swarm: str, *, clock: Callable[[], float], accepted: Accepted) -> None:
        super().__init__(identity, swarm, clock=clock)
        self._accepted = accepted.places

    def _check(self, record: DHTRecord) -> None:
        known = self._accepted.get(record)
        if known is None:
            super()._check(record)
            self._remember(record)
            return
        place, peer = known
        self._check_now(peer, place.round, record.expiration_time)

    def _remember(self, record: DHTRecord) -> None:
        envelope = msgspec.msgpack.decode(msgspec.msgpack.decode(record.value, type=bytes), type=Envelope)
        self._accepted[record] = parse_key(envelope.key), msgspec.msgpack.decode(record.subkey, type=str)
        while len(self._accepted) > ACCEPTED:
            self._accepted.popitem(last=False)


# As in `hivemind_dht.py`, which cannot be imported without hivemind.
STORE_SECONDS = 10.0
READ_SECONDS = 5.0
ASK_SECONDS = 5.0
RELAYS, WITNESSES = 3, 3
DIALS_AT_ONCE = 8
KNOWN_PEERS = 512
LOST = 12


Result = TypeVar("Result")


class Waiting(Generic[Result]):
    """A callback that can be awaited."""

    def __init__(self) -> None:
        self.end: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def __call__(self, result: Result) -> None:
        if not self.end.done():
            self.end.set_result(result)


class SimulatedTransport:
    """Implements `calls.Transport`; `validator` is the one that `node` was made with."""

    def __init__(self, network: Network[DHTNode], node: DHTNode, validator: PeerRecordValidator) -> None:
        self._network, self._node, self._validator = network, node, validator

    @property
    def me(self) -> str:
        return self._node.peer

    @property
    def neighbours(self) -> int:
        return len(self._node.table)

    async def serve(self, answer: Answer) -> None:
        self._node.answer = answer

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        return await self._store(place, header, expiry) and (not confirm or await self._is_elsewhere(place))

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        found = await asyncio.gather(*(self._read(place, thorough=thorough) for place in places))
        if places and all(records is None for records in found):
            raise UnreachableError("the DHT did not answer")
        return {place: records for place, records in zip(places, found, strict=True) if records}

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        me, waiting = self.me, Waiting[bytes | None]()
        handler: Callable[[DHTNode], tuple[bytes, int]] = lambda host: host.on_ask(call, me, request)  # noqa: E731
        port = self._network.ports.get(node_id(peer))
        if call == "relay" and port and port.plugged and port.host.answer:
            relayed = await port.host.answer(call, me, request)
            handler = lambda _: (relayed, len(relayed))  # noqa: E731
        self._network.call(self._node.port, node_id(peer), len(request), handler, waiting, ASK_SECONDS)
        answer = await waiting.end
        if answer is None:
            raise UnreachableError(f"{peer} did not answer")
        return answer

    async def connected(self) -> Mapping[str, str]:
        ports = [self._network.ports[node] for node in self._node.port.connections]
        return {port.host.peer: f"/ip4/45.{port.host.id % 256}.{port.host.id % 251}.1/tcp/1" for port in ports}

    def relays(self, peer: str) -> Sequence[str]:
        nearest = self._node.table.nearest(node_id(peer), RELAYS + 1)
        return [self._network.ports[node].host.peer for node in nearest if node != node_id(peer)][:RELAYS]

    async def _read(self, place: RecordPlace, *, thorough: bool) -> Records | None:
        key, workers, beam = int.from_bytes(place.id, "big"), *((WORKERS, WIDE_BEAM) if thorough else (1, BEAM))
        found = await self._node.read(key, workers=workers, beam=beam, thorough=thorough, seconds=READ_SECONDS)
        return None if found is None else dict(opened(record, self._validator) for record in found)

    async def _store(self, place: RecordPlace, payload: bytes, expiry: float) -> bool:
        record = signed(place, self.me, payload, expiry, self._validator)
        try:
            return await within(STORE_SECONDS, self._node.store(record))
        except TimeoutError as error:
            raise UnreachableError("the DHT did not answer") from error

    async def _is_elsewhere(self, place: RecordPlace) -> bool:
        """Was our record read back from another node?"""
        key = int.from_bytes(place.id, "big")
        for node in self._node.table.nearest(key, WITNESSES):
            found = await self._find(node, key)
            if found and any(opened(record, self._validator)[0] == self.me for record in found[0]):
                return True
        return False

    async def _find(self, node: int, key: int) -> Found | None:
        waiting = Waiting[Found | None]()
        self._node.call_find(node, key, waiting)
        return await waiting.end


class Neighbourhood:
    """Keeps a node in touch: dials the bootstraps and every peer it ever met that is not a neighbour now."""

    def __init__(self, node: DHTNode, bootstrap: Sequence[int], random: Random, met: Iterable[int] = ()) -> None:
        """`met`: whom an earlier life of this node remembered."""
        self._node, self._random = node, random
        self._bootstrap = [one for one in bootstrap if one != node.id]
        self.known: dict[int, int] = dict.fromkeys(met, 0)  # Peers met -> dials in vain since

    async def rejoin(self) -> None:
        """One round of dialling."""
        for peer in self._node.port.connections:
            if len(self.known) < KNOWN_PEERS:
                self.known.setdefault(peer, 0)
        missing = [peer for peer in dict.fromkeys([*self._bootstrap, *self.known]) if peer not in self._node.table]
        chosen = self._random.sample(missing, min(DIALS_AT_ONCE, len(missing)))
        for peer, reached in zip(chosen, await asyncio.gather(*map(self._dial, chosen)), strict=True):
            self.known[peer] = 0 if reached else self.known.get(peer, 0) + 1
            if self.known[peer] >= LOST:
                del self.known[peer]

    async def _dial(self, peer: int) -> bool:
        waiting = Waiting[bool]()
        self._node.ping(peer, waiting)
        reached = await waiting.end
        if reached:
            self._node.forgive(peer)
        return reached
