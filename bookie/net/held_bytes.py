"""Bounds the bytes that all connections together hold: frames that are not complete, requests that
wait, answers that are not taken. Pure.

One connection holds a few megabytes at most, so only the sum needs a bound. Above it connections
are closed until the sum is an eighth below it: first those in which nothing has moved for
`STALLED_SECONDS`, the longest first, then those whose frame or answer is oldest. Only those that
hold at least half the mean are closed; together they hold more than half of the sum.

They are closed and not paused, because a peer that holds its frame back, or takes no answers, would
keep all others paused. Clients of bookies connect again, and use another copy meanwhile.
"""

from __future__ import annotations

from typing import Final, Protocol, final

STALLED_SECONDS: Final = 1.0


class Holder(Protocol):
    """A connection, as far as its bytes are concerned."""

    held_bytes: int
    """Bytes it holds."""
    held_since: float
    """When it last finished a frame or an answer, or held nothing."""
    moved_at: float
    """When bytes last came, or were taken."""

    def give_up(self, reason: str) -> None:
        """End the connection. It holds nothing any more, and does not tell so."""


@final
class HeldBytes:
    """Invariant: `held_bytes` is the sum over all holders."""

    __slots__ = ("_bytes_max", "_holders", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
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
        self._holders.add(holder)
        if self.held_bytes > self._bytes_max and held_bytes > before:
            self._close_some(now)

    def _close_some(self, now: float) -> None:
        half_mean = self.held_bytes / (2 * len(self._holders))
        large = [each for each in self._holders if each.held_bytes >= half_mean]
        large.sort(key=lambda holder: _rank(holder, now))
        enough = self._bytes_max - self._bytes_max // 8
        for holder in large:
            if self.held_bytes <= enough:
                return
            held_bytes, holder.held_bytes = holder.held_bytes, 0
            self.held_bytes -= held_bytes
            self._holders.discard(holder)
            holder.give_up(
                f"it holds {held_bytes} bytes of an unfinished request or of answers that it does "
                f"not take, since {now - holder.held_since:.1f} s, and all connections together "
                f"hold {self._bytes_max}"
            )


def _rank(holder: Holder, now: float) -> tuple[bool, float]:
    """Sort key: the first is closed first."""
    is_silent = now - holder.moved_at >= STALLED_SECONDS
    return not is_silent, holder.moved_at if is_silent else holder.held_since
