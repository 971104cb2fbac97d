"""Kademlia on the simulated network, with hivemind's parameters: whom a node knows, how it finds others, what it keeps.

Node ids are 160-bit integers, near where the exclusive or is small. After Maymounkov and Mazières, "Kademlia", 2002,
and hivemind's `dht/routing.py` and `dht/traverse.py`, with their buckets, replacements and shared workers. Records are
kept within the bounds of `hivemind_dht.Storage`. Sizes are a real node's."""

import asyncio
import contextlib
import hashlib
import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import base58

from codezero.swarm.calls import BEAM, Answer, Call
from codezero.swarm.records import DHTRecord, PeerRecordValidator
from simulation.network import Network, Port

BITS = 160
BUCKET_SIZE = 20
DEPTH_MODULO = 5
"""A bucket far from the own id is split down to the next multiple of this depth, as in the paper's section 4.2."""


@dataclass(slots=True)
class Bucket:
    """The known nodes with ids in [lower, lower + 2**(BITS - depth)), the one heard from longest ago first."""

    lower: int
    depth: int
    nodes: dict[int, None] = field(default_factory=dict[int, None])
    spare: dict[int, None] = field(default_factory=dict[int, None])
    """Known as well, for when one of `nodes` falls silent."""
    doubted: dict[int, None] = field(default_factory=dict[int, None])
    """Asked whether they live, since others wait for their place."""

    def add(self, node: int) -> bool:
        """Is it among `nodes` now?"""
        self.doubted.pop(node, None)
        if node in self.nodes or len(self.nodes) < BUCKET_SIZE:
            self.nodes.pop(node, None)
            self.nodes[node] = None
            return True
        self.spare.pop(node, None)
        self.spare[node] = None
        return False

    def doubt(self) -> int | None:
        """The node heard from longest ago of those not doubted yet."""
        for node in self.nodes:
            if node not in self.doubted:
                self.doubted[node] = None
                return node
        return None

    def covers(self, node: int) -> bool:
        return 0 <= node - self.lower < 1 << (BITS - self.depth)


class RoutingTable:
    """The nodes that the node `me` knows, more of the near than of the far."""

    def __init__(self, me: int) -> None:
        self.me = me
        self._known: dict[int, None] = {}
        self._buckets = [Bucket(0, 0)]
        self._lowers = [0]

    def __len__(self) -> int:
        """Spare nodes included."""
        return len(self._known)

    def __contains__(self, node: int) -> bool:
        return node in self._known

    def add(self, node: int) -> int | None:
        """`node` was heard from. Returns a node that keeps it from a place and should prove that it lives."""
        self._known[node] = None
        while True:
            at = bisect_right(self._lowers, node) - 1
            bucket = self._buckets[at]
            if bucket.add(node):
                return None
            if not bucket.covers(self.me) and bucket.depth % DEPTH_MODULO == 0:
                return bucket.doubt()
            self._split(at)

    def remove(self, node: int) -> None:
        """`node` fell silent; the spare node heard from last takes its place."""
        if node not in self._known:
            return
        del self._known[node]
        bucket = self._buckets[bisect_right(self._lowers, node) - 1]
        bucket.spare.pop(node, None)
        bucket.doubted.pop(node, None)
        if node in bucket.nodes:
            del bucket.nodes[node]
            if bucket.spare:
                bucket.nodes[bucket.spare.popitem()[0]] = None

    def strangers(self, nodes: Sequence[int]) -> list[int]:
        """Those that are not known."""
        known = self._known
        return [node for node in nodes if node not in known]

    def nearest(self, key: int, count: int, exclude: int = -1) -> list[int]:
        """Up to `count` known nodes, the nearest to `key` first, without `exclude`."""
        first = bisect_right(self._lowers, key) - 1
        end, depth, lower = first + 1, self._buckets[first].depth, self._lowers[first]
        found = list(self._buckets[first].nodes)
        while depth > 0 and len(found) <= count:  # one more than asked for, lest `exclude` is among them
            depth -= 1
            width = 1 << (BITS - depth)
            lower &= -width
            while end < len(self._lowers) and self._lowers[end] < lower + width:
                found.extend(self._buckets[end].nodes)
                end += 1
            while first > 0 and self._lowers[first - 1] >= lower:
                first -= 1
                found.extend(self._buckets[first].nodes)
        found.sort(key=key.__xor__)
        return [node for node in found[: count + 1] if node != exclude][:count]

    def _split(self, at: int) -> None:
        whole = self._buckets[at]
        depth = whole.depth + 1
        middle = whole.lower + (1 << (BITS - depth))
        low, high = Bucket(whole.lower, depth), Bucket(middle, depth)
        for node in (*whole.nodes, *whole.spare):
            (low if node < middle else high).add(node)
        self._buckets[at : at + 1] = [low, high]
        self._lowers[at : at + 1] = [low.lower, middle]


class Search:
    """The search for one key: the nearest known nodes are asked, which name nearer ones, until the beam is through."""

    def __init__(
        self,
        key: int,
        start: Sequence[int],
        *,
        me: int,
        workers: int,
        beam: int,
        send: Callable[[int], None],
        finished: Callable[[], None],
    ) -> None:
        """`send` asks one node and leads to `answered` later, never at once."""
        self._key, self._workers, self._beam, self._send, self._finished = key, workers, beam, send, finished
        self._visited, self._known = {me}, set(start)
        self._candidates = [(key ^ node, node) for node in start]
        heapq.heapify(self._candidates)
        self._nearest = heapq.nlargest(beam, [(-distance, node) for distance, node in self._candidates])
        heapq.heapify(self._nearest)
        self._active, self._open = 0, True

    @property
    def nearest(self) -> list[int]:
        """Up to `beam` nodes, the nearest first, answering or not."""
        return [node for _, node in sorted(self._nearest, reverse=True)]

    def go(self) -> None:
        """Keep all workers busy; call `finished` when nobody is left to ask."""
        while self._open and self._active < self._workers and self._has_candidates:
            _, node = heapq.heappop(self._candidates)
            if node not in self._visited:
                self._visited.add(node)
                self._active += 1
                self._send(node)
        if self._open and not self._active:
            self._open = False
            self._finished()

    def answered(self, nodes: Sequence[int], enough: bool) -> None:
        """What `send` led to: the nodes that were named, and whether that will do. None, when it did not answer."""
        if not self._open:
            return
        self._active -= 1
        if enough:
            self._open = False
            self._finished()
            return
        self._learn(nodes)
        self.go()

    def stop(self) -> bool:
        """No more of it. Had it not ended?"""
        late, self._open = self._open, False
        return late

    @property
    def _has_candidates(self) -> bool:
        return bool(self._candidates) and self._candidates[0][0] <= self._bound

    @property
    def _bound(self) -> float:
        return -self._nearest[0][0] if len(self._nearest) >= self._beam else math.inf

    def _learn(self, nodes: Sequence[int]) -> None:
        key, known, bound = self._key, self._known, self._bound
        for node in nodes:
            if node in known:
                continue
            known.add(node)
            distance = key ^ node
            if distance <= bound:
                heapq.heappush(self._candidates, (distance, node))
                put = heapq.heappush if len(self._nearest) < self._beam else heapq.heappushpop
                put(self._nearest, (-distance, node))
                bound = self._bound


STORED_KEYS = 1024
PLACE_BYTES = 512 << 10
# As in `hivemind_dht.py`, which cannot be imported without hivemind. Its bound on all places together is left
# out: a simulated swarm never comes near it.

ENTRY_BYTES = 27  # On the wire: an entry of a dictionary besides its value and name
RSA_BYTES = 458
"""By which a record of a real node is larger than one signed with the quicker keys that simulated nodes have."""


def key_of(record: DHTRecord) -> int:
    return int.from_bytes(record.key, "big")


def record_bytes(record: DHTRecord) -> int:
    """Of an entry as a real node sends it."""
    return ENTRY_BYTES + len(record.subkey) + len(record.value) + RSA_BYTES


class Storage:
    """Records by key and owner until they expire."""

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        self._clock, self._random = clock, random
        self._records: dict[int, dict[bytes, DHTRecord]] = {}
        self._ends: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Keys, those included that expired since the last access."""
        return len(self._records)

    def places(self) -> list[int]:
        """The keys."""
        self._drop_expired()
        return list(self._records)

    def read(self, key: int) -> list[DHTRecord]:
        self._drop_expired()
        now = self._clock()
        kept = self._records.get(key, {})
        for owner in [owner for owner, record in kept.items() if record.expiration_time < now]:
            del kept[owner]
        return list(kept.values())

    def store(self, record: DHTRecord) -> bool:
        """False when a record of the same owner that lives as long is kept already."""
        self._drop_expired()
        key, end = key_of(record), record.expiration_time
        before = self._records.get(key, {}).get(record.subkey)
        if end < self._clock() or (before is not None and before.expiration_time >= end):
            return False
        if key not in self._records and len(self._records) >= STORED_KEYS:
            self._drop(self._random.choice(list(self._records)))
        if end > self._ends.get(key, 0.0):
            self._ends[key] = end
            heapq.heappush(self._queue, (end, key))
        kept = self._records.setdefault(key, {})
        kept[record.subkey] = record
        if len(kept) * RSA_BYTES > PLACE_BYTES // 4:  # spares counting where there is room in any case
            self._shrink(kept, record.subkey)
        return True

    def _shrink(self, kept: dict[bytes, DHTRecord], keep: bytes) -> None:
        size = sum(map(record_bytes, kept.values()))
        while size > PLACE_BYTES:
            lost = self._random.choice([owner for owner in kept if owner != keep])
            size -= record_bytes(kept.pop(lost))

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._queue and self._queue[0][0] < now:
            end, key = heapq.heappop(self._queue)
            if self._ends.get(key) == end:
                self._drop(key)

    def _drop(self, key: int) -> None:
        del self._ends[key], self._records[key]


REPLICAS = 5
WORKERS = 4
CALL_SECONDS = 3.0
HANDED_BYTES = 2 << 20
NAMED_NODES = 5  # As in `hivemind_dht.py`, which cannot be imported without hivemind
BAN_SECONDS = 5.0  # A node that does not answer is not asked for so long; doubled each time until it answers

KEY_BYTES, NEIGHBOUR_BYTES = 26, 56  # On the wire: a key and its part of an answer; a node's id and peer id

Found = tuple[Sequence[DHTRecord], Sequence[int]]  # The records kept under a key, and the nearest nodes known


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
        self.answer: Answer | None = None  # What `serve` was given
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
