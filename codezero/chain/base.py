"""The chain as the loop knows it."""

from abc import ABC, abstractmethod


class Coordinator(ABC):
    """Keeps the round."""

    @abstractmethod
    def current_round(self) -> int:
        """The round that is open now. Raises ChainError."""


class Outbox(ABC):
    """Takes the points of each iteration."""

    @abstractmethod
    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Note an iteration's points and the peer voted for, once; sending happens elsewhere and never blocks."""
