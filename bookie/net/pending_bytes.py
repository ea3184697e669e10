"""The bound on adds of all connections that have no answer yet."""

from __future__ import annotations

from typing import final

import trio


@final
class PendingBytes:
    """Bytes of adds of all connections that have no answer yet, and the wait for fewer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._fewer = trio.Event()

    def changed(self, difference: int) -> None:
        """Add these bytes; negative: fewer."""
        was_full = self._bytes > self._bytes_max
        self._bytes += difference
        if was_full and self._bytes <= self._bytes_max:
            self._fewer.set()
            self._fewer = trio.Event()

    @property
    def is_full(self) -> bool:
        """There are more than there should be."""
        return self._bytes > self._bytes_max

    async def wait_for_room(self) -> None:
        """Return at once when there is room."""
        while self.is_full:
            await self._fewer.wait()
