"""The peer filter: the node learns from peers whose completions its own judge finds no worse than its own."""

import random
from collections.abc import Sequence
from typing import Annotated

import msgspec

from codezero.solver.advantages import counts
from codezero.system.state import StateFile
from codezero.types import ScoredGroup, mean

MEMORY = 0.9
"""Weight of the earlier mean at the next group."""
PROBE = 0.1
"""Chance that a peer that does not pass is learned from in an iteration all the same."""
MARGIN = 0.1
"""How far a lead may be below 0. For a peer as good as this node it varies by about .08: a group's mean reward varies
by .35, and the moving mean leaves sqrt(.1 / 1.9) of that."""
MAX_PEERS = 1024
"""Stored; the peer that was compared longest ago is dropped first."""

_Real = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    own: Annotated[dict[str, _Real], msgspec.Meta(max_length=64)]
    """By level: moving mean of the own groups' rewards."""
    leads: Annotated[dict[Annotated[str, msgspec.Meta(max_length=128)], _Real], msgspec.Meta(max_length=MAX_PEERS)]
    """By peer id, the peer compared last at the end."""


class PeerFilter(StateFile[_State], file="gate.json", schema=_State):
    """A peer's lead: how much more than this node it earns on problems of the same level, both by the own judge.

    lead <- 0.9 lead + 0.1 (its group's mean reward - own mean reward at that level), from 0 on; passes from -MARGIN on.
    """

    def __init__(self) -> None:
        self.memory = _State({}, {})

    def observe(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> None:
        """Update the means with the judged groups of one iteration."""
        means, leads = self.memory.own, self.memory.leads
        for scored in local:
            reward, level = _mean_reward(scored), str(scored.group.problem.level)
            if reward is not None:
                means[level] = MEMORY * means.get(level, reward) + (1 - MEMORY) * reward
        for scored in peers:
            reward, own = _mean_reward(scored), means.get(str(scored.group.problem.level))
            if reward is not None and own is not None:
                lead = leads.pop(scored.group.peer_id, 0.0)
                leads[scored.group.peer_id] = MEMORY * lead + (1 - MEMORY) * (reward - own)
        while len(leads) > MAX_PEERS:
            del leads[next(iter(leads))]

    def passing(self, peers: Sequence[str], chance: random.Random) -> set[str]:
        """Those of `peers` to learn from in this iteration; a peer that was never compared passes."""
        return {peer for peer in dict.fromkeys(peers) if chance.random() < PROBE or self.lead(peer) >= -MARGIN}

    def lead(self, peer: str) -> float:
        """In [-1, 1]; 0 before any comparison."""
        return self.memory.leads.get(peer, 0.0)


def _mean_reward(scored: ScoredGroup) -> float | None:
    return mean(verdict.reward for verdict in scored.verdicts if counts(verdict))
