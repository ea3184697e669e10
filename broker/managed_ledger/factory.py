"""Opens, keeps and deletes the managed ledgers of one broker, and runs their background work.

Opening takes the topic from its former owner. The last ledger is recovered, which fences its
writer, and its entries and size are put into the list. Empty ledgers are dropped, a new ledger is
created, and the list is written by compare-and-set. From then on the former owner can neither
append nor change the list. Then the cursors are restored. If there are too few bookies for a new
ledger, a topic that has entries is opened without one: it is read, and appends fail.

Background tasks serve all topics. They store dirty cursors every flush interval, evict old entries
from the cache, and periodically trim ledgers by retention. These tasks and all tasks spawned
by the ledgers live in the nursery of `run`, so none outlives the factory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE, for_each, in_slices, start_each
from broker.managed_ledger.attached_ledger import delete_attached
from broker.managed_ledger.context import LedgerContext
from broker.managed_ledger.cursor_record import INLINE, attached_ledger, decode_cursor_record
from broker.managed_ledger.entry_cache import EntryCache
from broker.managed_ledger.kept_readers import BookieReaders
from broker.managed_ledger.ledger import ManagedLedger, refuse_missing
from broker.managed_ledger.ledger_list import LedgerList, OwnershipLost
from broker.managed_ledger.ledger_record import LedgerRecord, damaged, decode_ledger_record
from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.owner_of_ledger import managed_ledger_of
from broker.managed_ledger.paths import MANAGED_LEDGERS_ROOT, decode_name, ledger_info_path
from broker.managed_ledger.roll_pace import RollPace
from broker.managed_ledger.tenure import Tenure
from ledgers.errors import LedgerError, LedgerNotFound, LedgerUnavailable, NotEnoughBookies
from metadata.store import MUST_NOT_EXIST, NodeNotFound, SessionState
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.managed_ledger.config import LedgerPolicies, ManagedLedgerConfig
    from broker.managed_ledger.cursor import Cursor
    from broker.managed_ledger.cursor_record import CursorRecord
    from broker.managed_ledger.kept_readers import LedgerReaders
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata
    from runtime.clock import Clock

_log = structlog.get_logger()

_IDLE_S: Final = 1.0


@final
class ManagedLedgerFactory:
    """See the module docstring. `await nursery.start(factory.run)` before opening anything."""

    def __init__(
        self,
        store: MetadataStore,
        client: LedgerClient,
        config: ManagedLedgerConfig,
        clock: Clock,
        readers: LedgerReaders | None = None,
        session: MetadataStore | None = None,
    ) -> None:
        """`readers`: where ledgers are read; None: from bookies. `session`: the store to ask
        for the state of the session before each append; None: `store`."""
        self._store = store
        self._session = session or store
        self._client = client
        self._config = config
        self._clock = clock
        self._nursery: trio.Nursery | None = None
        self._ended = False
        self._dirty: dict[float, dict[Cursor, ManagedLedger]] = {}
        """Cursors to store, by the interval of their ledgers. Each interval has a task."""
        self._opening: dict[str, trio.Event] = {}
        self.cache = EntryCache(
            config.cache_size_bytes, config.cache_eviction_time_s, config.cache_eviction_watermark
        )
        self.ledgers: dict[str, ManagedLedger] = {}
        self.readers = readers or BookieReaders(client)
        self._context = LedgerContext(
            store,
            client,
            config,
            clock,
            self.cache,
            self._spawn,
            RollPace(config),
            self.readers,
            Tenure(self._session),
        )

    @property
    def open_count(self) -> int:
        """How many ledgers are open."""
        return len(self.ledgers)

    def bookies_joined(self) -> None:
        """Bookies that take entries have joined: topics that wait for one try again, in turns."""
        self._context.roll_pace.bookies_joined()

    # --- background ---------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Close the ledgers (`aclose`) first."""
        end_watch = self._store.watch_session(self._session_changed)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._keep_cache_small)
            task_status.started()
            try:
                await self._keep_ledgers_trimmed()
            finally:
                self._ended = True
                end_watch()

    def _session_changed(self, state: SessionState) -> None:
        """Ledgers that are open, or are being opened, keep the context of the lost session."""
        if state is SessionState.LOST:
            self._context.tenure.end()
            self._context = replace(self._context, tenure=Tenure(self._session))

    def _spawn(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        assert self._nursery is not None, "the factory's run has not been started"
        if not self._ended:  # A bookie may answer later than that: its task would be cancelled.
            self._nursery.start_soon(task, *args)

    async def _keep_cursors_stored(self, interval_s: float) -> None:
        """Until no cursor with this interval changes any more."""
        while True:
            await trio.sleep(interval_s)
            dirty = self._dirty[interval_s]
            if not dirty:
                del self._dirty[interval_s]
                return
            self._dirty[interval_s] = {}
            await self._flush(dirty)

    async def _flush(self, dirty: Mapping[Cursor, ManagedLedger]) -> None:
        at_once_max = min(len(dirty), self._config.cursor_flushes_in_flight_max)
        await for_each(dirty.items(), self._flush_cursor, at_once_max)

    async def _flush_cursor(self, dirty: tuple[Cursor, ManagedLedger]) -> None:
        cursor, ledger = dirty
        if ledger.fenced or ledger.cursors.get(cursor.name) is not cursor:
            return
        try:
            await cursor.flush()
        except OwnershipLost as error:
            ledger.appender.fence(str(error))
        except Exception as error:
            _log.warning(
                "cursor_flush_failed", topic=ledger.name, cursor=cursor.name, error=str(error)
            )

    async def _keep_cache_small(self) -> None:
        interval_s = self._config.cache_eviction_interval_s
        # Entries that come into an empty cache are not due before.
        idle_s = max(interval_s, min(_IDLE_S, self._config.cache_eviction_time_s))
        while True:
            await trio.sleep(interval_s if self.cache.size_bytes else idle_s)
            now = self._clock.now()
            while self.cache.evict_old(now):
                await trio.lowlevel.checkpoint()

    async def _keep_ledgers_trimmed(self) -> None:
        while True:
            await trio.sleep(self._config.retention_check_interval_s)
            await in_slices(map(self._roll_and_trim, list(self.ledgers.values())))

    def _roll_and_trim(self, ledger: ManagedLedger) -> None:
        if self.ledgers.get(ledger.name) is ledger:  # Not closed since the slices began.
            ledger.appender.roll_if_too_old(self._clock.now())
            ledger.request_trim()

    # --- opening ------------------------------------------------------------------------

    async def open(self, name: str, policies: LedgerPolicies | None = None) -> ManagedLedger:
        """The managed ledger with this name (`tenant/namespace/persistent/encoded topic`), created
        if it does not exist. Opening an open one returns the same object.

        Raises: OwnershipLost, BrokerError PersistenceError or MetadataError. BrokerError
            ServiceNotReady: bookies that are needed do not answer, and clients try again.
        """
        while name in self._opening:
            await self._opening[name].wait()
        known = self.ledgers.get(name)
        if known is not None and known.state not in (AppendState.CLOSED, AppendState.FENCED):
            return known
        event = self._opening[name] = trio.Event()
        try:
            ledger = await self._open(name, policies or self._config.policies)
            self.ledgers[name] = ledger
            return ledger
        except LedgerUnavailable as error:
            raise BrokerError(
                ServerError.ServiceNotReady, f"{name} cannot be opened now, try again: {error}"
            ) from error
        except LedgerError as error:
            raise BrokerError(
                ServerError.PersistenceError, f"managed ledger {name} cannot be opened: {error}"
            ) from error
        finally:
            del self._opening[name]
            event.set()

    async def _open(self, name: str, policies: LedgerPolicies) -> ManagedLedger:
        context = self._context
        path = ledger_info_path(name)
        stored = await self._store.get(path)
        record = LedgerRecord() if stored is None else decode_ledger_record(stored[0], path)
        version = MUST_NOT_EXIST if stored is None else stored[1]
        rows = list(record.rows)
        if rows:
            await self._check_rows(name, rows)
            await self._finish(name, rows[-1])
        elif record.terminated_position is None:
            await self._check_never_used(path, stored)
        dropped = [row for row in rows if row.entries == 0]
        rows = [row for row in rows if row.entries > 0]
        if record.terminated_position is not None and not rows:
            rows, dropped = dropped[-1:], dropped[:-1]
        table = LedgerTable(rows)
        ledger_list = LedgerList(self._store, name, table, record, version)
        ledger = ManagedLedger(context, ledger_list, policies, self)
        if record.terminated_position is not None:
            await ledger_list.save(rows)
            ledger.appender.state = AppendState.TERMINATED
        elif not await self._start_writing(ledger, ledger_list, can_wait=bool(rows)):
            await ledger_list.save(rows)
        for row in dropped:
            await self._client.delete(row.ledger_id)
        await self._restore_cursors(ledger)
        return ledger

    async def _start_writing(
        self, ledger: ManagedLedger, ledger_list: LedgerList, *, can_wait: bool
    ) -> bool:
        """Make a ledger for new entries. If there are too few bookies for one and `can_wait`,
        return False: the entries that there are can be read, and an append tries again.

        Raises: NotEnoughBookies, OwnershipLost.
        """
        try:
            writer = await ledger.create_ledger(ledger.appender)
        except NotEnoughBookies as error:
            if not can_wait:
                raise
            ledger.appender.start_without_ledger(error)
            return False
        await ledger_list.save([*ledger_list.table.rows, LedgerRow(writer.ledger_id)])
        ledger_list.table.open_ledger(writer.ledger_id)
        ledger.appender.start(writer)
        return True

    async def _restore_cursors(self, ledger: ManagedLedger) -> None:
        """Run all concurrently. Raises: the error of the first that failed, not in a group."""
        failures: list[Exception] = []

        async def restore(cursor_name: str) -> None:
            try:
                await ledger.restore_cursor(cursor_name)
            except Exception as error:
                _log.warning(
                    "cursor_not_restored", topic=ledger.name, cursor=cursor_name, error=str(error)
                )
                failures.append(error)

        names = await self._store.children(ledger_info_path(ledger.name))
        async with trio.open_nursery() as nursery:
            await start_each(nursery, map(decode_name, names), restore, STEPS_PER_SLICE)
        if failures:
            raise failures[0]

    async def _check_never_used(self, path: str, stored: tuple[bytes, int] | None) -> None:
        """Raises: MetadataError: the topic lists no ledgers, and has cursors. With a new list its
        messages would be lost."""
        if await self._store.children(path) and await self._store.get(path) == stored:
            raise damaged(path, "it lists no ledgers, and there are cursors below it")

    async def _check_rows(self, name: str, rows: list[LedgerRow]) -> None:
        """Before ledgers without entries are deleted on the word of the record alone.

        Raises: MetadataError: a ledger has entries after all, or is of another topic.
        """
        for row in rows[:-1]:
            if row.entries == 0:
                try:
                    metadata = await self._client.recover(row.ledger_id)
                except LedgerNotFound:
                    continue
                _check_owner(name, row, metadata)
                if metadata.last_entry_id >= 0:
                    raise damaged(
                        ledger_info_path(name),
                        f"0 entries in ledger {row.ledger_id}, which has more",
                    )

    async def _finish(self, name: str, row: LedgerRow) -> None:
        """Decide how the ledger that was written last ends."""
        metadata = await self._client.recover(row.ledger_id)
        _check_owner(name, row, metadata)
        row.entries = metadata.last_entry_id + 1
        row.size_bytes = metadata.length
        row.timestamp_ms = row.timestamp_ms or self._clock.wall_ms()

    def cursor_changed(self, ledger: ManagedLedger, cursor: Cursor) -> None:
        """See LedgerFactory."""
        interval_s = ledger.cursor_flush_interval_s
        dirty = self._dirty.get(interval_s)
        if dirty is None:
            dirty = self._dirty[interval_s] = {}
            self._spawn(self._keep_cursors_stored, interval_s)
        dirty[cursor] = ledger

    # --- closing and deleting -----------------------------------------------------------

    def ledger_closed(self, ledger: ManagedLedger) -> None:
        """See LedgerFactory."""
        if self.ledgers.get(ledger.name) is ledger:
            del self.ledgers[ledger.name]

    async def close(self, name: str) -> None:
        """Close the ledger if it is open."""
        ledger = self.ledgers.get(name)
        if ledger is not None:
            await ledger.close()

    async def aclose(self) -> None:
        """Close every ledger, because the broker stops."""
        limiter = trio.CapacityLimiter(self._config.cursor_flushes_in_flight_max)

        async def close_one(name: str) -> None:
            async with limiter:
                await self.close(name)

        async with trio.open_nursery() as nursery:
            for name in list(self.ledgers):
                nursery.start_soon(close_one, name)

    async def exists(self, name: str) -> bool:
        """Whether there is such a managed ledger."""
        return await self._store.get(ledger_info_path(name)) is not None

    async def names(self, namespace: str) -> list[str]:
        """Encoded topic names below `tenant/namespace/persistent`, sorted."""
        return await self._store.children(f"{MANAGED_LEDGERS_ROOT}/{namespace}/persistent")

    async def delete(self, name: str) -> None:
        """Close it if it is open and delete everything: cursors first, then the record, then the
        ledgers, so that no record refers to a deleted object after a crash in between.

        Raises: BrokerError TopicNotFound.
        """
        await self.close(name)
        path = ledger_info_path(name)
        stored = await self._store.get(path)
        if stored is None:
            raise refuse_missing(name)
        record = decode_ledger_record(stored[0], path)  # before anything is deleted
        cursors = [f"{path}/{encoded}" for encoded in await self._store.children(path)]
        cursor_records = [await self._cursor_record(each) for each in cursors]
        for cursor, cursor_record in zip(cursors, cursor_records, strict=True):
            await self._delete_cursor(name, cursor, cursor_record)
        own = [row.ledger_id for row in record.rows if await self._may_delete(name, row.ledger_id)]
        await self._store.delete(path)
        for ledger_id in own:
            await self._client.delete(ledger_id)

    async def _may_delete(self, name: str, ledger_id: int) -> bool:
        """Whether a listed ledger is there and does not say that it is another topic's: a damaged
        record may name any.

        Raises: MetadataError, MetadataUnavailable: this cannot be found out.
        """
        try:
            metadata = await self._client.metadata_of(ledger_id)
        except LedgerNotFound:
            return False
        return managed_ledger_of(metadata.custom_metadata) in (None, name)

    async def _cursor_record(self, path: str) -> CursorRecord | None:
        """Raises: MetadataError: it is damaged."""
        stored = await self._store.get(path)
        return None if stored is None else decode_cursor_record(stored[0], path)

    async def _delete_cursor(self, name: str, path: str, record: CursorRecord | None) -> None:
        if record is None:
            return
        try:
            await self._store.delete(path)
        except NodeNotFound:
            return
        cursor_name = decode_name(path.rpartition("/")[2])
        await delete_attached(self._client, attached_ledger(record.properties), name, cursor_name)
        ledger_id = record.cursor_ledger_id
        if ledger_id != INLINE:
            await self._client.delete(ledger_id)


def _check_owner(name: str, row: LedgerRow, metadata: LedgerMetadata) -> None:
    """Raises: MetadataError: the ledger is of another topic, as far as it is known."""
    owner = managed_ledger_of(metadata.custom_metadata)
    if owner is not None and owner != name:
        path = ledger_info_path(name)
        raise damaged(path, f"ledger {row.ledger_id} is one of {owner}")
