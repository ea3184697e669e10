"""The readable part of a managed ledger: its entries, their positions, its cursors, statistics.

A topic of this broker (`ledger`) and one that it follows (`broker/topics/follow`) are read in the
same way. They differ in which broker appends, and in what makes their cursors.

Invariant: nothing here changes what is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.managed_ledger.backlog_reader import BacklogReader
from broker.managed_ledger.entry_cache import TopicCache
from broker.managed_ledger.kept_readers import KeptReaders
from broker.managed_ledger.publish_time_search import newest_before, seek_position
from broker.managed_ledger.statistics import CursorStatistics, ManagedLedgerStatistics
from protocol.position import position_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.ground.entry import Entry
    from broker.managed_ledger.context import LedgerContext
    from broker.managed_ledger.cursor import Cursor
    from broker.managed_ledger.ledger_list import LedgerList
    from broker.managed_ledger.ledger_table import LedgerRow
    from broker.managed_ledger.open_appends import AppendState
    from ledgers.client import LedgerClient
    from protocol.position import Position

_STATISTICS_RANGES_MAX: Final = 100


class ReadableLedger:
    """See the module docstring."""

    __slots__ = (
        "_cache",
        "_context",
        "_list",
        "_made_reader",
        "_made_readers",
        "_spawn_reading",
        "_table",
        "cursors",
        "name",
    )

    def __init__(
        self,
        context: LedgerContext,
        ledger_list: LedgerList,
        spawn: Callable[..., None],
    ) -> None:
        """`spawn` starts a task that reads ahead."""
        self.name = ledger_list.name
        self.cursors: dict[str, Cursor] = {}
        self._context = context
        self._list = ledger_list
        self._table = ledger_list.table
        self._cache = TopicCache(context.cache)
        self._spawn_reading = spawn
        self._made_reader: BacklogReader | None = None
        self._made_readers: KeptReaders | None = None

    @property
    def _reader(self) -> BacklogReader:
        """Made with the first read: most topics are never read, or only from the tail."""
        if self._made_reader is None:
            context = self._context
            self._made_readers = KeptReaders(context.readers)
            self._made_reader = BacklogReader(
                self.name,
                self._table,
                self._cache,
                self._made_readers,
                self._spawn_reading,
                context.clock,
                context.config.read_ahead_size_bytes,
            )
        return self._made_reader

    def _forget_reader(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        if self._made_readers is not None:
            self._made_readers.forget(ledger_id)

    # --- positions and sizes ------------------------------------------------------------

    @property
    def client(self) -> LedgerClient:
        """For users that keep more data about the topic in ledgers of their own."""
        return self._context.client

    @property
    def last_confirmed(self) -> Position:
        """The newest entry that can be read; entry -1 when there never was one."""
        return self._table.last_confirmed

    @property
    def first_position(self) -> Position:
        """The oldest entry still held, or where the first one will be."""
        return self._table.first_position

    def next_position(self, position: Position) -> Position:
        """See `LedgerTable`, as for the following."""
        return self._table.next_position(position)

    def previous_position(self, position: Position) -> Position:
        """The last entry before the position."""
        return self._table.previous_position(position)

    def position_after_n(self, position: Position, n: int) -> Position:
        """The entry `n` entries after the position."""
        return self._table.position_after_n(position, n)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """How many entries there are in (after, up_to]."""
        return self._table.entries_between(after, up_to)

    def is_valid(self, position: Position) -> bool:
        """Whether there is an entry at the position."""
        return self._table.is_valid(position)

    def nth_position(self, number: int) -> Position:
        """The entry with this number, counted from 1, or the last entry if there are fewer."""
        return self._table.position_after_n(self.first_position, number - 1)

    def holds(self, position: Position) -> bool:
        """Whether there is an entry at the position."""
        return self._table.is_valid(position)

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of the topic."""
        return {row.ledger_id for row in self._table.rows}

    @property
    def entries(self) -> int:
        """How many entries are held."""
        return self._table.entries

    @property
    def size_bytes(self) -> int:
        """How many payload bytes are held."""
        return self._table.size_bytes

    def bytes_after(self, position: Position) -> int:
        """Durable bytes after a position. Within a ledger entries count with their mean size."""
        return self._table.bytes_after(position)

    def position_with_bytes_after(self, size_bytes: int) -> Position:
        """See `LedgerTable`."""
        return self._table.position_with_bytes_after(size_bytes)

    def closed_ledger_of(self, position: Position) -> LedgerRow | None:
        """The ledger of the first entry after a position, if it is closed; None: that entry is in
        the newest ledger, or there is none."""
        row = self._table.row_of(self._table.next_position(position)[0])
        return None if row is None or row is self._table.tail or not row.timestamp_ms else row

    def written_by_ms(self, position: Position, publish_time_ms: int) -> int:
        """The time (wall ms) of an entry that is held: its publish time, or the time at which its
        ledger was closed if that was earlier."""
        row = self._table.row_of(position[0])
        if row is None or row is self._table.tail or not row.timestamp_ms:
            return publish_time_ms
        return min(publish_time_ms, row.timestamp_ms)

    def last_closed_before(self, time_ms: int) -> Position | None:
        """The last entry of the ledgers that were closed before a time (wall ms); None: there are
        none."""
        last: Position | None = None
        for row in self._table.rows[:-1]:
            if not 0 < row.timestamp_ms < time_ms:
                break
            last = (row.ledger_id, row.entries - 1)
        return last

    @property
    def properties(self) -> Mapping[str, str]:
        """The topic's properties."""
        return self._list.properties

    # --- reading ------------------------------------------------------------------------

    def read_nowait(self, position: Position, count_max: int, bytes_max: int) -> list[Entry] | None:
        """As `read`, from memory; None: they have to be read from storage."""
        reader = self._made_reader or self._reader
        return reader.read_nowait(position, count_max, bytes_max)

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """Entries from the first one at or after the position, from storage if necessary. [] when
        there is none yet. Otherwise at least one, possibly fewer than requested.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return await self._reader.read(position, count_max, bytes_max)

    async def find_by_publish_time(self, publish_time_ms: int) -> Position:
        """The newest entry published before the time: mark-delete it to continue from there."""
        return await seek_position(self._table, self._reader.read, publish_time_ms)

    async def find_expired(self, before_ms: int) -> Position:
        """The newest entry that is older than the time: published before it, or in a ledger that
        was closed before it, whatever the clock of its producer showed."""
        closed = self.last_closed_before(before_ms)
        return await newest_before(self._table, self._reader.read, before_ms, closed)

    async def rest(self) -> None:
        """Give up what the next read makes again: it was not used for a while.

        Raises: OwnershipLost, MetadataUnavailable: a cursor could not be stored.
        """
        if self._made_reader is None or not self._made_reader.is_busy:
            self._made_reader = self._made_readers = None
            self._cache.clear()

    @property
    def needs_rest(self) -> bool:
        """Whether `rest` would give up something: it has been used since."""
        return self._made_reader is not None

    # --- statistics ---------------------------------------------------------------------

    def _statistics(
        self,
        state: AppendState,
        added: tuple[int, int],
        terminated_position: Position | None,
        *,
        pending_appends: int = 0,
        last_ledger_created_ms: int = 0,
    ) -> ManagedLedgerStatistics:
        """`added`: entries and bytes since it was opened."""
        table = self._table
        tail = table.tail if table.rows else None
        return ManagedLedgerStatistics(
            name=self.name,
            state=state.value,
            ledgers=table.snapshot(),
            entries=table.entries,
            size_bytes=table.size_bytes,
            entries_added=added[0],
            size_added_bytes=added[1],
            current_ledger_entries=0 if tail is None else tail.entries,
            current_ledger_size_bytes=0 if tail is None else tail.size_bytes,
            pending_appends=pending_appends,
            last_confirmed=table.last_confirmed,
            terminated_position=terminated_position,
            properties=dict(self.properties),
            cached_bytes_broker_wide=self._context.cache.size_bytes,
            last_ledger_created_ms=last_ledger_created_ms,
        )

    def cursor_statistics(self) -> Iterator[CursorStatistics]:
        """A snapshot of each current cursor, taken when the iteration reaches it."""
        return map(self._cursor_statistics, list(self.cursors.values()))

    def _cursor_statistics(self, cursor: Cursor) -> CursorStatistics:
        ledger_id, last_entry_id = cursor.cursor_ledger
        ranges = ",".join(
            f"({position_text(lower)}..{position_text(upper)}]"
            for lower, upper in cursor.acked_ranges(_STATISTICS_RANGES_MAX)
        )
        return CursorStatistics(
            name=cursor.name,
            mark_delete=cursor.mark_delete,
            read_from=self._table.next_position(cursor.mark_delete),
            backlog_entries=cursor.backlog_entries,
            individually_acked_count=cursor.individually_acked_count,
            acked_ranges_text=f"[{ranges}]",
            cursor_ledger_id=ledger_id,
            cursor_ledger_last_entry_id=last_entry_id,
            is_dirty=cursor.is_dirty,
            durable=cursor.durable,
            properties=dict(cursor.properties),
            position_properties=dict(cursor.position_properties),
        )
