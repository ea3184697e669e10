"""Builds MESSAGE frames: a small head per consumer and the unchanged stored bytes.

Entries are collected per consumer during a dispatch step, in columns, so that the frames of many
are made by one call. The frames for all consumers of a session are handed to it in one call, so
that what is decided together is written together (a redelivery batch goes out in one write).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.ack_set import from_words
from protocol.metadata import strip_broker_entry_metadata
from protocol.templates import message_head, message_run_frames

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer, ConsumerSession

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

    __slots__ = (
        "buffers",
        "entries",
        "entry_ids",
        "ledger_id",
        "messages",
        "payloads",
        "payloads_bytes",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.entries = 0
        self.messages = 0
        self.size_bytes = 0
        self.ledger_id = -1
        self.entry_ids: list[int] = []
        self.payloads: list[bytes] = []
        self.payloads_bytes = 0
        """Columns of entries of one ledger, whose frames come after `buffers`."""


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
        if redelivery_count or ack_set:
            self._end_run(consumer, batch)
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
        else:
            if ledger_id != batch.ledger_id:
                self._end_run(consumer, batch)
                batch.ledger_id = ledger_id
            batch.entry_ids.append(entry_id)
            batch.payloads.append(data)
            batch.payloads_bytes += size
        batch.entries += 1
        batch.messages += messages
        batch.size_bytes += size
        consumer.permits.spend(messages)

    def add_entries(self, consumer: Consumer, entries: list[Entry], messages: int) -> int:
        """`add` of entries that were not delivered before, none of which is partly acked. They hold
        `messages` messages. Returns their bytes."""
        batch = self._batches.get(consumer)
        if batch is None:
            batch = self._batches[consumer] = Batch()
        as_stored = self._expose and consumer.session.supports_broker_entry_metadata
        total = 0
        for entry in entries:
            ledger_id, entry_id = entry.position
            if ledger_id != batch.ledger_id:
                self._end_run(consumer, batch)
                batch.ledger_id = ledger_id
            data = entry.data if as_stored else strip_broker_entry_metadata(entry.data)
            size = len(data)
            batch.entry_ids.append(entry_id)
            batch.payloads.append(data)
            batch.payloads_bytes += size
            total += size
        batch.entries += len(entries)
        batch.messages += messages
        batch.size_bytes += total
        consumer.permits.spend(messages)
        return total

    def _end_run(self, consumer: Consumer, batch: Batch) -> None:
        """Make the frames of the entries that are columns yet."""
        if batch.payloads:
            epoch = consumer.epoch
            batch.buffers += message_run_frames(
                consumer.consumer_id,
                batch.ledger_id,
                batch.entry_ids,
                self._partition,
                batch.payloads,
                batch.payloads_bytes,
                epoch if epoch >= 0 else None,
            )
            batch.entry_ids, batch.payloads, batch.payloads_bytes = [], [], 0

    def flush(self, now_ms: int) -> tuple[int, int, int]:
        """Hand everything to the sessions: (entries, messages, bytes) sent."""
        entries = messages = size_bytes = 0
        batches, self._batches = self._batches, {}
        buffers_by_session: dict[ConsumerSession, list[bytes]] = {}
        for consumer, batch in batches.items():
            self._end_run(consumer, batch)
            counters = consumer.counters
            counters.messages_out += batch.messages
            counters.bytes_out += batch.size_bytes
            counters.entries_out += batch.entries
            counters.consumed_last_ms = now_ms
            entries += batch.entries
            messages += batch.messages
            size_bytes += batch.size_bytes
            session = consumer.session
            buffers = buffers_by_session.get(session)
            if buffers is None:
                buffers_by_session[session] = batch.buffers
            else:
                buffers += batch.buffers
        for session, buffers in buffers_by_session.items():
            session.send_many(buffers)
        return entries, messages, size_bytes
