"""How many bytes of unfinished frames all connections together may hold. Pure.

A frame takes effect when its last byte is there; until then its bytes only take memory. One
connection cannot hold more than the largest frame, so the sum is what needs a bound. Over it,
connections are closed until the sum is an eighth below it:

- Only those that hold at least half the mean; together they hold more than half of the sum. A
  frame of a few bytes that a slow network has divided costs nothing, and is never given up for the
  large ones of others.
- First those that have sent nothing for `STALLED_SECONDS`, the longest silent first. Then those
  whose frame began first. A client that sends its frame at the speed of the network is younger
  than those who hold theirs back, so it finishes while they are closed.
- Last those that the broker itself does not read at the moment.

Closing and not pausing: connections that hold their frames back would keep all others paused.
A client whose connection was closed connects again and sends what was not acknowledged.
"""

from __future__ import annotations

from typing import Final, Protocol, final

STALLED_SECONDS: Final = 1.0


class FrameHolder(Protocol):
    """A connection, as far as its unfinished frame is concerned."""

    @property
    def unfinished_bytes(self) -> int:
        """What it holds."""

    @property
    def frame_begun_at(self) -> float:
        """When the first bytes of the unfinished frame came."""

    @property
    def received_last_at(self) -> float:
        """When something came last."""

    @property
    def reading_paused(self) -> bool:
        """Whether the broker does not read it for now."""

    def drop_unfinished(self, reason: str) -> None:
        """Give up what it holds (`UnfinishedFrames.changed` is told) and end the connection."""


@final
class UnfinishedFrames:
    """Invariant: `held_bytes` is the sum over all holders of what they hold."""

    __slots__ = ("_holders", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._holders: set[FrameHolder] = set()

    def changed(self, holder: FrameHolder, before: int, now: float) -> None:
        """What the holder holds is another amount than `before`."""
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
    """Who comes first is closed first."""
    silent = now - holder.received_last_at >= STALLED_SECONDS
    since = holder.received_last_at if silent else holder.frame_begun_at
    return holder.reading_paused, not silent, since
