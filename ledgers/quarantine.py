"""Which bookies are avoided for new ledgers because they failed too often. Pure.

Source: BookKeeper's health check of bookies, with Pulsar's defaults.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRules:
    """Keys of Pulsar's broker.conf in parentheses."""

    is_on: bool = True
    """(bookkeeperClientHealthCheckEnabled)"""
    failures: int = 5
    """(bookkeeperClientHealthCheckErrorThresholdPerInterval)"""
    interval_s: float = 60.0
    """(bookkeeperClientHealthCheckIntervalSeconds)"""
    quarantine_s: float = 1800.0
    """(bookkeeperClientHealthCheckQuarantineTimeInSeconds)"""
    ratio: float = 1.0
    """How likely a bookie is avoided that failed so often (bookkeeperClientQuarantineRatio)."""
    counted_every_s: float = 0.5
    """Failures of one bookie closer together count as one: all its connections end at once."""


@final
class Quarantine:
    """See the module docstring. Times are seconds on one monotonic scale."""

    __slots__ = ("_failures", "_rules", "_until")

    def __init__(self, rules: QuarantineRules) -> None:
        self._rules = rules
        self._failures: dict[str, deque[float]] = {}
        self._until: dict[str, float] = {}

    def on_failure(self, bookie_id: str, now: float, draw: float = 0.0) -> bool:
        """Whether the bookie is avoided from now on, and was not before. `draw`: a random number
        from 0 to below 1."""
        rules = self._rules
        if not rules.is_on:
            return False
        times = self._failures.setdefault(bookie_id, deque())
        if times and now - times[-1] < rules.counted_every_s:
            return False
        times.append(now)
        while times[0] <= now - rules.interval_s:
            times.popleft()
        if len(times) < rules.failures:
            return False
        del self._failures[bookie_id]
        if draw >= rules.ratio:
            return False
        is_new = self._until.get(bookie_id, now) <= now
        self._until[bookie_id] = now + rules.quarantine_s
        return is_new

    def avoided(self, now: float) -> frozenset[str]:
        """The bookies to avoid. Those whose time is over are forgotten."""
        over = [bookie_id for bookie_id, until in self._until.items() if until <= now]
        for bookie_id in over:
            del self._until[bookie_id]
        return frozenset(self._until)

    def forget(self, bookie_id: str) -> None:
        """The bookie is no member of the cluster any more."""
        self._failures.pop(bookie_id, None)
        self._until.pop(bookie_id, None)
