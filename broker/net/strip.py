"""FrameStrip: the frames of one payload for many consumers, as one piece of output.

The heads are in one block and the payload is there once, so the outbox neither lists nor measures
two buffers for each copy. The extension makes the vector for the kernel (`native.strips`).

Invariant: `size_bytes` is what has not been taken yet, from the place of `_at` and `_offset` on.
"""

from __future__ import annotations

from typing import final

from native.pure.strips import strip_buffers
from native.strips import send_strip, strip_place


@final
class FrameStrip:
    """See the module docstring."""

    __slots__ = ("_at", "_heads", "_offset", "_payload", "size_bytes")

    def __init__(self, heads: bytes, payload: bytes, frames: int) -> None:
        """`heads`: of so many frames (`native.broadcast.message_heads`), each of which ends with
        the payload."""
        self._heads = heads
        self._payload = payload
        self._at = 0
        self._offset = 0
        self.size_bytes = len(heads) + frames * len(payload)

    def send(self, descriptor: int, bytes_max: int) -> int:
        """See runtime.transport.Strip."""
        return send_strip(descriptor, self._heads, self._at, self._offset, self._payload, bytes_max)

    def buffers(self, bytes_max: int) -> list[bytes | memoryview]:
        """See runtime.transport.Strip."""
        return strip_buffers(self._heads, self._at, self._offset, self._payload, bytes_max)

    def took(self, count: int) -> None:
        """So many bytes have been taken, at most `size_bytes`."""
        self.size_bytes -= count
        if self.size_bytes:
            self._at, self._offset = strip_place(
                self._heads, self._at, self._offset, len(self._payload), count
            )
