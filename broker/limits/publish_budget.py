"""Counts the publishes that wait for their answers, per connection and over all connections.

A connection over its bound is not read until its sum has fallen to half of the bound. Over the
common bound the same applies to every publishing connection. Without the common bound a slow disk
would let every connection fill its own share and the broker would run out of memory.

`PendingPublishes` of a connection is the only place that counts, up and down, for both bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.limits.connection_limits import NetLimits


@final
class PublishBudget:
    """Over all connections. Invariant: `pending_bytes` is the sum of their `size_bytes`."""

    __slots__ = ("_waiting", "bytes_max", "pending_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.pending_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def exhausted(self) -> bool:
        """Whether no publishing connection should be read now."""
        return self.pending_bytes > self.bytes_max

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """Call back once when the sum has fallen to half of the bound."""
        self._waiting.append(callback)

    def release(self, size_bytes: int) -> None:
        """Release bytes that are durable or refused."""
        self.pending_bytes -= size_bytes
        if self._waiting and self.pending_bytes <= self.bytes_max // 2:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()


@final
class PendingPublishes:
    """The pending publishes of one connection."""

    __slots__ = ("_budget", "_limits", "count", "size_bytes")

    def __init__(self, budget: PublishBudget, limits: NetLimits) -> None:
        self._budget = budget
        self._limits = limits
        self.count = 0
        self.size_bytes = 0

    def taken(self, count: int, size_bytes: int) -> None:
        """Count messages that have been handed to storage."""
        self.count += count
        self.size_bytes += size_bytes
        self._budget.pending_bytes += size_bytes

    def answered(self, count: int, size_bytes: int) -> None:
        """Release messages that are durable or refused."""
        self.count -= count
        self.size_bytes -= size_bytes
        self._budget.release(size_bytes)

    @property
    def too_many(self) -> bool:
        """Whether the connection should not be read now."""
        limits = self._limits
        return (
            self.count > limits.pending_publishes_max
            or self.size_bytes > limits.pending_publish_bytes_max
            or (self.count > 0 and self._budget.exhausted)
        )

    @property
    def few(self) -> bool:
        """After `too_many`: whether it may be read again."""
        limits = self._limits
        return (
            self.count <= limits.pending_publishes_max // 2
            and self.size_bytes <= limits.pending_publish_bytes_max // 2
            and (self.count == 0 or not self._budget.exhausted)
        )

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """If this connection waits for it: call once all connections together have room again."""
        if self._budget.exhausted:
            self._budget.call_when_free(callback)
