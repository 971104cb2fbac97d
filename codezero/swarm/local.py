"""The swarm without a network: alone, or several in one process around a hub. Deterministic and instant.

What crosses the hub went through the wire format, so a local swarm refuses what a real one would.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from codezero.swarm.offers import Kept, Offers, OwnOffers, read_kept, write_kept
from codezero.swarm.schema import MAX_ITEMS, Refusal
from codezero.swarm.wire import (
    claimed,
    decode_body,
    decode_feedback,
    encode_body,
    encode_feedback,
    own_offer,
)
from codezero.types import Feedback, Metrics, Problem, RolloutGroup, ScoredGroup


class LocalHub:
    """Where the LocalSwarms of one process meet."""

    def __init__(self) -> None:
        self.members: dict[str, LocalSwarm] = {}

    def others(self, peer: str) -> list["LocalSwarm"]:
        """Everybody but `peer`, in the order they came."""
        return [swarm for name, swarm in self.members.items() if name != peer]


class LocalSwarm:
    """The in-memory twin of HivemindSwarm: own offers come back as proposals; without a hub there are no peers."""

    def __init__(self, peer_id: str, hub: LocalHub | None = None) -> None:
        self.peer_id = peer_id
        self._hub = hub if hub is not None else LocalHub()
        self._hub.members[peer_id] = self
        self._inbox: list[RolloutGroup] = []
        self._offers = Offers()
        self._own = OwnOffers()
        self._told: list[Feedback] = []
        self._counts: Counter[str] = Counter()
        self._heard: set[str] = set()

    def proposals(self, round_number: int) -> list[Problem]:
        """Everybody's proposals, newest first."""
        return self._offers.newest_first()

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Every group reaches every other member at once."""
        others = self._hub.others(self.peer_id)
        for scored in groups if others else ():
            try:
                body = encode_body([scored.group], peer=self.peer_id, round_number=round_number)
            except Refusal:
                self._counts["unpublished"] += 1
                continue
            self._counts["bytes_out"] += len(body) * len(others)
            for other in others:
                other.hear(body)

            proposer = self._hub.members.get(scored.group.problem.proposer or "")
            if proposer is not None and proposer is not self and scored.success is not None:
                proposer.hear_feedback(self.peer_id, encode_feedback([scored], round_number=round_number))

    def hear_feedback(self, peer: str, data: bytes) -> None:
        """Take in what a peer says of this node's problems."""
        for outcome in decode_feedback(data).outcomes:
            problem = self._own.heard(outcome.problem.hex(), peer)
            if problem is not None:
                self._told.append(Feedback(peer, problem.id, problem.level, outcome.attempts, outcome.success))

    def feedback(self) -> list[Feedback]:
        """What peers said since the last call of this node's problems."""
        told, self._told = self._told, []
        return told

    def hear(self, body: bytes) -> None:
        """Take a peer's body in."""
        groups = decode_body(body)
        self._counts["bytes_in"] += len(body)
        self._heard.add(groups[0].peer_id)
        self._inbox.extend(groups)

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups since the last call; those of rounds before the last one are dropped."""
        arrived, self._inbox = self._inbox, []
        fresh = [group for group in arrived if group.round >= round_number - 1]
        self._counts["refused_stale"] += len(arrived) - len(fresh)
        self._counts["groups_received"] += len(fresh)
        return fresh

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Every member, this one too, finds the problems among its proposals, without their references."""
        offered = problems[:MAX_ITEMS]
        self._own.add(offered)
        for problem in offered:
            for member in self._hub.members.values():
                mine = member is self
                member.keep_offer((own_offer if mine else claimed)(problem, self.peer_id))

    def keep_offer(self, problem: Problem) -> None:
        """Remember a proposal; the oldest are forgotten."""
        self._offers.keep([problem])

    def metrics(self) -> Metrics:
        """`swarm/...`, the names of the real swarm."""
        names = ("groups_received", "bytes_in", "bytes_out")
        counted: Metrics = {f"swarm/{name}": self._counts[name] for name in names}
        return {"swarm/peers": len(self._heard), "swarm/refused": self._counts["refused_stale"]} | counted

    def save(self, folder: Path) -> None:
        """All but what has arrived since the last `gather`."""
        own, heard, counts = self._own.state(), sorted(self._heard), dict(self._counts)
        write_kept(folder, Kept(offers=self._offers.state(), own=own, heard=heard, counts=counts))

    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        kept = read_kept(folder)
        self._offers.become(kept.offers)
        self._own.become(kept.own)
        self._heard, self._counts = set(kept.heard), Counter(kept.counts)

    def close(self) -> None:
        """Leave the hub."""
        self._hub.members.pop(self.peer_id, None)
