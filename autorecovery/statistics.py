"""Distributions of measured numbers: count, sum, and quantiles of the last ones. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, final

RECENT_MAX: Final = 1_000
"""Numbers that quantiles are taken of."""


@final
class Distribution:
    """See the module docstring."""

    __slots__ = ("_recent", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT_MAX)

    def add(self, value: float) -> None:
        """One more number."""
        self.count += 1
        self.total += value
        self._recent.append(value)

    def quantile(self, fraction: float) -> float:
        """The smallest recent number that at least this fraction of them does not exceed; 0 without
        any. `fraction` is above 0, 1 at most."""
        ordered = sorted(self._recent)
        if not ordered:
            return 0.0
        place = -int(-fraction * len(ordered) // 1)  # rounded up
        return ordered[max(1, place) - 1]
