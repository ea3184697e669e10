"""Counts the messages of one subscription that expired before they were acknowledged.

As in Pulsar an entry counts as one, however many messages it holds.
"""

from __future__ import annotations

from typing import final


@final
class Expirations:
    """Since the topic was loaded."""

    __slots__ = ("_before", "_since", "last_ms", "rate", "total")

    def __init__(self, now: float) -> None:
        self.total = 0
        self.rate = 0.0
        """Per second, over the last window."""
        self.last_ms = 0
        """When expired messages were last looked for (wall ms)."""
        self._before = 0
        self._since = now

    def add(self, count: int, wall_ms: int) -> None:
        """Expired messages were looked for, and so many found."""
        self.total += count
        self.last_ms = wall_ms

    def end_window(self, now: float) -> None:
        """Close a rate window."""
        seconds = now - self._since
        if seconds > 0:
            self.rate = (self.total - self._before) / seconds
            self._before, self._since = self.total, now
