"""The proposals a node keeps, own ones and others', with their place in a checkpoint; and the swarm of one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec

from codezero.swarm.schema import MAX_ITEMS
from codezero.swarm.wire import claimed, decode_feedback
from codezero.system.state import Newest, StateFile
from codezero.types import Feedback, Metrics, Post, Problem, RolloutGroup, ScoredGroup, Standing

PROPOSALS_KEPT = 256
OWN_KEPT = 256
REPORTERS_EACH = 64
"""Peers whose feedback on one problem is taken."""
SEEN_GROUPS = 8192
"""Fingerprints of peers' groups that were handed on."""


class SwarmState(msgspec.Struct, frozen=True):
    """What of a node's handle on its swarm is in a checkpoint; further fields of earlier versions are ignored."""

    offers: Annotated[list[Problem], msgspec.Meta(max_length=PROPOSALS_KEPT)] = []
    """Everybody's proposals, oldest first."""
    own: Annotated[list[tuple[Problem, list[str]]], msgspec.Meta(max_length=OWN_KEPT)] = []
    """Own ones, with the peers that gave feedback on them."""
    seen: Annotated[list[bytes], msgspec.Meta(max_length=SEEN_GROUPS)] = []
    """Fingerprints of the groups that were handed on."""


class ProposalStore(StateFile[SwarmState], file="swarm.json", schema=SwarmState):
    """Everybody's newest PROPOSALS_KEPT proposals, and which peers gave feedback on the newest OWN_KEPT own ones.

    Also which of the peers' groups were handed on.
    """

    def __init__(self, peer_id: str) -> None:
        self.peer_id = peer_id
        self._kept = Newest[tuple[str | None, str], Problem](PROPOSALS_KEPT)
        """By author and problem id."""
        self._own = Newest[str, tuple[Problem, set[str]]](OWN_KEPT)
        """By problem id."""
        self._seen = Newest[bytes, None](SEEN_GROUPS)

    def keep_own(self, problems: Iterable[Problem]) -> None:
        """Keep own problems, as claims unless they are confirmed."""
        confirmed = Standing.CONFIRMED
        own = [
            claimed(each, self.peer_id, confirmed if each.standing is confirmed else Standing.CLAIMED)
            for each in problems
        ]
        self.keep(own)
        self._own.update({problem.id: (problem, set()) for problem in own if problem.id not in self._own})

    def keep(self, problems: Iterable[Problem]) -> None:
        """Keep anybody's. A known one stays in its place."""
        for problem in problems:
            if (key := (problem.proposer, problem.id)) not in self._kept:
                self._kept[key] = problem

    def newest_first(self) -> list[Problem]:
        return list(reversed(self._kept.values()))

    def reported(self, peer: str, data: bytes, trust: float = 1.0) -> Iterator[Feedback]:
        """What `peer` reports of own problems, its first report of each. Raises WireRefusal."""
        for outcome in decode_feedback(data).outcomes:
            problem, peers = self._own.get(outcome.problem.hex(), (None, set[str]()))
            if problem is not None and peer not in peers and len(peers) < REPORTERS_EACH:
                peers.add(peer)
                yield Feedback(peer, problem.id, problem.level, outcome.attempts, outcome.success, trust)

    def state(self) -> SwarmState:
        own = [(problem, sorted(peers)) for problem, peers in self._own.values()]
        return SwarmState(offers=list(self._kept.values()), own=own, seen=list(self._seen))

    def restore(self, state: SwarmState) -> None:
        self._kept.clear()
        self.keep(state.offers)
        self._own.clear()
        self._own.update({problem.id: (problem, set(peers)) for problem, peers in state.own})
        self._seen.clear()
        self._seen.update(dict.fromkeys(state.seen))


class LocalSwarm(ProposalStore):
    """A swarm of one, without a network: own offers come back as proposals, and there are no peers."""

    def proposals(self, round_number: int) -> list[Problem]:
        return self.newest_first()

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Nobody is there."""

    def gather(self, round_number: int) -> list[RolloutGroup]:
        return []

    def feedback(self) -> list[Feedback]:
        return []

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """They are proposals from now on."""
        self.keep_own(problems[:MAX_ITEMS])

    def post(self, payload: bytes, round_number: int) -> None:
        """Nobody is there."""

    def posts(self) -> list[Post]:
        return []

    def metrics(self) -> Metrics:
        """`swarm/...`, the names of the real swarm."""
        return {f"swarm/{name}": 0 for name in ("peers", "refused", "groups_received", "bytes_in", "bytes_out")}

    def close(self) -> None: ...
