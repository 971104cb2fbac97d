"""A curve of any length in a fixed size."""

import functools

from codezero.monitor.metrics_file import LARGEST
from codezero.monitor.run_types import MAX_POINTS, Series


class Averaged:
    """Points of a curve, each the mean of equally many values that were added one after another.

    With MAX_POINTS of them neighbours are joined, so that the whole keeps its shape at half the resolution.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[float, float, int]] = []
        """Of the x and y of the values in each point, and their number: `_stride`, or fewer in the last."""
        self._stride: int = 1
        """A power of two."""
        self.first: float | None = None
        self.highest: float | None = None
        self.newest: float | None = None

    def add(self, x: float, y: float) -> None:
        """What cannot be reckoned with, as NaN, is passed over."""
        if not -LARGEST <= y <= LARGEST:
            return
        self.newest = y
        self.first = y if self.first is None else self.first
        self.highest = y if self.highest is None else max(self.highest, y)
        if self._sums and self._sums[-1][2] < self._stride:
            self._sums[-1] = _together(self._sums[-1], (x, y, 1))
        else:
            self._sums.append((x, y, 1))
        if len(self._sums) == MAX_POINTS and self._sums[-1][2] == self._stride:
            self._sums = [*map(_together, self._sums[::2], self._sums[1::2])]
            self._stride *= 2

    @property
    def mean(self) -> float | None:
        """Of all values."""
        _, total, values = functools.reduce(_together, self._sums, (0.0, 0.0, 0))
        return total / values if values else None

    @property
    def points(self) -> Series:
        """At most MAX_POINTS; the last one may be of fewer values than the others."""
        return [(float(f"{x / values:.6g}"), float(f"{y / values:.6g}")) for x, y, values in self._sums]


def _together(point: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    return point[0] + other[0], point[1] + other[1], point[2] + other[2]
