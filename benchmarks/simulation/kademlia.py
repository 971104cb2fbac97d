"""A node of the DHT as hivemind's behaves: a routing table fed by every call, a storage, searches, replicas, bans.

Follows `dht/node.py` and `dht/protocol.py` of hivemind, with the changes of
`codezero/swarm/hivemind_dht.py`: bound node ids, no caches, bounded places, of a dictionary the bad entries are dropped
and not the whole, and of an answer few strangers are believed in. Sizes are those of real messages.
Leaves out: holders that lie about others or hide records; the daemons' own search for addresses; the search for a key
that joins one already under way.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

import base58

from codezero.swarm.records import DHTRecord, PeerRecordValidator
from codezero.swarm.transport import BEAM, Answer, Call
from simulation.network import Network, Port
from simulation.routing import BUCKET_SIZE, RoutingTable, Search
from simulation.storage import Storage, key_of, record_bytes

REPLICAS = 5
WORKERS = 4
CALL_SECONDS = 3.0
HANDED_BYTES = 2 << 20
NAMED_NODES = 5
"""As in `hivemind_dht.py`, which cannot be imported without hivemind."""
BAN_SECONDS = 5.0
"""A node that does not answer is not asked for so long; doubled each time until it answers."""

KEY_BYTES, NEIGHBOUR_BYTES = 26, 56
"""On the wire: a key and its part of an answer; a node's id and peer id."""

Found = tuple[Sequence[DHTRecord], Sequence[int]]
"""The records kept under a key, and the nearest nodes known."""


def node_id(peer: str) -> int:
    """What `dht.bound_id` gives: sha1 of the peer id's bytes."""
    return int.from_bytes(hashlib.sha1(base58.b58decode(peer), usedforsecurity=False).digest(), "big")


@dataclass(slots=True)
class Ban:
    """Of a node that did not answer `times` times in a row."""

    until: float
    times: int


class DHTNode:
    """One node's part in the DHT. `id` is bound to the peer id, so others need no proof of it."""

    def __init__(
        self,
        network: "Network[DHTNode]",
        peer: str,
        validator: PeerRecordValidator,
        random: Random,
        *,
        reachable: bool = True,
    ) -> None:
        self.peer, self.id = peer, node_id(peer)
        self.table = RoutingTable(self.id)
        self.storage = Storage(network.loop.clock, random)
        self.answer: Answer | None = None
        """What `serve` was given."""
        self._network, self._loop, self._validator = network, network.loop, validator
        self._bans: dict[int, Ban] = {}
        self.port: Port[DHTNode] = network.plug(self, reachable=reachable)

    # ---------------------------------------------------------------- called by others

    def on_ping(self, caller: int) -> tuple[bool, int]:
        self.meet(caller)
        return True, KEY_BYTES

    def on_find(self, caller: int, key: int) -> tuple[Found, int]:
        """What is kept here under the key, and whom to ask next."""
        records, near = self.storage.read(key), self.table.nearest(key, BUCKET_SIZE, exclude=caller)
        self.meet(caller)
        return (records, near), len(near) * NEIGHBOUR_BYTES + sum(map(record_bytes, records))

    def on_store(self, caller: int, records: Sequence[DHTRecord]) -> tuple[bool, int]:
        """Was each record valid and new?"""
        self.meet(caller)
        kept = [self._validator.validate(record) and self.storage.store(record) for record in records]
        return all(kept), len(kept)

    def on_ask(self, call: Call, caller: str, request: bytes) -> tuple[bytes, int]:
        """A question to the peer itself. One that does not serve answers nothing."""
        try:
            if self.answer:
                self.answer(call, caller, request).send(None)  # pyright: ignore[reportAttributeAccessIssue]
        except StopIteration as done:
            return done.value, len(done.value)
        return b"", 0

    # ---------------------------------------------------------------- acquaintance

    def meet(self, node: int) -> None:
        """It called or answered: know it, and hand it what it should keep."""
        if node not in self.table:
            due = self._due(node)
            if due:
                self.call_store(node, due, lambda _: None)
        doubted = self.table.add(node)
        if doubted is not None:
            self.ping(doubted, lambda _: None)

    def is_banned(self, node: int) -> bool:
        return node in self._bans and self._bans[node].until > self._loop.time()

    def _not_banned(self, nodes: Sequence[int]) -> Sequence[int]:
        return [node for node in nodes if not self.is_banned(node)] if self._bans else nodes

    def forgive(self, node: int) -> None:
        self._bans.pop(node, None)

    def _due(self, node: int) -> list[DHTRecord]:
        """What a newcomer should keep, the smallest places first and not too much at once."""
        places = [self.storage.read(key) for key in self.storage.places() if self._should_hand_over(node, key)]
        due: list[DHTRecord] = []
        left = HANDED_BYTES
        for records in sorted(places, key=lambda records: sum(map(record_bytes, records))):
            left -= sum(map(record_bytes, records))
            if left < 0:
                break
            due += records
        return due

    def _should_hand_over(self, node: int, key: int) -> bool:
        """Would it be a replica, and are we the nearest that would tell it so?"""
        near = self.table.nearest(key, REPLICAS)
        return not near or (node ^ key < near[-1] ^ key and self.id ^ key < near[0] ^ key)

    def _silent(self, node: int) -> None:
        self.table.remove(node)

    def _ban(self, node: int) -> None:
        now, before = self._loop.time(), self._bans.get(node)
        if before is None or before.until <= now:
            times = before.times + 1 if before else 1
            self._bans[node] = Ban(now + BAN_SECONDS * 2.0 ** (times - 1), times)

    # ---------------------------------------------------------------- calls to others

    def ping(self, node: int, done: Callable[[bool], None]) -> None:
        def answered(yes: bool | None) -> None:
            self.meet(node) if yes else self._silent(node)
            done(bool(yes))

        self._network.call(self.port, node, KEY_BYTES, lambda host: host.on_ping(self.id), answered, CALL_SECONDS)

    def call_store(self, node: int, records: Sequence[DHTRecord], done: Callable[[bool | None], None]) -> None:
        """`done` gets None when it did not answer."""

        def answered(stored: bool | None) -> None:
            self._silent(node) if stored is None else self.meet(node)
            done(stored)

        size = sum(KEY_BYTES + record_bytes(record) for record in records)
        self._network.call(self.port, node, size, lambda host: host.on_store(self.id, records), answered, CALL_SECONDS)

    def call_find(self, node: int, key: int, done: Callable[[Found | None], None]) -> None:
        """`done` gets the valid records only; None when it did not answer."""

        def answered(found: Found | None) -> None:
            if found is None:
                self._silent(node)
                done(None)
                return
            self.meet(node)
            records, near = found
            done((self._valid(records), self._believed(near)))

        self._network.call(self.port, node, KEY_BYTES, lambda host: host.on_find(self.id, key), answered, CALL_SECONDS)

    def _believed(self, near: Sequence[int]) -> Sequence[int]:
        """Those we know, and of the others the NAMED_NODES nearest."""
        doubtful = set(self.table.strangers(near)[NAMED_NODES:])
        return [node for node in near if node not in doubtful] if doubtful else near

    def _valid(self, records: Iterable[DHTRecord]) -> list[DHTRecord]:
        return [record for record in records if self._validator.validate(record)]

    # ---------------------------------------------------------------- searches

    async def read(
        self, key: int, *, workers: int, beam: int, thorough: bool, seconds: float
    ) -> Sequence[DHTRecord] | None:
        """The records of the first holder found, one for each owner; of all that the search meets when `thorough`.

        None when the search takes longer than `seconds`.
        """
        merged = {record.subkey: record for record in self.storage.read(key)}
        if merged and not thorough:
            return list(merged.values())

        def heard(records: Iterable[DHTRecord]) -> bool:
            for record in records:
                before = merged.get(record.subkey)
                if before is None or record.expiration_time > before.expiration_time:
                    merged[record.subkey] = record
            return bool(merged) and not thorough

        ended = await self._search(key, workers, beam, heard, seconds)
        return None if ended is None else list(merged.values())

    async def store(self, record: DHTRecord) -> bool:
        """Keep it at the REPLICAS nearest nodes that answer, this one among them if it is. Did the last one agree?"""
        key = key_of(record)
        near = await self._search(key, WORKERS, BEAM, lambda _records: False, None)
        candidates = sorted([*(near or ()), self.id], key=key.__xor__, reverse=True)
        end: asyncio.Future[bool] = self._loop.create_future()
        answered: list[bool] = []
        waiting = 0

        def more() -> None:
            nonlocal waiting
            while candidates and len(answered) + waiting < REPLICAS:
                node = candidates.pop()
                if node == self.id:
                    answered.append(self._validator.validate(record) and self.storage.store(record))
                else:
                    waiting += 1
                    self.call_store(node, [record], replied)
            if not waiting and not end.done():
                end.set_result(bool(answered and answered[-1]))

        def replied(stored: bool | None) -> None:
            nonlocal waiting
            waiting -= 1
            if stored is not None:
                answered.append(stored)
            more()

        more()
        return await end

    async def _search(
        self, key: int, workers: int, beam: int, heard: Callable[[Iterable[DHTRecord]], bool], seconds: float | None
    ) -> Sequence[int] | None:
        """The nearest nodes to a key; None when that takes longer than `seconds`.

        `heard` is told what is kept there, and says whether that will do.
        """
        end: asyncio.Future[None] = self._loop.create_future()

        def send(node: int) -> None:
            def answered(found: Found | None) -> None:
                if found is None:
                    self._ban(node)
                    search.answered((), False)
                    return
                self.forgive(node)
                records, near = found
                search.answered(self._not_banned(near), heard(records))

            if self.is_banned(node):
                self._loop.call_soon(search.answered, (), False)
            else:
                self.call_find(node, key, answered)

        def finished() -> None:
            if not end.done():
                end.set_result(None)

        search = Search(
            key,
            self.table.nearest(key, BUCKET_SIZE),
            me=self.id,
            workers=workers,
            beam=beam,
            send=send,
            finished=finished,
        )
        search.go()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await end
        return None if search.stop() else search.nearest
