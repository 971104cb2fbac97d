"""Kademlia's routing table and its search, with hivemind's parameters: whom a node knows, and how it finds others.

Node ids are 160-bit integers, near where the exclusive or is small. After Maymounkov and Mazières, "Kademlia", 2002,
and hivemind's `dht/routing.py` and `dht/traverse.py`, with their buckets, replacements and shared workers. No network.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

BITS = 160
BUCKET_SIZE = 20
DEPTH_MODULO = 5
"""A bucket far from the own id is split down to the next multiple of this depth, as in the paper's section 4.2."""
BEAM_SIZE = 20
"""A search ends when so many of the nearest known nodes were asked."""


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
    """How far the search for one key has come."""

    def __init__(self, key: int, start: Sequence[int], me: int) -> None:
        self.key, self.active = key, 0
        self.visited = {me}
        self._known = set(start)
        self.candidates = [(key ^ node, node) for node in start]
        heapq.heapify(self.candidates)
        self._nearest = heapq.nlargest(BEAM_SIZE, [(-distance, node) for distance, node in self.candidates])
        heapq.heapify(self._nearest)

    @property
    def priority(self) -> tuple[float, int]:
        """Least first: fewer workers, then the nearer candidate; without candidates last."""
        return (self.active, self.candidates[0][0]) if self.has_candidates else (math.inf, 0)

    @property
    def has_candidates(self) -> bool:
        return bool(self.candidates) and self.candidates[0][0] <= self._bound

    @property
    def nearest(self) -> list[int]:
        """Up to BEAM_SIZE nodes, the nearest first, answering or not."""
        return [node for _, node in sorted(self._nearest, reverse=True)]

    @property
    def _bound(self) -> float:
        return -self._nearest[0][0] if len(self._nearest) >= BEAM_SIZE else math.inf

    def learn(self, nodes: Sequence[int]) -> None:
        """Somebody named these nodes."""
        key, known, bound = self.key, self._known, self._bound
        for node in nodes:
            if node in known:
                continue
            known.add(node)
            distance = key ^ node
            if distance <= bound:
                heapq.heappush(self.candidates, (distance, node))
                put = heapq.heappush if len(self._nearest) < BEAM_SIZE else heapq.heappushpop
                put(self._nearest, (-distance, node))
                bound = self._bound


Named = Mapping[int, tuple[Sequence[int], bool]]
"""By key: the nodes that an answer named, and whether the search for this key may end."""


class Lookup:
    """The searches for several keys at once, which share their workers and their calls."""

    def __init__(
        self,
        keys: Sequence[int],
        start: Sequence[int],
        *,
        me: int,
        workers: int,
        send: Callable[[int, Sequence[int]], None],
        finished: Callable[[], None],
    ) -> None:
        """`send` asks one node about some keys and leads to `answered` later, never at once."""
        self.searches = {key: Search(key, start, me) for key in keys}
        self._open = dict(self.searches)
        self._per_call = math.isqrt(len(keys))
        self._workers, self._send, self._finished = workers, send, finished
        self._calls = 0

    def go(self) -> None:
        """Keep all workers busy; call `finished` when no search is open."""
        while self._open and self._calls < self._workers:
            search = min(self._open.values(), key=lambda one: one.priority)
            if not search.has_candidates:
                if self._calls:
                    return
                self._open.clear()
                break
            _, node = heapq.heappop(search.candidates)
            if node not in search.visited:
                self._call(node, search)
        if not self._open:
            self._finished()

    def answered(self, node: int, keys: Sequence[int], named: Named) -> None:
        """What `send` led to; nothing named for a node that did not answer."""
        if not self._open:
            return
        self._calls -= 1
        for key in keys:
            self.searches[key].active -= 1
            nodes, enough = named.get(key, ((), False))
            if enough:
                self._open.pop(key, None)
            elif key in self._open:
                self.searches[key].learn(nodes)
        self.go()

    def stop(self) -> set[int]:
        """No more of it. Returns the keys whose search had not ended."""
        late = set(self._open)
        self._open.clear()
        return late

    def _call(self, node: int, search: Search) -> None:
        others = [one for one in self._open.values() if one is not search and node not in one.visited]
        others.sort(key=lambda one: node ^ one.key)
        asked = [search, *others[: self._per_call - 1]]
        for one in asked:
            one.visited.add(node)
            one.active += 1
        self._calls += 1
        self._send(node, [one.key for one in asked])
