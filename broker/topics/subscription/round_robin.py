"""The order of turns on a Shared subscription.

Within a priority level consumers take turns. A level is used only when no consumer of a better
level can take anything. The rotation holds only consumers that may be able to take something. A
consumer found unable leaves the rotation and returns by `ready`, so a turn costs the same with ten
consumers as with ten thousand.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topics.subscription.consumer import Consumer


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
    """The rotation. The caller calls `ready` whenever a condition of `can_take` improved.

    A level exists only while a consumer of it is queued: a client may name any number of levels,
    and a Shared subscription keeps its rotation when its last consumer leaves.
    """

    __slots__ = ("_levels", "_members", "_order", "_queued")

    def __init__(self) -> None:
        self._levels: dict[int, deque[Consumer]] = {}
        """By the negative of the priority level: the best has the greatest key."""
        self._order: list[int] = []
        """The keys in order: the best is last, where it goes without moving the others."""
        self._members: set[int] = set()
        self._queued: set[int] = set()

    def add(self, consumer: Consumer) -> None:
        """Join, at the end of the rotation."""
        self._members.add(id(consumer))
        self.ready(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Leave at once."""
        self._members.discard(id(consumer))
        if id(consumer) in self._queued:
            self._queued.discard(id(consumer))
            key = -consumer.priority_level
            level = self._levels[key]
            level.remove(consumer)
            if not level:
                del self._levels[key]
                del self._order[bisect_left(self._order, key)]

    def ready(self, consumer: Consumer) -> None:
        """It may be able to take entries again."""
        if id(consumer) in self._members and id(consumer) not in self._queued:
            self._queued.add(id(consumer))
            key = -consumer.priority_level
            level = self._levels.get(key)
            if level is None:
                level = self._levels[key] = deque()
                insort(self._order, key)
            level.append(consumer)

    def next(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end; None when none can take anything."""
        level = self._best()
        if level is None:
            return None
        consumer = level[0]
        level.rotate(-1)
        return consumer

    def any_ready(self) -> bool:
        """Whether any consumer can take something. Changes no turn."""
        return self._best() is not None

    def _best(self) -> deque[Consumer] | None:
        """The level whose turn it is. Its first consumer can take something: the unable ones before
        it have left the rotation."""
        while self._order:
            key = self._order[-1]
            level = self._levels[key]
            while level:
                if can_take(level[0]):
                    return level
                self._queued.discard(id(level.popleft()))
            self._order.pop()
            del self._levels[key]
        return None

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
