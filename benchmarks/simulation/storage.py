"""The records that a simulated node keeps for others, within the bounds of `dht.Storage`. Sizes are a real node's."""

import heapq
from collections.abc import Callable
from random import Random

from codezero.swarm.records import DHTRecord

STORED_KEYS = 1024
PLACE_BYTES = 512 << 10
# As in `hivemind_dht.py`, which cannot be imported without hivemind. Its bound on all places together is left
# out: a simulated swarm never comes near it.

ENTRY_BYTES = 27
"""On the wire: an entry of a dictionary besides its value and name."""
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
