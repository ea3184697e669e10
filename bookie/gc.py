"""GarbageCollector: removes ledgers that are gone, deletes and compacts entry logs.

A pass: (1) ledgers of this bookie that the metadata no longer has are dropped from the index (the
local list is taken before the metadata is read, so a new ledger is never missing from the
metadata); (2) logs without a live ledger are deleted; (3) logs with little live data are compacted:
live entries are copied to the newest log and synced, their locations are moved and synced, and only
then is the log deleted. If any step fails the old log stays.

The content of a log is proved before the log is deleted: by a ledgers map with a checksum, else by
reading all of its records. A log is damaged if it cannot be read to its end, if its records differ
from its map, or if it holds a record of a live ledger that the index does not know. A damaged log
is kept and reported.

A fenced ledger leaves a tombstone for a week, so that a late writer cannot recreate it unfenced.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog
import trio

from bookie.background_io import in_background
from bookie.errors import Corruption, DiskFailed, DiskFull, StorageClosed, StorageError
from bookie.freed_entries import free_all
from bookie.ledger_state import encode_ledger_data

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bookie.config import BookieConfig
    from bookie.entry_log import LogSummary
    from bookie.entry_runs import EntryRuns
    from bookie.layout import Layout
    from bookie.ledger_handle import LedgerHandle
    from bookie.ledger_storage import LedgerStorage

logger = structlog.get_logger()

T = TypeVar("T")

_TOMBSTONE_SECONDS: Final = 7 * 86_400
_COPY_BYTES: Final = 1 << 20
_COPY_ENTRIES: Final = 256


@final
class GarbageCollector:
    """Runs a pass every gcWaitTime."""

    def __init__(
        self, config: BookieConfig, layout: Layout, fail: Callable[[BaseException], None]
    ) -> None:
        self._config = config
        self._layout = layout
        self._fail = fail
        self._lock = trio.Lock()
        self.live_ledgers: Callable[[], Awaitable[set[int]]] | None = None
        now = time.monotonic()
        self._minor_every = _period(config.minorCompactionInterval, config.minorCompactionThreshold)
        self._major_every = _period(config.majorCompactionInterval, config.majorCompactionThreshold)
        self._minor_at = now + self._minor_every
        self._major_at = now + self._major_every
        self._tombstones = {
            ledger_id: now + _TOMBSTONE_SECONDS
            for ledger_id, handle in layout.handles.items()
            if not handle.exists
        }
        self.minor_compactions = 0
        self.major_compactions = 0
        self.reclaimed_compaction_bytes = 0
        self.reclaimed_deletion_bytes = 0

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            await trio.sleep(self._config.gcWaitTime / 1000)
            await self.collect()

    async def collect(self, *, major: bool = False) -> None:
        """One pass. `major` compacts with the major threshold whatever the time."""
        async with self._lock:
            try:
                await self._collect_ledgers()
            except DiskFull as error:
                logger.warning("garbage collection stopped: disk full", error=str(error))
            except StorageClosed:
                return
            except (StorageError, OSError) as error:
                logger.error("garbage collection stopped", error=str(error))
                return
            now = time.monotonic()
            threshold = 0.0
            if now >= self._minor_at:
                threshold = self._config.minorCompactionThreshold
                self._minor_at = now + self._minor_every
            if major or now >= self._major_at:
                threshold = self._config.majorCompactionThreshold
                self._major_at = now + self._major_every
                major = True
            for storage in self._layout.storages:
                try:
                    await self._collect_logs(storage, threshold, major=major)
                except DiskFull as error:
                    logger.warning("compaction stopped: disk full", error=str(error))
                except StorageClosed:
                    return
                except (StorageError, OSError) as error:
                    # A failed write was already reported as fatal; a failed read deletes nothing.
                    logger.error("garbage collection stopped", error=str(error))
                    return

    async def delete_ledgers(self, ledger_ids: list[int]) -> None:
        """Remove ledgers: their handles at once, their rows and locations durably."""
        by_storage: dict[int, tuple[LedgerStorage, list[int], dict[int, bytes | None]]] = {}
        dropped: list[EntryRuns] = []
        for ledger_id in ledger_ids:
            handle = self._layout.handles.get(ledger_id)
            if handle is None or not handle.exists:
                continue
            handle.exists = False
            handle.deleted = True
            handle.update_guard()
            storage = handle.storage
            row = None
            if handle.fenced:
                self._tombstones[ledger_id] = time.monotonic() + _TOMBSTONE_SECONDS
                row = encode_ledger_data(handle)
            else:
                del self._layout.handles[ledger_id]
            entries = storage.cache.forget(handle, row)
            if entries is not None:
                dropped.append(entries)
            item = by_storage.setdefault(id(storage), (storage, [], {}))
            item[1].append(ledger_id)
            item[2][ledger_id] = row
        await trio.to_thread.run_sync(free_all, dropped)
        for storage, doomed, rows in by_storage.values():
            await self._in_writer(storage, partial(storage.remove_ledgers, doomed, rows))

    async def _collect_ledgers(self) -> None:
        now = time.monotonic()
        expired = [ledger_id for ledger_id, at in self._tombstones.items() if at <= now]
        for ledger_id in expired:
            del self._tombstones[ledger_id]
            handle = self._layout.handles.pop(ledger_id)
            rows: dict[int, bytes | None] = {ledger_id: None}
            await self._in_writer(handle.storage, partial(handle.storage.remove_ledgers, [], rows))
        if self.live_ledgers is None:
            return
        local = [handle.ledger_id for handle in self._layout.handles.values() if handle.exists]
        try:
            live = await self.live_ledgers()
        except Exception as error:
            logger.warning("no garbage collected: the metadata cannot be read", error=str(error))
            return
        doomed = [ledger_id for ledger_id in local if ledger_id not in live]
        if doomed:
            logger.info("ledgers deleted", count=len(doomed), first=doomed[0])
            await self.delete_ledgers(doomed)

    async def _collect_logs(self, storage: LedgerStorage, threshold: float, *, major: bool) -> None:
        compaction = storage.compaction_allowed
        if major and not storage.major_compaction_allowed:
            compaction = False
        for log_id in sorted(storage.logs.summaries):
            try:
                await self._collect_log(
                    storage, log_id, threshold if compaction else 0, major=major
                )
            except Corruption as error:
                logger.error("entry log is kept but not collected", error=str(error))

    async def _collect_log(
        self, storage: LedgerStorage, log_id: int, threshold: float, *, major: bool
    ) -> None:
        summary = await self._candidate(storage, log_id, threshold)
        if summary is None:
            return
        live = self._live_bytes(summary)
        if not live:
            freed = await self._in_writer(storage, partial(storage.logs.remove, log_id))
            self.reclaimed_deletion_bytes += freed
            logger.info("entry log deleted", directory=storage.directory, log=f"{log_id:x}")
        elif not summary.contradicted and await self._compact(storage, summary, live):
            if major:
                self.major_compactions += 1
            else:
                self.minor_compactions += 1

    async def _candidate(
        self, storage: LedgerStorage, log_id: int, threshold: float
    ) -> LogSummary | None:
        """The proven content of a log that can be deleted or compacted; None: it stays as it is.

        Raises: Corruption.
        """
        # Only reads, but perhaps for long: flushes must not wait for it.
        summary = await trio.to_thread.run_sync(
            in_background, partial(storage.logs.estimate, log_id)
        )
        if self._is_kept(summary, threshold):
            return None
        summary = await trio.to_thread.run_sync(in_background, partial(storage.logs.prove, log_id))
        return None if self._is_kept(summary, threshold) else summary

    def _is_kept(self, summary: LogSummary, threshold: float) -> bool:
        live = self._live_bytes(summary)
        return live > 0 and live >= threshold * sum(summary.bytes_by_ledger.values())

    def _live_bytes(self, summary: LogSummary) -> int:
        handles = self._layout.handles
        live = 0
        for ledger_id, size_bytes in summary.bytes_by_ledger.items():
            handle = handles.get(ledger_id)
            if handle is not None and handle.exists:
                live += size_bytes
        return live

    async def _compact(self, storage: LedgerStorage, summary: LogSummary, live: int) -> bool:
        """Copy live entries, in slices between flushes, then delete the log. False: it is damaged
        and stays, and the copied entries exist twice."""
        log_id = summary.log_id
        found = _LiveRecords(self._layout.handles, storage.logs.records(log_id))
        copied = 0
        unknown: list[tuple[int, int]] = []
        unknown_count = 0
        while True:
            started = time.monotonic()
            entries = await trio.to_thread.run_sync(in_background, found.next_slice)
            if not entries:
                break
            count, strange = await self._in_writer(storage, partial(storage.copy_entries, entries))
            copied += count
            strange = [each for each in strange if found.is_live(each[0])]
            unknown = unknown or strange
            unknown_count += len(strange)
            due = len(entries) / self._config.compactionRateByEntries
            await trio.sleep(max(0.0, due - (time.monotonic() - started)))
        if found.bytes_by_ledger != summary.bytes_by_ledger:
            summary.contradict(found.bytes_by_ledger)
            storage.logs.report_contradiction(log_id)
            return False
        if unknown:
            summary.contradicted = True
            logger.error(
                "entry log is kept: it holds records of live ledgers that the index does not know",
                directory=storage.directory,
                log=f"{log_id:x}",
                entries=unknown_count,
                first=f"{unknown[0][0]}:{unknown[0][1]}",
            )
            return False
        freed = await self._in_writer(storage, partial(storage.logs.remove, log_id))
        self.reclaimed_compaction_bytes += max(0, freed - live)
        logger.info(
            "entry log compacted",
            directory=storage.directory,
            log=f"{log_id:x}",
            entries_copied=copied,
            bytes_freed=freed - live,
        )
        return True

    async def _in_writer(self, storage: LedgerStorage, call: partial[T]) -> T:
        """Runs in the thread of the storage, between flushes."""
        try:
            return await trio.to_thread.run_sync(
                partial(storage.unless_closed, call), limiter=storage.writer_limiter
            )
        except DiskFailed as error:
            self._fail(error)
            raise


@final
class _LiveRecords:
    """The records of a log that belong to live ledgers, in slices; counts all there are."""

    def __init__(
        self, handles: dict[int, LedgerHandle], records: Iterator[tuple[int, int, int, bytes]]
    ) -> None:
        self._handles = handles
        self._records = records
        self.bytes_by_ledger: dict[int, int] = {}

    def is_live(self, ledger_id: int) -> bool:
        """Whether the ledger exists now."""
        handle = self._handles.get(ledger_id)
        return handle is not None and handle.exists

    def next_slice(self) -> list[tuple[int, int, int, bytes]]:
        """About one slice; empty at the end of the log. Raises: Corruption."""
        result = []
        size = 0
        counted = self.bytes_by_ledger
        for item in self._records:
            ledger_id = item[1]
            counted[ledger_id] = counted.get(ledger_id, 0) + len(item[3])
            if not self.is_live(ledger_id):
                continue
            result.append(item)
            size += len(item[3])
            if size >= _COPY_BYTES or len(result) >= _COPY_ENTRIES:
                break
        return result


def _period(interval_seconds: int, threshold: float) -> float:
    """Seconds between compactions; infinite when either key is 0, which disables them."""
    return interval_seconds if interval_seconds > 0 and threshold > 0 else math.inf
