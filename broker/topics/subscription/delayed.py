"""Entries that must not be delivered before a time set by their producer.

Only Shared and Key_Shared subscriptions obey it, as in Pulsar. The index is a heap by time, held in
memory and bounded by the budget of all subscriptions (`broker.limits.delayed_budget`). After a
restart it is rebuilt by reading the backlog again.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.unusual_fields import (
    DELIVER_AT_TAG,
    may_be_unusual,
    may_have,
)
from protocol.errors import RemoteProtocolError
from protocol.metadata import check_metadata, metadata_range, peek

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.limits.delayed_budget import DelayedBudget
    from protocol.position import Position

_TAG: Final = DELIVER_AT_TAG


def delay_ms(data: bytes) -> int:
    """How long after its publish time a producer wants a message delivered; 0: at once, or its
    metadata is broken, or refused for its size."""
    try:
        start, end = metadata_range(data)
        if data.find(_TAG, start, end) < 0 or check_metadata(data):
            return 0
        metadata = peek(data)
    except RemoteProtocolError:
        return 0
    if not metadata.HasField("deliver_at_time"):
        return 0
    return max(0, metadata.deliver_at_time - metadata.publish_time)


def deliver_at_ms(entry: Entry) -> int:
    """The entry's `deliver_at_time`, 0 when it has none or its metadata cannot be read."""
    if not may_be_unusual(entry.data) or not may_have(entry.data, _TAG):
        return 0
    metadata = entry.metadata
    return metadata.deliver_at_time if metadata.HasField("deliver_at_time") else 0


@final
class DelayedIndex:
    """Positions by due time. Each counts in the budget, under the name of the topic."""

    __slots__ = ("_budget", "_heap", "_members", "_topic_name")

    def __init__(self, budget: DelayedBudget, topic_name: str) -> None:
        self._budget = budget
        self._topic_name = topic_name
        self._heap: list[tuple[int, Position, int]] = []
        self._members: set[Position] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, position: Position) -> bool:
        return position in self._members

    def add(self, due_ms: int, position: Position, key_hash: int = -1) -> None:
        """Wait until `due_ms` (wall clock)."""
        if position not in self._members:
            self._members.add(position)
            heapq.heappush(self._heap, (due_ms, position, key_hash))
            self._budget.added(self._topic_name)

    def next_due_ms(self) -> int | None:
        """Due time of the first entry; None when none waits."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[tuple[Position, int]]:
        """Remove due entries: (position, key slot) in position order."""
        taken: list[tuple[Position, int]] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, position, key_hash = heapq.heappop(heap)
            self._members.remove(position)
            taken.append((position, key_hash))
        self._budget.removed(self._topic_name, len(taken))
        taken.sort()
        return taken

    def drop_before(self, position: Position) -> None:
        """Remove what is before the position. Looks at all that wait."""
        kept = [each for each in self._heap if each[1] >= position]
        dropped = len(self._heap) - len(kept)
        if dropped:
            self._budget.removed(self._topic_name, dropped)
            heapq.heapify(kept)
            self._heap = kept
            self._members = {each[1] for each in kept}

    def clear(self) -> None:
        """Clear the index, because everything is read again, or nothing any more."""
        count = len(self._members)
        self._heap.clear()
        self._members.clear()
        self._budget.removed(self._topic_name, count)
