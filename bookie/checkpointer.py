"""Checkpointer: swaps the write caches, flushes them in threads, advances the journal marks.

One checkpoint at a time covers all ledger directories, because a mark may move only when all of
them have flushed the entries before it. The marks are taken before the swap. A directory that is
full keeps its half. Then no mark moves, and the next checkpoint tries that half again. The halves
are released only after their entries were journaled, so the caches bound the journal's queue.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, final

import structlog
import trio

from bookie.adds import DurableSink
from bookie.errors import DiskFull
from bookie.freed_entries import free_all
from bookie.journal import EMPTY_BODY
from bookie.journal_format import ENTRY_FORCE
from bookie.statistics import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.add_path import AddPath
    from bookie.config import BookieConfig
    from bookie.journal_writer import LogMark
    from bookie.layout import Layout
    from bookie.ledger_storage import LedgerStorage
    from bookie.write_cache import FlushHalf

logger = structlog.get_logger()


@final
class Checkpointer:
    """Runs checkpoints at the flush interval, when a cache half is full, and on request."""

    def __init__(self, config: BookieConfig, layout: Layout, adds: AddPath) -> None:
        self._layout = layout
        self._interval_seconds = config.flushInterval / 1000
        self._backups = config.journalMaxBackups
        self._adds = adds
        self._wanted = trio.Event()
        self._lock = trio.Lock()
        self._closed = False
        self._begun: tuple[list[LogMark], list[DurableSink], bool] | None = None
        """(marks, barriers, whether the marks may be advanced) of the checkpoint in progress."""
        self.on_flushed: Callable[[FlushHalf], None] = _no_action
        """Called when a half is indexed, before its entries leave memory. Set by the owner."""
        self.checkpoints = 0
        self.flush_latency = LatencyHistogram()

    async def run(self) -> None:
        """Run checkpoints until cancelled."""
        self._let_flushes_give_way(True)
        while True:
            with trio.move_on_after(self._interval_seconds):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await self.checkpoint()

    def begin_if_idle(self) -> None:
        """Swap the caches now, unless a checkpoint is in progress. The flush follows by itself."""
        if self._closed or self._adds.failure is not None:
            return
        if self._begun is None and self._all_flushed():
            self._begin()
            self._wanted.set()

    async def checkpoint(self) -> None:
        """Flush the caches now and advance the marks. No action after `aclose`."""
        async with self._lock:
            await self._checkpoint()

    async def aclose(self) -> None:
        """Flush everything for the last time. The journals and the storages end after this, so no
        later checkpoint may begin, even if a task waits for its turn."""
        self._let_flushes_give_way(False)
        async with self._lock:
            # The first may have begun before this call. The second covers everything.
            await self._checkpoint()
            await self._checkpoint()
            self._closed = True

    def _let_flushes_give_way(self, gives_way: bool) -> None:
        """Also that one which is under way."""
        for storage in self._layout.storages:
            storage.gives_way = gives_way

    async def _checkpoint(self) -> None:
        if self._adds.failure is not None or self._closed:
            return
        if self._begun is None:
            self._begin()
        assert self._begun is not None
        marks, barriers, complete = self._begun
        with trio.CancelScope(shield=True):
            try:
                complete = await self._flush_all() and complete
                for barrier in barriers:
                    if await barrier.wait():
                        return
                if complete:
                    await trio.to_thread.run_sync(partial(self._advance, marks))
                    self.checkpoints += 1
            except DiskFull as error:
                logger.warning("journal marks not advanced: disk full", error=str(error))
            except Exception as error:
                self._adds.fail(error)
            finally:
                self._begun = None
        if self._adds.failure is None:
            self._adds.made_room()

    def _all_flushed(self) -> bool:
        return all(storage.cache.flushing is None for storage in self._layout.storages)

    def _begin(self) -> None:
        """Marks first, then the swap: entries before a mark are in a half that is flushed now."""
        self._adds.kick()
        journals = self._layout.journals
        marks = [journal.mark for journal in journals]
        complete = self._all_flushed()
        for storage in self._layout.storages:
            if storage.cache.flushing is None:
                storage.cache.swap()
        barriers = []
        for journal in journals:
            barrier = DurableSink()
            journal.add_alone(barrier, -1, ENTRY_FORCE, EMPTY_BODY)
            journal.kick()
            barriers.append(barrier)
        self._begun = (marks, barriers, complete)

    async def _flush_all(self) -> bool:
        """Flush every directory side by side; True if all succeeded."""
        results: list[bool] = []

        async def flush(storage: LedgerStorage) -> None:
            results.append(await self._flush(storage))

        async with trio.open_nursery() as nursery:
            for storage in self._layout.storages:
                nursery.start_soon(flush, storage)
        return all(results)

    async def _flush(self, storage: LedgerStorage) -> bool:
        half = storage.cache.flushing
        assert half is not None
        started = time.perf_counter()
        try:
            await trio.to_thread.run_sync(storage.flush, half, limiter=storage.writer_limiter)
        except DiskFull as error:
            storage.writable = False
            storage.cache.close()
            logger.error(
                "ledger directory is full; its entries stay in memory and in the journal",
                directory=storage.directory,
                error=str(error),
            )
            return False
        except Exception as error:
            self._adds.fail(error)
            return False
        self.flush_latency.observe(time.perf_counter() - started)
        self.on_flushed(half)
        dropped = storage.cache.flushed()
        await trio.to_thread.run_sync(free_all, dropped, limiter=storage.writer_limiter)
        return True

    def _advance(self, marks: list[LogMark]) -> None:
        """In a thread: write marks to every directory, then remove journals before them."""
        for journal, store, mark in zip(
            self._layout.journals, self._layout.marks, marks, strict=True
        ):
            if store.advance(mark):
                journal.remove_before(mark, self._backups)


def _no_action(_half: FlushHalf) -> None:
    """No one is notified."""
