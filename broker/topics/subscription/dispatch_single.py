"""Exclusive and Failover: one active consumer gets everything, in order.

No state is kept per message: the entries between the cursor and the read position are unacked. To
redeliver means to read again from the cursor, so the order always holds and redelivery counts stay
0, as in Pulsar.

When a better consumer replaces one that is still connected, delivery to it waits for
`activeConsumerFailoverDelayTimeMillis`, so that acks on their way from the former one arrive first.
If the former one has gone, delivery starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.acknowledgements import left_of
from broker.topics.subscription.active_consumer import ActiveOrder
from broker.topics.subscription.chunks import is_chunk
from broker.topics.subscription.consumer import Delivery
from broker.topics.subscription.entry_source import EntrySource
from broker.topics.subscription.key_ranges import StickyRanges
from broker.topics.subscription.outgoing import Outgoing
from broker.topics.subscription.ports import has_acked
from broker.topics.subscription.pump import Step
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER
from broker.topics.subscription.withheld import WithheldEntries
from protocol.ack_set import to_words
from protocol.errors import BrokerError, ServerError
from protocol.metadata import sticky_key, strip_broker_entry_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump
    from broker.topics.subscription.statistics import DrainingHash
    from protocol.position import Position


@final
class SingleDispatcher:
    """One active consumer."""

    unacked_messages = 0
    blocked_on_unacked = False
    delayed_messages = 0
    replay_messages = 0
    is_reading_replays = False

    def __init__(
        self,
        sub_type: int,
        context: TopicContext,
        ledger: LedgerPort,
        cursor: CursorPort,
        pump: Pump,
    ) -> None:
        self.sub_type = sub_type
        self._context = context
        self._config = context.config
        self._ledger = ledger
        self._cursor = cursor
        self._clock = context.clock
        self._pump = pump
        self._consumers: dict[Consumer, None] = {}
        self._order = ActiveOrder(context.partition, context.topic_name)
        self._announced: set[Consumer] = set()
        self._active: Consumer | None = None
        self._source = EntrySource(ledger, ledger.next_position(cursor.mark_delete))
        self._resume_at = 0.0
        """Monotonic; 0: nothing is awaited."""
        self._filter: StickyRanges | None = None
        self._withheld = WithheldEntries(context.topic_name, cursor.name)
        expose = context.config.expose_broker_entry_metadata
        self._outgoing = Outgoing(context.partition, context.chunks, expose=expose)
        self._chunks = context.chunks
        self.messages_out = 0
        self.bytes_out = 0
        self.entries_out = 0

    @property
    def active(self) -> Consumer | None:
        """The active consumer."""
        return self._active

    def add(self, consumer: Consumer) -> None:
        """Attach. An Exclusive subscription takes only one consumer."""
        if self.sub_type == EXCLUSIVE:
            if self._consumers:
                raise BrokerError(
                    ServerError.ConsumerBusy, "Exclusive consumer is already connected"
                )
            self._filter = None
            if consumer.key_shared.ranges:
                ranges = StickyRanges()
                ranges.add(consumer)
                self._filter = ranges
        self._consumers[consumer] = None
        self._order.add(consumer)
        self._choose()

    def remove(self, consumer: Consumer) -> None:
        """Detach. If it was active, the next one starts at the cursor."""
        del self._consumers[consumer]
        self._order.remove(consumer)
        self._announced.discard(consumer)
        if consumer is self._active:
            self._active = None
            self._resume_at = 0.0
        self._choose()

    def _choose(self) -> None:
        chosen = self._order.chosen()
        former = self._active
        if chosen is former:
            return
        self._active = chosen
        self.rewind()
        delay_ms = self._config.active_consumer_failover_delay_time_millis
        if former is not None and delay_ms > 0:
            self._resume_at = self._clock.now() + delay_ms / 1000
            self._pump.wake_after(delay_ms / 1000)
            return  # all are notified when the new one is actually served
        self._tell_all()

    def announce(self, consumer: Consumer) -> None:
        """Notify a new consumer whether it is active, now and at every later change. While a change
        is pending it is notified together with the others: a client that has just been answered may
        not have its listener in place yet.
        """
        if self.sub_type == FAILOVER and consumer not in self._announced:
            self._announced.add(consumer)
            if not self._resume_at:
                self._tell(consumer)

    def _tell_all(self) -> None:
        for consumer in self._consumers:
            self._tell(consumer)

    def _tell(self, consumer: Consumer) -> None:
        if consumer in self._announced:
            consumer.session.active(consumer, is_active=consumer is self._active)

    def ready(self, consumer: Consumer) -> None:
        """No action: dispatch checks the permits."""

    def acked(self, consumer: Consumer, position: Position) -> int:
        """No action: the cursor has the state."""
        return 0

    def acked_entries(self, ledger_id: int, entry_ids: list[int]) -> int:
        """No action: the cursor has the state."""
        return len(entry_ids)

    def part_acked(self, consumer: Consumer, position: Position, left: int) -> int:
        """No action: the cursor has the state."""
        return 0

    def messages_of(self, position: Position) -> int:
        """What is in flight is not known."""
        return 0

    def settle(self) -> bool:
        """Acks unblock nothing here."""
        return False

    def limits_changed(self) -> None:
        """No action: nothing is kept per message."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Read again from the cursor, whatever was requested: single messages would break the
        order. Only the active consumer can request it."""
        if consumer is not self._active:
            return
        consumer.epoch = max(consumer.epoch, epoch)
        self.rewind()

    def rewind(self) -> None:
        """Continue with the first entry after the mark-delete position."""
        self._source.rewind(self._ledger.next_position(self._cursor.mark_delete))

    def close(self) -> None:
        """No action: nothing is shared with others."""

    @property
    def read_position(self) -> Position:
        """From the source."""
        return self._source.position

    def skip_to(self, position: Position) -> None:
        """Do not read skipped entries."""
        self._source.skip_to(position)

    def _delayed(self) -> bool:
        if not self._resume_at:
            return False
        left_seconds = self._resume_at - self._clock.now()
        if left_seconds > 0:
            self._pump.wake_after(left_seconds)
            return True
        self._resume_at = 0.0
        self.rewind()
        self._tell_all()
        return False

    def step(self, entries_max: int, bytes_max: int) -> Step:
        """Send as much as permits and one slice allow."""
        consumer = self._active
        if consumer is None or (self._resume_at and self._delayed()):
            return Step.IDLE
        permits, session = consumer.permits, consumer.session
        count_left = entries_max
        bytes_left = bytes_max
        take = self._source.take
        while (permits_left := permits.granted - permits.spent) > 0 and session.writable:
            if count_left <= 0 or bytes_left <= 0:
                return Step.MORE
            entries = take(min(count_left, permits_left), bytes_left)
            if not entries:
                return Step.READ if entries is None else Step.IDLE
            count_left -= len(entries)
            bytes_left -= self._send(consumer, entries, permits_left)
            if consumer is not self._active:
                return Step.MORE  # its connection broke while it was being served
        return Step.IDLE

    def _send(self, consumer: Consumer, entries: list[Entry], permits_left: int) -> int:
        """Send the first entries that fit the permits and give the rest back. Returns bytes
        sent."""
        cursor = self._cursor
        batch_index = self._config.acknowledgment_at_batch_index_level_enabled
        if batch_index or self._filter is not None or has_acked(cursor, entries[0].position):
            return self._send_checked(consumer, entries, permits_left)
        as_stored = (
            self._config.expose_broker_entry_metadata
            and consumer.session.supports_broker_entry_metadata
        )
        run_ledger_id = entries[0].position[0]
        delivery = Delivery(self._context.partition, run_ledger_id)
        entry_ids, payloads = delivery.entry_ids, delivery.payloads
        messages = size_bytes = sent = chunks = 0
        seen = self._chunks
        for entry in entries:
            ledger_id, entry_id = entry.position
            if ledger_id != run_ledger_id:
                break  # its run is the next one
            sent += 1
            count = entry.message_count
            if count < 1:
                count = entry.messages()
                if not count:
                    self._skip_withheld(entry)
                    continue
                seen.look(entry)
            if seen.any and is_chunk(entry):
                chunks += 1
            data = entry.data if as_stored else strip_broker_entry_metadata(entry.data)
            entry_ids.append(entry_id)
            payloads.append(data)
            size_bytes += len(data)
            messages += count
            if messages >= permits_left:
                break
        if sent < len(entries):
            self._source.give_back(entries[sent:])
        if payloads:
            consumer.permits.spend(messages)
            counters = consumer.counters
            counters.messages_out += messages
            counters.bytes_out += size_bytes
            counters.entries_out += len(payloads)
            counters.chunks_out += chunks
            counters.consumed_last_ms = self._clock.wall_ms()
            self._count(len(payloads), messages, size_bytes)
            delivery.size_bytes = size_bytes
            consumer.session.deliver(consumer, delivery)
        return size_bytes

    def _count(self, entries: int, messages: int, size_bytes: int) -> None:
        self.entries_out += entries
        self.messages_out += messages
        self.bytes_out += size_bytes

    def _send_checked(self, consumer: Consumer, entries: list[Entry], permits_left: int) -> int:
        """As `_send`, but checks every entry: is it acked, in part, or not for this consumer?"""
        cursor, outgoing = self._cursor, self._outgoing
        batch_index = self._config.acknowledgment_at_batch_index_level_enabled
        messages = size_bytes = 0
        for index, entry in enumerate(entries):
            position = entry.position
            if cursor.is_acked(position):
                continue
            if entry.is_withheld:
                self._skip_withheld(entry)
                continue
            key_filter = self._filter
            if key_filter is not None and (
                key_filter.owner(key_filter.slot(sticky_key(entry.metadata))) is None
            ):
                cursor.ack_individual(position)
                continue
            remaining = left_of(cursor, entry) if batch_index else None
            if remaining == 0:
                continue
            held = entry.messages() if remaining is None else remaining.bit_count()
            ack_set = () if remaining is None else to_words(remaining)
            size_bytes += outgoing.add(consumer, entry, held, 0, ack_set)
            messages += held
            if messages >= permits_left:
                self._source.give_back(entries[index + 1 :])
                break
        self._count(*outgoing.flush(self._clock.wall_ms()))
        return size_bytes

    def _skip_withheld(self, entry: Entry) -> None:
        self._cursor.ack_individual(entry.position)
        self._withheld.skipped(entry)

    async def fill(self) -> None:
        """Read on."""
        await self._source.fill()

    def why(self) -> str:
        """Derived from the active consumer."""
        consumer = self._active
        if consumer is None:
            return "no consumer"
        if self._resume_at and self._clock.now() < self._resume_at:
            return "waiting for acks of the consumer that was active before"
        if consumer.permits.available <= 0:
            return f"no permits from the active consumer {consumer.name}"
        if not consumer.session.writable:
            return f"the connection of the active consumer {consumer.name} is full"
        return ""

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...] | None:
        """There are no key ranges."""
        return None

    def key_ranges(self) -> Iterator[tuple[int, int, Consumer]] | None:
        """There are none."""
        return None

    def draining_of(self, consumer: Consumer) -> tuple[DrainingHash, ...]:
        """No slots drain."""
        return ()
