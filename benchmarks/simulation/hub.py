"""Several swarms of one process around a hub: no network, deterministic and instant.

What crosses the hub went through the wire format, so such a swarm refuses what a real one would."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from codezero.environment import ScoredEnvironment
from codezero.swarm import wire
from codezero.swarm.base import Swarm
from codezero.swarm.wire import MAX_ITEMS, WireRefusal
from codezero.types import Feedback, Metrics, Post, Problem, RolloutGroup, ScoredGroup


class LocalHub:
    """Where the HubSwarms of one process meet."""

    def __init__(self) -> None:
        self.members: dict[str, HubSwarm] = {}


class HubSwarm(Swarm):
    """In-memory twin of HivemindSwarm. Only proposals are in its checkpoint."""

    def __init__(self, peer_id: str, hub: LocalHub, environment: ScoredEnvironment | None = None) -> None:
        """environment: that derives the problems; None: they travel whole."""
        super().__init__(peer_id)
        self._environment = environment
        self._members = hub.members
        self._members[peer_id] = self
        self._inbox: list[RolloutGroup] = []
        self._feedback: list[Feedback] = []
        self._posts: dict[tuple[str, int], Post] = {}
        self._counts: Counter[str] = Counter()
        self._peers: set[str] = set()

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Every group reaches every other member at once."""
        others = [swarm for swarm in self._members.values() if swarm is not self]
        for scored in groups if others else ():
            try:
                body = wire.encode_body([scored.group], peer=self.peer_id, round_number=round_number)
            except WireRefusal:
                continue
            self._counts["bytes_out"] += len(body) * len(others)
            for other in others:
                other._receive(body)
            proposer = self._members.get(scored.group.problem.proposer or "")
            if proposer is not None and proposer is not self and scored.success is not None:
                proposer._receive_feedback(self.peer_id, wire.encode_feedback([scored], round_number=round_number))

    def _receive(self, body: bytes) -> None:
        _, _, groups = wire.decode_body(body)
        if self._environment is not None:
            derive = self._environment.derive
            groups = [replace(group, problem=derive(group.problem.item)) for group in groups if group.problem.item]
        self._counts["bytes_in"] += len(body)
        self._peers.add(groups[0].peer_id)
        self._inbox.extend(groups)

    def _receive_feedback(self, peer: str, data: bytes) -> None:
        self._feedback.extend(self.reported(peer, data))

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups since the last call; those of rounds before the last one are dropped."""
        arrived, self._inbox = self._inbox, []
        fresh = [group for group in arrived if group.round >= round_number - 1]
        self._counts["refused"] += len(arrived) - len(fresh)
        self._counts["groups_received"] += len(fresh)
        return fresh

    def feedback(self) -> list[Feedback]:
        feedback, self._feedback = self._feedback, []
        return feedback

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Every other member finds the problems among its proposals, without their references."""
        super().offer(problems, round_number)
        for swarm in self._members.values():
            if swarm is not self:
                swarm.keep(wire.claimed(problem, self.peer_id) for problem in problems[:MAX_ITEMS])

    def post(self, payload: bytes, round_number: int) -> None:
        """It reaches every other member at once, in place of the one before."""
        body = wire.encode_market([payload], peer=self.peer_id, round_number=round_number)
        for swarm in self._members.values():
            if swarm is not self:
                peer, number, (received,) = wire.decode_market(body)
                swarm._posts.pop((peer, number), None)
                swarm._posts[peer, number] = Post(peer, number, received)

    def posts(self) -> list[Post]:
        posts, self._posts = self._posts, {}
        return list(posts.values())

    def metrics(self) -> Metrics:
        counts: Metrics = {f"swarm/{name}": count for name, count in self._counts.items()}
        return super().metrics() | counts | {"swarm/peers": len(self._peers)}

    def close(self) -> None:
        """Leave the hub."""
        self._members.pop(self.peer_id, None)
