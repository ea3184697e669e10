"""Entries of a Key_Shared subscription that wait for delivery, by key slot.

Within a slot the lowest position always goes first. Slots do not wait for each other. Each slot
that can be delivered has a ticket in the heap of its owner, so the cost of a permit does not depend
on the number of waiting entries. A parked slot has no ticket: it waits until its
former owner has no messages of it in flight.

Tickets may be stale (the head was acked, or a lower position was added). They are checked when
drawn.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.subscription.consumer import Consumer
    from protocol.position import Position


@final
class KeyReplay:
    """The waiting entries. `owner` returns the consumer that owns a slot now."""

    __slots__ = ("_members", "_owner", "_parked", "_slots", "_tickets")

    def __init__(self, owner: Callable[[int], Consumer | None]) -> None:
        self._owner = owner
        self._members: dict[Position, int] = {}
        self._slots: dict[int, list[Position]] = {}
        self._tickets: dict[Consumer | None, list[tuple[Position, int]]] = {}
        self._parked: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, position: Position) -> bool:
        return position in self._members

    def holds(self, slot: int) -> bool:
        """Whether an entry of the slot waits, so that later ones must wait too."""
        return self.head(slot) is not None

    def parked(self) -> dict[int, int]:
        """Parked slots, and how often each could have been delivered."""
        return self._parked

    def consumers(self) -> list[Consumer]:
        """Consumers that may have entries to get."""
        return [each for each, heap in self._tickets.items() if heap and each is not None]

    def head(self, slot: int) -> Position | None:
        """The lowest waiting entry of the slot."""
        queue = self._slots.get(slot)
        if queue is None:
            return None
        members = self._members
        while queue and members.get(queue[0], -1) != slot:
            heapq.heappop(queue)
        if queue:
            return queue[0]
        del self._slots[slot]
        self._parked.pop(slot, None)
        return None

    def _issue(self, position: Position, slot: int) -> None:
        heapq.heappush(self._tickets.setdefault(self._owner(slot), []), (position, slot))

    def add(self, position: Position, slot: int) -> None:
        """Add a waiting entry. Adding it twice has no effect."""
        if position in self._members:
            return
        head = self.head(slot)
        self._members[position] = slot
        heapq.heappush(self._slots.setdefault(slot, []), position)
        if (head is None or position < head) and slot not in self._parked:
            self._issue(position, slot)

    def discard(self, position: Position) -> None:
        """The entry is acked."""
        self._members.pop(position, None)

    def draw(self, consumer: Consumer) -> tuple[Position, int] | None:
        """Take the lowest entry that waits for the consumer. Give it back by `add` or `park`."""
        heap = self._tickets.get(consumer)
        while heap:
            position, slot = heapq.heappop(heap)
            head = self.head(slot)
            if head is None or slot in self._parked or head < position:
                continue
            if head > position:
                heapq.heappush(heap, (head, slot))
                continue
            queue = self._slots[slot]
            heapq.heappop(queue)
            del self._members[position]
            following = self.head(slot)
            if following is not None:
                heapq.heappush(heap, (following, slot))
            return position, slot
        self._tickets.pop(consumer, None)
        return None

    def park(self, position: Position, slot: int) -> None:
        """Give back a drawn entry whose slot another consumer still holds."""
        self._parked[slot] = self._parked.get(slot, 0) + 1
        self.add(position, slot)

    def release(self, slot: int) -> None:
        """The slot is free: its entries may be delivered."""
        if self._parked.pop(slot, None) is not None:
            head = self.head(slot)
            if head is not None:
                self._issue(head, slot)

    def reassign(self) -> None:
        """Slots changed owners: all tickets are issued again."""
        self._tickets.clear()
        self._parked.clear()
        for slot in list(self._slots):
            head = self.head(slot)
            if head is not None:
                self._issue(head, slot)

    def clear(self) -> None:
        """Clear the entries, because everything is read again."""
        self._members.clear()
        self._slots.clear()
        self._tickets.clear()
        self._parked.clear()
