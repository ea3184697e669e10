"""Bookie: one storage node, in process. The shell around the pure parts of this package.

Adds are in `add_path`, reads in `reader`. Only the event loop changes state, without awaiting in
between, so no locks are needed. The nursery of `run` owns the background work: checkpoints, garbage
collection, disk checks.

Failures: a refused request is a BookieError or a status. A failed journal or sync ends `run` with
the error; after that every request is answered with IO_ERROR.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self, final

import structlog
import trio

from bookie import journal_format
from bookie.add_path import AddPath
from bookie.api import (
    FLAG_FENCING,
    BookieError,
    LedgerProgress,
    Status,
)
from bookie.checkpointer import Checkpointer
from bookie.cookie import check_cookies, complete_removal
from bookie.disk import RealDisk
from bookie.disk_monitor import DiskMonitor
from bookie.errors import StorageError
from bookie.gc import GarbageCollector
from bookie.index_rocksdb import RocksIndex
from bookie.journal import EMPTY_BODY
from bookie.layout import Layout
from bookie.ledger_handle import is_storable
from bookie.reader import EntryReader
from bookie.statistics import BookieStatistics, LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bookie.api import EntryBody, Turn
    from bookie.config import BookieConfig
    from bookie.cookie import CookieStore
    from bookie.disk import Disk
    from bookie.index import EntryIndex
    from bookie.ledger_storage import LedgerStorage
    from bookie.submitted_groups import LoopReaders

logger = structlog.get_logger()


@final
class Bookie:
    """See the module docstring. Made by `open`, run by `run`, ended by `aclose`."""

    def __init__(self, config: BookieConfig, layout: Layout, disk: Disk) -> None:
        self.config = config
        self._layout = layout
        self._disk = disk
        self._storages = layout.storages
        self._handles = layout.handles
        self._journals = layout.journals
        self._adds = adds = AddPath(config, layout)
        self.add_entry = adds.add_entry
        self.add_entries = adds.add_entries
        self.kick = adds.kick
        self._reader = EntryReader(config, layout.handles)
        self._checkpointer = Checkpointer(config, layout, adds)
        self._checkpointer.on_flushed = self._reader.forget_read_ahead
        adds.begin_flush = self._checkpointer.begin_if_idle
        self._collector = GarbageCollector(config, layout, adds.fail)
        self._monitor = DiskMonitor(config, disk, layout, self._writable_changed)
        adds.journal_room_changed = self._monitor.check_now
        self._on_writable: list[Callable[[], None]] = []

    @classmethod
    async def open(
        cls,
        config: BookieConfig,
        disk: Disk | None = None,
        *,
        open_index: Callable[[str], EntryIndex] | None = None,
        cookie_store: CookieStore | None = None,
        live_ledgers: Callable[[], Awaitable[set[int]]] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> Self:
        """Check the identity of the directories, replay the journals, start the journal threads.
        `live_ledgers` returns the existing ledgers. `open_index`: None: in RocksDB.

        Raises: StorageError: it must not start. The text says how to resolve it.
        """
        disk = disk if disk is not None else RealDisk()
        plan = await check_cookies(config, disk, cookie_store)
        if open_index is None:
            cache_bytes = config.dbStorage_rocksDB_blockCacheSize
            open_index = partial(RocksIndex, block_cache_bytes=cache_bytes)
        layout = Layout(config, disk, open_index, plan)
        live = await live_ledgers() if live_ledgers is not None else None

        def prepare() -> None:
            layout.open_storages()
            layout.recover(now_ms(), live)

        try:
            await trio.to_thread.run_sync(prepare)
        except BaseException:
            for storage in layout.storages:
                storage.index.close()
            raise
        if plan.removed:
            await complete_removal(config, disk, cookie_store, plan)
        bookie = cls(config, layout, disk)
        adds = bookie._adds
        for number, writer in enumerate(layout.writers):
            name = f"bookie-journal-{number}"
            layout.journals[number].start(
                name,
                writer,
                adds.group_done_soon,
                adds.fail_soon,
                adds.refuse_batch,
                adds.journal_room_changed_soon,
            )
        bookie._monitor.check_now()
        return bookie

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run background work until cancelled.

        Raises: StorageError: the bookie failed and must not be used any more.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpointer.run)
            nursery.start_soon(self._collector.run)
            nursery.start_soon(self._monitor.run)
            nursery.start_soon(self._adds.expire_waiting)
            task_status.started()
            await self._adds.failed.wait()
            nursery.cancel_scope.cancel()
        assert self._adds.failure is not None
        raise self._adds.failure

    async def aclose(self) -> None:
        """Answer accepted requests, flush, write the checkpoint, close everything."""
        adds = self._adds
        if adds.closed:
            return
        adds.close()
        with trio.CancelScope(shield=True):
            if adds.failure is None:
                await adds.barrier_all()
            await self._checkpointer.aclose()
            adds.submitted.leave()
            for journal in self._journals:
                journal.stop()
            async with AsyncExitStack() as stack:
                for storage in self._storages:
                    # Garbage collection may go on: not while the files are closed, nor after that.
                    stack.push_async_callback(self._close_storage, storage)
                await trio.to_thread.run_sync(self._join_journals)

    def set_turn(self, turn: Turn) -> None:
        """The turns in which the bookie takes part. Replies of a group are delivered in a turn,
        and the end of a turn hands its adds to the journal."""
        self._adds.turn = turn

    def use_readers(self, readers: LoopReaders) -> None:
        """The readers of this event loop wake it when records are durable, for less CPU than trio
        does, and the loop submits small groups of records. To be set before the first add: answers
        keep their order within one way only."""
        self._adds.use_readers(readers, self._disk)

    def set_live_ledgers(self, live_ledgers: Callable[[], Awaitable[set[int]]] | None) -> None:
        """Tells garbage collection which ledgers still exist. None: it deletes nothing."""
        self._collector.live_ledgers = live_ledgers

    async def _close_storage(self, storage: LedgerStorage) -> None:
        close = partial(storage.close, has_failed=self._adds.failure is not None)
        await trio.to_thread.run_sync(close, limiter=storage.writer_limiter)

    def _join_journals(self) -> None:
        for journal in self._journals:
            journal.join()

    def read_cached(self, ledger_id: int, entry_id: int) -> EntryBody | None:
        """See BookieApi."""
        return self._reader.read_cached(ledger_id, entry_id)

    def read_nowait(self, ledger_id: int, entry_id: int) -> bytes | None:
        """A whole entry from one of the caches. None does not prove that it is absent."""
        if self._adds.failure is not None or self._adds.closed:
            return None
        return self._reader.read_nowait(ledger_id, entry_id)

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

    async def list_entry_ids(self, ledger_id: int) -> list[int]:
        """All entry ids of a ledger, ascending (v3 GET_LIST_OF_ENTRIES).

        Raises: BookieError.
        """
        self._check_usable()
        return await self._reader.entry_ids(ledger_id)

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Disk space of the ledger directories (v3 GET_BOOKIE_INFO)."""
        return self._monitor.free_and_total_bytes()

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """See BookieApi. Returns when the fence record is durable."""
        self._check_usable()
        if not master_key or not is_storable(ledger_id, master_key):
            raise BookieError(Status.UNAUTHORIZED, "fencing needs a ledger id and its master key")
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key)
        if refusal is not None:
            raise BookieError(refusal, f"ledger {ledger_id} has another master key")
        self._adds.journal_key(handle, master_key)
        body = EMPTY_BODY
        if not handle.fenced:
            handle.fenced = True
            handle.update_guard()
            handle.storage.cache.row_changed(handle)
            body = (journal_format.encode_fence(ledger_id), b"")
        # A fence that another request asked for is still in the queue: wait until it is done.
        await self._adds.durable(handle, journal_format.ENTRY_FENCE, body)

    async def force_ledger(self, ledger_id: int) -> None:
        """See BookieApi."""
        self._check_usable()
        handle = self._handles.get(ledger_id)
        if handle is None:
            raise BookieError(Status.NO_LEDGER, f"ledger {ledger_id} is not on this bookie")
        await self._adds.durable(handle, journal_format.ENTRY_FORCE, EMPTY_BODY)

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """Keep a writer's explicit last-add-confirmed (v3 WRITE_LAC), durably.

        Raises: BookieError.
        """
        self._check_usable()
        if not is_storable(ledger_id, master_key):
            raise BookieError(Status.BAD_REQUEST, f"{ledger_id} is not a ledger id, or its key")
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key)
        if refusal is not None:
            raise BookieError(refusal, f"ledger {ledger_id} has another master key")
        if not handle.storage.writable:
            raise BookieError(Status.READ_ONLY, "the disk is full")
        self._adds.journal_key(handle, master_key)
        handle.explicit_lac = body
        handle.storage.cache.row_changed(handle)
        record = journal_format.encode_explicit_lac(ledger_id, body)
        await self._adds.durable(handle, journal_format.ENTRY_EXPLICIT_LAC, (record, b""))

    def explicit_lac(self, ledger_id: int) -> bytes:
        """The body kept by `write_explicit_lac`, empty if there is none.

        Raises: BookieError: NO_LEDGER.
        """
        handle = self._handles.get(ledger_id)
        if handle is None or not handle.exists:
            raise BookieError(Status.NO_LEDGER, f"ledger {ledger_id} is not on this bookie")
        return handle.explicit_lac

    def progress_of(self, ledger_id: int) -> LedgerProgress:
        """For a reader that waits for more of a ledger."""
        handle = self._handles.get(ledger_id)
        if handle is None or not handle.exists:
            return LedgerProgress(-1, b"", is_over=True)
        return LedgerProgress(handle.entry_id_max, handle.explicit_lac, handle.fenced)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger that its metadata store no longer has."""
        self._check_usable()
        try:
            await self._collector.delete_ledgers([ledger_id])
        except StorageError as error:
            raise BookieError(Status.IO_ERROR, str(error)) from error

    async def collect_garbage(self, *, major: bool = False) -> None:
        """One pass now. With `major`, logs below the major threshold are also compacted."""
        self._check_usable()
        await self._collector.collect(major=major)

    async def checkpoint(self) -> None:
        """Flush everything and advance the journal marks now."""
        self._check_usable()
        await self._checkpointer.checkpoint()

    def ledger_ids(self) -> list[int]:
        """Ledgers this bookie has."""
        return [handle.ledger_id for handle in self._handles.values() if handle.exists]

    @property
    def damage(self) -> str:
        """Damage found since the start, as a line for the user; empty: none."""
        return next((s.index.damage for s in self._storages if s.index.damage), "")

    def is_writable(self) -> bool:
        """Whether any ledger directory takes adds."""
        return self._adds.failure is None and any(storage.writable for storage in self._storages)

    def has_headroom(self) -> bool:
        """Whether any ledger directory takes recovery adds, be it full or not."""
        return self._adds.failure is None and any(storage.headroom for storage in self._storages)

    def watch_writable(self, on_change: Callable[[], None]) -> None:
        """Call back when a disk has become full or has space again."""
        self._on_writable.append(on_change)

    def _writable_changed(self) -> None:
        self._adds.writable_changed()
        for on_change in self._on_writable:
            on_change()

    def statistics(self) -> BookieStatistics:
        """The counters of this moment."""
        journals, reader, storages = self._journals, self._reader, self._storages
        collector = self._collector
        sync = LatencyHistogram()
        for journal in journals:
            sync.merge(journal.sync_latency)
        flushing = [storage.cache.flushing for storage in storages]
        failed = "failed" if self._adds.failure is not None else "read-only"
        return BookieStatistics(
            state="writable" if self.is_writable() else failed,
            adds=sum(journal.entries_answered for journal in journals),
            adds_refused=self._adds.refused,
            add_bytes=self._adds.bytes_answered,
            adds_waiting=self._adds.waiting_count(),
            reads=reader.reads,
            reads_failed=reader.reads_failed,
            read_bytes=reader.read_bytes,
            reads_waiting=reader.reads_waiting,
            read_cache_hits=reader.cache.hits,
            read_cache_misses=reader.cache.misses,
            read_cache_bytes=reader.cache.size_bytes,
            read_cache_entries=reader.cache.entries,
            write_cache_hits=reader.write_cache_hits,
            entry_log_reads=reader.log_reads,
            write_cache_bytes=sum(storage.cache.size_bytes for storage in storages)
            + sum(half.size_bytes for half in flushing if half is not None),
            ledgers=sum(handle.exists for handle in self._handles.values()),
            journal_queue_entries=sum(j.entries_handed - j.entries_answered for j in journals),
            journal_groups=sum(journal.groups for journal in journals),
            journal_entries=sum(journal.entries_handed for journal in journals),
            journal_bytes=sum(journal.bytes_written for journal in journals),
            journal_sync=sync.snapshot(),
            add_entry=self._adds.latency.snapshot(),
            read_entry=reader.latency.snapshot(),
            flush=self._checkpointer.flush_latency.snapshot(),
            checkpoints=self._checkpointer.checkpoints,
            entry_logs=sum(storage.logs.count() for storage in storages),
            entry_log_bytes=sum(storage.logs.size_bytes() for storage in storages),
            entry_logs_missing=sum(len(storage.lost_logs) for storage in storages),
            minor_compactions=collector.minor_compactions,
            major_compactions=collector.major_compactions,
            reclaimed_compaction_bytes=collector.reclaimed_compaction_bytes,
            reclaimed_deletion_bytes=collector.reclaimed_deletion_bytes,
        )

    def _check_usable(self) -> None:
        if self._adds.failure is not None:
            raise BookieError(Status.IO_ERROR, f"the bookie failed: {self._adds.failure}")
        if self._adds.closed:
            raise BookieError(Status.IO_ERROR, "the bookie is closed")
