"""Builds MESSAGE frames: a small head per consumer and the unchanged stored bytes.

Frames are collected per consumer during a dispatch step and handed to its session in one call, so
that frames decided together are written together (a redelivery batch goes out in one write).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.ack_set import from_words
from protocol.commands import message_head
from protocol.metadata import strip_broker_entry_metadata

if TYPE_CHECKING:
    from broker.entry import Entry
    from broker.subscription.consumer import Consumer

ACK_WORDS_MAX: Final = 16_384
"""Words of an ack set that count: a million messages, more than the largest entry can hold."""


def stored_bytes(entry: Entry, consumer: Consumer, *, expose: bool) -> bytes:
    """The entry as this consumer may see it: without the 0x0e02 header unless the client asked for
    it and the broker is configured to send it."""
    if expose and consumer.session.supports_broker_entry_metadata:
        return entry.data
    return strip_broker_entry_metadata(entry.data)


def ack_bits(words: tuple[int, ...]) -> int:
    """The wire's words as a bit set, without words that no batch is large enough for."""
    return from_words(words[:ACK_WORDS_MAX])


@final
class Batch:
    """The frames for one consumer in this step."""

    __slots__ = ("buffers", "entries", "messages", "size_bytes")

    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.entries = 0
        self.messages = 0
        self.size_bytes = 0


@final
class Outgoing:
    """Frames of one dispatch step, by consumer."""

    __slots__ = ("_batches", "_expose", "_partition")

    def __init__(self, partition: int, *, expose: bool) -> None:
        self._partition = partition
        self._expose = expose
        self._batches: dict[Consumer, Batch] = {}

    def add(
        self,
        consumer: Consumer,
        entry: Entry,
        messages: int,
        redelivery_count: int = 0,
        ack_set: tuple[int, ...] = (),
    ) -> None:
        """Send the entry, holding `messages` messages not acked yet, and spend the permits."""
        batch = self._batches.get(consumer)
        if batch is None:
            batch = self._batches[consumer] = Batch()
        data = stored_bytes(entry, consumer, expose=self._expose)
        ledger_id, entry_id = entry.position
        size = len(data)
        epoch = consumer.epoch
        batch.buffers.append(
            message_head(
                consumer.consumer_id,
                ledger_id,
                entry_id,
                self._partition,
                redelivery_count,
                size,
                ack_set,
                epoch if epoch >= 0 else None,
            )
        )
        batch.buffers.append(data)
        batch.entries += 1
        batch.messages += messages
        batch.size_bytes += size
        consumer.permits.spend(messages)

    def flush(self, now_ms: int) -> tuple[int, int, int]:
        """Hand everything to the sessions: (entries, messages, bytes) sent."""
        entries = messages = size_bytes = 0
        batches, self._batches = self._batches, {}
        for consumer, batch in batches.items():
            counters = consumer.counters
            counters.messages_out += batch.messages
            counters.bytes_out += batch.size_bytes
            counters.entries_out += batch.entries
            counters.consumed_last_ms = now_ms
            entries += batch.entries
            messages += batch.messages
            size_bytes += batch.size_bytes
            consumer.session.send_many(batch.buffers)
        return entries, messages, size_bytes
