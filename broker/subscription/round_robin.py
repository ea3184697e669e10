"""The order of turns on a Shared subscription.

Within a priority level consumers take turns. A level is used only when no consumer of a better
level can take anything. The rotation holds only consumers that may be able to take something. A
consumer found unable leaves the rotation and returns by `ready`, so a turn costs the same with ten
consumers as with ten thousand.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.subscription.consumer import Consumer


def can_take(consumer: Consumer) -> bool:
    """Whether the consumer can be sent at least one more entry now."""
    permits = consumer.permits
    return (
        permits.granted > permits.spent
        and not consumer.blocked_on_unacked
        and consumer.session.writable
    )


@final
class RoundRobin:
    """The rotation. The caller calls `ready` whenever a condition of `can_take` improved."""

    __slots__ = ("_levels", "_members", "_queued")

    def __init__(self) -> None:
        self._levels: dict[int, deque[Consumer]] = {}
        self._members: set[int] = set()
        self._queued: set[int] = set()

    def add(self, consumer: Consumer) -> None:
        """Join, at the end of the rotation."""
        self._members.add(id(consumer))
        if consumer.priority_level not in self._levels:
            self._levels[consumer.priority_level] = deque()
            self._levels = dict(sorted(self._levels.items()))
        self.ready(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Leave at once."""
        self._members.discard(id(consumer))
        if id(consumer) in self._queued:
            self._queued.discard(id(consumer))
            self._levels[consumer.priority_level].remove(consumer)

    def ready(self, consumer: Consumer) -> None:
        """It may be able to take entries again."""
        if id(consumer) in self._members and id(consumer) not in self._queued:
            self._queued.add(id(consumer))
            self._levels[consumer.priority_level].append(consumer)

    def next(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end; None when none can take anything."""
        for level in self._levels.values():
            while level:
                consumer = level[0]
                if can_take(consumer):
                    level.rotate(-1)
                    return consumer
                level.popleft()
                self._queued.discard(id(consumer))
        return None

    def any_ready(self) -> bool:
        """Whether any consumer can take something. Changes no turn."""
        for level in self._levels.values():
            while level:
                if can_take(level[0]):
                    return True
                self._queued.discard(id(level.popleft()))
        return False

    def capacity(self, count_max: int) -> int:
        """Messages all of them could take together, counted up to `count_max`."""
        total = 0
        for level in self._levels.values():
            for consumer in level:
                if can_take(consumer):
                    total += consumer.permits.available
                    if total >= count_max:
                        return count_max
        return total
