"""Problems of an environment that derives its own: no model writes them."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from codezero.environment import ScoredEnvironment
from codezero.proposer.base import Proposer
from codezero.system.state import StateFile
from codezero.types import Metrics, Problem


class _Derived(msgspec.Struct, forbid_unknown_fields=True):
    written: Annotated[int, msgspec.Meta(ge=0)]


class DerivedProposer(StateFile[_Derived], Proposer, file="derived.json", schema=_Derived):
    """Proposes without a model: the next places of the levels that are asked for."""

    def __init__(self, environment: ScoredEnvironment, *, peer_id: str, seed: int) -> None:
        self._environment, self._origin = environment, f"proposer {seed} {peer_id}"
        self.memory = _Derived(0)

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """One for each level."""
        first, self.memory.written = self.memory.written, self.memory.written + len(levels)
        return [self._environment.drawn(level, f"{self._origin} {first + at}") for at, level in enumerate(levels)]

    def metrics(self) -> Metrics:
        """Since the first iteration of the run."""
        return {"proposer/derived": self.memory.written}
