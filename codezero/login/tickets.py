"""What ties the second request of a ceremony to its first: random, short-lived, used once, bounded in number."""

import secrets
from collections.abc import Callable
from typing import Generic, TypeVar

from codezero.login.refusal import Refusal

T = TypeVar("T")

SECONDS = 300.0
MAX_TICKETS = 64


class Tickets(Generic[T]):
    """One kind of ceremony; `T` is what the server has to remember of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, tuple[float, T]] = {}

    def give(self, remembered: T) -> str:
        """Of too many, the oldest is worth nothing any more."""
        while len(self._open) >= MAX_TICKETS:
            del self._open[next(iter(self._open))]
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = (self._clock() + SECONDS, remembered)
        return ticket

    def take(self, ticket: str) -> T:
        """Raises Refusal for one that is unknown, used or too old."""
        until, remembered = self._open.pop(ticket, (0.0, None))
        if remembered is None or until <= self._clock():
            raise Refusal(403, "this took longer than five minutes, or was used already; start again")
        return remembered
