"""Key_Shared: all messages of a key go to one consumer at a time, in order.

An entry may be sent to the owner of its key slot if no earlier entry of the slot waits and no other
consumer has messages of the slot in flight. Otherwise it waits, and so do later entries of the
slot, while other slots continue. Reading ahead for them stops at
`keySharedLookAheadMsgInReplayThreshold...` waiting entries. When ranges move, the new owner of a
slot gets it as soon as the former owner has acked or lost its messages of the slot (PIP-379). No
other slot waits for that.

With allowOutOfOrderDelivery only the owner rule is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.dispatch_many import ManyDispatcher
from broker.topics.subscription.key_ranges import (
    AutoSplit,
    ConsistentHashing,
    KeyRanges,
    StickyRanges,
)
from broker.topics.subscription.key_replay import KeyReplay
from broker.topics.subscription.ports import has_acked
from broker.topics.subscription.pump import Step
from broker.topics.subscription.round_robin import can_take
from broker.topics.subscription.statistics import DrainingHash
from broker.topics.subscription.sub_types import KEY_SHARED
from protocol.metadata import sticky_key
from protocol.sticky_keys import sticky_key_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump
    from protocol.position import Position


@final
class KeySharedDispatcher(ManyDispatcher):
    """The first consumer sets the policy (sticky or auto split, out of order or not)."""

    def __init__(
        self,
        context: TopicContext,
        ledger: LedgerPort,
        cursor: CursorPort,
        pump: Pump,
        first: Consumer,
    ) -> None:
        super().__init__(context, ledger, cursor, pump)
        self.sub_type = KEY_SHARED
        options = first.key_shared
        self.sticky = options.sticky
        self.out_of_order_allowed = options.out_of_order_allowed
        self.ranges: KeyRanges
        if options.sticky:
            self.ranges = StickyRanges()
        elif context.config.subscription_key_shared_use_consistent_hashing:
            points = context.config.subscription_key_shared_consistent_hashing_replica_points
            self.ranges = ConsistentHashing(points)
        else:
            self.ranges = AutoSplit()
        self._waiting = KeyReplay(self.ranges.owner)

    # Consumers

    def add(self, consumer: Consumer) -> None:
        """Attach one with the policy of the others, and give it its ranges."""
        self.ranges.add(consumer)
        self._in_flight.moves += 1
        super().add(consumer)
        self._waiting.reassign()

    def remove(self, consumer: Consumer) -> None:
        """Detach, and let others take its ranges."""
        self.ranges.remove(consumer)
        self._in_flight.moves += 1
        super().remove(consumer)
        self._waiting.reassign()

    # Waiting entries

    def _wait_again(self, position: Position, slot: int) -> None:
        self._waiting.add(position, slot)

    def _drop_waiting(self, position: Position) -> None:
        self._waiting.discard(position)

    def _forget_waiting(self) -> None:
        self._waiting.clear()

    @property
    def replay_messages(self) -> int:
        """Entries waiting for their turn."""
        return len(self._waiting)

    def settle(self) -> bool:
        """Continue slots that no longer have messages in flight."""
        drained = self._in_flight.drained()
        for slot in drained:
            self._waiting.release(slot)
        for slot, former in self._in_flight.left_late():
            if not self.out_of_order_allowed and self.ranges.owner(slot) is not former:
                former.counters.draining_hashes_cleared += 1
        return super().settle() or bool(drained and len(self._waiting))

    # Dispatch

    def _may_have(self, consumer: Consumer, slot: int) -> bool:
        if self.out_of_order_allowed:
            return True
        holder = self._in_flight.holder(slot)
        return holder is None or holder is consumer

    def _draw(self) -> list[tuple[Position, int, Consumer]]:
        """Waiting entries that may be sent now, in position order, within permits and slice."""
        drawn: list[tuple[Position, int, Consumer]] = []
        waiting = self._waiting
        for consumer in waiting.consumers():
            if not can_take(consumer):
                continue
            room = min(consumer.permits.available, self._count_left - len(drawn))
            while room > 0:
                ticket = waiting.draw(consumer)
                if ticket is None:
                    break
                position, slot = ticket
                if self._cursor.is_acked(position):
                    continue
                if not self._may_have(consumer, slot):
                    waiting.park(position, slot)
                    continue
                drawn.append((position, slot, consumer))
                room -= 1
        drawn.sort(key=lambda each: each[0])
        return drawn

    def _send_waiting(self) -> Step:
        waiting = self._waiting
        while len(waiting):
            if self._count_left <= 0 or self._bytes_left <= 0:
                return Step.MORE
            drawn = self._draw()
            if not drawn:
                return Step.IDLE
            entries = self._replays.get([each[0] for each in drawn])
            if entries is None:
                for position, slot, _ in drawn:
                    waiting.add(position, slot)
                self._fill_replays = True
                return Step.READ
            self._count_left -= len(entries)
            for (position, slot, consumer), entry in zip(drawn, entries, strict=False):
                if entry is None:
                    continue
                if self._must_wait(consumer, position, slot):
                    waiting.add(position, slot)
                else:
                    self._send(consumer, entry, slot)
            for position, slot, _ in drawn[len(entries) :]:
                waiting.add(position, slot)
            if self._in_flight.blocked:
                return Step.IDLE
        return Step.IDLE

    def _must_wait(self, consumer: Consumer, position: Position, slot: int) -> bool:
        """Whether a drawn entry cannot be sent: no consumer takes more, or an earlier entry of its
        slot was put back in this same step."""
        if self._in_flight.blocked or self._bytes_left <= 0 or not can_take(consumer):
            return True
        head = None if self.out_of_order_allowed else self._waiting.head(slot)
        return head is not None and head < position

    def _look_ahead_max(self) -> int:
        config = self._config
        per_consumer = config.key_shared_look_ahead_msg_in_replay_threshold_per_consumer
        most = config.key_shared_look_ahead_msg_in_replay_threshold_per_subscription
        by_consumers = per_consumer * len(self._in_flight.consumers)
        if per_consumer <= 0:
            return most if most > 0 else 2**31
        return min(by_consumers, most) if most > 0 else by_consumers

    def _send_new(self) -> Step:
        cursor, source = self._cursor, self._source
        look_ahead_max = self._look_ahead_max()
        while self._count_left > 0 and self._bytes_left > 0:
            if len(self._waiting) >= look_ahead_max or not self._rotation.any_ready():
                return Step.IDLE
            if len(self._delayed) and self._has_too_many_delayed():
                return Step.IDLE
            room = min(self._count_left, look_ahead_max - len(self._waiting))
            entries = source.take(room, self._bytes_left)
            if not entries:
                return Step.READ if entries is None else Step.IDLE
            self._count_left -= len(entries)
            some_acked = has_acked(cursor, entries[0].position)
            for index, entry in enumerate(entries):
                if self._in_flight.blocked:
                    source.give_back(entries[index:])
                    return Step.IDLE
                if some_acked and cursor.is_acked(entry.position):
                    continue
                if entry.is_withheld:
                    self._skip_withheld(entry)
                else:
                    self._send_or_wait(entry)
        return Step.MORE

    def _send_or_wait(self, entry: Entry) -> None:
        key = sticky_key_in(entry.data)
        slot = self.ranges.slot(sticky_key(entry.metadata) if key is None else key)
        if self._delay(entry, slot):
            return
        owner = self.ranges.owner(slot)
        waits = not self.out_of_order_allowed and self._waiting.holds(slot)
        if waits or owner is None or not can_take(owner):
            self._waiting.add(entry.position, slot)
        elif self._may_have(owner, slot):
            self._send(owner, entry, slot)
        else:
            self._waiting.park(entry.position, slot)

    # Statistics

    def why(self) -> str:
        """Also reports blocked slots."""
        reason = super().why()
        if reason:
            return reason
        parked = self._waiting.parked()
        if parked:
            return f"{len(parked)} draining hashes wait for acks of their former consumers"
        if len(self._waiting) >= self._look_ahead_max():
            return (
                f"{len(self._waiting)} entries wait for consumers that take none; "
                "reading ahead has reached its limit"
            )
        if len(self._waiting):
            return "waiting entries belong to consumers that take none, or to no consumer"
        return ""

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...] | None:
        """Its key ranges."""
        return self.ranges.ranges_of(consumer)

    def key_ranges(self) -> Iterator[tuple[int, int, Consumer]] | None:
        """The ranges of all consumers."""
        return self.ranges.ranges()

    def draining_of(self, consumer: Consumer) -> tuple[DrainingHash, ...]:
        """Slots it has in flight that now belong to another consumer."""
        slots: dict[int, int] = {}
        for pending in consumer.pending.values():
            slots[pending.key_hash] = slots.get(pending.key_hash, 0) + pending.messages
        parked = self._waiting.parked()
        return tuple(
            DrainingHash(slot, messages, parked.get(slot, 0))
            for slot, messages in sorted(slots.items())
            if self.ranges.owner(slot) is not consumer
        )
