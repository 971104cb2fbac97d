"""How often a route may be asked, by all together: a bucket of tokens that fills slowly."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from codezero.login.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Rate:
    """burst: requests at once. seconds: until one more is allowed."""

    burst: int
    seconds: float


OFTEN = Rate(30, 1.0)
"""What costs little and guesses nothing."""
CODE = Rate(10, 10.0)
PASSPHRASE = Rate(5, 30.0)
"""Some 2,900 guesses a day."""


class Bucket:
    """clock: in seconds; one that is set back only delays."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._tokens, self._filled = float(rate.burst), clock()

    def take(self) -> None:
        """Raises Refusal when it is empty."""
        now = self._clock()
        gained = max(0.0, now - self._filled) / self._rate.seconds
        self._tokens, self._filled = min(self._rate.burst, self._tokens + gained), now
        if self._tokens < 1:
            wait = max(1, math.ceil((1 - self._tokens) * self._rate.seconds))
            raise Refusal(429, f"too many attempts; wait {wait} seconds", retry_after=wait)
        self._tokens -= 1
