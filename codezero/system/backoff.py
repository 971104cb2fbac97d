"""Jittered exponential back-off: how long to wait before the next try."""

import random
import time
from collections.abc import Callable

_jitter = random.Random().uniform
"""Of its own: the shared generator is seeded for training, and is not to be drawn from in other threads."""


def backoff(failures: int, first: float, longest: float, jitter: Callable[[float, float], float] = _jitter) -> float:
    """Seconds before the next try after so many failures in a row, 1 or more.

    first * 2^(failures - 1), at most `longest`, shortened at random by up to half, so that nodes that failed together
    do not come back together.
    """
    return min(first * 2.0 ** min(failures - 1, 32), longest) * jitter(0.5, 1.0)


class Backoff:
    """One thing's failures in a row, and when it may be tried again."""

    def __init__(self, first: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`first`, `longest`: seconds of a pause."""
        self.failures = 0
        self._first, self._longest, self._clock, self._due = first, longest, clock, 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._due - self._clock())

    def failed(self) -> float:
        """Count one; the seconds to wait."""
        self.failures += 1
        pause = backoff(self.failures, self._first, self._longest)
        self._due = self._clock() + pause
        return pause

    def succeeded(self) -> None:
        self.failures, self._due = 0, 0.0
