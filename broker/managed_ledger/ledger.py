"""A managed ledger: the endless log of one topic, with its cursors.

Callers see one sequence of entries. It consists of a list of BookKeeper ledgers, of which the last
is written (`appender`), reads from a cached tail and from the backlog (`readable_ledger`), cursors
(`cursor`), and trimming of ledgers no longer needed (`trimming`).

Invariants: no position is used twice, and positions only grow, also over restarts. No entry that a
cursor has not acknowledged is deleted. The list of ledgers is written before a ledger is used and
before one is deleted, so a crash leaves at worst a ledger too many (`orphans`), never one too few.
Everything synchronous here is atomic. A change of the list or of the cursors' records is made under
the lock of the list or of the cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from broker.ground.slices import for_each
from broker.managed_ledger.appender import Appender
from broker.managed_ledger.cursor import Cursor
from broker.managed_ledger.cursor_record import INTERNAL_PREFIX
from broker.managed_ledger.cursor_store import CursorStore
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from broker.managed_ledger.readable_ledger import ReadableLedger
from broker.managed_ledger.trimming import (
    AHEAD_SECONDS_MIN,
    correct_times,
    is_any_ahead,
    trimmable_count,
)
from ledgers.errors import LedgerError
from protocol.errors import BrokerError, ServerError, ServiceNotReady, TopicTerminated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.ground.entry import Entry
    from broker.managed_ledger.config import LedgerPolicies
    from broker.managed_ledger.context import AppendListener, LedgerContext
    from broker.managed_ledger.ledger_list import LedgerList
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from ledgers.entry_writer import EntryWriter, WriterListener
    from protocol.position import Position

_log = structlog.get_logger()

_CLOSE_TIMEOUT_S: Final = 5.0
_FLUSH_INTERVAL_MIN_S: Final = 0.05
_RELEASE_CURSORS_MAX: Final = 8


class LedgerFactory(Protocol):
    """The factory, as the ledgers that it has made use it."""

    def cursor_changed(self, ledger: ManagedLedger, cursor: Cursor) -> None:
        """The cursor has something to store."""

    def ledger_closed(self, ledger: ManagedLedger) -> None:
        """It is not open any more."""


@final
class ManagedLedger(ReadableLedger):
    """See the module docstring. Made by `ManagedLedgerFactory.open`.

    `append(entry, context)` assigns the order and returns at once. The listener gets the outcome.
    While a ledger is being replaced appends queue up, bounded by the caller. On a fenced,
    terminated or closed ledger the listener gets the failure at once.
    `append_run(entries, contexts)` does the same for many entries and costs little more than one.
    """

    def __init__(
        self,
        context: LedgerContext,
        ledger_list: LedgerList,
        policies: LedgerPolicies,
        factory: LedgerFactory,
    ) -> None:
        super().__init__(context, ledger_list, context.spawn)
        self._factory = factory
        self._is_trimming = False
        self._ahead_since: float | None = None
        """Since when the closing time of a ledger is far ahead of the wall clock; monotonic."""
        self.policies = policies
        """May be replaced at any time: new ledgers, trims and cursors follow it."""
        self._appender = Appender(
            context,
            ledger_list,
            self._cache,
            self,
        )
        self.append_run: Callable[[list[Entry], list[object]], None] = self._appender.append_run
        self.storage_failed: Callable[[Exception], None] = self._appender.storage_failed

    def append(self, entry: Entry, context: object) -> None:
        """See the class."""
        self.append_run([entry], [context])

    # --- state --------------------------------------------------------------------------

    @property
    def appender(self) -> Appender:
        """The append path; for the factory."""
        return self._appender

    @property
    def listener(self) -> AppendListener | None:
        """Receives the outcome of appends. The topic sets it before it appends."""
        return self._appender.listener

    @listener.setter
    def listener(self, listener: AppendListener) -> None:
        self._appender.listener = listener
        if self.fenced:  # while it was being opened
            listener.on_fenced()

    @property
    def state(self) -> AppendState:
        """Whether it accepts appends."""
        return self._appender.state

    @property
    def fenced(self) -> bool:
        """Another broker has taken the topic, or this one failed during an append: unload it."""
        return self._appender.state is AppendState.FENCED

    @property
    def terminated(self) -> bool:
        """No entry will be added any more."""
        return self._list.terminated_position is not None

    def check_appendable(self) -> None:
        """Raises: TopicTerminated."""
        if self.terminated:
            raise TopicTerminated("Topic was already terminated")

    @property
    def entries_added(self) -> int:
        """Durable entries appended since it was opened."""
        return self._appender.entries_added

    @property
    def size_added_bytes(self) -> int:
        """Durable bytes appended since it was opened."""
        return self._appender.size_added_bytes

    @property
    def size_sent_bytes(self) -> int:
        """The same, durable or not yet."""
        return self._appender.size_added_bytes + self._appender.size_pending_bytes

    def backlog_bytes(self, mark_delete: Position) -> int:
        """Bytes after a position, also those that are not durable yet."""
        return self._table.bytes_after(mark_delete) + self._appender.size_pending_bytes

    # --- cursors ------------------------------------------------------------------------

    async def open_cursor(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> Cursor:
        """Find the cursor, or create it with `initial` as its mark-delete position, which may be
        EARLIEST or LATEST.

        Raises: OwnershipLost.
        """
        known = self.cursors.get(name)
        if known is not None:
            return known
        mark_delete = min(initial, self._table.last_confirmed)
        if mark_delete[0] < 0:
            first = self._table.first_position
            mark_delete = (first[0], first[1] - 1)
        given = {
            key: text
            for key, text in (properties or {}).items()
            if not key.startswith(INTERNAL_PREFIX)
        }
        cursor = self._new_cursor(name, mark_delete, given, durable=durable)
        self.cursors[name] = cursor
        self._appender.cache_tail = True
        try:
            await cursor.create()
        except BaseException:
            del self.cursors[name]
            raise
        return cursor

    async def open_part_cursor(self, name: str, initial: Position) -> Cursor:
        """As `open_cursor`, for a part of the topic and not for a subscription."""
        return await self.open_cursor(name, initial)

    async def restore_cursor(self, name: str) -> None:
        """Load a stored cursor; for the factory."""
        cursor = self._new_cursor(name, self._table.last_confirmed, {}, durable=True)
        await cursor.restore()
        self.cursors[name] = cursor
        self._appender.cache_tail = True

    async def delete_cursor(self, name: str) -> None:
        """Delete the cursor and its stored state. Unknown names are ignored. If that fails the
        cursor remains as before.

        Raises: MetadataUnavailable, BrokerError ServiceNotReady: the ledger is closed, and what is
            stored of the cursor belongs to those who open it again.
        """
        if self._appender.state is AppendState.CLOSED:
            raise ServiceNotReady("the topic is being closed: look it up again")
        cursor = self.cursors.get(name)
        if cursor is not None:
            await cursor.delete()
            self.cursors.pop(name, None)
            self._appender.cache_tail = bool(self.cursors)
            self.request_trim()

    def _new_cursor(
        self, name: str, mark_delete: Position, properties: Mapping[str, str], *, durable: bool
    ) -> Cursor:
        store = CursorStore(self._context, self.name, name, self) if durable else None
        ranges_max = self._context.config.max_ranges_in_metadata_store
        return Cursor(name, self._table, mark_delete, properties, store, ranges_max, self)

    async def check_owner(self) -> None:
        """See StoreOwner."""
        await self._list.check_owner()

    def ownership_lost(self, detail: str) -> None:
        """See StoreOwner."""
        self._appender.fence(detail)

    def cursor_changed(self, cursor: Cursor) -> None:
        """See CursorOwner."""
        self._factory.cursor_changed(self, cursor)

    def ledger_passed(self) -> None:
        """See CursorOwner."""
        self.request_trim()

    def slowest_durable(self) -> Position | None:
        """The lowest mark-delete position of the durable cursors; None when there are none."""
        marks = [cursor.mark_delete for cursor in self.cursors.values() if cursor.durable]
        return min(marks) if marks else None

    def release_acked(self) -> None:
        """Release cached entries that every cursor has acknowledged."""
        if 0 < len(self.cursors) <= _RELEASE_CURSORS_MAX:
            self._cache.drop_acked(min(c.mark_delete for c in self.cursors.values()))

    @property
    def cursor_flush_interval_s(self) -> float:
        """A cursor that has changed is stored after this time."""
        rate = self.policies.mark_delete_rate_max
        interval_s = 1.0 / rate if rate > 0 else 0.0
        return max(
            _FLUSH_INTERVAL_MIN_S,
            min(interval_s, self._context.config.cursor_flush_interval_max_s),
        )

    async def rest(self) -> None:
        """See ReadableLedger. Cursors are stored as when the ledger is closed."""
        await super().rest()
        if self._appender.state not in (AppendState.FENCED, AppendState.CLOSED):
            for cursor in list(self.cursors.values()):
                if self.cursors.get(cursor.name) is cursor:
                    await cursor.rest()

    @property
    def needs_rest(self) -> bool:
        """See ReadableLedger."""
        return super().needs_rest or any(each.needs_rest for each in self.cursors.values())

    # --- writing ------------------------------------------------------------------------

    async def create_ledger(self, listener: WriterListener) -> EntryWriter:
        """A ledger for entries of the topic; for the factory and the appender.

        Raises: NotEnoughBookies, MetadataUnavailable.
        """
        return await self._context.client.create_ledger(
            ledger_custom_metadata(self.name), listener, self.policies.replication
        )

    def roll(self) -> None:
        """Go on in a new ledger, so that the entries before can be trimmed."""
        self._appender.roll()

    # --- trimming -----------------------------------------------------------------------

    def request_trim(self) -> None:
        """Trim in the background if any ledger can be trimmed."""
        if self._is_trimming or self._trimmable() == 0:
            return
        self._is_trimming = True
        self._context.spawn(self._trim_in_background)

    async def _trim_in_background(self) -> None:
        try:
            await self.trim()
        except OwnershipLost as error:
            self._appender.fence(str(error))
        except Exception as error:
            _log.warning("trim_failed", topic=self.name, error=str(error))
        finally:
            self._is_trimming = False

    async def trim(self) -> int:
        """Delete the ledgers that neither cursors nor retention need. Returns how many.

        Raises: OwnershipLost.
        """
        async with self._list.lock:
            count = self._trimmable()
            if count == 0 or self._appender.state in (AppendState.FENCED, AppendState.CLOSED):
                return 0
            await self._list.save(self._table.rows[count:])
            dropped = self._table.drop_front(count)
        for row in dropped:
            self._forget_reader(row.ledger_id)
            await self._context.client.delete(row.ledger_id)
        return len(dropped)

    def _trimmable(self) -> int:
        if len(self._table.rows) < 2:  # Most topics: the ledger that is written is kept.
            return 0
        now_ms, retention = self._context.clock.wall_ms(), self.policies.retention
        if not is_any_ahead(self._table.rows, now_ms):
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = self._context.clock.now()
        elif self._context.clock.now() - self._ahead_since >= AHEAD_SECONDS_MIN:
            correct_times(self._table.rows, now_ms)
        return trimmable_count(self._table.rows, self.slowest_durable(), retention, now_ms)

    # --- durable changes ----------------------------------------------------------------

    async def change_properties(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace the topic's properties by what `change` makes of a copy of them. It is called
        when no other change is in progress, so that none is lost. Raises: OwnershipLost."""
        async with self._list.lock:
            properties = change(dict(self._list.properties))
            await self._list.save(self._table.rows, properties=properties)

    async def terminate(self) -> Position:
        """End the topic after its last confirmed entry, for ever. Returns that position.

        Raises: OwnershipLost.
        """
        async with self._list.lock:
            if self._list.terminated_position is not None:
                return self._list.terminated_position
            await self._stop_appends(AppendState.TERMINATED)
            rows = [row.copy() for row in self._table.rows]
            rows[-1].timestamp_ms = self._context.clock.wall_ms()
            await self._list.save(rows, terminated_position=self.last_confirmed)
            self._table.tail.timestamp_ms = rows[-1].timestamp_ms
            return self.last_confirmed

    async def close(self) -> None:
        """Stop appends, store the cursors and release everything. Appends that are not durable
        within a few seconds fail.

        A lost topic, or an error of storage or metadata, is logged and does not stop the close. The
        next open recovers all durable entries. A cursor that could not be stored continues from
        its last stored position, so that messages are delivered again.
        """
        async with self._list.lock:
            if self._appender.state is AppendState.CLOSED:
                return
            fenced = self.fenced
            if not fenced:
                try:
                    await self._stop_appends(AppendState.CLOSED)
                except BrokerError as error:
                    _log.warning(
                        "topic_closed_without_its_ledger", topic=self.name, error=str(error)
                    )
            self._appender.state = AppendState.CLOSED
        try:
            if not fenced:
                at_once_max = self._context.config.cursor_flushes_in_flight_max
                cursors = list(self.cursors.values())
                await for_each(cursors, self._close_cursor, min(len(cursors), at_once_max))
        finally:
            self._cache.clear()
            self._factory.ledger_closed(self)

    def disconnect(self) -> None:
        """Forget the listener and the cursors after `close`, so that this ledger and its topic are
        freed without a garbage collection. Nothing may be appended any more."""
        self._appender.disconnect()
        self.cursors.clear()

    async def _close_cursor(self, cursor: Cursor) -> None:
        try:
            await cursor.close()
        except Exception as error:  # the other cursors are still to be stored
            _log.warning("cursor_not_stored", topic=self.name, cursor=cursor.name, error=str(error))

    async def _stop_appends(self, state: AppendState) -> None:
        try:
            await self._appender.drain_and_stop(state, _CLOSE_TIMEOUT_S)
        except LedgerError as error:
            self._appender.fence(str(error))
            raise OwnershipLost(self.name) from error

    # --- statistics ---------------------------------------------------------------------

    def statistics(self) -> ManagedLedgerStatistics:
        """A snapshot."""
        appender = self._appender
        return self._statistics(
            appender.state,
            (appender.entries_added, appender.size_added_bytes),
            self._list.terminated_position,
            pending_appends=appender.pending_count,
            last_ledger_created_ms=appender.opened_at_ms,
        )


def refuse_missing(name: str) -> BrokerError:
    """There is no such managed ledger."""
    return BrokerError(ServerError.TopicNotFound, f"there is no managed ledger {name}")
