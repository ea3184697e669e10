"""EntryReader: answers reads from the write cache, the read-ahead cache, or the entry logs in
reader threads.

Reads have their own bounded threads, and never wait long for the journal (`bookie.read_turns`).
NO_ENTRY is a proof because of the order of look-ups: an entry moves from the write cache to the
index only, and is indexed before it leaves the cache, so a read cannot miss it in both. Any
unexpected condition is IO_ERROR, never NO_ENTRY.

A read of few entries from the logs reads up to `dbStorage_readAheadCacheBatchSize` entries of them,
and keeps the rest for the next reads. A run that continues an earlier one (a broker's or a tool's
way through a backlog) is read together with the next one, which is then answered from memory. That
is done only if the next run can be expected to have at most so many entries: otherwise a short run
would follow each long one.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog
import trio

from bookie.api import LAST_ENTRY, BookieError, EntryBody, Status
from bookie.background_io import in_background
from bookie.read_cache import NONE, ReadAheadCache
from bookie.statistics import LatencyHistogram
from settings.kinds import or_no_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.config import BookieConfig
    from bookie.ledger_handle import LedgerHandle
    from bookie.write_cache import FlushHalf

logger = structlog.get_logger()

T = TypeVar("T")

_READ_AHEAD_BYTES: Final = 1 << 20
_ENDS_MAX: Final = 1_000
"""Runs that may be continued: readers of backlogs at the same time."""
FOUND_PER_SLICE: Final = 1_000
"""Entries that are looked for in the caches: less than half a millisecond."""


@final
class EntryReader:
    """Reads of all ledgers of one bookie."""

    def __init__(self, config: BookieConfig, handles: dict[int, LedgerHandle]) -> None:
        self._handles = handles
        threads = max(1, config.numReadWorkerThreads)
        self._limiter = trio.CapacityLimiter(threads)
        self._waiting_max = or_no_limit(config.maxPendingReadRequestsPerThread * threads)
        self._read_ahead_count = config.dbStorage_readAheadCacheBatchSize
        self.cache = ReadAheadCache(config.dbStorage_readAheadCacheMaxSizeMb << 20)
        self._ends: dict[tuple[int, int], int] = {}
        """Number of entries of the runs that were read last, by ledger and the entry after them."""
        self.write_cache_hits = 0
        self.log_reads = 0
        """Reads of runs from the entry logs."""
        self.reads = 0
        self.reads_failed = 0
        self.read_bytes = 0
        self.reads_waiting = 0
        self.latency = LatencyHistogram()

    def read_cached(self, ledger_id: int, entry_id: int) -> EntryBody | None:
        """From the write cache."""
        handle = self._handles.get(ledger_id)
        if handle is None:
            return None
        entries = handle.entries
        if entries is not None:
            body = entries.get(entry_id)
            if body is not None:
                return body
        entries = handle.flushing
        return entries.get(entry_id) if entries is not None else None

    def read_nowait(self, ledger_id: int, entry_id: int) -> bytes | None:
        """From the caches. A miss proves nothing."""
        handle = self._handles.get(ledger_id)
        if handle is None or not handle.exists:
            return None
        pair = self.read_cached(ledger_id, entry_id)
        body: bytes | None = None
        if pair is not None:
            body = pair[0] + pair[1]
            self.write_cache_hits += 1
        else:
            ahead, at = self.cache.find(ledger_id, entry_id)
            if ahead:
                body = ahead[at]
                self.cache.hits += 1
        if body is not None:
            self.reads += 1
            self.read_bytes += len(body)
        return body

    def forget_read_ahead(self, half: FlushHalf) -> None:
        """Entries of these ledgers are indexed anew. One that was added again, in place of a
        damaged one, must not be answered as it was read before."""
        if self.cache.entries:
            for handle in half.handles:
                self.cache.discard_ledger(handle.ledger_id)

    async def read_entry(self, ledger_id: int, entry_id: int) -> bytes:
        """One entry, LAST_ENTRY for the newest.

        Raises: BookieError.
        """
        if entry_id == LAST_ENTRY:
            entry_id = await self.last_entry_id(ledger_id)
        return (await self.read_batch(ledger_id, entry_id, 1, 0))[0]

    async def last_entry_id(self, ledger_id: int) -> int:
        """The highest entry id this bookie has of the ledger.

        Raises: BookieError.
        """
        handle = self._handle(ledger_id)
        highest = handle.entry_id_max
        index = handle.storage.index
        highest = max(
            highest, await self._in_thread(ledger_id, partial(index.last_entry_id, ledger_id))
        )
        if highest < 0:
            raise self._missing(handle, LAST_ENTRY)
        return highest

    async def entry_ids(self, ledger_id: int) -> list[int]:
        """All entry ids of a ledger, ascending.

        Raises: BookieError.
        """
        handle = self._handle(ledger_id)
        found = set(handle.entries or ()) | set(handle.flushing or ())
        index = handle.storage.index
        stored = await self._in_thread(ledger_id, lambda: list(index.entry_ids(ledger_id)))
        return sorted(found.union(stored))

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """Consecutive entries, at least one.

        Raises: BookieError.
        """
        handle = self._handle(ledger_id)
        if first_entry_id < 0:
            raise BookieError(Status.BAD_REQUEST, f"entry id {first_entry_id}")
        started = time.perf_counter()
        before = self._ends.pop((ledger_id, first_entry_id), 0)
        result = await self._cached_run(ledger_id, first_entry_id, count_max, size_bytes_max)
        if result:
            # Callers loop in turns of their own; a cache hit must still be a checkpoint.
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            result = await self._stored_run(
                handle, first_entry_id, count_max, size_bytes_max, before
            )
        if size_bytes_max > 0:
            self._ends[ledger_id, first_entry_id + len(result)] = len(result)
            if len(self._ends) > _ENDS_MAX:
                del self._ends[next(iter(self._ends))]
        self.latency.observe(time.perf_counter() - started)
        self.reads += len(result)
        self.read_bytes += sum(map(len, result))
        return result

    async def _cached_run(
        self, ledger_id: int, entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """It ends where an entry is not in a cache, also if it has left between two slices."""
        result: list[bytes] = []
        taken = 0
        slice_end = FOUND_PER_SLICE
        ahead, at = NONE, 0
        read_ahead = 0
        while not result or (len(result) < count_max and taken < size_bytes_max):
            pair = self.read_cached(ledger_id, entry_id)
            if pair is not None:
                ahead, at = NONE, 0
                body = pair[0] + pair[1]
            else:
                if at == len(ahead):
                    run, start = self.cache.find(ledger_id, entry_id)
                    if not run:
                        break
                    ahead, at = run, start
                body = ahead[at]
            if result and taken + len(body) > size_bytes_max:
                break
            if pair is None:
                at += 1
                read_ahead += 1
            result.append(body)
            taken += len(body)
            entry_id += 1
            if len(result) == slice_end:
                slice_end += FOUND_PER_SLICE
                await trio.lowlevel.cancel_shielded_checkpoint()
        self.cache.hits += read_ahead
        if ahead and read_ahead == at == len(ahead) and size_bytes_max > 0:
            # Brokers keep what they read by runs, for all who read there.
            self.cache.discard(ledger_id, entry_id - at)
        self.write_cache_hits += len(result) - read_ahead
        return result

    async def _stored_run(
        self,
        handle: LedgerHandle,
        first_entry_id: int,
        count_max: int,
        size_bytes_max: int,
        before: int,
    ) -> list[bytes]:
        """From the entry logs, reading ahead of the request. `before`: the entries of the run that
        this one continues, 0: none."""
        ledger_id = handle.ledger_id
        entries, size_bytes = count_max, size_bytes_max
        continues = 0 < before <= self._read_ahead_count and 0 < size_bytes <= _READ_AHEAD_BYTES
        if self.cache.size_bytes_max and self._read_ahead_count:
            if continues:
                entries, size_bytes = 2 * entries, 2 * size_bytes
            else:
                entries = max(entries, self._read_ahead_count)
                size_bytes = max(size_bytes, _READ_AHEAD_BYTES)
        read = partial(handle.storage.read_run, ledger_id, first_entry_id, entries, size_bytes)
        self.log_reads += 1
        found = await self._in_thread(ledger_id, read)
        if not found:
            raise self._missing(handle, first_entry_id)
        count = _end_of_run(found, 0, count_max, size_bytes_max)
        self.cache.misses += count
        if count < len(found):
            end = self._read_ahead_count
            if continues:  # as the next request will be
                end = min(count + end, _end_of_run(found, count, count_max, size_bytes_max))
            if count < end:
                self.cache.put(ledger_id, first_entry_id + count, found[count:end])
        return found[:count]

    @property
    def has_room(self) -> bool:
        """Whether one more read may wait for storage."""
        return self.reads_waiting < self._waiting_max

    async def _in_thread(self, ledger_id: int, call: Callable[[], T]) -> T:
        """Run a storage call in a reader thread; failures are IO_ERROR."""
        if not self.has_room:
            raise BookieError(Status.TOO_MANY_REQUESTS, "too many reads are waiting for the disk")
        self.reads_waiting += 1
        try:
            return await trio.to_thread.run_sync(in_background, call, limiter=self._limiter)
        except Exception as error:
            self.reads_failed += 1
            logger.error("read failed", ledger_id=ledger_id, error=str(error))
            raise BookieError(Status.IO_ERROR, str(error)) from error
        finally:
            self.reads_waiting -= 1

    def _handle(self, ledger_id: int) -> LedgerHandle:
        handle = self._handles.get(ledger_id)
        if handle is None or not handle.exists:
            raise BookieError(Status.NO_LEDGER, f"ledger {ledger_id} is not on this bookie")
        return handle

    def _missing(self, handle: LedgerHandle, entry_id: int) -> BookieError:
        self.reads_failed += 1
        if handle.limbo:
            return BookieError(
                Status.UNKNOWN_LEDGER_STATE,
                f"ledger {handle.ledger_id} lost data here; whether it had entry {entry_id} is "
                "unknown",
            )
        which = "no entry" if entry_id == LAST_ENTRY else f"no entry {entry_id}"
        return BookieError(Status.NO_ENTRY, f"ledger {handle.ledger_id} has {which}")


def _end_of_run(bodies: list[bytes], start: int, count_max: int, size_bytes_max: int) -> int:
    """The end of those from `start` on that belong into one answer: at least one."""
    end_max = min(start + count_max, len(bodies))
    taken = len(bodies[start])
    end = start + 1
    while end < end_max and taken + len(bodies[end]) <= size_bytes_max:
        taken += len(bodies[end])
        end += 1
    return end
