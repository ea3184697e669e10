"""Deduplication of a persistent topic: connects the pure rules to the ledger.

The state is kept in the record of the cursor `pulsar.dedup`: its mark-delete position and, in the
same write, the highest persisted sequence id of each producer name up to that position. Entries
after it are replayed when the topic is loaded. They are known by the producer name in their
metadata, so a message whose metadata name another producer than the one that sends it is refused:
any client could have the messages of others dropped. A snapshot is written every
`brokerDeduplicationEntriesInterval` entries, after the seconds that the policies of the topic say,
and when the topic is closed. Real Pulsar keeps the state in the same place.

A topic without deduplication has no such cursor: it would hold storage for ever, and bring back
stale state. The topic deletes one that it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from broker.topics.topic.dedup import Deduplication, Verdict
from broker.topics.topic.parts import replay
from protocol.dedup_ids import FOREIGN, last_sequence_id_in
from protocol.metadata import peek
from protocol.position import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Container

    from broker.ground.config import BrokerConfig
    from broker.ground.entry import Entry
    from broker.topics.topic.topic_ledger import PartCursor, TopicLedger
    from protocol.new_messages import NewMessage
    from protocol.position import Position
    from protocol.pulsar_api_pb2 import MessageMetadata
    from runtime.clock import Clock

DEDUP_CURSOR: Final = "pulsar.dedup"


class NamedProducer(Protocol):
    """A producer whose messages are looked up by its name."""

    @property
    def name(self) -> str:
        """Its name, which it may have again after a reconnect."""


class PublishContext(Protocol):
    """The state of a message until it is answered (`Publish`)."""

    @property
    def producer(self) -> NamedProducer:
        """The producer that sent it."""

    @property
    def send(self) -> NewMessage:
        """The message."""


PublishT = TypeVar("PublishT", bound=PublishContext)


@final
class DedupStore(Generic[PublishT]):
    """The deduplication state of one topic and its storage."""

    __slots__ = (
        "_clock",
        "_config",
        "_cursor",
        "_ledger",
        "_rules",
        "_since_snapshot",
        "_snapshot_at",
        "_snapshot_position",
    )

    def __init__(
        self,
        ledger: TopicLedger,
        cursor: PartCursor,
        config: BrokerConfig,
        clock: Clock,
        live: Container[str],
    ) -> None:
        self._ledger = ledger
        self._cursor = cursor
        self._config = config
        self._clock = clock
        self._rules: Deduplication[PublishT] = Deduplication(
            cursor.position_properties,
            clock.now(),
            config.brokerDeduplicationMaxNumberOfProducers,
            live,
        )
        self._since_snapshot = 0
        self._snapshot_at = clock.now()
        self._snapshot_position = cursor.mark_delete

    @classmethod
    async def open(
        cls, ledger: TopicLedger, config: BrokerConfig, clock: Clock, live: Container[str]
    ) -> DedupStore[PublishT]:
        """Restore the state: the snapshot, then the entries after it. `live`: the names of the
        producers of the topic, at any time."""
        known = DEDUP_CURSOR in ledger.cursors
        start = EARLIEST if known else ledger.last_confirmed
        cursor = await ledger.open_part_cursor(DEDUP_CURSOR, start)
        store = cls(ledger, cursor, config, clock, live)
        await replay(ledger, cursor.mark_delete, store._replay)
        return store

    def _replay(self, entries: list[Entry]) -> None:
        now = self._clock.now()
        for entry in entries:
            metadata = entry.metadata
            name = metadata.producer_name
            if not isinstance(name, str) or not name:
                continue  # not UTF-8, or unreadable, so not the name of any producer
            if not _ends_message(metadata):
                continue  # the last chunk may be missing
            last = max(metadata.sequence_id, metadata.highest_sequence_id)
            self._rules.replay(name, last, now)

    def admit(self, context: PublishT, payload: bytes) -> Verdict:
        """Whether to store the message. The caller answers a duplicate of a stored message, and
        refuses a foreign one. A duplicate of a message in flight is kept; `persisted` or `failed`
        of that message returns it."""
        producer, send = context.producer, context.send
        last = _last_sequence_id(producer.name, send, payload)
        if last == FOREIGN:
            return Verdict.FOREIGN
        if send.is_chunk and not _ends_message(peek(payload)):
            verdict = self._rules.judge_part(producer.name, last)
        else:
            verdict = self._rules.judge(producer.name, last, self._clock.now())
        if verdict is Verdict.IN_FLIGHT:
            self._rules.park(producer.name, last, context)
        return verdict

    def persisted(self, context: PublishT, entry: Entry) -> list[PublishT]:
        """A message or chunk is durable. Returns the duplicates that wait for an answer."""
        send = context.send
        self._since_snapshot += 1
        self._snapshot_position = entry.position
        if send.is_chunk and not _ends_message(entry.metadata):
            return []  # the last chunk may be in flight already, and may still fail
        name = context.producer.name
        return self._rules.persisted(name, _last_sequence_id(name, send, entry.data))

    def failed(self, context: PublishT) -> list[PublishT]:
        """A message was not stored. Returns its duplicates, to be refused."""
        return self._rules.failed(context.producer.name)

    def drop_parked(self) -> list[PublishT]:
        """Deduplication ends. Returns the duplicates that will get no other answer."""
        return self._rules.drop_parked()

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id; -1 for a new name."""
        return self._rules.last_sequence_id(producer_name)

    @property
    def wants_snapshot(self) -> bool:
        """Whether enough messages have been published since the last snapshot."""
        return self._since_snapshot >= max(1, self._config.brokerDeduplicationEntriesInterval)

    def is_snapshot_due(self, interval_seconds: int) -> bool:
        """Whether the last snapshot is that old, and something was published since; 0: no age is
        too old."""
        age = self._clock.now() - self._snapshot_at
        return bool(self._since_snapshot) and 0 < interval_seconds <= age

    async def snapshot(self) -> None:
        """Make the current state durable."""
        self._snapshot_at = self._clock.now()
        if not self._since_snapshot:
            return
        position: Position = self._snapshot_position
        self._since_snapshot = 0
        numbers = self._rules.snapshot()
        self._cursor.position_properties = numbers
        self._cursor.ack_cumulative(position)
        self._cursor.touch()
        await self._cursor.flush()

    def forget_inactive(self) -> int:
        """Drop producer names not seen for brokerDeduplicationProducerInactivityTimeoutMinutes."""
        minutes = self._config.brokerDeduplicationProducerInactivityTimeoutMinutes
        return self._rules.forget_inactive(self._clock.now() - minutes * 60)


def _last_sequence_id(producer_name: str, send: NewMessage, payload: bytes) -> int:
    """The number in the metadata, which is all that a restart has. FOREIGN: the message is not this
    producer's, or its command has a higher number, which no restart would know."""
    stored = last_sequence_id_in(payload, producer_name.encode())
    return stored if max(send.sequence_id, send.highest_sequence_id) <= stored else FOREIGN


def _ends_message(metadata: MessageMetadata) -> bool:
    """Whether this is a whole message or batch, or the last chunk of a message."""
    return metadata.chunk_id >= metadata.num_chunks_from_msg - 1
