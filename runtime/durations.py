"""Counts durations in buckets, as a histogram of Prometheus has them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Durations:
    """How long something took, in buckets of these upper bounds (seconds)."""

    __slots__ = ("_counts", "bounds_s", "sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self.bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """It took so long once."""
        self._counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[int]:
        """For each bound how often it took no longer; then how often it was done."""
        return list(accumulate(self._counts))
