"""Bounds the bytes of unfinished frames that all connections together may hold. Pure.

A frame takes effect when its last byte arrives. Until then its bytes only occupy memory. One
connection cannot hold more than the largest frame, so only the sum needs a bound. Above the bound,
connections are closed until the sum is an eighth below it:

- Only connections that hold at least half the mean are closed; together they hold more than half of
  the sum. A frame of a few bytes that a slow network has divided costs nothing and is never dropped
  for the large frames of others.
- First come those that have sent nothing for `STALLED_SECONDS`, the longest silent first, then
  those whose frame began first. The frame of a client that sends at the speed of the network is
  younger than frames that are held back, so it completes while the others are closed.
- Connections that the broker itself does not read at the moment come last.

Connections are closed and not paused, because connections that hold their frames back would keep
all others paused. A client whose connection was closed reconnects and sends unacknowledged messages
again.
"""

from __future__ import annotations

from typing import Final, Protocol, final

STALLED_SECONDS: Final = 1.0


class FrameHolder(Protocol):
    """A connection, as far as its unfinished frame is concerned."""

    @property
    def unfinished_bytes(self) -> int:
        """Bytes it holds."""

    @property
    def frame_begun_at(self) -> float:
        """When the first bytes of the unfinished frame arrived."""

    @property
    def received_last_at(self) -> float:
        """When the last bytes arrived."""

    @property
    def reading_paused(self) -> bool:
        """Whether the broker does not read the connection for now."""

    def drop_unfinished(self, reason: str) -> None:
        """Drop the partial frame (`UnfinishedFrames.changed` is called) and end the connection."""


@final
class UnfinishedFrames:
    """Invariant: `held_bytes` is the sum of the bytes of all holders."""

    __slots__ = ("_holders", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._holders: set[FrameHolder] = set()

    def changed(self, holder: FrameHolder, before: int, now: float) -> None:
        """The holder held `before` bytes and now holds another amount."""
        after = holder.unfinished_bytes
        self.held_bytes += after - before
        if after == 0:
            self._holders.discard(holder)
            return
        if before == 0:
            self._holders.add(holder)
        if self.held_bytes > self.bytes_max and after > before:
            self._close_some(now)

    def _close_some(self, now: float) -> None:
        half_mean = self.held_bytes / (2 * len(self._holders))
        large = [each for each in self._holders if each.unfinished_bytes >= half_mean]
        large.sort(key=lambda holder: _rank(holder, now))
        enough = self.bytes_max - self.bytes_max // 8
        for holder in large:
            if self.held_bytes <= enough:
                return
            holder.drop_unfinished(
                f"a frame of which {holder.unfinished_bytes} bytes came in"
                f" {now - holder.frame_begun_at:.1f} s was given up: the unfinished frames of all"
                f" connections reached maxUnfinishedFramesSizeInMB; connect and send it again"
            )


def _rank(holder: FrameHolder, now: float) -> tuple[bool, bool, float]:
    """Sort key: the first is closed first."""
    silent = now - holder.received_last_at >= STALLED_SECONDS
    since = holder.received_last_at if silent else holder.frame_begun_at
    return holder.reading_paused, not silent, since
