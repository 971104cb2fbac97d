"""The gossip's transport over the simulated DHT, with the deadlines and the ways of `hivemind_transport.py`.

And `Neighbourhood`, the way back in, as `hivemind_dht.py` has it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Generic, TypeVar

from codezero.errors import UnreachableError
from codezero.swarm.records import PeerRecordValidator, RecordPlace
from codezero.swarm.transport import BEAM, WIDE_BEAM, Answer, Call, Records, within
from simulation.kademlia import WORKERS, DHTNode, Found, node_id
from simulation.memory_transport import opened, signed
from simulation.network import Network

# As in `hivemind_transport.py` and `hivemind_dht.py`, which cannot be imported without hivemind.
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
    """Implements `transport.Transport`; `validator` is the one that `node` was made with."""

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
        self.known: dict[int, int] = dict.fromkeys(met, 0)
        """Peers met -> dials in vain since."""

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
