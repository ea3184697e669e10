"""The common part of Shared and Key_Shared: several consumers, each entry to one of them.

A step first sends entries to be redelivered (in position order), then new entries, as far as
permits, outboxes, limits and the slice allow. The two dispatchers decide which consumer gets an
entry, and where it waits if no consumer can take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.topics.subscription.acknowledgements import left_of
from broker.topics.subscription.delayed import DelayedIndex, deliver_at_ms
from broker.topics.subscription.entry_source import EntrySource, ReplaySource
from broker.topics.subscription.in_flight import InFlight
from broker.topics.subscription.outgoing import Outgoing
from broker.topics.subscription.pump import Step
from broker.topics.subscription.round_robin import RoundRobin
from broker.topics.subscription.withheld import WithheldEntries
from protocol.ack_set import to_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump
    from broker.topics.subscription.statistics import DrainingHash
    from protocol.position import Position

DELAYED_LOOKED_THROUGH_MAX: Final = 4096
"""A millisecond. An eviction may skip with every group of entries."""


class ManyDispatcher:
    """Base of the two dispatchers. Not for use by itself."""

    sub_type: int

    def __init__(
        self, context: TopicContext, ledger: LedgerPort, cursor: CursorPort, pump: Pump
    ) -> None:
        self._context = context
        self._config = config = context.config
        self._clock = context.clock
        self._ledger = ledger
        self._cursor = cursor
        self._pump = pump
        self._in_flight = InFlight(context.limits)
        self._rotation = RoundRobin()
        self._delayed = DelayedIndex(context.delayed, context.topic_name)
        self._source = EntrySource(ledger, ledger.next_position(cursor.mark_delete))
        self._replays = ReplaySource(ledger, config.dispatcher_max_read_size_bytes)
        self._outgoing = Outgoing(
            context.partition, context.chunks, expose=config.expose_broker_entry_metadata
        )
        self._count_left = 0
        self._bytes_left = 0
        self._fill_replays = False
        self.is_reading_replays = False
        self._by_index = False
        """Whether entries may be partly acked."""
        self._withheld = WithheldEntries(context.topic_name, cursor.name)
        self._unstorable = False
        """The last step sent no new entries, because not all acknowledgements would be stored."""
        self.messages_out = 0
        self.bytes_out = 0
        self.entries_out = 0

    # Parts that differ

    def _wait_again(self, position: Position, slot: int) -> None:
        """Queue an entry for redelivery."""
        raise NotImplementedError

    def _drop_waiting(self, position: Position) -> None:
        """The entry is acked: do not deliver it."""
        raise NotImplementedError

    def _forget_waiting(self) -> None:
        """Clear the queues, because everything is read again."""
        raise NotImplementedError

    def _send_waiting(self) -> Step:
        """Deliver waiting entries. IDLE: no more of them can be sent now."""
        raise NotImplementedError

    def _send_new(self) -> Step:
        """Deliver new entries."""
        raise NotImplementedError

    # Consumers

    @property
    def active(self) -> Consumer | None:
        """All consumers are active."""
        return None

    def add(self, consumer: Consumer) -> None:
        """Attach."""
        self._in_flight.add(consumer)
        self._rotation.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Detach. When the last consumer leaves, delivery starts again at the cursor."""
        self._rotation.remove(consumer)
        taken = self._in_flight.remove(consumer)
        if self._in_flight.consumers:
            for position, pending in taken:
                self._wait_again(position, pending.key_hash)
        else:
            self.rewind()
        self.settle()

    def announce(self, consumer: Consumer) -> None:
        """There is nothing to announce."""

    def ready(self, consumer: Consumer) -> None:
        """It may be able to take entries again."""
        self._rotation.ready(consumer)

    # Acks

    def acked(self, consumer: Consumer, position: Position) -> int:
        """The entry is done, whether in flight or waiting."""
        self._drop_waiting(position)
        return self._in_flight.acked(position)

    def acked_entries(self, ledger_id: int, entry_ids: list[int]) -> int:
        """The entries are done, whether in flight or waiting."""
        if self.replay_messages:
            for entry_id in entry_ids:
                self._drop_waiting((ledger_id, entry_id))
        return self._in_flight.acked_entries(ledger_id, entry_ids)

    def part_acked(self, consumer: Consumer, position: Position, left: int) -> int:
        """The entry stays in flight with fewer messages."""
        return self._in_flight.part_acked(position, left)

    def messages_of(self, position: Position) -> int:
        """Messages of an entry in flight."""
        return self._in_flight.messages_of(position)

    def settle(self) -> bool:
        """Put consumers freed by acks back into the rotation and update the broker's limit."""
        held = self._in_flight.blocked
        freed = self._in_flight.unblocked()
        for consumer in freed:
            self._rotation.ready(consumer)
        self._report()
        return bool(freed) or held or self._unstorable

    def limits_changed(self) -> None:
        """Hold and free consumers as the limits say now."""
        for consumer in self._in_flight.check_limits():
            self._rotation.ready(consumer)
        self.settle()

    def _report(self) -> None:
        limit = self._context.broker_unacked
        if limit is not None:
            limit.report(self, self._in_flight.tally.messages)

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Redeliver entries that this consumer holds; a request for others is ignored."""
        for position, pending in self._in_flight.asked_again(consumer, positions):
            self._wait_again(position, pending.key_hash)
        self.settle()

    def rewind(self) -> None:
        """Drop replays, delays and counts. Read again after the mark-delete position."""
        self._forget_waiting()
        self._delayed.clear()
        self._replays.clear()
        self._in_flight.counts.clear()
        self._source.rewind(self._ledger.next_position(self._cursor.mark_delete))
        self._report()

    def close(self) -> None:
        """It sends nothing any more."""
        self._delayed.clear()
        self._context.delayed.forget(self._context.topic_name, self)

    @property
    def read_position(self) -> Position:
        """From the source."""
        return self._source.position

    def skip_to(self, position: Position) -> None:
        """Do not read skipped entries. Waiting ones are checked when their turn comes, and so are
        delayed ones, where they are too many to look through."""
        self._source.skip_to(position)
        if position > self._ledger.last_confirmed:
            self._delayed.clear()
        elif len(self._delayed) <= DELAYED_LOOKED_THROUGH_MAX:
            self._delayed.drop_before(position)

    # Dispatch

    def step(self, entries_max: int, bytes_max: int) -> Step:
        """Replays, then new entries, within one slice."""
        if self._held():
            return Step.IDLE
        self._count_left = entries_max
        self._bytes_left = bytes_max
        self._by_index = bool(self._config.acknowledgment_at_batch_index_level_enabled)
        if len(self._delayed):
            self._take_due()
        left = self._send_waiting()
        if left is Step.IDLE and not self._held() and not self._waits_for_acks():
            left = self._send_new()
        entries, messages, size_bytes = self._outgoing.flush(self._clock.wall_ms())
        self.entries_out += entries
        self.messages_out += messages
        self.bytes_out += size_bytes
        if messages:
            self._report()
        return left

    def _held(self) -> bool:
        """Whether nothing can be sent at all."""
        if self._in_flight.blocked or not self._rotation.any_ready():
            return True
        limit = self._context.broker_unacked
        return limit is not None and limit.blocks(self, self._wake_now)

    def _waits_for_acks(self) -> bool:
        """Whether new entries wait until the acknowledgements can be stored again."""
        self._unstorable = (
            self._context.limits.dispatch_waits_for_acks
            and self._cursor.acked_range_count > self._config.managed_ledger_max_unacked_ranges
        )
        return self._unstorable

    def _wake_now(self) -> None:
        self._pump.wake_after(0)

    def _take_due(self) -> None:
        for position, slot in self._delayed.take_due(self._clock.wall_ms()):
            if not self._cursor.is_acked(position):
                self._wait_again(position, slot)
        due_ms = self._delayed.next_due_ms()
        if due_ms is not None:
            self._pump.wake_at(due_ms)

    def _delay(self, entry: Entry, slot: int) -> bool:
        """Put the entry aside if it is not due yet."""
        due_ms = deliver_at_ms(entry)
        if not due_ms or not self._context.limits.delivers_later or due_ms <= self._clock.wall_ms():
            return False
        self._delayed.add(due_ms, entry.position, slot)
        self._pump.wake_at(due_ms)
        return True

    def _has_too_many_delayed(self) -> bool:
        """Whether no further entries may be read, because too many are not due."""
        budget, name = self._context.delayed, self._context.topic_name
        return budget.blocks(name, self, len(self._delayed), self._wake_now)

    def _skip_withheld(self, entry: Entry) -> None:
        self._cursor.ack_individual(entry.position)
        self._withheld.skipped(entry)

    def _send(self, consumer: Consumer, entry: Entry, slot: int) -> None:
        position = entry.position
        remaining = None
        if self._by_index:
            remaining = left_of(self._cursor, entry)
            if remaining == 0:
                return  # it is acked
        if remaining is None:
            messages = entry.messages()
            ack_set: tuple[int, ...] = ()
        else:
            messages = remaining.bit_count()
            ack_set = to_words(remaining)
        counts = self._in_flight.counts
        count = counts.get(position, 0) if len(counts) else 0
        self._outgoing.add(consumer, entry, messages, count, ack_set)
        self._in_flight.sent(consumer, position, messages, slot)
        self._bytes_left -= len(entry.data)

    async def fill(self) -> None:
        """Read the entries that the step lacked."""
        if self._fill_replays:
            self._fill_replays = False
            self.is_reading_replays = True
            try:
                await self._replays.fill()
            finally:
                self.is_reading_replays = False
        else:
            await self._source.fill()

    # Statistics

    @property
    def unacked_messages(self) -> int:
        """The sum over the consumers."""
        return self._in_flight.tally.messages

    @property
    def blocked_on_unacked(self) -> bool:
        """Whether its limit or that of the broker blocks it."""
        return self._in_flight.blocked or self._is_held_by_broker()

    def _is_held_by_broker(self) -> bool:
        limit = self._context.broker_unacked
        return limit is not None and limit.holds(self)

    @property
    def delayed_messages(self) -> int:
        """Entries indexed by time."""
        return len(self._delayed)

    @property
    def replay_messages(self) -> int:
        """Entries waiting to be delivered."""
        raise NotImplementedError

    def why(self) -> str:
        """The first reason that blocks all consumers."""
        consumers = self._in_flight.consumers
        if not consumers:
            return "no consumer"
        if self._in_flight.blocked:
            return (
                f"blocked: {self.unacked_messages} unacked messages reach "
                "maxUnackedMessagesPerSubscription"
            )
        if self._is_held_by_broker():
            return "blocked: unacked messages reach maxUnackedMessagesPerBroker"
        if self._unstorable:
            return "waits for acknowledgements: more holes between them than are stored"
        if self._rotation.any_ready():
            due_ms = self._delayed.next_due_ms()
            bound = self._context.delayed.holds(self._context.topic_name, len(self._delayed))
            if due_ms is not None and bound:
                return f"{len(self._delayed)} entries delayed: {bound} is reached"
            if due_ms is not None:
                return f"{len(self._delayed)} entries delayed, the first until {due_ms} ms"
            return ""
        if all(consumer.blocked_on_unacked for consumer in consumers):
            return "blocked: every consumer reaches maxUnackedMessagesPerConsumer"
        with_permits = [each for each in consumers if each.permits.available > 0]
        if not with_permits:
            return "no permits from any consumer"
        if all(each.blocked_on_unacked for each in with_permits):
            return "every consumer with permits reaches maxUnackedMessagesPerConsumer"
        return "the connections of all consumers with permits are full"

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...] | None:
        """There are no key ranges."""
        return None

    def key_ranges(self) -> Iterator[tuple[int, int, Consumer]] | None:
        """There are none."""
        return None

    def draining_of(self, consumer: Consumer) -> tuple[DrainingHash, ...]:
        """No slots drain."""
        return ()
