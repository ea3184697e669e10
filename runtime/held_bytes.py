"""Bounds the bytes that all connections of a port together hold, for example of unfinished frames.
Pure.

One connection holds a few megabytes at most, so only the sum needs a bound. Above the bound,
connections are given up until the sum is an eighth below it:

- Only connections that hold at least half the mean are given up; together they hold more than half
  of the sum. A frame of a few bytes that a slow network has divided costs nothing and is never
  given up for the large frames of others.
- Connections without progress for `STALLED_SECONDS` come first, the longest stalled before the
  others. The connections with the oldest frame or answer come next. The frame of a peer that sends
  at the speed of the network is younger than frames that are held back, so it completes while the
  others are closed.
- Connections that this process itself does not read at the moment come last.

They are closed and not paused, because a peer that holds its frame back, or takes no answers, would
keep all others paused. Clients connect again.
"""

from __future__ import annotations

from typing import Final, Protocol, final

STALLED_SECONDS: Final = 1.0


class Holder(Protocol):
    """A connection, as far as its bytes are concerned."""

    held_bytes: int
    """Bytes it holds. Written by `HeldBytes` alone."""

    @property
    def held_since(self) -> float:
        """When its oldest frame or answer began."""

    @property
    def moved_at(self) -> float:
        """When bytes last came, or were taken."""

    @property
    def reading_paused(self) -> bool:
        """Whether this process does not read it for now, for reasons of its own."""

    def give_up(self, held_bytes: int, held_seconds: float) -> None:
        """End the connection, which held so many bytes for so long. It holds nothing any more, and
        does not report that."""


@final
class HeldBytes:
    """Invariant: `held_bytes` is the sum over all holders."""

    __slots__ = ("_holders", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._holders: set[Holder] = set()

    def holds(self, holder: Holder, held_bytes: int, now: float) -> None:
        """The holder holds so many bytes now."""
        before = holder.held_bytes
        holder.held_bytes = held_bytes
        self.held_bytes += held_bytes - before
        if not held_bytes:
            self._holders.discard(holder)
            return
        if not before:
            self._holders.add(holder)
        if self.held_bytes > self.bytes_max and held_bytes > before:
            self._give_up_some(now)

    def _give_up_some(self, now: float) -> None:
        half_mean = self.held_bytes / (2 * len(self._holders))
        large = [each for each in self._holders if each.held_bytes >= half_mean]
        large.sort(key=lambda holder: _rank(holder, now))
        enough = self.bytes_max - self.bytes_max // 8
        for holder in large:
            if self.held_bytes <= enough:
                return
            held_bytes = holder.held_bytes
            self.holds(holder, 0, now)
            holder.give_up(held_bytes, now - holder.held_since)


def _rank(holder: Holder, now: float) -> tuple[bool, bool, float]:
    """Sort key: the first is given up first."""
    is_stalled = now - holder.moved_at >= STALLED_SECONDS
    since = holder.moved_at if is_stalled else holder.held_since
    return holder.reading_paused, not is_stalled, since
