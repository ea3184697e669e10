"""Bookie: one storage node, in process. The shell around the pure parts of this room.

Way of an add: rules of the ledger's handle -> write cache -> journal queue; the journal's thread
makes a group durable; the event loop answers the group. All state is changed by the event loop and
without awaiting in between, so it needs no locks. The nursery of `run` owns the background work:
checkpoints, garbage collection, disk checks.

What may go wrong: a refused request is a BookieError or a status; a failed journal or sync ends
`run` with the error, after which every request is answered with IO_ERROR.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, Self, final

import structlog
import trio

from bookie import journal_format
from bookie.adds import DurableSink, NullSink, RefusedSink, WaitingAdds
from bookie.api import (
    FLAG_FENCING,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    BookieError,
    Status,
)
from bookie.checkpointer import Checkpointer
from bookie.cookie import check_cookies
from bookie.disk import RealDisk
from bookie.disk_monitor import DiskMonitor
from bookie.errors import DiskFailed, StorageError
from bookie.gc import GarbageCollector
from bookie.index_rocksdb import RocksIndex
from bookie.journal import EMPTY_BODY
from bookie.layout import Layout
from bookie.reader import EntryReader
from bookie.statistics import BookieStatistics, LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bookie.api import AddSink, EntryBody
    from bookie.config import BookieConfig
    from bookie.cookie import CookieStore
    from bookie.disk import Disk
    from bookie.index import EntryIndex
    from bookie.journal import GroupDone
    from bookie.ledger_handle import LedgerHandle

logger = structlog.get_logger()

_NULL_SINK: Final = NullSink()
_EXPIRY_INTERVAL_SECONDS: Final = 0.1


@final
class Bookie:
    """See the module. Made by `open`, worked by `run`, ended by `aclose`."""

    def __init__(self, config: BookieConfig, layout: Layout, disk: Disk) -> None:
        self.config = config
        self._layout = layout
        self._token = trio.lowlevel.current_trio_token()
        self._failure: BaseException | None = None
        self._failed_event = trio.Event()
        self._closed = False
        self._kick_scheduled = False
        self._storages = layout.storages
        self._handles = layout.handles
        self._waiting = {
            id(storage): WaitingAdds(
                config.maxPendingAddRequestsPerThread, config.dbStorage_maxThrottleTimeMs / 1000
            )
            for storage in layout.storages
        }
        self._adds_refused = 0
        self._add_bytes = 0
        self._add_latency = LatencyHistogram()
        self._journals = layout.journals
        self._reader = EntryReader(config, layout.handles)
        self._checkpointer = Checkpointer(config, layout, self.kick, self._fail, self._made_room)
        self._collector = GarbageCollector(config, layout, self._fail)
        self._monitor = DiskMonitor(config, disk, layout, self._writable_changed)

    # ---- life ----

    @classmethod
    async def open(
        cls,
        config: BookieConfig,
        disk: Disk | None = None,
        *,
        open_index: Callable[[str], EntryIndex] = RocksIndex,
        cookie_store: CookieStore | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> Self:
        """Check the identity of the directories, replay the journals, start the journal threads.

        Raises: StorageError: it must not start; the text says what to do.
        """
        disk = disk if disk is not None else RealDisk()
        layout = Layout(config, disk, open_index)
        await check_cookies(config, layout, disk, cookie_store)

        def prepare() -> None:
            layout.open_storages()
            layout.recover(now_ms())

        try:
            await trio.to_thread.run_sync(prepare)
        except BaseException:
            for storage in layout.storages:
                storage.index.close()
            raise
        bookie = cls(config, layout, disk)
        bookie._monitor.check_now()
        for number, writer in enumerate(layout.writers):
            name = f"bookie-journal-{number}"
            layout.journals[number].start(name, writer, bookie._group_done_soon, bookie._fail_soon)
        return bookie

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Background work until cancelled.

        Raises: StorageError: the bookie failed and must not be used any more.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpointer.run)
            nursery.start_soon(self._collector.run)
            nursery.start_soon(self._monitor.run)
            nursery.start_soon(self._expire_waiting)
            task_status.started()
            await self._failed_event.wait()
            nursery.cancel_scope.cancel()
        assert self._failure is not None
        raise self._failure

    async def aclose(self) -> None:
        """Answer what was accepted, flush, write the checkpoint, close everything."""
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            for storage in self._storages:
                storage.cache.close()
            for waiting in self._waiting.values():
                for item in waiting.expired(math.inf):
                    self._refuse(Status.TOO_MANY_REQUESTS, item[1], item[2], item[6])
            if self._failure is None:
                await self._barrier_all()
            if self._failure is None:
                await self._checkpointer.checkpoint()
            if self._failure is None:
                await self._checkpointer.checkpoint()
            for journal in self._journals:
                journal.stop()
            await trio.to_thread.run_sync(self._close_files)

    def set_live_ledgers(self, live_ledgers: Callable[[], Awaitable[set[int]]] | None) -> None:
        """Where garbage collection learns which ledgers still exist; None: it deletes nothing."""
        self._collector.live_ledgers = live_ledgers

    def _close_files(self) -> None:
        for journal in self._journals:
            journal.join()
        for storage in self._storages:
            storage.close()

    # ---- adds ----

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """Store an entry; see BookieApi."""
        handle = self._handles.get(ledger_id)
        if handle is None or handle.guarded or handle.master_key != master_key:
            self._add_guarded(ledger_id, entry_id, body, master_key, flags, sink)
            return
        cache = handle.storage.cache
        size = cache.size_bytes + len(body[0]) + len(body[1])
        if size > cache.limit_bytes:
            self._add_without_room(handle, entry_id, body, master_key, flags, sink)
            return
        cache.size_bytes = size
        entries = handle.entries
        if entries is None:
            entries = cache.touch(handle)
        if entry_id > handle.entry_id_max:
            handle.entry_id_max = entry_id
        else:
            handle.unordered = True
        entries[entry_id] = body
        pending = handle.journal.pending
        if not pending and not self._kick_scheduled:
            self._kick_scheduled = True
            self._token.run_sync_soon(self._kick_scheduled_now)
        pending.append((sink, ledger_id, entry_id, body))

    def kick(self) -> None:
        """Hand everything queued to the journals."""
        for journal in self._journals:
            if journal.pending:
                journal.kick()

    def _kick_scheduled_now(self) -> None:
        self._kick_scheduled = False
        self.kick()

    def _add_guarded(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """First add of a ledger in this run, fenced ledger, or other key."""
        if self._failure is not None or self._closed:
            self._refuse_now(Status.IO_ERROR, ledger_id, entry_id, sink)
            return
        if ledger_id < 0 or entry_id < 0:
            self._refuse(Status.BAD_REQUEST, ledger_id, entry_id, sink)
            return
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key) or handle.refusal_of_add(flags)
        if refusal is not None:
            self._refuse(refusal, ledger_id, entry_id, sink)
            return
        self._journal_key(handle, master_key)
        cache = handle.storage.cache
        if cache.size_bytes + len(body[0]) + len(body[1]) > cache.limit_bytes:
            self._add_without_room(handle, entry_id, body, master_key, flags, sink)
        else:
            self._admit(handle, entry_id, body, sink)

    def _admit(self, handle: LedgerHandle, entry_id: int, body: EntryBody, sink: AddSink) -> None:
        handle.storage.cache.put(handle, entry_id, body)
        self._submit(handle, entry_id, body, sink)

    def _submit(self, handle: LedgerHandle, entry_id: int, body: EntryBody, sink: AddSink) -> None:
        """Queue a record of any kind for the ledger's journal."""
        if not self._kick_scheduled:
            self._kick_scheduled = True
            self._token.run_sync_soon(self._kick_scheduled_now)
        handle.journal.pending.append((sink, handle.ledger_id, entry_id, body))

    def _journal_key(self, handle: LedgerHandle, master_key: bytes) -> None:
        """Once per run the key goes to the journal before the ledger's first entry."""
        if handle.adopt_key(master_key):
            handle.storage.cache.row_changed(handle)
        if not handle.key_journaled:
            handle.key_journaled = True
            record = journal_format.encode_master_key(handle.ledger_id, master_key)
            self._submit(handle, journal_format.ENTRY_MASTER_KEY, (record, b""), _NULL_SINK)
        handle.update_guard()

    def _add_without_room(
        self,
        handle: LedgerHandle,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """The write cache is full or closed: swap, wait or refuse."""
        ledger_id, storage = handle.ledger_id, handle.storage
        if self._failure is not None or self._closed:
            self._refuse_now(Status.IO_ERROR, ledger_id, entry_id, sink)
            return
        urgent = flags & (FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY) and storage.headroom
        if not storage.writable and not urgent:
            self._refuse(Status.READ_ONLY, ledger_id, entry_id, sink)
            return
        waiting = self._waiting[id(storage)]
        if not waiting:
            if not storage.cache.has_room():
                self._checkpointer.begin_if_idle()
            if storage.cache.has_room():
                self._admit(handle, entry_id, body, sink)
                return
        now = time.monotonic()
        if waiting.put(ledger_id, entry_id, body, master_key, flags, sink, now):
            storage.cache.close()
        else:
            self._refuse(Status.TOO_MANY_REQUESTS, ledger_id, entry_id, sink)

    def _made_room(self) -> None:
        """A flush ended or a disk has space again: let waiting adds in, in order."""
        for storage in self._storages:
            waiting = self._waiting[id(storage)]
            while waiting:
                if not storage.cache.has_room():
                    self._checkpointer.begin_if_idle()
                    if not storage.cache.has_room():
                        break
                _deadline, ledger_id, entry_id, body, master_key, flags, sink = waiting.take()
                handle = self._layout.handle_of(ledger_id)
                refusal = handle.refusal_of_key(master_key) or handle.refusal_of_add(flags)
                if refusal is None:
                    self._journal_key(handle, master_key)
                    self._admit(handle, entry_id, body, sink)
                else:
                    self._refuse(refusal, ledger_id, entry_id, sink)
            if not waiting and storage.writable and self._failure is None and not self._closed:
                storage.cache.open()
        self.kick()

    async def _expire_waiting(self) -> None:
        while True:
            await trio.sleep(_EXPIRY_INTERVAL_SECONDS)
            for waiting in self._waiting.values():
                for item in waiting.expired(time.monotonic()):
                    self._refuse(Status.TOO_MANY_REQUESTS, item[1], item[2], item[6])

    def _writable_changed(self) -> None:
        for storage in self._storages:
            if not storage.writable:
                storage.cache.close()
        self._made_room()

    def _refuse(self, status: Status, ledger_id: int, entry_id: int, sink: AddSink) -> None:
        """Through the journal queue, so that it comes after the answers to earlier adds."""
        self._adds_refused += 1
        journal = self._journals[ledger_id % len(self._journals)]
        if not self._kick_scheduled:
            self._kick_scheduled = True
            self._token.run_sync_soon(self._kick_scheduled_now)
        journal.pending.append((RefusedSink(sink, status), ledger_id, entry_id, EMPTY_BODY))

    def _refuse_now(self, status: Status, ledger_id: int, entry_id: int, sink: AddSink) -> None:
        """Without a journal, but still not from within the call."""
        self._adds_refused += 1

        def answer() -> None:
            sink.on_add_reply(status, ledger_id, entry_id)
            sink.on_replies_end()

        self._token.run_sync_soon(answer)

    # ---- answers ----

    def _group_done_soon(self, done: GroupDone) -> None:
        """Called by a journal thread."""
        self._token.run_sync_soon(self._group_done, done)

    def _group_done(self, done: GroupDone) -> None:
        if self._failure is not None:
            return
        self._add_bytes += done.size_bytes
        self._add_latency.observe(time.perf_counter() - done.handed_at)
        journal = done.journal
        journal.entries_answered += done.entries
        outstanding = journal.outstanding
        touched: dict[int, AddSink] = {}
        try:
            for batch in done.batches:
                outstanding.popleft()
                last: AddSink | None = None
                for sink, ledger_id, entry_id, _body in batch:
                    sink.on_add_reply(0, ledger_id, entry_id)
                    if sink is not last:
                        touched[id(sink)] = last = sink
            for sink in touched.values():
                sink.on_replies_end()
        except Exception as error:
            self._fail(error)

    def _fail_soon(self, error: BaseException) -> None:
        """Called by a journal thread that ended."""
        self._token.run_sync_soon(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        """Fatal: answer everything with IO_ERROR and end `run`."""
        if self._failure is not None:
            return
        logger.error("bookie failed and stops", error=str(error), kind=type(error).__name__)
        if not isinstance(error, StorageError):
            wrapped = DiskFailed(f"bookie failed: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        self._failure = error
        self._checkpointer.stopped = True
        for storage in self._storages:
            storage.cache.close()
        items = [
            (sink, ledger_id, entry_id)
            for journal in self._journals
            for batch in (*journal.outstanding, journal.pending)
            for sink, ledger_id, entry_id, _body in batch
        ]
        for waiting in self._waiting.values():
            while waiting:
                item = waiting.take()
                items.append((item[6], item[1], item[2]))
        for journal in self._journals:
            journal.outstanding.clear()
            journal.pending = []
        self._failed_event.set()
        for sink, ledger_id, entry_id in items:
            sink.on_add_reply(Status.IO_ERROR, ledger_id, entry_id)
            sink.on_replies_end()

    # ---- everything else ----

    def read_cached(self, ledger_id: int, entry_id: int) -> EntryBody | None:
        """See BookieApi."""
        return self._reader.read_cached(ledger_id, entry_id)

    async def read_entry(
        self, ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b""
    ) -> bytes:
        """See BookieApi. Fences, durably, before it looks for the entry."""
        self._check_usable()
        if flags & FLAG_FENCING:
            await self.fence_ledger(ledger_id, master_key)
        return await self._reader.read_entry(ledger_id, entry_id)

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """See BookieApi."""
        self._check_usable()
        return await self._reader.read_batch(ledger_id, first_entry_id, count_max, size_bytes_max)

    async def last_entry_id(self, ledger_id: int) -> int:
        """The highest entry id this bookie has of the ledger.

        Raises: BookieError.
        """
        self._check_usable()
        return await self._reader.last_entry_id(ledger_id)

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """See BookieApi. Returns when the fence record is durable."""
        self._check_usable()
        if not master_key or ledger_id < 0:
            raise BookieError(Status.UNAUTHORIZED, "fencing needs a ledger id and its master key")
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key)
        if refusal is not None:
            raise BookieError(refusal, f"ledger {ledger_id} has another master key")
        self._journal_key(handle, master_key)
        body = EMPTY_BODY
        if not handle.fenced:
            handle.fenced = True
            handle.update_guard()
            handle.storage.cache.row_changed(handle)
            body = (journal_format.encode_fence(ledger_id), b"")
        # A fence that another request asked for is still ahead in the queue: wait behind it.
        await self._durable(handle, journal_format.ENTRY_FENCE, body)

    async def force_ledger(self, ledger_id: int) -> None:
        """See BookieApi."""
        self._check_usable()
        handle = self._handles.get(ledger_id)
        if handle is None:
            raise BookieError(Status.NO_LEDGER, f"ledger {ledger_id} is not on this bookie")
        await self._durable(handle, journal_format.ENTRY_FORCE, EMPTY_BODY)

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """Keep a writer's explicit last-add-confirmed (v3 WRITE_LAC), durably.

        Raises: BookieError.
        """
        self._check_usable()
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key)
        if refusal is not None:
            raise BookieError(refusal, f"ledger {ledger_id} has another master key")
        if not handle.storage.writable:
            raise BookieError(Status.READ_ONLY, "the disk is full")
        self._journal_key(handle, master_key)
        handle.explicit_lac = body
        handle.storage.cache.row_changed(handle)
        record = journal_format.encode_explicit_lac(ledger_id, body)
        await self._durable(handle, journal_format.ENTRY_EXPLICIT_LAC, (record, b""))

    def explicit_lac(self, ledger_id: int) -> bytes:
        """The body kept by `write_explicit_lac`, empty if there is none.

        Raises: BookieError: NO_LEDGER.
        """
        handle = self._handles.get(ledger_id)
        if handle is None or not handle.exists:
            raise BookieError(Status.NO_LEDGER, f"ledger {ledger_id} is not on this bookie")
        return handle.explicit_lac

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger that its metadata store no longer has."""
        self._check_usable()
        try:
            await self._collector.delete_ledgers([ledger_id])
        except StorageError as error:
            raise BookieError(Status.IO_ERROR, str(error)) from error

    async def collect_garbage(self, *, major: bool = False) -> None:
        """One pass now; with `major`, logs below the major threshold are compacted, too."""
        self._check_usable()
        await self._collector.collect(major=major)

    async def checkpoint(self) -> None:
        """Flush everything and advance the journal marks now."""
        self._check_usable()
        await self._checkpointer.checkpoint()

    def ledger_ids(self) -> list[int]:
        """Ledgers this bookie has."""
        return [handle.ledger_id for handle in self._handles.values() if handle.exists]

    def is_writable(self) -> bool:
        """Some ledger directory takes adds."""
        return self._failure is None and any(storage.writable for storage in self._storages)

    def statistics(self) -> BookieStatistics:
        """The counters of this moment."""
        journals, reader, storages = self._journals, self._reader, self._storages
        collector = self._collector
        sync = LatencyHistogram()
        for journal in journals:
            sync.merge(journal.sync_latency)
        flushing = [storage.cache.flushing for storage in storages]
        failed = "failed" if self._failure is not None else "read-only"
        return BookieStatistics(
            state="writable" if self.is_writable() else failed,
            adds=sum(journal.entries_answered for journal in journals),
            adds_refused=self._adds_refused,
            add_bytes=self._add_bytes,
            adds_waiting=sum(map(len, self._waiting.values())),
            reads=reader.reads,
            reads_failed=reader.reads_failed,
            read_bytes=reader.read_bytes,
            reads_waiting=reader.reads_waiting,
            read_cache_hits=reader.cache.hits,
            read_cache_misses=reader.cache.misses,
            read_cache_bytes=reader.cache.size_bytes,
            write_cache_bytes=sum(storage.cache.size_bytes for storage in storages)
            + sum(half.size_bytes for half in flushing if half is not None),
            ledgers=sum(handle.exists for handle in self._handles.values()),
            journal_queue_entries=sum(j.entries_handed - j.entries_answered for j in journals),
            journal_groups=sum(journal.groups for journal in journals),
            journal_entries=sum(journal.entries_handed for journal in journals),
            journal_bytes=sum(journal.bytes_written for journal in journals),
            journal_sync=sync.snapshot(),
            add_entry=self._add_latency.snapshot(),
            read_entry=reader.latency.snapshot(),
            flush=self._checkpointer.flush_latency.snapshot(),
            checkpoints=self._checkpointer.checkpoints,
            entry_logs=sum(storage.logs.count() for storage in storages),
            entry_log_bytes=sum(storage.logs.size_bytes() for storage in storages),
            minor_compactions=collector.minor_compactions,
            major_compactions=collector.major_compactions,
            reclaimed_compaction_bytes=collector.reclaimed_compaction_bytes,
            reclaimed_deletion_bytes=collector.reclaimed_deletion_bytes,
        )

    async def _durable(self, handle: LedgerHandle, entry_id: int, body: EntryBody) -> None:
        sink = DurableSink()
        self._submit(handle, entry_id, body, sink)
        handle.journal.kick()
        if await sink.wait():
            raise BookieError(Status.IO_ERROR, "the bookie failed; see its log")

    async def _barrier_all(self) -> None:
        sinks = []
        for journal in self._journals:
            sink = DurableSink()
            journal.pending.append((sink, -1, journal_format.ENTRY_FORCE, EMPTY_BODY))
            journal.kick()
            sinks.append(sink)
        for sink in sinks:
            await sink.wait()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise BookieError(Status.IO_ERROR, f"the bookie failed: {self._failure}")
        if self._closed:
            raise BookieError(Status.IO_ERROR, "the bookie is closed")
