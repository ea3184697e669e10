"""Assigns the key slots of a Key_Shared subscription to consumers.

Slots are numbered as in Pulsar 4.0.8 (`protocol.hashing`). Slot 0 means "no hash" there and is
unused here too.

- AutoSplit: a new consumer takes the lower half of the largest range, the lowest one on a tie; a
  leaving consumer's range goes to its upper neighbour, or to the lower one if it was the top.
- ConsistentHashing: every consumer owns points on a ring, placed by its name.
- StickyRanges: consumers supply their ranges, which must neither be empty nor overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Final, Protocol, final

from protocol.errors import BrokerError, ServerError
from protocol.hashing import SLOT_COUNT, key_slot, key_slot_on_ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_extensions import i64

    from broker.topics.subscription.consumer import Consumer


SINGLE_CHANGES_MAX: Final = 64
"""More ranges of a consumer than this are merged with those of others in one pass over all. With
65,536 of them a pass takes 5 ms, and a turn may bring dozens of consumers with one range."""


class KeyRanges(Protocol):
    """The assignment of key slots to consumers. Pure; changes only by add and remove."""

    def slot(self, key: bytes) -> int:
        """The slot of a key."""

    def owner(self, slot: int) -> Consumer | None:
        """The consumer that gets messages of the slot now."""

    def add(self, consumer: Consumer) -> None:
        """Raises: BrokerError ConsumerAssignError: no slot is left, or its ranges are invalid."""

    def remove(self, consumer: Consumer) -> None:
        """Assign its slots to others. An unknown consumer is ignored."""

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...]:
        """Its inclusive ranges, ascending."""

    def ranges(self) -> Iterator[tuple[int, int, Consumer]]:
        """All inclusive ranges with their consumers, ascending. Ranges that are added or removed
        while they are taken may be among them or not."""


@final
class AutoSplit:
    """Consecutive ranges, described by their upper bounds."""

    __slots__ = ("_bounds", "_owners", "_top")

    def __init__(self, slot_count: int = SLOT_COUNT) -> None:
        self._top = slot_count - 1
        self._bounds: list[int] = []
        self._owners: list[Consumer] = []

    def slot(self, key: bytes) -> int:
        """hash % slots; 1 instead of 0."""
        return key_slot(key, self._top + 1)

    def owner(self, slot: int) -> Consumer | None:
        """The consumer of the first range that ends at or after the slot."""
        if not self._bounds:
            return None
        return self._owners[bisect_left(self._bounds, slot)]

    def add(self, consumer: Consumer) -> None:
        """Take all slots, or split the largest range."""
        bounds = self._bounds
        if not bounds:
            bounds.append(self._top)
            self._owners.append(consumer)
            return
        lower, largest, at = 0, -1, 0
        for index, bound in enumerate(bounds):
            if bound - lower > largest:
                largest, at = bound - lower, index
            lower = bound
        if largest <= 1:
            raise BrokerError(
                ServerError.ConsumerAssignError,
                f"No more range can assigned to new consumer, assigned consumers {len(bounds)}",
            )
        bounds.insert(at, bounds[at] - (largest >> 1))
        self._owners.insert(at, consumer)

    def remove(self, consumer: Consumer) -> None:
        """Give its range to the upper neighbour, or the top range to the lower one."""
        if consumer not in self._owners:
            return
        at = self._owners.index(consumer)
        if at == len(self._bounds) - 1 and at > 0:
            self._bounds[at - 1] = self._top
        del self._bounds[at]
        del self._owners[at]

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...]:
        """One range."""
        if consumer not in self._owners:
            return ()
        at = self._owners.index(consumer)
        return ((self._bounds[at - 1] + 1 if at else 0, self._bounds[at]),)

    def ranges(self) -> Iterator[tuple[int, int, Consumer]]:
        """One range each."""
        lower = 0
        for upper, owner in zip(list(self._bounds), list(self._owners), strict=True):
            yield lower, upper, owner
            lower = upper + 1


@final
class ConsistentHashing:
    """A ring of points; a slot belongs to the first point at or after it.

    If points coincide, the first consumer owns them, and the next one when it leaves.
    """

    __slots__ = ("_holders", "_numbers", "_own", "_points", "_ring", "_slots")

    def __init__(self, points: int, slot_count: int = SLOT_COUNT) -> None:
        self._points = points
        self._slots = slot_count - 1
        self._ring: list[int] = []
        self._holders: dict[int, list[Consumer]] = {}
        self._numbers: dict[Consumer, int] = {}
        self._own: dict[Consumer, list[int]] = {}
        """The points of each consumer, ascending."""

    def slot(self, key: bytes) -> int:
        """1 to slots - 1."""
        return key_slot_on_ring(key, self._slots + 1)

    def owner(self, slot: int) -> Consumer | None:
        """The first point at or after the slot, around the ring."""
        if not self._ring:
            return None
        at = _first_at_or_after(self._ring, slot)
        return self._holders[self._ring[at if at < len(self._ring) else 0]][0]

    def _points_of(self, consumer: Consumer) -> list[int]:
        seed = f"{consumer.name}{self._numbers[consumer]}"
        return sorted({self.slot(f"{seed}{point}".encode()) for point in range(self._points)})

    def add(self, consumer: Consumer) -> None:
        """Put its points on the ring. A number distinguishes consumers of one name."""
        taken = {number for each, number in self._numbers.items() if each.name == consumer.name}
        self._numbers[consumer] = min(set(range(len(taken) + 1)) - taken)
        self._own[consumer] = own = self._points_of(consumer)
        for point in own:
            holders = self._holders.get(point)
            if holders is None:
                self._holders[point] = [consumer]
                insort(self._ring, point)
            else:
                holders.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Take its points off the ring."""
        if consumer not in self._numbers:
            return
        for point in self._own.pop(consumer):
            holders = self._holders[point]
            holders.remove(consumer)
            if not holders:
                del self._holders[point]
                del self._ring[bisect_left(self._ring, point)]
        del self._numbers[consumer]

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...]:
        """Its ranges, with neighbouring ones joined. The rest of the ring is not looked at: it may
        have a hundred thousand points."""
        ring, holders = self._ring, self._holders
        ends = [point for point in self._own.get(consumer, ()) if holders[point][0] is consumer]
        if not ends:
            return ()
        found: list[tuple[int, int]] = []
        if ends[0] == ring[0] and ring[-1] < self._slots:
            ends.append(self._slots)  # around the ring: the slots after the last point
        for end in ends:
            at = bisect_left(ring, end)
            start = ring[at - 1] + 1 if at else 1
            if found and found[-1][1] == start - 1:
                start = found.pop()[0]
            found.append((start, end))
        return tuple(found)

    def ranges(self) -> Iterator[tuple[int, int, Consumer]]:
        """Adjacent ranges of a consumer are one."""
        start, lower = 1, 1
        last: Consumer | None = None
        ring = list(self._ring)
        if ring:
            ring.append(self._slots)  # around the ring: the slots after the last point
        for index, end in enumerate(ring):
            holders = self._holders.get(ring[0] if index == len(ring) - 1 else end)
            owner = holders[0] if holders else None
            if owner is not last:
                if last is not None and start < lower:
                    yield start, lower - 1, last
                start, last = lower, owner
            lower = max(lower, end + 1)
        if last is not None and start < lower:
            yield start, lower - 1, last


@final
class StickyRanges:
    """Ranges chosen by the consumers. Slots outside all ranges wait for an owner."""

    __slots__ = ("_own", "_ranges", "_slots", "_starts")

    def __init__(self, slot_count: int = SLOT_COUNT) -> None:
        self._slots = slot_count
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, Consumer]] = []
        self._own: dict[Consumer, tuple[tuple[int, int], ...]] = {}
        """The ranges of each consumer, ascending."""

    def slot(self, key: bytes) -> int:
        """hash % slots; 1 instead of 0."""
        return key_slot(key, self._slots)

    def owner(self, slot: int) -> Consumer | None:
        """The consumer whose range holds the slot."""
        at = bisect_right(self._starts, slot) - 1
        if at < 0:
            return None
        _, end, consumer = self._ranges[at]
        return consumer if slot <= end else None

    def add(self, consumer: Consumer) -> None:
        """Check all its ranges, then take them all."""
        wanted = sorted(consumer.key_shared.ranges)
        if not wanted:
            raise _assign_error("Ranges for KeyShared policy must not be empty.")
        for index, (start, end) in enumerate(wanted):
            if start < 0 or end >= self._slots:
                raise _assign_error(
                    f"Fixed hash range [{start},{end}] is outside of [0,{self._slots - 1}]"
                )
            if start > end:
                raise _assign_error(f"Fixed hash range start > end for range: [{start},{end}]")
            if index + 1 < len(wanted) and wanted[index + 1][0] <= end:
                other = wanted[index + 1]
                raise _assign_error(
                    f"Consumer's own ranges conflict: [{start},{end}] overlaps with "
                    f"[{other[0]},{other[1]}]"
                )
        for start, end in wanted:
            at = bisect_right(self._starts, end) - 1  # the last held range that starts before `end`
            if at >= 0 and self._ranges[at][1] >= start:
                raise _assign_error(f"Range conflict with consumer {self._ranges[at][2].name}")
        self._own[consumer] = tuple(wanted)
        if len(wanted) > SINGLE_CHANGES_MAX:
            self._ranges = sorted([*self._ranges, *((*each, consumer) for each in wanted)])
            self._starts = [each[0] for each in self._ranges]
            return
        for start, end in wanted:
            at = bisect_left(self._starts, start)
            self._starts.insert(at, start)
            self._ranges.insert(at, (start, end, consumer))

    def remove(self, consumer: Consumer) -> None:
        """Its slots have no owner until another consumer claims them."""
        own = self._own.pop(consumer, ())
        if len(own) > SINGLE_CHANGES_MAX:
            self._ranges = [each for each in self._ranges if each[2] is not consumer]
            self._starts = [each[0] for each in self._ranges]
            return
        for start, _ in own:
            at = bisect_left(self._starts, start)
            del self._starts[at]
            del self._ranges[at]

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...]:
        """As the consumer stated them."""
        return self._own.get(consumer, ())

    def ranges(self) -> Iterator[tuple[int, int, Consumer]]:
        """As the consumers stated them."""
        yield from list(self._ranges)


def _first_at_or_after(points: list[int], slot: i64) -> i64:
    """As `bisect_left`, for every message: compiled, it compares numbers and not objects."""
    low: i64 = 0
    high: i64 = len(points)
    while low < high:
        middle = (low + high) >> 1
        point: i64 = points[middle]
        if point < slot:
            low = middle + 1
        else:
            high = middle
    return low


def _assign_error(message: str) -> BrokerError:
    return BrokerError(ServerError.ConsumerAssignError, message)
