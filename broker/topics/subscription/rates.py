"""Rates of one consumer, and of the expired messages of one subscription, in the last whole window.

The caller closes a window at the broker's statsUpdateFrequencyInSecs. Rates are 0 until the first
window ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topics.subscription.consumer import Counters


@final
class Rates:
    """How fast the counters of a consumer rose, per second."""

    __slots__ = (
        "_before",
        "_since",
        "acks",
        "bytes_out",
        "chunks",
        "dropped",
        "messages_out",
        "redelivered",
    )

    def __init__(self, now: float) -> None:
        self._since = now
        self._before = (0, 0, 0, 0, 0, 0)
        self.messages_out = 0.0
        self.bytes_out = 0.0
        self.redelivered = 0.0
        self.acks = 0.0
        self.dropped = 0.0
        self.chunks = 0.0

    def sample(self, counters: Counters, now: float) -> None:
        """Close the window."""
        seconds = now - self._since
        if seconds <= 0:
            return
        after = (
            counters.messages_out,
            counters.bytes_out,
            counters.messages_redelivered,
            counters.messages_acked,
            counters.messages_dropped,
            counters.chunks_out,
        )
        rates = [(new - old) / seconds for new, old in zip(after, self._before, strict=True)]
        self.messages_out, self.bytes_out, self.redelivered, self.acks = rates[:4]
        self.dropped, self.chunks = rates[4:]
        self._since, self._before = now, after


@final
class Expirations:
    """Counts the messages of one subscription that expired before they were acknowledged, since the
    topic was loaded. As in Pulsar an entry counts as one, however many messages it holds."""

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
