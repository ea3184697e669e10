"""The acknowledgement state of one subscription, kept in step with storage.

A cursor is synchronous for callers that acknowledge: an ack changes memory and marks the cursor
dirty. A background task of the factory stores dirty cursors at the flush interval. A crash
therefore loses at most the acks of one interval, and those messages are delivered again. `reset`,
`flush` and `set_properties` are durable when they return. A cursor with `durable=False` is the same
without storage.

Acks of positions at or below the mark-delete position, beyond the last confirmed entry, or of
entries that do not exist are no-ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from broker.managed_ledger.ack_state import AckState
from broker.managed_ledger.cursor_record import BATCH_WORDS_MAX_INLINE, attached_ledger
from broker.managed_ledger.cursor_store import StoreOwner
from broker.managed_ledger.ledger_list import NO_PROPERTIES, OwnershipLost
from ledgers.errors import LedgerError
from runtime.locks import RareLock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.ack_state import AckedRange
    from broker.managed_ledger.cursor_store import CursorStore
    from broker.managed_ledger.ledger_table import LedgerTable
    from protocol.position import Position

_log = structlog.get_logger()

REPLICATED: Final = "pulsar.replicated.subscription"
"""The property of the position by which Pulsar's brokers know it, too; 1."""


class CursorOwner(StoreOwner, Protocol):
    """The managed ledger. One reference to it is less memory than one to each of its methods."""

    def cursor_changed(self, cursor: Cursor) -> None:
        """It has something to store."""

    def ledger_passed(self) -> None:
        """A cursor has left a ledger, which may not be needed any more."""


@final
class Cursor:
    """See the module docstring. Made by `ManagedLedger.open_cursor`."""

    __slots__ = (
        "_is_dirty",
        "_is_ledger_failing",
        "_lock",
        "_mark_ledger_id",
        "_owner",
        "_properties",
        "_ranges_max_inline",
        "_state",
        "_store",
        "_table",
        "name",
        "position_properties",
    )

    def __init__(
        self,
        name: str,
        table: LedgerTable,
        mark_delete: Position,
        properties: Mapping[str, str],
        store: CursorStore | None,
        ranges_max_inline: int,
        owner: CursorOwner,
    ) -> None:
        self.name = name
        self.position_properties: dict[str, int] = {}
        self._table = table
        self._state = AckState(table, mark_delete)
        self._properties = dict(properties) if properties else NO_PROPERTIES
        self._store = store
        self._is_ledger_failing = False
        self._ranges_max_inline = ranges_max_inline
        self._owner = owner
        self._mark_ledger_id = mark_delete[0]
        self._is_dirty = False
        self._lock = RareLock()

    # --- questions ----------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether its state survives a restart of the broker."""
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        """Everything up to and including it is acknowledged."""
        return self._state.mark_delete

    @property
    def state(self) -> AckState:
        """The pure state. Callers only read it."""
        return self._state

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged, up to the tail."""
        return self._state.backlog_entries()

    @property
    def individually_acked_count(self) -> int:
        """Acknowledged entries after the mark-delete position."""
        return self._state.acked_count

    @property
    def acked_range_count(self) -> int:
        """How many ranges of acknowledged entries there are after the mark-delete position."""
        return self._state.range_count()

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties kept with the cursor (the subscription's properties)."""
        return self._properties

    @property
    def is_replicated(self) -> bool:
        """Whether other clusters are to know its position."""
        return self.position_properties.get(REPLICATED) == 1

    def set_replicated(self, is_wanted: bool) -> None:
        """Whether other clusters are to know its position, from the next flush on also after a
        restart."""
        if self.is_replicated is not is_wanted:
            others = {k: v for k, v in self.position_properties.items() if k != REPLICATED}
            self.position_properties = {**others, REPLICATED: 1} if is_wanted else others
            self.touch()

    @property
    def cursor_ledger(self) -> tuple[int, int]:
        """(ledger id, last entry id) of the stored position; -1 = inline."""
        store = self._store
        if store is None:
            return (-1, -1)
        return (store.cursor_ledger_id, store.cursor_ledger_last_entry_id)

    @property
    def is_dirty(self) -> bool:
        """Whether there are acks that are not stored yet."""
        return self._is_dirty

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return self._state.is_acked(position)

    def batch_remaining(self, position: Position) -> int | None:
        """Bits of the messages left of a partly acknowledged entry."""
        return self._state.batch_remaining(position)

    def acked_ranges(self, count_max: int | None = None) -> list[AckedRange]:
        """Individually acknowledged entries as (lower, upper] ranges."""
        return self._state.acked_ranges(count_max)

    # --- acknowledgements ---------------------------------------------------------------

    def ack_individual(self, position: Position) -> None:
        """Acknowledge one entry."""
        if self._state.ack_individual(position):
            self._changed()

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """Acknowledge entries of one ledger, in any order."""
        if self._state.ack_entries(ledger_id, entry_ids):
            self._changed()

    def ack_cumulative(self, position: Position) -> None:
        """Acknowledge everything up to and including the entry."""
        if self._state.ack_cumulative(position):
            self._changed()

    def ack_batch_index(self, position: Position, remaining: int) -> bool:
        """Acknowledge the messages of an entry that are not in `remaining`. Returns whether the
        whole entry is acknowledged now (also when it was before)."""
        if self._state.ack_batch(position, remaining):
            self._changed()
        return self._state.is_acked(position)

    def touch(self) -> None:
        """`position_properties` were changed: store them with the next flush."""
        self._changed()

    def _changed(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._owner.cursor_changed(self)
        self._note_progress()

    def _note_progress(self) -> None:
        mark = self._state.mark_delete
        if mark[0] != self._mark_ledger_id:
            self._mark_ledger_id = mark[0]
            self._owner.ledger_passed()
        elif mark[0] != self._table.tail.ledger_id and mark == self._table.last_confirmed:
            self._owner.ledger_passed()

    # --- durable changes ----------------------------------------------------------------

    async def reset(self, position: Position) -> None:
        """Make `position` the mark-delete position and drop all individual acks, durably.

        The state in memory changes only when that is stored, and not at all if storing fails. A
        record that was stored despite the error is then replaced by the unchanged state.

        Raises: OwnershipLost, MetadataUnavailable.
        """
        mark_delete = min(position, self._table.last_confirmed)
        async with self._lock:
            if self._store is not None:
                await self._store_state(self._store, AckState(self._table, mark_delete))
            self._state.reset(mark_delete)
            self._note_progress()

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties, durably. Raises: OwnershipLost."""
        async with self._lock:
            self._properties = dict(properties)
            store = self._store
            if store is None:
                return
            if store.cursor_ledger_id < 0:
                await self._write_inline(store, self._state)
            else:
                await store.write_properties(self._state, self._properties)

    async def flush(self) -> None:
        """Store changes. Raises: OwnershipLost."""
        async with self._lock:
            await self._flush()

    async def close(self) -> None:
        """Store the state in its resting place. Raises: OwnershipLost, LedgerError."""
        async with self._lock:
            store = self._store
            if store is None:
                return
            if self._is_inline_possible():
                if self._is_dirty or store.cursor_ledger_id >= 0:
                    await self._write_inline(store, self._state)
            else:
                await self._flush()
                await store.close_ledger()

    async def rest(self) -> None:
        """Give up its ledger, if its state fits into the metadata store: it was not used for a
        while. The next change makes another. Raises: OwnershipLost, MetadataUnavailable."""
        async with self._lock:
            store = self._store
            if store is not None and self.needs_rest:
                await self._write_inline(store, self._state)

    @property
    def needs_rest(self) -> bool:
        """Whether `rest` would give up something."""
        store = self._store
        return store is not None and store.has_open_ledger and self._is_inline_possible()

    async def restore(self) -> None:
        """Load the stored state. Called once, before the cursor is used."""
        store = self._store
        assert store is not None
        stored, properties = await store.load()
        self._properties = properties or NO_PROPERTIES
        first = self._table.first_position
        if stored is None:  # its ledger is lost: everything comes again
            self._state.reset((first[0], first[1] - 1))
            self._mark_ledger_id = self._state.mark_delete[0]
            return
        # Ledgers may be trimmed for acks that are not stored yet: missing entries count as acked.
        mark_delete = min(stored.mark_delete, self._table.last_confirmed)
        mark_delete = max(mark_delete, (first[0], first[1] - 1))
        self.position_properties = stored.properties
        self._state.reset(mark_delete)
        self._state.restore(stored.all_bitmaps(), stored.batches)
        self._mark_ledger_id = self._state.mark_delete[0]

    async def create(self) -> None:
        """Write the first record of a new cursor."""
        if self._store is not None:
            await self._write_inline(self._store, self._state)

    async def delete(self) -> None:
        """Delete its stored state."""
        async with self._lock:
            if self._store is not None:
                await self._store.delete(attached_ledger(self._properties))
                self._store = None

    def _is_inline_possible(self) -> bool:
        state = self._state
        has_few_ranges = not state.acked_count or state.range_count() <= self._ranges_max_inline
        return has_few_ranges and state.batch_words <= BATCH_WORDS_MAX_INLINE

    async def _flush(self) -> None:
        store = self._store
        if store is None:
            self._is_dirty = False
        if not self._is_dirty or store is None:
            return
        self._is_dirty = False
        await self._store_state(store, self._state)

    async def _store_state(self, store: CursorStore, state: AckState) -> None:
        try:
            await store.append(state, self.position_properties, self._properties)
            self._is_ledger_failing = False
        except LedgerError as error:
            if not self._is_ledger_failing:
                self._is_ledger_failing = True
                _log.warning("cursor_ledger_failed", cursor=self.name, error=str(error))
            await self._write_inline(store, state)
        except BaseException:
            self._is_dirty = True
            self._owner.cursor_changed(self)
            raise

    async def _write_inline(self, store: CursorStore, state: AckState) -> None:
        self._is_dirty = False
        try:
            await store.write_inline(state, self.position_properties, self._properties)
        except OwnershipLost:
            raise
        except BaseException:
            self._is_dirty = True
            self._owner.cursor_changed(self)
            raise
