"""The chain as the loop and the views know it."""

from abc import ABC, abstractmethod

import msgspec


class Coordinator(ABC):
    """Keeps the round."""

    @abstractmethod
    def current_round(self) -> int:
        """The round that is open now. Raises ChainError."""


class Outbox:
    """Takes the points of each iteration; this one keeps them at home, as without a chain."""

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Note an iteration's points and the peer voted for, once; sending happens elsewhere and never blocks."""


class OutboxView(msgspec.Struct, frozen=True, kw_only=True):
    """collecting: rounds that are not sealed yet. pending: submissions on their way. reasons: how many refusals for
    each. problem: what keeps points back now; empty: nothing."""

    collecting: int
    pending: int
    accepted: int
    refused: int
    reasons: dict[str, int]
    problem: str
