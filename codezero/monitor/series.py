"""A curve of any length in a fixed size."""

from codezero.monitor.metrics_file import LARGEST
from codezero.monitor.run_types import MAX_POINTS, Series


class Averaged:
    """Points of a curve, each the mean of equally many values that were added one after another.

    With MAX_POINTS of them neighbours are joined, so that the whole keeps its shape at half the resolution.
    """

    def __init__(self) -> None:
        self._points: Series = []
        self._stride: int = 1
        """Values in a point; a power of two."""
        self._x, self._y, self._count = 0.0, 0.0, 0
        """Sums over the values that do not fill a point yet, and their number."""
        self._total, self._values = 0.0, 0
        """Sum and number of all values."""
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
        self._total, self._values = self._total + y, self._values + 1
        self._x, self._y, self._count = self._x + x, self._y + y, self._count + 1
        if self._count == self._stride:
            self._points.append((self._x / self._count, self._y / self._count))
            self._x, self._y, self._count = 0.0, 0.0, 0
            if len(self._points) >= MAX_POINTS:
                pairs = zip(self._points[::2], self._points[1::2], strict=True)
                self._points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
                self._stride *= 2

    @property
    def mean(self) -> float | None:
        """Of all values."""
        return self._total / self._values if self._values else None

    @property
    def points(self) -> Series:
        """At most MAX_POINTS; the last one may be of fewer values than the others."""
        rest = [(self._x / self._count, self._y / self._count)] if self._count else []
        return [(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in (*self._points, *rest)]
