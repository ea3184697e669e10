"""Collects what a dispatch step sends, by consumer.

Entries are collected in columns (`Delivery`), so that a session makes the frames of many by one
call. All of a step is handed over at its end, so that what is decided together is written together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.chunks import is_chunk
from broker.topics.subscription.consumer import Delivery
from protocol.ack_set import from_words
from protocol.metadata import strip_broker_entry_metadata

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.chunks import ChunksSeen
    from broker.topics.subscription.consumer import Consumer

ACK_WORDS_MAX: Final = 16_384
"""Words of an ack set that count: a million messages, more than the largest entry can hold."""


def ack_bits(words: tuple[int, ...]) -> int:
    """The wire's words as a bit set, without words that no batch is large enough for."""
    return from_words(words[:ACK_WORDS_MAX])


@final
class Batch:
    """The entries that one consumer gets in this step."""

    __slots__ = ("chunks", "deliveries", "entries", "last", "messages", "size_bytes")

    def __init__(self, first: Delivery) -> None:
        self.deliveries = [first]
        self.last = first
        self.entries = 0
        self.messages = 0
        self.chunks = 0
        self.size_bytes = 0

    def begin(self, delivery: Delivery) -> Delivery:
        """Put the following entries into this batch."""
        self.deliveries.append(delivery)
        self.last = delivery
        return delivery


@final
class Outgoing:
    """The entries that one dispatch step sends, by consumer."""

    __slots__ = ("_batches", "_chunks", "_expose", "_partition")

    def __init__(self, partition: int, chunks: ChunksSeen, *, expose: bool) -> None:
        self._partition = partition
        self._chunks = chunks
        self._expose = expose
        """Whether clients that ask for the 0x0e02 header of an entry get it."""
        self._batches: dict[Consumer, Batch] = {}

    def add(
        self,
        consumer: Consumer,
        entry: Entry,
        messages: int,
        redelivery_count: int = 0,
        ack_set: tuple[int, ...] = (),
    ) -> int:
        """Send the entry, holding `messages` messages not acked yet, and spend the permits. Returns
        its bytes."""
        ledger_id, entry_id = entry.position
        is_plain = not redelivery_count and not ack_set
        batch = self._batches.get(consumer)
        if batch is None:
            delivery = Delivery(self._partition, ledger_id, is_plain=is_plain)
            batch = self._batches[consumer] = Batch(delivery)
        else:
            delivery = batch.last
            if ledger_id != delivery.ledger_id or is_plain != (delivery.ack_sets is None):
                delivery = batch.begin(Delivery(self._partition, ledger_id, is_plain=is_plain))
        data = entry.data
        if not self._expose or not consumer.session.supports_broker_entry_metadata:
            data = strip_broker_entry_metadata(data)
        size = len(data)
        delivery.add(entry_id, data, redelivery_count, ack_set)
        batch.entries += 1
        if self._chunks.any and is_chunk(entry):
            batch.chunks += 1
        batch.messages += messages
        batch.size_bytes += size
        consumer.permits.spend(messages)
        return size

    def add_entries(self, consumer: Consumer, entries: list[Entry], messages: int) -> int:
        """`add` of entries that were not delivered before, none of which is partly acked, or a
        chunk. They hold `messages` messages. Returns their bytes."""
        batch = self._batches.get(consumer)
        if batch is None:
            delivery = Delivery(self._partition, entries[0].position[0])
            batch = self._batches[consumer] = Batch(delivery)
        else:
            delivery = batch.last
            if delivery.ack_sets is not None:
                delivery = batch.begin(Delivery(self._partition, entries[0].position[0]))
        as_stored = self._expose and consumer.session.supports_broker_entry_metadata
        total = before = 0
        for entry in entries:
            ledger_id, entry_id = entry.position
            if ledger_id != delivery.ledger_id:
                delivery.size_bytes += total - before
                before = total
                delivery = batch.begin(Delivery(self._partition, ledger_id))
            data = entry.data if as_stored else strip_broker_entry_metadata(entry.data)
            delivery.entry_ids.append(entry_id)
            delivery.payloads.append(data)
            total += len(data)
        delivery.size_bytes += total - before
        batch.entries += len(entries)
        batch.messages += messages
        batch.size_bytes += total
        consumer.permits.spend(messages)
        return total

    def flush(self, now_ms: int) -> tuple[int, int, int]:
        """Hand everything to the sessions: (entries, messages, bytes) sent."""
        entries = messages = size_bytes = 0
        batches, self._batches = self._batches, {}
        for consumer, batch in batches.items():
            counters = consumer.counters
            counters.messages_out += batch.messages
            counters.bytes_out += batch.size_bytes
            counters.entries_out += batch.entries
            counters.chunks_out += batch.chunks
            counters.consumed_last_ms = now_ms
            entries += batch.entries
            messages += batch.messages
            size_bytes += batch.size_bytes
        for consumer, batch in batches.items():
            session = consumer.session
            for delivery in batch.deliveries:
                session.deliver(consumer, delivery)
        return entries, messages, size_bytes
