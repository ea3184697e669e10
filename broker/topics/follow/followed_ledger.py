"""The managed ledger of a shadow topic: the entries of its source, with cursors of its own.

To its topic it is like any `ManagedLedger`, except that nothing can be appended. What is listed and
confirmed comes from the source: its record, which is watched, and its owner (`link`). New entries
arrive over the link and go to the tail cache, older ones are read from the bookies. What belongs to
the shadow is its own record, by which one broker at a time owns it, and the records and ledgers of
its cursors.

If the source is gone, or what is stored of it is in doubt, or another broker has opened the shadow,
the topic is closed; clients look it up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.managed_ledger.entry_cache import ENTRY_OVERHEAD_BYTES
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.ledger_record import decode_ledger_record
from broker.managed_ledger.open_appends import AppendState
from broker.managed_ledger.paths import ledger_info_path
from broker.managed_ledger.readable_ledger import ReadableLedger
from broker.topics.follow.link import Link
from broker.topics.follow.shadow import SHADOW_SOURCE
from broker.topics.follow.share_cursors import ShareCursors
from broker.topics.follow.source_table import SourceInDoubt, SourceTable
from protocol.errors import BrokerError, NotAllowed, ServiceNotReady, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.ground.entry import Entry
    from broker.managed_ledger.config import LedgerPolicies
    from broker.managed_ledger.context import AppendListener, LedgerContext
    from broker.managed_ledger.cursor import Cursor
    from broker.managed_ledger.ledger_record import LedgerRecord
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.peers.owner_search import OwnerSearch
    from broker.topics.subscription.ports import CursorPort
    from protocol.position import Position
    from protocol.topic_name import TopicName

OPEN_SECONDS_MAX: Final = 20.0
"""How long an opening waits for the owner of the source."""
READ_AGAIN_SECONDS: Final = 1.0

log = structlog.get_logger()


def consecutive(entries: list[Entry]) -> Iterator[list[Entry]]:
    """The entries in runs: of one ledger, without holes."""
    start = 0
    for at in range(1, len(entries) + 1):
        before = entries[at - 1].position
        if at == len(entries) or entries[at].position != (before[0], before[1] + 1):
            yield entries[start:at]
            start = at


@final
class FollowedLedger(ReadableLedger):
    """See the module docstring. Made by `FollowingFactory.open`."""

    def __init__(
        self,
        context: LedgerContext,
        shadow: TopicName,
        source: TopicName,
        record: LedgerRecord,
        version: int,
        policies: LedgerPolicies,
        search: OwnerSearch,
        on_failed: Callable[[FollowedLedger], None],
    ) -> None:
        """`record` and `version`: of the shadow, as just read."""
        name = shadow.managed_ledger_name
        self._ledgers = SourceTable()
        ledger_list = LedgerList(context.store, name, self._ledgers.table, record, version)
        super().__init__(context, ledger_list, self._spawn)
        self.shadow = shadow
        self.policies = policies
        """The policies of new ledgers and of retention are the source's."""
        self.listener: AppendListener | None = None
        self.entries_added = 0
        self.size_added_bytes = 0
        self.failure = ""
        """Why it cannot be served here any more."""
        self.source = source
        self._source_path = ledger_info_path(source.managed_ledger_name)
        self._own_rows = list(record.rows)
        """Ledgers that its record lists, from before it was a shadow. They are left alone."""
        self._link = Link(shadow, source, search, self)
        self._cursors = ShareCursors(
            context, shadow, source, self._table, self._link, self._list.check_owner, self.give_up
        )
        self.cursors = self._cursors.by_name
        self._on_failed = on_failed
        self._refreshing = trio.Lock()
        self._changed = trio.Event()
        """The record of the source."""
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._is_end_told = False

    # --- life ---------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the source until closed."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for work in (self._link.run, self._keep_cursors, self._follow_record):
                    nursery.start_soon(work)
                task_status.started()
                await self._ended.wait()
                nursery.cancel_scope.cancel()
        except Exception as error:
            log.error("shadow topic failed", topic=self.shadow.full, exc_info=error)
            self.give_up(f"it failed: {error}")
        finally:
            self._nursery = None

    def _spawn(self, task: Callable[..., object], *arguments: object) -> None:
        if self._nursery is not None and not self._ended.is_set():
            self._nursery.start_soon(task, *arguments)  # type: ignore[arg-type]

    async def open(self) -> None:
        """Take the shadow from its former follower, find out what the source has, and restore the
        cursors. `run` is running.

        Raises: OwnershipLost, TopicNotFound, NotAllowed, MetadataUnavailable. ServiceNotReady: the
            owner of the source does not answer.
        """
        await self._list.save(self._own_rows)
        await self.refresh()
        with trio.move_on_after(OPEN_SECONDS_MAX) as waiting:
            await self._link.wait_live()
        if waiting.cancelled_caught:
            raise ServiceNotReady(
                f"{self.shadow.full} has no link to its source {self.source.full}: "
                f"{self._link.problem}; try again"
            )
        await self._cursors.restore()

    def give_up(self, reason: str) -> None:
        """It cannot be served here any more: its topic is unloaded."""
        if self.failure or self._ended.is_set():
            return
        self.failure = reason
        log.warning("shadow topic given up", topic=self.shadow.full, reason=reason)
        self._on_failed(self)

    async def close(self) -> None:
        """Store the cursors and stop following. The owner keeps the place of every share."""
        if self._ended.is_set():
            return
        try:
            if not self.failure:
                await self._cursors.close()
        finally:
            self._ended.set()
            self._cache.clear()

    def abandon(self) -> None:
        """It could not be opened: stop following, and leave what is stored as it is."""
        self._ended.set()
        self._cache.clear()

    def disconnect(self) -> None:
        """See `ManagedLedger.disconnect`."""
        self.listener = None
        self._cursors.forget()

    async def check_owner(self) -> None:
        """Raises: OwnershipLost: another broker has opened the shadow. MetadataUnavailable."""
        await self._context.store.sync()
        await self._list.check_owner()

    async def _keep_cursors(self) -> None:
        await self._cursors.keep(self.release_acked)

    # --- what the source has ------------------------------------------------------------

    async def _follow_record(self) -> None:
        def changed(path: str) -> None:
            if path == self._source_path:  # and not that of one of its cursors
                self._changed.set()

        stop = self._context.store.watch(self._source_path, changed)
        try:
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                try:
                    await self.refresh()
                except BrokerError as error:
                    log.warning("source not read", topic=self.shadow.full, reason=str(error))
                    await trio.sleep(READ_AGAIN_SECONDS)
                    self._changed.set()
        finally:
            stop()

    async def refresh(self) -> None:
        """Take over the record of the source.

        Raises: TopicNotFound, NotAllowed, ServiceNotReady, MetadataUnavailable.
        """
        async with self._refreshing:
            await self._context.store.sync()
            stored = await self._context.store.get(self._source_path)
            if stored is None:
                self.give_up(f"its source {self.source.full} does not exist")
                raise TopicNotFound(f"{self.source.full}, the source of a shadow, does not exist")
            record = decode_ledger_record(stored[0], self._source_path)
            if SHADOW_SOURCE in record.properties:
                self.give_up(f"its source {self.source.full} is a shadow itself")
                raise NotAllowed(f"{self.source.full} is a shadow itself, and has none")
            try:
                has_grown = self._ledgers.apply(record)
            except SourceInDoubt as doubt:
                raise self._doubt(doubt) from None
        if has_grown or self.terminated:
            self._tell_topic()

    def _doubt(self, doubt: SourceInDoubt) -> ServiceNotReady:
        self.give_up(str(doubt))
        return ServiceNotReady(f"{self.shadow.full}: {doubt}")

    async def confirm(self, newest: Position) -> None:
        """Everything up to this entry of the source is confirmed. Raises: BrokerError."""
        if newest[1] >= 0 and not self._ledgers.lists(newest[0]):
            await self.refresh()
        if self._confirm(newest, 0):
            self._tell_topic()

    def _confirm(self, newest: Position, size_bytes: int) -> bool:
        try:
            return self._ledgers.confirm(newest, size_bytes)
        except SourceInDoubt as doubt:
            raise self._doubt(doubt) from None

    async def take(self, entries: list[Entry]) -> None:
        """Entries from the owner. Raises: BrokerError."""
        if not self._ledgers.lists(entries[-1].position[0]):
            await self.refresh()
        now = self._context.clock.now()
        for run in consecutive(entries):
            ledger_id, first = run[0].position
            size_bytes = sum([len(entry.data) for entry in run])
            if self.cursors and self._table.row_of(ledger_id) is not None:
                cached_bytes = size_bytes + len(run) * ENTRY_OVERHEAD_BYTES
                self._cache.append_tail(ledger_id, first, run, cached_bytes, now)
            if self._confirm(run[-1].position, size_bytes):
                self.entries_added += len(run)
                self.size_added_bytes += size_bytes
        self._tell_topic()

    def _tell_topic(self) -> None:
        topic = self.listener
        if topic is None:
            return
        topic.on_appended([], [])
        if self.terminated and not self._is_end_told:
            self._is_end_told = True
            topic.on_terminated()

    # --- state --------------------------------------------------------------------------

    @property
    def size_sent_bytes(self) -> int:
        """See ManagedLedger: what arrives is durable."""
        return self.size_added_bytes

    def backlog_bytes(self, mark_delete: Position) -> int:
        """See ManagedLedger."""
        return self.bytes_after(mark_delete)

    @property
    def terminated(self) -> bool:
        """See ManagedLedger."""
        return self._ledgers.is_terminated

    @property
    def fenced(self) -> bool:
        """See ManagedLedger."""
        return bool(self.failure)

    @property
    def state(self) -> AppendState:
        """As statistics show it."""
        if self._ended.is_set():
            return AppendState.CLOSED
        if self.failure:
            return AppendState.FENCED
        return AppendState.TERMINATED if self.terminated else AppendState.OPEN

    def statistics(self) -> ManagedLedgerStatistics:
        """See ManagedLedger."""
        state = self.state
        return self._statistics(
            state,
            (self.entries_added, self.size_added_bytes),
            self.last_confirmed if state is AppendState.TERMINATED else None,
        )

    # --- cursors ------------------------------------------------------------------------

    async def open_cursor(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> CursorPort:
        """See ManagedLedger. Raises: NotAllowed: it is no broadcast, here or at the owner of the
        source. ServiceNotReady, OwnershipLost."""
        return await self._cursors.open(name, initial, properties or {}, durable=durable)

    async def open_part_cursor(self, name: str, initial: Position) -> Cursor:
        """See ManagedLedger. It is not stored: nothing is published here."""
        await trio.lowlevel.checkpoint()
        return self._cursors.open_part(name, initial)

    async def delete_cursor(self, name: str) -> None:
        """See ManagedLedger. The owner of the source is notified afterwards."""
        if self._ended.is_set() or self.failure:
            raise ServiceNotReady("the topic is being closed: look it up again")
        await self._cursors.delete(name)

    async def end_shares(self) -> None:
        """The shadow is about to be deleted: the owner need not keep anything for it."""
        await self._cursors.end_shares()

    def release_acked(self) -> None:
        """Release cached entries that every share has acknowledged."""
        marks = [cursor.mark_delete for cursor in self.cursors.values()]
        if marks:
            self._cache.drop_acked(min(marks))

    # --- what only the source can do ----------------------------------------------------

    def check_appendable(self) -> None:
        """See ManagedLedger. Raises: NotAllowed."""
        raise self._read_only()

    def append(self, entry: Entry, context: object) -> None:
        """Refuse it: see ManagedLedger."""
        self.append_run([entry], [context])

    def append_run(self, entries: list[Entry], contexts: list[object]) -> None:
        """Refuse them: see ManagedLedger."""
        del entries
        assert self.listener is not None
        for context in contexts:
            self.listener.on_append_failed(context, self._read_only())

    def _read_only(self) -> NotAllowed:
        return NotAllowed(f"{self.shadow.full} is a shadow of {self.source.full}: publish to that")

    def storage_failed(self, error: Exception) -> None:
        """Nothing waits for storage."""

    def roll(self) -> None:
        """The owner of the source decides that."""

    def request_trim(self) -> None:
        """The owner of the source frees storage."""

    async def trim(self) -> int:
        """The same."""
        await trio.lowlevel.checkpoint()
        return 0

    async def terminate(self) -> Position:
        """Raises: NotAllowed."""
        await trio.lowlevel.checkpoint()
        raise self._read_only()

    async def change_properties(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """See ManagedLedger. Raises: OwnershipLost."""
        async with self._list.lock:
            properties = change(dict(self._list.properties))
            await self._list.save(self._own_rows, properties=properties)
