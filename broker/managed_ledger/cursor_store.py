"""Storage of a cursor's state: a cursor ledger while it changes, the metadata store when it rests.

Each store appends the whole position to a ledger of the cursor, which is created at the first
change. The last entry counts. The ledger is replaced when it has many entries or is old: the
position goes to the new ledger first, then the record in the metadata store is changed to refer to
it (compare-and-set), then the old ledger is deleted. If the bookies refuse, the position is stored
inline in that record instead. A clean close also stores it inline, unless it has too many ranges.

Recovery takes the last whole position. The position in the metadata store is another one: older, or
after a reset perhaps later. So recovery uses it only if the cursor ledger is proved to have none:
it does not exist, or holds no whole position. While its bookies do not answer, or answer with
damaged entries, the topic is refused and clients try again. `force_recovery`
(managedLedgerForceRecovery) uses the position in the metadata store all the same.

Formats: `cursor_record`. A conflict on the record means that another broker owns the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
from google.protobuf.message import DecodeError

from broker.managed_ledger.attached_ledger import delete_attached
from broker.managed_ledger.cursor_record import (
    BATCH_WORDS_MAX,
    BATCH_WORDS_MAX_INLINE,
    INLINE,
    IS_PART,
    CursorPosition,
    decode_cursor_record,
    decode_position,
    encode_inline_record,
    encode_pointer_record,
    encode_positions,
)
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.ledger_record import damaged
from broker.managed_ledger.owner_of_ledger import is_ledger_of_cursor, ledger_custom_metadata
from broker.managed_ledger.paths import cursor_info_path
from ledgers.awaited_ledger import AwaitedLedger
from ledgers.errors import EntryAbsent, EntryUnknown, LedgerError, LedgerNotFound
from metadata.owned_record import OwnedRecord
from metadata.store import NodeNotFound, VersionConflict

if TYPE_CHECKING:
    from broker.managed_ledger.ack_state import AckState
    from broker.managed_ledger.context import LedgerContext

_log = structlog.get_logger()


class StoreOwner(Protocol):
    """The owner of the topic of a cursor."""

    async def check_owner(self) -> None:
        """Raises: OwnershipLost: another broker has taken the topic."""

    def ownership_lost(self, detail: str) -> None:
        """Another broker has taken the topic, or its cursor."""


_NONE_CAPPED: Final[frozenset[str]] = frozenset()


@final
class CursorStore:
    """Persistence of one durable cursor. Callers must serialise the calls."""

    __slots__ = (
        "_capped",
        "_context",
        "_cursor_name",
        "_ledger",
        "_ledger_opened_at",
        "_owner",
        "_path",
        "_record",
        "_topic_name",
        "cursor_ledger_id",
    )

    def __init__(
        self,
        context: LedgerContext,
        topic_name: str,
        cursor_name: str,
        owner: StoreOwner,
    ) -> None:
        self._context = context
        self._owner = owner
        self._topic_name = topic_name
        self._cursor_name = cursor_name
        self._path = cursor_info_path(topic_name, cursor_name)
        self._record = OwnedRecord(context.store, self._path)
        self._ledger: AwaitedLedger | None = None
        self._ledger_opened_at = 0.0
        self._capped = _NONE_CAPPED
        self.cursor_ledger_id = INLINE

    @property
    def has_open_ledger(self) -> bool:
        """Whether a ledger is being written for it."""
        return self._ledger is not None

    @property
    def cursor_ledger_last_entry_id(self) -> int:
        """Id of the ledger being written; -1 when there is none."""
        return -1 if self._ledger is None else self._ledger.confirmed

    async def load(self) -> tuple[CursorPosition | None, dict[str, str]]:
        """The stored position and the cursor's properties.

        Raises: OwnershipLost: the record is gone. LedgerUnavailable: the position cannot be read
            now, and may be in the cursor ledger.
        """
        stored = await self._record.get()
        if stored is None:
            raise OwnershipLost(self._topic_name)
        record = decode_cursor_record(stored, self._path)
        self.cursor_ledger_id = record.cursor_ledger_id
        if record.cursor_ledger_id == INLINE:
            return record.position, record.properties
        try:
            position = await self._load_from_ledger(record.cursor_ledger_id)
        except LedgerError as error:
            is_proved = isinstance(error, LedgerNotFound | EntryAbsent)
            if not is_proved and not self._context.config.force_recovery:
                raise
            self._warn_of_lost_ledger(record.cursor_ledger_id, str(error))
            return record.position, record.properties
        if position is None:
            self._warn_of_lost_ledger(record.cursor_ledger_id, "it holds no position")
        return position or record.position, record.properties

    def _warn_of_lost_ledger(self, ledger_id: int, reason: str) -> None:
        _log.warning(
            "cursor_ledger_lost",
            topic=self._topic_name,
            cursor=self._cursor_name,
            ledger_id=ledger_id,
            error=reason,
            consequence="messages acknowledged since the record was written come again",
        )

    async def _load_from_ledger(self, ledger_id: int) -> CursorPosition | None:
        client = self._context.client
        metadata = await client.recover(ledger_id)
        if not is_ledger_of_cursor(metadata.custom_metadata, self._topic_name, self._cursor_name):
            raise damaged(self._path, f"ledger {ledger_id} is not one of this cursor")
        reader = client.reader_of(ledger_id, metadata)
        entry_id = metadata.last_entry_id
        while entry_id >= 0:
            data = (await reader.read(entry_id, entry_id))[0]
            position, parts = self._decoded(ledger_id, entry_id, data)
            if parts != IS_PART:
                for part_id in range(entry_id - parts, entry_id):
                    part = (await reader.read(part_id, part_id))[0]
                    position.bitmaps += self._decoded(ledger_id, part_id, part)[0].bitmaps
                return position
            entry_id -= 1
        return None

    def _decoded(self, ledger_id: int, entry_id: int, data: bytes) -> tuple[CursorPosition, int]:
        """Raises: EntryUnknown: the entry is no position."""
        try:
            return decode_position(data)
        except (DecodeError, ValueError, OverflowError) as error:
            raise EntryUnknown(
                f"entry {entry_id} of ledger {ledger_id}, in which the cursor at {self._path} is "
                f"stored, is damaged: {error}"
            ) from None

    async def append(
        self, state: AckState, properties: dict[str, int], cursor_properties: dict[str, str]
    ) -> None:
        """Make the current state durable. Raises: OwnershipLost, LedgerError."""
        config = self._context.config
        ledger = self._ledger
        data = encode_positions(
            state,
            properties,
            config.max_ranges_as_ranges,
            config.max_batch_indexes_to_persist,
            config.max_cursor_entry_size_bytes,
        )
        self._warn_of_cap("batch indexes", state.batch_count, config.max_batch_indexes_to_persist)
        self._warn_of_cap("words of batch indexes", state.batch_words, BATCH_WORDS_MAX)
        is_new = (
            ledger is None
            or ledger.confirmed + 1 >= config.cursor_max_entries_per_ledger
            or self._context.clock.now() - self._ledger_opened_at >= config.cursor_rollover_time_s
        )
        if ledger is not None and not is_new:
            try:
                await ledger.append(data)
            except LedgerError:
                self._ledger = None
                raise
            return
        mark_delete = state.mark_delete
        opened_at = self._context.clock.now()
        new = await AwaitedLedger.create(
            self._context.client,
            ledger_custom_metadata(self._topic_name, self._cursor_name),
            "cursor ledger",
        )
        await new.append(data)
        await self._put(encode_pointer_record(new.ledger_id, mark_delete, cursor_properties))
        await self._leave_ledger(new.ledger_id)
        self._ledger, self._ledger_opened_at = new, opened_at

    async def write_inline(
        self, state: AckState, properties: dict[str, int], cursor_properties: dict[str, str]
    ) -> None:
        """Store the state in the metadata store and delete the cursor ledger.

        Raises: OwnershipLost.
        """
        config = self._context.config
        ranges_max = config.max_ranges_to_persist
        batches_max = config.max_batch_indexes_to_persist
        self._warn_of_cap("ranges", state.range_count(), ranges_max)
        self._warn_of_cap("batch indexes", state.batch_count, batches_max)
        self._warn_of_cap("words of batch indexes", state.batch_words, BATCH_WORDS_MAX_INLINE)
        await self._put(
            encode_inline_record(state, properties, cursor_properties, ranges_max, batches_max)
        )
        await self._leave_ledger(INLINE)

    async def write_properties(self, state: AckState, cursor_properties: dict[str, str]) -> None:
        """Store the cursor's properties while the position stays in the cursor ledger."""
        await self._put(
            encode_pointer_record(self.cursor_ledger_id, state.mark_delete, cursor_properties)
        )

    async def close_ledger(self) -> None:
        """End the cursor ledger, which still holds the position."""
        if self._ledger is not None:
            ledger, self._ledger = self._ledger, None
            await ledger.writer.close()

    async def delete(self, attached_ledger_id: int | None) -> None:
        """Delete the record, then the ledger, and the ledger that is attached to the cursor.

        Raises: MetadataUnavailable: the record still exists. Without the record the cursor is gone,
        and a ledger that the client of the ledgers cannot delete is an orphan.
        """
        try:
            await self._context.store.delete(self._path)
        except NodeNotFound:
            pass
        try:
            await self._leave_ledger(INLINE)
            client = self._context.client
            await delete_attached(client, attached_ledger_id, self._topic_name, self._cursor_name)
        except Exception as error:
            _log.warning(
                "ledger of a deleted cursor not deleted",
                topic=self._topic_name,
                cursor=self._cursor_name,
                error=str(error),
            )

    def _warn_of_cap(self, what: str, count: int, count_max: int) -> None:
        if count <= count_max:
            self._capped = self._capped - {what} or _NONE_CAPPED
        elif what not in self._capped:
            self._capped |= {what}
            _log.warning(
                "cursor_state_capped",
                topic=self._topic_name,
                cursor=self._cursor_name,
                what=what,
                count=count,
                stored=count_max,
                consequence="after a restart the messages beyond it come again",
            )

    async def _leave_ledger(self, new_ledger_id: int) -> None:
        old_ledger_id, self.cursor_ledger_id = self.cursor_ledger_id, new_ledger_id
        self._ledger = None
        if old_ledger_id != INLINE:
            await self._context.client.delete(old_ledger_id)

    async def _put(self, data: bytes) -> None:
        # A new owner writes the list before it reads the cursors. If this broker wrote into their
        # records after that, the new owner would only doubt its ownership.
        try:
            await self._owner.check_owner()
            try:
                await self._record.write(data)
            except VersionConflict:
                raise OwnershipLost(self._topic_name) from None
        except OwnershipLost as error:
            self._owner.ownership_lost(str(error))
            raise
        except BaseException:
            self._ledger = None  # the record may refer to another ledger now: read it again
            raise
