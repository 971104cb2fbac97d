"""The proposer as the loop knows it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from codezero.types import Metrics, Problem, ScoredGroup


class Proposer(ABC):
    """Writes problems. Its state is in every checkpoint."""

    @abstractmethod
    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Problems of these levels; output that breaks the contract is dropped and counted. Raises ProposalError."""

    def check(self, scored: Sequence[ScoredGroup]) -> None:  # noqa: B027 - most execute nothing
        """Count own problems' expected values right or wrong by own attempts. Raises SandboxError."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """`proposer/...`: written, refused by reason."""

    def save(self, folder: Path) -> None: ...  # noqa: B027 - one without state writes nothing

    def load(self, folder: Path) -> None: ...  # noqa: B027
