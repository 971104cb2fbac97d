"""Rounds without a chain: every node reads the round off the clock, and points stay at home."""

import math
import time
from collections.abc import Callable

from codezero.errors import ConfigError


class ClockCoordinator:
    """The round is the number of whole `round_seconds` since 1970, so nodes agree on it without talking.

    now: seconds since 1970; nodes whose clocks differ by d seconds disagree for d seconds a round.
    """

    def __init__(self, round_seconds: float, now: Callable[[], float] = time.time) -> None:
        if not round_seconds > 0 or math.isinf(round_seconds):
            raise ConfigError(
                f"chain.round_seconds={round_seconds} is out of bounds; it must be finite and more than 0"
            )
        self._round_seconds = round_seconds
        self._now = now

    def current_round(self) -> int:
        return math.floor(self._now() / self._round_seconds)


class NoOutbox:
    """Sends nothing; keeps only how much would have been sent."""

    def __init__(self) -> None:
        self.entries = 0
        self.points = 0.0

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        self.entries += 1
        self.points += reward
