"""How many places the announcements of a round are spread over: a DHT key is sent whole, so each has to stay small."""

from random import Random

from codezero.swarm.records import MAX_SHARDS

CROWD = 32
"""Headers that one place should hold at most."""
SPARSE = 10
"""Headers in a place below which half as many places are enough. Far below CROWD / 2, to avoid oscillation."""
MEMORY = 0.3
"""Weight of the newest reading of a level."""
FADE = 0.98
"""What is left of the other levels after each reading: an old reading counts for nothing."""
FAR = 0.25
"""Share of the other reads that go to any number of shards; the rest go to half or twice the own one."""
PROBES = 4
"""Numbers of shards that a node tries at once while it finds nobody."""

LEVELS = tuple(2**power for power in range(MAX_SHARDS.bit_length()))


class ShardEstimate:
    """The present number of shards, a power of two, estimated from how full the places are that were read.

    A DHT key is sent whole, so a place must stay small in a swarm of any size. Nodes with different estimates still
    meet, as readers try other numbers too.
    """

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
