"""The messages of a Shared or Key_Shared subscription in flight at its consumers, and their limits.

Only this class changes the state: sent, acked, taken back. For Key_Shared it also knows which
consumer holds messages of a key slot. A slot is free for any consumer only when no consumer holds
messages of it. That is the whole rule of draining hashes (PIP-379), without registration or
cleanup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.redelivery import RedeliveryCounts
from broker.topics.subscription.unacked import (
    Pending,
    UnackedTally,
    is_below_half,
    is_within_half,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.limits import SubscriptionLimits
    from protocol.position import Position


@final
class _HeldSlot:
    """A key slot of which a consumer has so many entries in flight."""

    __slots__ = ("consumer", "entries", "moves")

    def __init__(self, consumer: Consumer, moves: int) -> None:
        self.consumer = consumer
        self.entries = 1
        self.moves = moves
        """`InFlight.moves` when it was made."""


@final
class InFlight:
    """Entries sent and not acked, over all consumers."""

    __slots__ = (
        "_drained",
        "_held",
        "_holders",
        "_left_late",
        "_limits",
        "_slots",
        "blocked",
        "consumers",
        "counts",
        "moves",
        "tally",
    )

    def __init__(self, limits: SubscriptionLimits) -> None:
        self._limits = limits
        self.consumers: dict[Consumer, None] = {}
        self.tally = UnackedTally()
        self.counts = RedeliveryCounts()
        self.blocked = False
        """Whether the limit of the subscription is reached."""
        self._slots: dict[int, _HeldSlot] = {}
        self._drained: list[int] = []
        self.moves = 0
        """How often the owners of slots have changed."""
        self._left_late: list[tuple[int, Consumer]] = []
        self._held: dict[Consumer, None] = {}
        self._holders: dict[Position, Consumer] = {}
        """Anybody may acknowledge an entry, and there may be ten thousand consumers to search."""

    def add(self, consumer: Consumer) -> None:
        """Track the consumer."""
        self.consumers[consumer] = None
        consumer.pending.join(self.tally)

    def remove(self, consumer: Consumer) -> list[tuple[Position, Pending]]:
        """Stop tracking it. Returns the entries it held, in order."""
        del self.consumers[consumer]
        taken = consumer.pending.take_all()
        for position, pending in taken:
            del self._holders[position]
            self._leave_slot(pending)
        consumer.blocked_on_unacked = False
        self._held.pop(consumer, None)
        return taken

    def holder(self, slot: int) -> Consumer | None:
        """The consumer that has messages of the slot in flight."""
        held = self._slots.get(slot)
        return None if held is None else held.consumer

    def sent(self, consumer: Consumer, position: Position, messages: int, slot: int = -1) -> None:
        """An entry was sent."""
        pending = consumer.pending
        pending.add(position, messages, slot)
        self._holders[position] = consumer
        if slot >= 0:
            held = self._slots.get(slot)
            if held is None:
                self._slots[slot] = _HeldSlot(consumer, self.moves)
            else:
                held.consumer = consumer
                held.entries += 1
        self._check_reached(consumer)

    def room(self, consumer: Consumer) -> int:
        """How many messages the consumer can be sent now until its permits or a limit end that: at
        least one. An entry with more messages passes the bound, as ever."""
        limits = self._limits
        room = consumer.permits.available
        of_consumer: int = limits.max_unacked_messages_per_consumer
        if of_consumer > 0:
            room = min(room, of_consumer - consumer.pending.messages)
        of_subscription: int = limits.max_unacked_messages_per_subscription
        if of_subscription > 0:
            room = min(room, of_subscription - self.tally.messages)
        return max(room, 1)

    def sent_entries(self, consumer: Consumer, entries: list[Entry], messages: int) -> None:
        """Entries without a key were sent, which hold so many messages, all of them unacked."""
        holders = self._holders
        consumer.pending.add_entries(entries, messages)
        for entry in entries:
            holders[entry.position] = consumer
        self._check_reached(consumer)

    def _check_reached(self, consumer: Consumer) -> None:
        limits = self._limits
        if 0 < limits.max_unacked_messages_per_consumer <= consumer.pending.messages:
            consumer.blocked_on_unacked = True
            self._held[consumer] = None
        if 0 < limits.max_unacked_messages_per_subscription <= self.tally.messages:
            self.blocked = True

    def _leave_slot(self, pending: Pending) -> None:
        slot = pending.key_hash
        if slot < 0:
            return
        held = self._slots.get(slot)
        if held is not None:
            if held.entries > 1:
                held.entries -= 1
            else:
                del self._slots[slot]
                self._drained.append(slot)
                if held.moves != self.moves:
                    self._left_late.append((slot, held.consumer))

    def take_back(self, consumer: Consumer, position: Position) -> Pending | None:
        """The consumer no longer holds it."""
        pending = consumer.pending.remove(position)
        if pending is not None:
            del self._holders[position]
            self._leave_slot(pending)
        return pending

    def acked(self, position: Position) -> int:
        """The entry was acked, by its holder or another. Returns the messages in flight."""
        self.counts.forget(position)
        holder = self._holders.get(position)
        pending = None if holder is None else self.take_back(holder, position)
        return 0 if pending is None else pending.messages

    def acked_entries(self, ledger_id: int, entry_ids: list[int]) -> int:
        """The same of entries of one ledger; one that is not in flight counts as one message."""
        messages = 0
        holders = self._holders
        has_counts = len(self.counts) > 0
        for entry_id in entry_ids:
            position = (ledger_id, entry_id)
            if has_counts:
                self.counts.forget(position)
            holder = holders.get(position)
            pending = None if holder is None else holder.pending.remove(position)
            if pending is None:
                messages += 1
            else:
                del holders[position]
                if pending.key_hash >= 0:
                    self._leave_slot(pending)
                messages += pending.messages
        return messages

    def holds(self, position: Position) -> bool:
        """Whether the entry is in flight."""
        return position in self._holders

    def messages_of(self, position: Position) -> int:
        """Messages of the entry that are not acked; 0: it is not in flight."""
        holder = self._holders.get(position)
        return 0 if holder is None else holder.pending.messages_of(position)

    def part_acked(self, position: Position, left: int) -> int:
        """`left` of its messages are not acked. Returns how many were freed."""
        holder = self._holders.get(position)
        return 0 if holder is None else holder.pending.keep(position, left)

    def asked_again(
        self, consumer: Consumer, positions: Sequence[Position] | None
    ) -> list[tuple[Position, Pending]]:
        """A request to redeliver. Takes back and returns the entries actually held, in order."""
        wanted = sorted(consumer.pending) if positions is None else sorted(set(positions))
        taken: list[tuple[Position, Pending]] = []
        for position in wanted:
            pending = self.take_back(consumer, position)
            if pending is not None:
                self.counts.increment(position)
                consumer.counters.messages_redelivered += pending.messages
                taken.append((position, pending))
        return taken

    def drained(self) -> list[int]:
        """Slots that became free since last asked."""
        slots, self._drained = self._drained, []
        return slots

    def left_late(self) -> list[tuple[int, Consumer]]:
        """Of the slots that became free since last asked, those that were held while the owners of
        slots changed, with their holders."""
        left = self._left_late
        if left:
            self._left_late = []
        return left

    def check_limits(self) -> list[Consumer]:
        """The limits are others now: hold what reaches them, and nothing else. Returns the
        consumers freed."""
        limits = self._limits
        self.blocked = 0 < limits.max_unacked_messages_per_subscription <= self.tally.messages
        freed: list[Consumer] = []
        for consumer in self.consumers:
            if 0 < limits.max_unacked_messages_per_consumer <= consumer.pending.messages:
                consumer.blocked_on_unacked = True
                self._held[consumer] = None
            elif consumer.blocked_on_unacked:
                consumer.blocked_on_unacked = False
                del self._held[consumer]
                freed.append(consumer)
        return freed

    def unblocked(self) -> list[Consumer]:
        """Lift limits that are no longer exceeded. Returns the consumers freed."""
        freed: list[Consumer] = []
        if not self.blocked and not self._held:
            return freed
        limits = self._limits
        if self.blocked:
            limit = limits.max_unacked_messages_per_subscription
            self.blocked = not is_below_half(self.tally.messages, limit)
        limit = limits.max_unacked_messages_per_consumer
        for consumer in list(self._held):
            if is_within_half(consumer.pending.messages, limit):
                consumer.blocked_on_unacked = False
                del self._held[consumer]
                freed.append(consumer)
        return freed
