"""SendQueue: the pending output of a connection, handed to the kernel without waiting if
possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sequence

BUFFERS_PER_CALL_MAX: Final = 1024
"""IOV_MAX of Linux."""
JOIN_BELOW_BYTES: Final = 1024
"""Average buffer size below which joining is cheaper than a vector of buffers."""

Buffer = bytes | memoryview


class Sending(Protocol):
    """The part of a connection that is used here."""

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """The number of bytes taken; 0: none now. Raises: trio.BrokenResourceError."""


@final
class SendQueue:
    """Buffers on their way out: small ones are joined, large ones are never copied. Ordered."""

    __slots__ = ("_buffers", "pending_bytes")

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self.pending_bytes = 0

    def append(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """Append."""
        self._buffers += buffers
        self.pending_bytes += size_bytes

    def clear(self) -> None:
        """Drop everything."""
        self._buffers = []
        self.pending_bytes = 0

    def batch(self) -> list[Buffer]:
        """The buffers to hand to the kernel next, still queued; joined if that is cheaper."""
        batch = self._buffers[:BUFFERS_PER_CALL_MAX]
        if len(batch) > 1 and sum(map(len, batch)) < JOIN_BELOW_BYTES * len(batch):
            return [b"".join(batch)]
        return batch

    def took(self, taken: int) -> None:
        """Drop bytes that have left."""
        buffers = self._buffers
        self.pending_bytes -= taken
        if not self.pending_bytes:
            buffers.clear()
            return
        at = 0
        while taken >= len(buffers[at]):
            taken -= len(buffers[at])
            at += 1
        if taken:
            buffers[at] = memoryview(buffers[at])[taken:]
        del buffers[:at]

    def send_to(self, connection: Sending) -> None:
        """Hand over as much as is taken now. Raises: trio.BrokenResourceError."""
        while self._buffers:
            batch = self.batch()
            taken = connection.send_nowait(batch)
            self.took(taken)
            if taken < sum(map(len, batch)):
                return
