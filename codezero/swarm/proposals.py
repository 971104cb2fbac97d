"""The proposals a node keeps, own ones and others', with their place in a checkpoint; and the swarm of one.

A checkpoint holds only what the learning rests on. Trust and the way to others are kept by the network process in the
run's folder, and what was under way is lost with the process, as it may be on any network.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from codezero.swarm.schema import MAX_ITEMS
from codezero.swarm.wire import own_offer
from codezero.system.state import StateFile
from codezero.types import Feedback, Metrics, Problem, RolloutGroup, ScoredGroup

PROPOSALS_KEPT = 256
OWN_KEPT = 256
REPORTERS_EACH = 64
"""Peers whose feedback on one problem is taken."""
SEEN_GROUPS = 8192
"""Fingerprints of peers' groups that were handed on."""


class OwnProposals:
    """The newest OWN_KEPT own proposals, and which peers gave feedback on them."""

    def __init__(self) -> None:
        self._reporters: OrderedDict[str, tuple[Problem, set[str]]] = OrderedDict()
        """By problem id."""

    def add(self, problems: Iterable[Problem]) -> None:
        """The oldest are forgotten."""
        for problem in problems:
            self._reporters.setdefault(problem.id, (problem, set()))
        while len(self._reporters) > OWN_KEPT:
            self._reporters.popitem(last=False)

    def state(self) -> list[tuple[Problem, list[str]]]:
        """Oldest first, each with the peers that gave feedback on it."""
        return [(problem, sorted(peers)) for problem, peers in self._reporters.values()]

    def restore(self, state: Sequence[tuple[Problem, Sequence[str]]]) -> None:
        self._reporters = OrderedDict((problem.id, (problem, set(peers))) for problem, peers in state)

    def report(self, problem_id: str, peer: str) -> Problem | None:
        """The problem, at the first feedback of `peer` on it; None when it is not ours or has enough feedback."""
        problem, peers = self._reporters.get(problem_id, (None, set[str]()))
        if problem is None or peer in peers or len(peers) >= REPORTERS_EACH:
            return None
        peers.add(peer)
        return problem


class Proposals:
    """Everybody's, the newest PROPOSALS_KEPT."""

    def __init__(self) -> None:
        self._proposals: OrderedDict[tuple[str | None, str], Problem] = OrderedDict()
        """By author and problem id, oldest first."""

    def keep(self, problems: Iterable[Problem]) -> None:
        """The oldest are forgotten."""
        for problem in problems:
            self._proposals.setdefault((problem.proposer, problem.id), problem)
        while len(self._proposals) > PROPOSALS_KEPT:
            self._proposals.popitem(last=False)

    def newest_first(self) -> list[Problem]:
        return list(reversed(self._proposals.values()))

    def state(self) -> list[Problem]:
        """Oldest first."""
        return list(self._proposals.values())

    def restore(self, proposals: Sequence[Problem]) -> None:
        self._proposals = OrderedDict(((problem.proposer, problem.id), problem) for problem in proposals)


class SwarmState(msgspec.Struct, frozen=True):
    """What of a node's handle on its swarm is in a checkpoint; further fields of earlier versions are ignored."""

    offers: Annotated[list[Problem], msgspec.Meta(max_length=PROPOSALS_KEPT)] = []
    """Everybody's proposals, oldest first."""
    own: Annotated[list[tuple[Problem, list[str]]], msgspec.Meta(max_length=OWN_KEPT)] = []
    """Own ones, with the peers that gave feedback on them."""
    seen: Annotated[list[bytes], msgspec.Meta(max_length=SEEN_GROUPS)] = []
    """Fingerprints of the groups that were handed on."""


class LocalSwarm(StateFile[SwarmState], file="swarm.json", schema=SwarmState):
    """A swarm of one, without a network: own offers come back as proposals, and there are no peers."""

    def __init__(self, peer_id: str) -> None:
        self.peer_id = peer_id
        self._proposals = Proposals()
        self._own = OwnProposals()

    def proposals(self, round_number: int) -> list[Problem]:
        """Newest first."""
        return self._proposals.newest_first()

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Nobody is there."""

    def gather(self, round_number: int) -> list[RolloutGroup]:
        return []

    def feedback(self) -> list[Feedback]:
        return []

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """They are proposals from now on."""
        offered = problems[:MAX_ITEMS]
        self._own.add(offered)
        self._proposals.keep(own_offer(problem, self.peer_id) for problem in offered)

    def metrics(self) -> Metrics:
        """`swarm/...`, the names of the real swarm."""
        return {f"swarm/{name}": 0 for name in ("peers", "refused", "groups_received", "bytes_in", "bytes_out")}

    def state(self) -> SwarmState:
        return SwarmState(offers=self._proposals.state(), own=self._own.state())

    def restore(self, state: SwarmState) -> None:
        self._proposals.restore(state.offers)
        self._own.restore(state.own)

    def close(self) -> None: ...
