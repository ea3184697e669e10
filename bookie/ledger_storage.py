"""LedgerStorage: one ledger directory: write cache, entry logs, index.

`flush`, `copy_entries` and the removals run one at a time in the storage's thread (`writer_limiter`
of one), reads in any thread. Durability depends on the order inside a flush: entry logs are synced
before any location is written, so the index never refers to bytes that a crash could lose.

Work is done in slices of about a millisecond, because it shares the interpreter with the event
loop. Writes and syncs release it.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog
import trio

from bookie import entry_log_format as fmt
from bookie.direct_appends import DIRECT_FLUSH_BYTES_MIN
from bookie.disk import JOIN_BELOW_BYTES
from bookie.entry_log import EntryLogs
from bookie.errors import DiskFull, StorageClosed, StorageError
from bookie.flush_pace import FlushPace, in_a_hurry
from bookie.index import END_KEY, ENTRY_ID_MAX, pack_location_key, pack_u64
from bookie.index_progress import IndexProgress
from bookie.lost_logs import find_lost_logs
from bookie.read_turns import JournalWrites
from bookie.run_scan import HEAD_SIZE, LENGTH_MIN, RunScan, length_of_record
from bookie.write_cache import FlushHalf, WriteCache
from native.entries import log_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import EntryBody
    from bookie.disk import Disk
    from bookie.index import EntryIndex, IndexBatch

logger = structlog.get_logger()

T = TypeVar("T")

pack_u32: Final = Struct(">I").pack
_BATCH_ENTRIES: Final = 256
"""Rows that are given to the index at once: it is written while holding the interpreter lock."""
_SLICE_ENTRIES: Final = 1024
_SLICE_BYTES: Final = 1 << 20
_JOIN_BELOW_BYTES: Final = 3 * JOIN_BELOW_BYTES
"""Average size of records below which joining them is cheaper: each has three parts."""
_READ_BYTES_MAX: Final = 1 << 20
_READ_BYTES_MIN: Final = 64 << 10
LOG_READS_PER_RUN_MAX: Final = 16
"""Reads of entry logs for one answer. Entries of a ledger that has few in each flush lie apart, so
that each is a read of its own. A consumer that was 1,045 of them behind waited 3.4 s for the first
one beside a publisher, and a run has up to 5,000."""
SPARE_BYTES: Final = 4 << 20
"""Entries leave that much of a disk free."""


@final
class LedgerStorage:
    """One ledger directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index: EntryIndex,
        log_size_limit: int,
        cache_bytes: int,
        writes: JournalWrites | None = None,
    ) -> None:
        """`writes`: of the journals that reads and flushes give way to."""
        self.directory = directory
        self._disk = disk
        self.index = index
        self._writes = writes or JournalWrites()
        self.logs = EntryLogs(disk, directory, log_size_limit, self._writes)
        self._progress = IndexProgress(disk, directory)
        self._sequences = index.sequences()
        self.cache = WriteCache(cache_bytes // 2)
        self.writable = True
        """False: the disk is too full for plain adds."""
        self.headroom = True
        """False: too full even for recovery adds."""
        self.lost_logs: dict[int, set[int]] = {}
        """Entry logs that are gone, found by `recover`: the ledgers with entries in them."""
        self.compaction_allowed = True
        self.major_compaction_allowed = True
        self.gives_way = False
        """Flushes let the journals go first. Not while a start replays and not during a stop: no
        client publishes then, and the operator waits."""
        self._is_index_full = False
        self._reads_seen = 0
        self.direct_flush_bytes_min = DIRECT_FLUSH_BYTES_MIN
        self._has_device = disk.has_device(directory)
        self.writer_limiter = trio.CapacityLimiter(1)
        self._is_closed = False
        """Written and read with the writer's limiter."""

    def recover(self) -> set[int]:
        """Index the entries in the logs after the indexed part. A directory opened for the first
        time is taken as it is. Returns the ledgers of the entries indexed.

        Raises: StorageError.
        """
        self._progress.check(self._sequences)
        self.lost_logs = find_lost_logs(
            self.directory,
            self.logs.compare(),
            partial(self.index.ledgers_without_log, self.logs.ids()),
            is_index_whole=self._progress.synced() is not None,
        )
        end = self.index.end_of_logs()
        if not end:
            end = self.logs.end_found()
        ledger_ids: set[int] = set()
        batches: list[IndexBatch] = []
        writer = _SliceWriter(self.logs, self.index, in_a_hurry())
        for tail in self.logs.recover(end, self.lost_logs):
            base = fmt.location_of(tail.log_id, 0)
            for first in range(0, len(tail.entries), _BATCH_ENTRIES):
                batch = self.index.new_batch()
                for ledger_id, entry_id, offset, _length in tail.entries[
                    first : first + _BATCH_ENTRIES
                ]:
                    batch.put(pack_location_key(ledger_id, entry_id), pack_u64(base + offset))
                    ledger_ids.add(ledger_id)
                batches.append(batch)
            for ledger_id, entry_id, body in tail.strays:
                writer.add_run(ledger_id, entry_id, [(body, b"")], 0, 1)
                ledger_ids.add(ledger_id)
        writer.end_slice()
        if writer.batches:
            self.logs.sync()
        if batches or writer.batches or self.logs.end_of_logs() != self.index.end_of_logs():
            self._write_locations(batches + writer.batches)
            self.index.sync()
        return ledger_ids

    def flush(self, half: FlushHalf) -> None:
        """Append the half to the entry logs, sync, index, sync.

        Raises: DiskFull: nothing is lost, the half can be flushed again. DiskFailed: fatal.
        """
        self._check_space(half)
        if self._is_index_full:
            self.logs.sync()  # an attempt that ended early left bytes, which the end row covers
            self._write_locations([])  # so that no more is appended while this is refused
        pace = FlushPace(self._writes, half.size_bytes, self._filled_share)
        reads = self.logs.reads
        is_large = half.size_bytes >= self.direct_flush_bytes_min
        if is_large and reads == self._reads_seen and self._has_device:
            self.logs.begin_direct(pace)
        self._reads_seen = reads
        writer = _SliceWriter(self.logs, self.index, pace)
        for handle in half.handles:
            entries = handle.flushing
            if handle.deleted or entries is None:
                continue
            for first_entry_id, bodies, start, end in entries.runs():
                writer.add_run(handle.ledger_id, first_entry_id, bodies, start, end)
        writer.end_slice()
        if writer.batches:
            self.logs.sync()
        try:
            if writer.batches:
                self._write_locations(writer.batches)
            if half.rows:
                self.index.write_ledgers(half.rows)
        except DiskFull:
            self._is_index_full = True
            raise
        self._is_index_full = False
        if half.rows or writer.batches:
            sequences = self.index.sequences()
            self.index.sync()
            self._progress.store(sequences)

    def _filled_share(self) -> float:
        return self.cache.filled_share() if self.gives_way else 1.0

    def _check_space(self, half: FlushHalf) -> None:
        """An attempt that must fail would use up what the metadata and the indexes need."""
        if not half.size_bytes:
            return
        free, _total = self._disk.free_and_total_bytes(self.directory)
        if free < half.size_bytes + SPARE_BYTES:
            raise DiskFull(
                f"{self.directory}: {free} bytes are free, which is too little for "
                f"{half.size_bytes} bytes of entries; free some space"
            )

    def _write_locations(self, batches: list[IndexBatch]) -> None:
        """The end of the logs first: any prefix that survives a crash covers its locations."""
        end = self.index.new_batch()
        end.put(END_KEY, pack_u64(self.logs.end_of_logs()))
        self.index.write_locations(end)
        for batch in batches:
            self.index.write_locations(batch)

    def copy_entries(
        self, entries: list[tuple[int, int, int, bytes]]
    ) -> tuple[int, list[tuple[int, int]]]:
        """Compaction: append (location, ledger, entry, record) to the active log if the index still
        refers to that location, sync, and move the locations. Returns the number copied, and the
        entries (ledger, entry) that the index does not know: their ledger was deleted, or the
        record differs from the one written."""
        writer = _SliceWriter(self.logs, self.index, in_a_hurry())
        copied = 0
        unknown: list[tuple[int, int]] = []
        for location, ledger_id, entry_id, record in entries:
            known = self.index.location(ledger_id, entry_id)
            if known == location:
                writer.add_run(ledger_id, entry_id, [(record[4:], b"")], 0, 1)
                copied += 1
            elif not known:
                unknown.append((ledger_id, entry_id))
        writer.end_slice()
        if writer.batches:
            self.logs.sync()
            self._write_locations(writer.batches)
            self.index.sync()
        return copied, unknown

    def remove_ledgers(self, ledger_ids: list[int], rows: dict[int, bytes | None]) -> None:
        """Drop locations and write (or with None remove) the ledgers' rows, durably."""
        for ledger_id in ledger_ids:
            self.index.remove_locations(ledger_id)
        self.index.write_ledgers(rows)
        self.index.sync()

    def read_run(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """Consecutive entries from the entry logs: at least one, unless the first has no location:
        then none. Adjacent entries take one index look-up and one read. A run ends before an entry
        that cannot be read; a request for that entry gets the error. It also ends where the disk
        would be read for an entry that is too large for it, if it has the size of the last one, and
        after `LOG_READS_PER_RUN_MAX` reads.

        Raises: StorageError: the location of the first one does not hold it.
        """
        result: list[bytes] = []
        taken = length_of_last = 0
        entry_id = first_entry_id
        location = 0
        reads = 0
        while len(result) < count_max and (taken + length_of_last <= size_bytes_max or not result):
            if reads == LOG_READS_PER_RUN_MAX:
                break
            reads += 1
            if not location and entry_id <= ENTRY_ID_MAX:
                location = self.index.location(ledger_id, entry_id)
            if not location:
                break
            wanted = min(size_bytes_max - taken + 4096, _READ_BYTES_MAX)
            try:
                scan = RunScan(ledger_id, entry_id, count_max - len(result))
                data = self._read_at(
                    location, ledger_id, entry_id, max(wanted, _READ_BYTES_MIN), scan
                )
            except (StorageError, OSError):
                if not result:
                    raise
                break
            log_position = location - 4
            position = 0
            location = 0
            while len(result) < count_max:
                if entry_id > ENTRY_ID_MAX or len(data) - position < HEAD_SIZE:
                    break
                length = length_of_record(data, position, ledger_id, entry_id)
                if length < LENGTH_MIN:
                    break
                end = position + 4 + length
                if result and taken + length > size_bytes_max:
                    return result
                if end > len(data):
                    location = log_position + position + 4
                    break
                result.append(data[position + 4 : end])
                taken += length
                length_of_last = length
                entry_id += 1
                position = end
        return result

    def _read_at(
        self, location: int, ledger_id: int, entry_id: int, size: int, scan: RunScan
    ) -> bytes:
        """Bytes from the record at `location` on: the whole record, and more only within `size`
        and as far as the scan wants."""
        for attempt in (1, 2):
            log_id, offset = fmt.split_location(location)
            try:
                data = self._record_at(log_id, offset, ledger_id, entry_id, size, scan)
            except FileNotFoundError:
                # Compaction moved the entry after the look-up, or between two reads.
                moved = self.index.location(ledger_id, entry_id)
                if attempt == 1 and moved and moved != location:
                    location = moved
                    continue
                raise StorageError(
                    f"entry log {log_id:x} of {self.directory} is gone: stop the bookie and "
                    f"restore {log_id:x}.log from a backup, or without one run `vela bookie "
                    "rebuild-index --skip-damaged`"
                ) from None
            if data is None:
                raise StorageError(
                    f"{self.directory}/{log_id:x}.log does not hold entry {ledger_id}:{entry_id} "
                    f"at offset {offset}"
                )
            return data
        raise AssertionError

    def _record_at(
        self, log_id: int, offset: int, ledger_id: int, entry_id: int, size: int, scan: RunScan
    ) -> bytes | None:
        """See `_read_at`; None: the log does not hold the entry there. A record that `size` cuts
        off is read again."""
        data = self.logs.read(log_id, offset - 4, size, scan)
        length = fmt.entry_at(data, 0, ledger_id, entry_id)
        if length is not None and length + 4 > len(data):
            data = self.logs.read(log_id, offset - 4, length + 4)
            if len(data) < length + 4:
                return None
        return None if length is None else data

    def unless_closed(self, call: Callable[[], T]) -> T:
        """Work that may come too late: what is appended to a log while that is sealed would be
        lost. In the storage's thread, as `close`.

        Raises: StorageClosed.
        """
        if self._is_closed:
            raise StorageClosed(f"{self.directory} is closed: the bookie has ended")
        return call()

    def close(self, *, has_failed: bool = False) -> None:
        """Seal the active log (so that the next start need not scan it) and close everything.

        `has_failed`: of the bookie. Then the log stays as it is: another sync may succeed although
        bytes of a failed one are lost, and a sealed log would look complete.
        """
        self._is_closed = True
        if not has_failed:
            try:
                self.logs.seal_active()
                self.logs.record()
            except StorageError as error:
                logger.warning(
                    "entry log left unsealed", directory=self.directory, error=str(error)
                )
        self.logs.close()
        self.index.close()


@final
class _Piece:
    """Consecutive entries of a ledger in a slice: `bodies` from `start` up to `end`."""

    __slots__ = ("bodies", "end", "first_entry_id", "ledger_id", "size_bytes", "start")

    def __init__(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        start: int,
        end: int,
        size_bytes: int,
    ) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.bodies = bodies
        self.start = start
        self.end = end
        self.size_bytes = size_bytes
        """The size of their records."""


@final
class _SliceWriter:
    """Collects runs and writes them slice by slice; location batches come out at the end."""

    __slots__ = (
        "_entries",
        "_index",
        "_logs",
        "_pace",
        "_pieces",
        "_size_bytes",
        "_unsynced_bytes",
        "batches",
    )

    def __init__(self, logs: EntryLogs, index: EntryIndex, pace: FlushPace) -> None:
        self._logs = logs
        self._index = index
        self._pace = pace
        self._pieces: list[_Piece] = []
        self._entries = 0
        self._size_bytes = 0
        self._unsynced_bytes = 0
        self.batches: list[IndexBatch] = []

    def add_run(
        self, ledger_id: int, first_entry_id: int, bodies: list[EntryBody], start: int, end: int
    ) -> None:
        """Consecutive entries of a ledger, the first of which is `first_entry_id`: `bodies` from
        `start` up to `end`."""
        at = start
        while at < end:
            first = at
            piece_end = min(end, first + _BATCH_ENTRIES)
            size = self._size_bytes
            while at < piece_end and size < _SLICE_BYTES:
                head, payload = bodies[at]
                size += len(head) + len(payload) + 4
                at += 1
            piece_bytes = size - self._size_bytes
            first_of_piece = first_entry_id + first - start
            self._pieces.append(_Piece(ledger_id, first_of_piece, bodies, first, at, piece_bytes))
            self._entries += at - first
            self._size_bytes = size
            if size >= _SLICE_BYTES or self._entries >= _SLICE_ENTRIES:
                self.end_slice()

    def end_slice(self) -> None:
        """Append the collected records."""
        if not self._pieces:
            return
        size_bytes = self._size_bytes
        start = self._logs.place(size_bytes)
        location = start + 4
        by_ledger: dict[int, int] = {}
        parts: list[bytes] = []
        batch = self._index.new_batch()
        rows = 0
        for piece in self._pieces:
            count = piece.end - piece.start
            if rows and rows + count > _BATCH_ENTRIES:
                self.batches.append(batch)
                batch = self._index.new_batch()
                rows = 0
            rows += count
            if piece.size_bytes < _JOIN_BELOW_BYTES * count:
                parts.append(
                    log_records(
                        batch,
                        piece.ledger_id,
                        piece.first_entry_id,
                        location,
                        piece.bodies[piece.start : piece.end],
                        piece.size_bytes,
                    )
                )
            else:
                _put_large_records(batch, piece, location, parts)
            location += piece.size_bytes
            ledger_id = piece.ledger_id
            by_ledger[ledger_id] = by_ledger.get(ledger_id, 0) + piece.size_bytes
        self.batches.append(batch)
        appended_at = self._logs.append(parts, size_bytes, by_ledger)
        assert appended_at == start, "the rows point elsewhere"
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= self._pace.piece_bytes:
            self._logs.sync_some(self._unsynced_bytes, self._pace)
            self._unsynced_bytes = 0
        self._pieces = []
        self._entries = 0
        self._size_bytes = 0


def _put_large_records(batch: IndexBatch, piece: _Piece, location: int, parts: list[bytes]) -> None:
    """As `log_records`, without a copy of the payloads."""
    entry_id = piece.first_entry_id
    for at in range(piece.start, piece.end):
        head, payload = piece.bodies[at]
        size = len(head) + len(payload)
        parts.append(pack_u32(size))
        parts.append(head)
        parts.append(payload)
        batch.put(pack_location_key(piece.ledger_id, entry_id), pack_u64(location))
        entry_id += 1
        location += size + 4
