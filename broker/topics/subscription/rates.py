"""Rates of one consumer: how fast its counters rose during the last whole window.

The caller closes a window at the broker's statsUpdateFrequencyInSecs. Rates are 0 until the first
window ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topics.subscription.consumer import Counters


@final
class Rates:
    """Per second, over the last window."""

    __slots__ = ("_before", "_since", "acks", "bytes_out", "dropped", "messages_out", "redelivered")

    def __init__(self, now: float) -> None:
        self._since = now
        self._before = (0, 0, 0, 0, 0)
        self.messages_out = 0.0
        self.bytes_out = 0.0
        self.redelivered = 0.0
        self.acks = 0.0
        self.dropped = 0.0

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
        )
        rates = [(new - old) / seconds for new, old in zip(after, self._before, strict=True)]
        self.messages_out, self.bytes_out, self.redelivered, self.acks, self.dropped = rates
        self._since, self._before = now, after
