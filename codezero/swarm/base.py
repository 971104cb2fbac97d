"""The swarm as the round loop sees it, of one node, and the proposals that it keeps in a checkpoint."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec

from codezero.swarm import wire
from codezero.swarm.wire import MAX_ITEMS
from codezero.system.state import Newest, StateFile
from codezero.types import Feedback, Metrics, Post, Problem, RolloutGroup, ScoredGroup, Standing

PROPOSALS_KEPT = OWN_KEPT = 256
SEEN_GROUPS = 8192  # Fingerprints of peers' groups that were handed on


class SwarmState(msgspec.Struct, frozen=True):
    """A swarm's part of a checkpoint; further fields of earlier versions are ignored."""

    offers: Annotated[list[Problem], msgspec.Meta(max_length=PROPOSALS_KEPT)] = []  # Everybody's, oldest first
    own: Annotated[list[tuple[Problem, list[str]]], msgspec.Meta(max_length=OWN_KEPT)] = []  # And who reported on them
    seen: Annotated[list[bytes], msgspec.Meta(max_length=SEEN_GROUPS)] = []  # Fingerprints of groups handed on


class Swarm(StateFile[SwarmState], file="swarm.json", schema=SwarmState):
    """A node's handle on its swarm: on one of itself alone, where own offers come back and there are no peers.

    Nothing blocks, and in `HivemindSwarm` whatever calls the network raises SwarmError.

    It keeps everybody's newest PROPOSALS_KEPT proposals, and which peers gave feedback on the newest OWN_KEPT own ones.
    """

    def __init__(self, peer_id: str) -> None:
        self.peer_id = peer_id
        self._proposals = Newest[tuple[str | None, str], Problem](PROPOSALS_KEPT)  # By author and problem id
        self._own = Newest[str, tuple[Problem, set[str]]](OWN_KEPT)  # By problem id
        self._seen = Newest[bytes, None](SEEN_GROUPS)

    def proposals(self, round_number: int) -> list[Problem]:
        """Everybody's proposals, newest first."""
        return list(reversed(self._proposals.values()))

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Announce own groups. Verdicts only help to choose which are worth sharing."""

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Return peers' groups that arrived since the last call."""
        return []

    def feedback(self) -> list[Feedback]:
        """Return peers' reports since the last call on own problems, each peer's first on each."""
        return []

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Announce own proposals; they come back from `proposals` too."""
        for problem in problems[:MAX_ITEMS]:  # as claims unless they are confirmed
            standing = Standing.CONFIRMED if problem.standing is Standing.CONFIRMED else Standing.CLAIMED
            own = wire.claimed(problem, self.peer_id, standing)
            self.keep([own])
            self._own.setdefault(own.id, (own, set()))

    def post(self, payload: bytes, round_number: int) -> None:
        """Announce the own message to the market of a round; it replaces an earlier one."""

    def posts(self) -> list[Post]:
        """Return peers' messages to the market since the last call, oldest first."""
        return []

    def metrics(self) -> Metrics:
        """Return `swarm/...`: peers, bytes, refusals by reason."""
        return {f"swarm/{name}": 0 for name in ("peers", "refused", "groups_received", "bytes_in", "bytes_out")}

    def close(self) -> None:
        """Leave the swarm."""

    def keep(self, problems: Iterable[Problem]) -> None:
        """Keep anybody's. A known one stays in its place."""
        for problem in problems:
            self._proposals.setdefault((problem.proposer, problem.id), problem)

    def reported(self, peer: str, data: bytes, trust: float = 1.0) -> Iterator[Feedback]:
        """Yield what `peer` reports of own problems, its first report of each. Raises WireRefusal."""
        for outcome in wire.decode_feedback(data).outcomes:
            problem, peers = self._own.get(outcome.problem.hex(), (None, set[str]()))
            if problem is not None and peer not in peers and len(peers) < 64:
                peers.add(peer)
                yield Feedback(peer, problem.id, problem.level, outcome.attempts, outcome.success, trust)

    def state(self) -> SwarmState:
        own = [(problem, sorted(peers)) for problem, peers in self._own.values()]
        return SwarmState(list(self._proposals.values()), own, list(self._seen))

    def restore(self, state: SwarmState) -> None:
        for memory in (self._proposals, self._own, self._seen):
            memory.clear()
        self.keep(state.offers)
        self._own.update({problem.id: (problem, set(peers)) for problem, peers in state.own})
        self._seen.update(dict.fromkeys(state.seen))
