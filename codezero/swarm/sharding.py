"""Over how many shards the announcements of a round are spread, judged by how crowded the shards are that were read.

A key of the DHT holds 4 MiB in all and is sent whole to whoever asks, so the crowd of one place must stay small however
large the swarm is. Nobody counts the swarm: every node reads a few places and takes them for a sample. Nodes that judge
differently still meet, because a reader looks at other numbers of shards too, now and then.
"""

from random import Random

from codezero.swarm.records import MAX_SHARDS

CROWD = 32
"""Headers that one place should hold at most."""
SPARSE = 10
"""Headers in a place below which half as many places will do. Far below CROWD / 2, so that nobody swings to and fro."""
MEMORY = 0.3
"""Weight of the newest reading of a level."""
FADE = 0.98
"""What is left of the other levels after each reading: what was not looked at for long is not there any more."""
FAR = 0.25
"""Share of the looks elsewhere that go to any number of shards; the rest go to half as many and twice as many."""
PROBES = 4
"""Numbers of shards that a node looks at at once while it finds nobody."""

LEVELS = tuple(2**power for power in range(MAX_SHARDS.bit_length()))


class ShardEstimate:
    """The present number of shards, a power of two."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._seen: dict[int, float] = {}
        """Number of shards -> headers in one place there, smoothed."""
        self.shards = 1

    @property
    def size(self) -> float:
        """Peers that announce, estimated."""
        return sum(shards * headers for shards, headers in self._seen.items())

    def note(self, shards: int, headers: float) -> None:
        """One place among `shards` held so many headers; decides anew."""
        before = self._seen.get(shards, float(headers))
        self._seen = {level: FADE * crowded for level, crowded in self._seen.items()}
        self._seen[shards] = before + MEMORY * (headers - before)
        while self.size > CROWD * self.shards and self.shards < MAX_SHARDS:
            self.shards *= 2
        while self.shards > 1 and self.size < SPARSE * self.shards:
            self.shards //= 2

    @property
    def alone(self) -> bool:
        """Nobody is to be found at our number of shards."""
        return self._seen.get(self.shards, 0.0) < 1

    def elsewhere(self, *, lost: bool = False) -> list[int]:
        """Other numbers of shards to look at: whoever judges differently announces there. Several for who is lost."""
        if lost or self.alone:
            return self._random.sample(LEVELS, PROBES)
        near = [shards for shards in (self.shards // 2, self.shards * 2) if 1 <= shards <= MAX_SHARDS]
        return [self._random.choice(LEVELS if self._random.random() < FAR else near)]
