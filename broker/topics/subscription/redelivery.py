"""The positions a Shared subscription has to redeliver, and their redelivery counts.

The queue returns positions in order. Its entries may be acknowledged meanwhile (a late ack from the
former consumer). `discard` therefore exists and is cheap: the heap is cleaned when popped.

A redelivery count rises by one per request to redeliver (nack, ack timeout), so that it is 3 on the
fourth delivery. Losing a consumer does not raise it, as in Pulsar.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from protocol.position import Position


@final
class RedeliveryCounts:
    """How often redelivery of each unacked entry was requested. Absent: never."""

    __slots__ = ("_counts", "get")

    def __init__(self) -> None:
        self._counts: dict[Position, int] = {}
        self.get = self._counts.get

    def __len__(self) -> int:
        return len(self._counts)

    def __bool__(self) -> bool:
        return len(self) > 0

    def increment(self, position: Position) -> None:
        """The consumer requested it again."""
        self._counts[position] = self._counts.get(position, 0) + 1

    def forget(self, position: Position) -> None:
        """The entry is acked."""
        self._counts.pop(position, None)

    def clear(self) -> None:
        """All consumers have left, or the cursor moved: counting starts again."""
        self._counts.clear()


@final
class ReplayQueue:
    """Positions waiting for redelivery, lowest first."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[Position] = []
        self._members: set[Position] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, position: Position) -> bool:
        return position in self._members

    def add(self, position: Position) -> None:
        """Add a waiting position. Adding it twice has no effect."""
        if position not in self._members:
            self._members.add(position)
            heapq.heappush(self._heap, position)

    def discard(self, position: Position) -> None:
        """The entry is acked: never deliver it."""
        self._members.discard(position)
        if not self._members:
            self._heap.clear()

    def pop_batch(self, count_max: int) -> list[Position]:
        """Take the lowest positions, in order. `add` gives back those that are not sent."""
        taken: list[Position] = []
        members, heap = self._members, self._heap
        while heap and len(taken) < count_max:
            position = heapq.heappop(heap)
            if position in members:
                members.remove(position)
                taken.append(position)
        return taken

    def clear(self) -> None:
        """Clear the queue, because everything is read again."""
        self._heap.clear()
        self._members.clear()
