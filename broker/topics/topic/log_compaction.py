"""The compaction of a log of policies, in Pulsar's form.

What stays of the entries up to a position is written to a ledger of its own, which the position of
the cursor `__compaction` names. Entries up to there are then trimmed as those that a subscription
has acknowledged. A reader with `readCompacted` gets the compacted entries in their place, with the
message ids that they have always had (`CompactedLog`). So brokers of either make read what one of
the other make has compacted.

A crash loses nothing. The ledger is complete before the record of the cursor names it, by one write
with the new position. Entries are trimmed when that is stored, and the former ledger is deleted
last. A crash in between leaves a ledger too many, as with Pulsar.

A log is compacted when the entries since the last time are ENTRIES_MIN, and GROWTH times those that
stayed. So what has to be read, and what is stored, is bounded by what is in force, and by the
changes of one interval between two looks (brokerServiceCompactionMonitorIntervalInSeconds).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.managed_ledger.owner_of_ledger import compacted_custom_metadata, may_be_compacted
from broker.topics.topic.compacted_log import (
    DamagedCompaction,
    Survivors,
    decode_kept,
    encode_kept,
)
from broker.topics.topic.compacted_view import CompactedLog
from broker.topics.topic.errors import told
from broker.topics.topic.parts import PartKind, TopicPart
from ledgers.awaited_ledger import AwaitedLedger
from ledgers.errors import LedgerError, LedgerUnavailable
from protocol.errors import BrokerError, ServerError, ServiceNotReady
from protocol.message_id import MessageId, to_bytes
from protocol.position import EARLIEST

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.ground.entry import Entry
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.parts import PartOwner
    from broker.topics.topic.topic_ledger import PartCursor, TopicLedger
    from protocol.position import Position
    from protocol.topic_name import TopicName

log = structlog.get_logger()

LOG_COMPACTION: Final = "log compaction"
COMPACTION_CURSOR: Final = "__compaction"
"""The cursor from which Pulsar compacts. It keeps the policies of topics, which no client
consumes."""
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
"""Property of its position: the ledger with the entries that compaction has kept."""
ENTRIES_MIN: Final = 1_000
GROWTH: Final = 2
READ_BYTES_MAX: Final = 1024 * 1024
WRITTEN_AT_ONCE: Final = 64
"""Entries of the compacted ledger on their way to storage."""


@final
class LogCompaction(TopicPart):
    """The compaction of one topic. `load` it before anything else."""

    name = LOG_COMPACTION

    def __init__(self, topic_name: TopicName, ledger: TopicLedger) -> None:
        super().__init__()
        self._topic_name = topic_name
        self._ledger = ledger
        self._turn = trio.Lock()
        self._cursor: PartCursor | None = None
        self.log = CompactedLog(ledger)
        """The log for readers with `readCompacted`."""

    async def load(self) -> None:
        """See TopicPart: read what the last compaction kept.

        Raises: BrokerError MetadataError or PersistenceError: that is damaged or lost.
            ServiceNotReady: it cannot be read now.
        """
        cursor = self._cursor = await self._ledger.open_part_cursor(COMPACTION_CURSOR, EARLIEST)
        ledger_id = cursor.position_properties.get(COMPACTED_LEDGER)
        if ledger_id is None:
            return
        what = f"The compacted ledger {ledger_id} of {self._topic_name.full}"
        try:
            entries = await self._read(ledger_id, cursor.mark_delete)
        except LedgerUnavailable as error:
            raise ServiceNotReady(f"{what} cannot be read now, try again: {error}") from error
        except (LedgerError, DamagedCompaction) as error:
            text = f"{what} cannot be read, and with it policies of topics: {error}"
            raise BrokerError(ServerError.PersistenceError, text) from error
        self.log.use(entries, cursor.mark_delete)

    async def _read(self, ledger_id: int, horizon: Position) -> list[Entry]:
        client = self._ledger.client
        metadata = await client.metadata_of(ledger_id)
        if not may_be_compacted(
            metadata.custom_metadata, self._topic_name.full
        ):  # nor is it fenced
            raise DamagedCompaction(f"ledger {ledger_id} is not one of this topic")
        metadata = await client.recover(ledger_id)
        reader = client.reader_of(ledger_id, metadata)
        entries: list[Entry] = []
        entry_id = 0
        while entry_id <= metadata.last_entry_id:
            for data in await reader.read(entry_id, metadata.last_entry_id, READ_BYTES_MAX):
                entry = decode_kept(data)
                if entry.position <= horizon:
                    entries.append(entry)
                entry_id += 1
                if entry_id % STEPS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
        return entries

    def view(self, log: LedgerPort, *, compacted: bool) -> LedgerPort:
        """See TopicPart."""
        return self.log if compacted else log

    @property
    def is_due(self) -> bool:
        """Whether so much has been written that the log should be compacted."""
        log, ledger = self.log, self._ledger
        written = ledger.entries_between(log.horizon, ledger.last_confirmed)
        return written >= max(ENTRIES_MIN, GROWTH * log.kept_count)

    async def compact(self) -> None:
        """Keep of everything that is written now what stays.

        Raises: BrokerError, LedgerError, MetadataUnavailable: the log is as it was before.
        """
        async with self._turn:
            horizon = self._ledger.last_confirmed
            entries = await self._surviving(horizon)
            cursor = self._cursor
            assert cursor is not None, "it was loaded"
            former = cursor.position_properties.get(COMPACTED_LEDGER)
            ledger_id = await self._write(entries, horizon)
            try:
                await self._refer(cursor, ledger_id, horizon)
            finally:
                if cursor.mark_delete == horizon:
                    self.log.use(entries, horizon)
            if former is not None:
                await self._ledger.client.delete(former)
            self._ledger.roll()  # what has passed can be trimmed then

    async def _surviving(self, horizon: Position) -> list[Entry]:
        survivors = Survivors()
        log, ledger = self.log, self._ledger
        for number, entry in enumerate(log.kept, 1):
            survivors.add(entry, was_kept=True)
            if number % STEPS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
        position = ledger.next_position(log.horizon)
        while position <= horizon:
            for entry in await ledger.read(position, STEPS_PER_SLICE, READ_BYTES_MAX):
                if entry.position <= horizon:
                    survivors.add(entry, was_kept=False)
                position = ledger.next_position(entry.position)
            await trio.lowlevel.checkpoint()
        return survivors.kept()

    async def _write(self, entries: list[Entry], horizon: Position) -> int:
        custom = compacted_custom_metadata(self._topic_name.full, to_bytes(MessageId(*horizon)))
        written = await AwaitedLedger.create(self._ledger.client, custom, "compacted ledger")
        try:
            for start in range(0, len(entries), WRITTEN_AT_ONCE):
                part = entries[start : start + WRITTEN_AT_ONCE]
                await written.append([encode_kept(each) for each in part])
            await written.writer.close()
        except BaseException:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await self._ledger.client.delete(written.ledger_id)
            raise
        return written.ledger_id

    async def _refer(self, cursor: PartCursor, ledger_id: int, horizon: Position) -> None:
        """The one write by which the compaction counts."""
        before = cursor.position_properties
        cursor.position_properties = {**before, COMPACTED_LEDGER: ledger_id}
        try:
            await cursor.reset(horizon)
        except BaseException:
            if cursor.mark_delete != horizon:
                cursor.position_properties = before
            raise

    async def delete(self) -> None:
        """See TopicPart: its compacted ledger is not needed any more."""
        cursor = self._cursor
        ledger_id = None if cursor is None else cursor.position_properties.get(COMPACTED_LEDGER)
        if ledger_id is not None:
            await self._ledger.client.delete(ledger_id)


@final
class LogCompactionKind(PartKind[LogCompaction]):
    """The logs of a broker, each looked at from time to time."""

    name = LOG_COMPACTION
    cursors = frozenset({COMPACTION_CURSOR})

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__()
        self._config = config

    def wants(self, topic: PartOwner) -> bool:
        """See PartKind: other topics are not compacted."""
        return topic.name.is_policy_log

    def make(self, topic: PartOwner) -> LogCompaction:
        """See PartKind."""
        return LogCompaction(topic.name, topic.ledger)

    async def run(self) -> None:
        """See PartKind."""
        while True:
            await trio.sleep(self._config.brokerServiceCompactionMonitorIntervalInSeconds)
            await self.check()

    async def check(self) -> None:
        """Compact those that are due, one after the other."""
        for compaction, topic in list(self.loaded.items()):
            if compaction not in self.loaded or not compaction.is_due:
                continue
            try:
                await compaction.compact()
            except Exception as error:
                if compaction in self.loaded:
                    log.warning(
                        "cannot compact the policies of topics",
                        topic=topic.name.full,
                        **told(error),
                    )
