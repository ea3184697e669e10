"""How many bytes of publishes all connections together may have waiting for storage.

Over the bound, connections that publish stop being read until the sum has fallen to half of it.
Without it a slow disk would let every connection fill its own share and the broker run out of
memory at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class PublishBudget:
    """Invariant: `pending_bytes` is the sum over all connections of their pending publishes."""

    __slots__ = ("_waiting", "bytes_max", "pending_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.pending_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def exhausted(self) -> bool:
        """No publishing connection should be read now."""
        return self.pending_bytes > self.bytes_max

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """Call once when the sum has fallen to half of the bound."""
        self._waiting.append(callback)

    def release(self, size_bytes: int) -> None:
        """So many bytes are durable, or refused."""
        self.pending_bytes -= size_bytes
        if self._waiting and self.pending_bytes <= self.bytes_max // 2:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()
