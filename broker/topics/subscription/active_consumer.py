"""Chooses the one consumer of an Exclusive or Failover subscription that is served.

Consumers are ordered by priority level (0 first), then by name. Among those of the best level the
one at `partition % their number` is active, which spreads the partitions of a topic over them. On a
topic without partitions, the name of the topic is looked up in a hash ring of consumer names, which
spreads topics in the same way (Pulsar 4.0's rule, 100 points per consumer).

The order is kept, not made for each change: a subscription may have ten thousand consumers, and
their connection may take them all away at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, final

from protocol.hashing import key_hash

if TYPE_CHECKING:
    from broker.topics.subscription.consumer import Consumer

RING_POINTS: Final = 100
_AROUND: Final = 2**32
"""Added to the distance of a point that lies before the one wanted: it is found around the ring."""

_Place = tuple[int, int, str, int]
"""Priority level, distance on the ring, name, number of arrival: unique by the last one."""


@final
class ActiveOrder:
    """The consumers of one subscription, in the order of this choice."""

    __slots__ = ("_arrived", "_consumers", "_partition", "_places", "_sorted", "_wanted")

    def __init__(self, partition: int, topic_name: str) -> None:
        self._partition = partition
        self._wanted = key_hash(topic_name.encode())
        self._arrived = 0
        self._places: dict[Consumer, _Place] = {}
        self._consumers: dict[int, Consumer] = {}
        self._sorted: list[_Place] = []

    def add(self, consumer: Consumer) -> None:
        """Equal names keep their order of arrival."""
        self._arrived += 1
        distance = 0 if self._partition >= 0 else self._distance(consumer.name)
        place = (consumer.priority_level, distance, consumer.name, self._arrived)
        self._places[consumer] = place
        self._consumers[self._arrived] = consumer
        insort(self._sorted, place)

    def remove(self, consumer: Consumer) -> None:
        """It has left."""
        place = self._places.pop(consumer)
        del self._consumers[place[3]]
        del self._sorted[bisect_left(self._sorted, place)]

    def chosen(self) -> Consumer | None:
        """The active consumer; None without consumers."""
        order = self._sorted
        if not order:
            return None
        level, distance = order[0][:2]
        if self._partition >= 0:
            at = self._partition % bisect_left(order, (level + 1,))
        else:
            # If points coincide, the last one counts.
            at = bisect_left(order, (level, distance + 1)) - 1
        return self._consumers[order[at][3]]

    def _distance(self, name: str) -> int:
        """From the topic to the next point of a consumer on the ring."""
        wanted = self._wanted
        points = (key_hash(f"{name}{point}".encode()) for point in range(RING_POINTS))
        return min(point - wanted + (_AROUND if point < wanted else 0) for point in points)
