"""Kademlia's routing table and its search, with hivemind's parameters: whom a node knows, and how it finds others.

Node ids are 160-bit integers, near where the exclusive or is small. After Maymounkov and Mazières, "Kademlia", 2002,
and hivemind's `dht/routing.py` and `dht/traverse.py`, with their buckets, replacements and shared workers. No network.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
