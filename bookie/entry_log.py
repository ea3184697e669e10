"""EntryLogs: the entry log files of one ledger directory (format: `entry_log_format`).

One thread appends, any thread reads. Appends go to the active log at an offset kept here, so the
next write overwrites the remains of a failed one. A full log is sealed by appending its ledgers
map. Logs of earlier runs are never appended to.

Start (`recover`): the index records how far the logs were covered when it was last written (`END`
row). The bytes after that are read through. Intact entries go to the index. Only a tail that is
proved to be torn, at the end of the last log, is cut off. Any other part that is not intact is
moved to a file of its own, so that sequential reading cannot run into it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, final

import structlog

from bookie import entry_log_format as fmt
from bookie.api import ENTRY_SIZE_BYTES_MAX
from bookie.direct_appends import DirectAppends
from bookie.disk import replace_file
from bookie.entry_log_tail import recover_tail
from bookie.errors import Corruption, DiskFailed, DiskFull
from bookie.read_turns import JournalWrites, ReadTurns
from bookie.recorded_logs import RecordedLogs, compare, last_log_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from bookie.disk import Disk, DiskFile
    from bookie.entry_log_tail import UnindexedEntries
    from bookie.flush_pace import FlushPace
    from bookie.recorded_logs import Comparison
    from bookie.run_scan import RunScan

logger = structlog.get_logger()

_OPEN_FILES_MAX = 64
_SCAN_CHUNK_SIZE = 1 << 20


class Knowledge(Enum):
    """The source of the numbers in a LogSummary."""

    NONE = "none"
    """The log of a crashed run, or its map is invalid: nothing has been counted yet."""
    MAP = "map"
    """A map without a checksum: good enough to choose a log, not to delete one."""
    PROVED = "proved"
    """A map with a checksum, or the records themselves."""


@final
class LogSummary:
    """The ledgers in a log, with the bytes of each."""

    __slots__ = ("bytes_by_ledger", "contradicted", "knowledge", "log_id", "size")

    def __init__(self, log_id: int) -> None:
        self.log_id = log_id
        self.size = 0
        self.knowledge = Knowledge.PROVED
        self.contradicted = False
        """Map and records differ, so one of them is damaged. The summary is the union of both, and
        the log may be deleted only when all of these ledgers are gone."""
        self.bytes_by_ledger: dict[int, int] = {}

    def contradict(self, counted: dict[int, int]) -> None:
        """The records differ from the map."""
        self.contradicted = True
        for ledger_id, size_bytes in counted.items():
            self.bytes_by_ledger[ledger_id] = max(
                size_bytes, self.bytes_by_ledger.get(ledger_id, 0)
            )


@final
class EntryLogs:
    """All entry logs of a directory."""

    def __init__(
        self, disk: Disk, directory: str, size_limit: int, writes: JournalWrites | None = None
    ) -> None:
        """`writes`: of the journals that reads give way to; None: there are none."""
        self._disk = disk
        self._directory = directory
        self._size_limit = size_limit
        self._active: DiskFile | None = None
        self._active_summary: LogSummary | None = None
        self._directory_dirty = False
        self._recorded = RecordedLogs(disk, directory)
        self._next_id = 0
        self._end = 0
        self._lock = threading.Lock()
        self._files: OrderedDict[int, DiskFile] = OrderedDict()
        self._turns = ReadTurns(writes or JournalWrites())
        self._appends: DirectAppends | None = None
        self._is_direct = False
        """Appends go past the page cache, until the next sync."""
        self._unsynced: dict[int, int] = {}
        """The bytes of each ledger in these appends."""
        self._synced_size = 0
        """The size of the active log without these appends."""
        self.reads = 0
        """Reads so far. What is appended while there are some is read again soon."""
        self.summaries: dict[int, LogSummary] = {}
        """Every log but the active one; written by the storage thread only."""

    def end_found(self) -> int:
        """The end of a directory whose index does not record it: new, or written by BookKeeper."""
        ids = self.ids()
        if not ids:
            return fmt.location_of(0, fmt.HEADER_SIZE)
        file = self._disk.open(self._path(ids[-1]))
        try:
            return fmt.location_of(ids[-1], file.size())
        finally:
            file.close()

    def compare(self) -> Comparison:
        """What the record of the logs says about those that are there."""
        found = compare(self._disk, self._directory, self.ids())
        self._next_id = found.newest_id + 1
        return found

    def recover(self, end_of_logs: int, missing: Collection[int] = ()) -> list[UnindexedEntries]:
        """Read the maps of the logs, and the part that the index has not covered yet. `missing`:
        logs that are gone and are to be missed at the next start, too.

        Raises: Corruption: a log the index needs is shorter than it was.
        """
        ids = self.ids()
        self._end = end_of_logs
        last_id, end = fmt.split_location(end_of_logs)
        last_id_of_file = last_log_id(self._disk, self._directory)
        self._next_id = max(self._next_id, 1 + max([last_id, last_id_of_file, *ids]))
        self._recorded.begin(self._next_id - 1, {*ids, *missing})
        found = []
        unused = []
        for log_id in ids:
            if log_id >= last_id:
                start = end if log_id == last_id else fmt.HEADER_SIZE
                tail = recover_tail(
                    self._disk, self._path(log_id), log_id, start, newest=log_id == ids[-1]
                )
                if tail is None:
                    unused.append(log_id)
                    continue
                found.append(tail)
                self._end = max(self._end, fmt.location_of(log_id, tail.end_offset))
            self.summaries[log_id] = self._read_summary(log_id)
        self._recorded.begin(self._next_id - 1, {*ids, *missing}.difference(unused))
        for log_id in unused:
            logger.info("entry log without entries removed", file=self._path(log_id))
            self._disk.remove(self._path(log_id))
        return found

    def place(self, size: int) -> int:
        """The location of the first byte of the next append, which will have `size` bytes.

        Raises: DiskFull.
        """
        summary = self._active_summary
        is_full = summary is not None and summary.size + size > self._size_limit
        if summary is not None and is_full and summary.size > fmt.HEADER_SIZE:
            self._seal()
            summary = None
        if summary is None:
            summary = self._create()
        return fmt.location_of(summary.log_id, summary.size)

    def begin_direct(self, pace: FlushPace) -> None:
        """Let appends go past the page cache until the next sync, if there is memory for that, at
        this pace. All of them then fail together."""
        if self._appends is None:
            try:
                self._appends = DirectAppends()
            except OSError:
                return
        self._appends.begin(pace)
        self._is_direct = True

    def append(self, buffers: list[bytes], size: int, bytes_by_ledger: dict[int, int]) -> int:
        """Append `buffers` (whole records, `size` bytes together) at `place(size)`, which is
        returned.

        Raises: DiskFull: nothing was appended, and nothing since `begin_direct`.
        """
        location = self.place(size)
        summary = self._active_summary
        assert summary is not None
        assert self._active is not None
        into = summary.bytes_by_ledger
        if self._is_direct:
            assert self._appends is not None
            if not self._unsynced:
                self._synced_size = summary.size
            into = self._unsynced
            try:
                self._appends.append(self._active, summary.size, buffers)
            except DiskFull:
                self._forget_direct()
                raise
        else:
            self._write(self._active, summary.size, buffers)
        summary.size += size
        self._end = fmt.location_of(summary.log_id, summary.size)
        for ledger_id, count in bytes_by_ledger.items():
            into[ledger_id] = into.get(ledger_id, 0) + count
        return location

    def _finish_direct(self) -> None:
        """Raises: DiskFull: nothing was appended since `begin_direct`."""
        summary = self._active_summary
        if summary is None or not self._unsynced:
            return
        assert self._appends is not None
        try:
            self._appends.finish()
        except DiskFull:
            self._forget_direct()
            raise
        for ledger_id, count in self._unsynced.items():
            summary.bytes_by_ledger[ledger_id] = summary.bytes_by_ledger.get(ledger_id, 0) + count
        self._unsynced = {}

    def _forget_direct(self) -> None:
        """The log ends as before `begin_direct`: what a failed write left after that is no tail
        that a start could tell from damage."""
        summary = self._active_summary
        assert summary is not None
        assert self._active is not None
        assert self._appends is not None
        self._appends.drop()
        self._is_direct = False
        if self._unsynced:
            self._unsynced = {}
            summary.size = self._synced_size
            self._end = fmt.location_of(summary.log_id, summary.size)
        self._active.truncate(summary.size)

    def sync_some(self, size_bytes: int, pace: FlushPace) -> None:
        """Let no more be under way to the device than the last so many bytes: as `sync`, if appends
        need one, at this pace. Blocks as long as the flush gives way."""
        if not self._is_direct:
            pace.begin()
            self.sync()
            pace.wrote(size_bytes)

    def sync(self) -> None:
        """Make everything appended durable. Raises: DiskFull: see `begin_direct`."""
        self._finish_direct()
        self._is_direct = False
        if self._active is not None:
            self._active.sync()
        if self._directory_dirty:
            self._disk.sync_directory(self._directory)
            self._directory_dirty = False

    def end_of_logs(self) -> int:
        """Location after the last appended byte, 0 before the first append ever."""
        return self._end

    def read(self, log_id: int, offset: int, size: int, scan: RunScan | None = None) -> bytes:
        """Bytes of a log, fewer at its end. From any thread. `scan`: they may also end after the
        run that it looks for.

        Raises: FileNotFoundError: the log was removed. DiskFailed: it cannot be read.
        """
        with self._lock:
            self.reads += 1
            file = self._files.get(log_id)
            if file is None:
                file = self._files[log_id] = self._disk.open(self._path(log_id))
                # With 20 places of a file in use, the kernel would read up to 8 MB for each.
                file.expect_runs()
                if len(self._files) > _OPEN_FILES_MAX:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(log_id)
        return self._turns.read(file, offset, size, scan)

    def remove(self, log_id: int) -> int:
        """Delete a log that is not active. Returns the bytes freed.

        The newest one gets a successor before, if there is space. So a newest log that is missing
        is one that was lost (`last_log_id`), also if the directory has lost its record.
        """
        if self._active is None and log_id == max(self.summaries):
            with contextlib.suppress(DiskFull):
                self._create()
        with contextlib.suppress(DiskFull):
            self._recorded.remove(log_id)
        summary = self.summaries.pop(log_id)
        with self._lock:
            self._files.pop(log_id, None)
        self._disk.remove(self._path(log_id))
        self._directory_dirty = True
        self._recorded.catch_up()
        return summary.size

    def records(self, log_id: int) -> Iterator[tuple[int, int, int, bytes]]:
        """(location, ledger id, entry id, whole record) of a log, without ledgers maps.

        Raises: Corruption: the log has bytes that are no record before its end.
        """
        size = self.summaries[log_id].size
        offset = fmt.HEADER_SIZE
        while offset < size:
            data = self.read(log_id, offset, min(_SCAN_CHUNK_SIZE, size - offset))
            used = 0
            for position, length, ledger_id, entry_id in fmt.walk_records(data):
                used = position + 4 + length
                if not fmt.is_map_record(ledger_id, entry_id):
                    location = fmt.location_of(log_id, offset + position + 4)
                    yield location, ledger_id, entry_id, data[position:used]
            if not used:
                location, ledger_id, entry_id, record = self._large_record(log_id, offset, size)
                yield location, ledger_id, entry_id, record
                used = len(record)
            offset += used

    def estimate(self, log_id: int) -> LogSummary:
        """The content of a log according to its map. Without a map its records are counted.

        Raises: Corruption: the log cannot be read to its end; it must not be removed.
        """
        summary = self.summaries[log_id]
        return self.prove(log_id) if summary.knowledge is Knowledge.NONE else summary

    def prove(self, log_id: int) -> LogSummary:
        """The proven content of the log. If its map has no checksum its records are counted.

        Raises: Corruption: the log cannot be read to its end; it must not be removed.
        """
        summary = self.summaries[log_id]
        if summary.knowledge is Knowledge.PROVED:
            return summary
        counted: dict[int, int] = {}
        for _location, ledger_id, _entry_id, record in self.records(log_id):
            counted[ledger_id] = counted.get(ledger_id, 0) + len(record)
        if summary.knowledge is Knowledge.NONE:
            summary.bytes_by_ledger = counted
        elif counted != summary.bytes_by_ledger:
            summary.contradict(counted)
            self.report_contradiction(log_id)
        summary.knowledge = Knowledge.PROVED
        return summary

    def report_contradiction(self, log_id: int) -> None:
        """Report that a log is damaged, and the consequence."""
        logger.error(
            "the entry log's records differ from its ledgers map, so one of them is damaged; the "
            "log is kept while a ledger that either of them names exists",
            file=self._path(log_id),
        )

    def _large_record(self, log_id: int, offset: int, size: int) -> tuple[int, int, int, bytes]:
        """The record at `offset` that is longer than a chunk."""
        length = int.from_bytes(self.read(log_id, offset, 4), "big", signed=True)
        if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or offset + 4 + length > size:
            raise Corruption(self._path(log_id), offset, size - offset, "not an entry log record")
        data = self.read(log_id, offset, 4 + length)
        for _position, _length, ledger_id, entry_id in fmt.walk_records(data):
            return fmt.location_of(log_id, offset + 4), ledger_id, entry_id, data
        raise Corruption(self._path(log_id), offset, size - offset, "not an entry log record")

    def size_bytes(self) -> int:
        """All logs together."""
        active = self._active_summary
        return sum(s.size for s in list(self.summaries.values())) + (active.size if active else 0)

    def count(self) -> int:
        """Number of logs."""
        return len(self.summaries) + (self._active_summary is not None)

    def close(self) -> None:
        """Close all files (the active one must be synced)."""
        if self._active is not None:
            self._active.close()
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def seal_active(self) -> None:
        """Start a new log with the next append (used when the active one should be compacted)."""
        if self._active_summary is not None:
            self._seal()

    def record(self) -> None:
        """Record the removal of logs for which there was no space before."""
        self._recorded.catch_up()

    def _path(self, log_id: int) -> str:
        return f"{self._directory}/{log_id:x}.log"

    def ids(self) -> list[int]:
        """The logs that are there, ascending."""
        ids = []
        for name in self._disk.list_names(self._directory):
            if name.endswith(".log"):
                try:
                    ids.append(int(name[:-4], 16))
                except ValueError:
                    continue
        return sorted(ids)

    def _create(self) -> LogSummary:
        log_id = self._next_id
        if log_id > fmt.LOG_ID_MAX:
            raise DiskFailed(f"{self._directory}: entry log ids are used up")
        path = self._path(log_id)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.create(path)
        try:
            file.write_at(0, fmt.encode_header())
            replace_file(self._disk, self._directory + "/lastId", b"%x\n" % log_id)
        except DiskFull:
            file.close()
            self._disk.remove(path)
            raise
        try:
            self._recorded.add(log_id)
        except DiskFull:
            file.close()  # it stays, as `lastId` names it
            raise
        self._next_id = log_id + 1
        self._directory_dirty = True
        self._active = file
        self._active_summary = LogSummary(log_id)
        self._active_summary.size = fmt.HEADER_SIZE
        return self._active_summary

    def _write(self, file: DiskFile, end: int, parts: list[bytes]) -> None:
        """Write at the end of the active log. Raises: DiskFull: its size is as before, because what
        fitted would be taken for damage after the map."""
        try:
            file.write_parts_at(end, parts)
        except DiskFull:
            file.truncate(end)
            raise

    def _seal(self) -> None:
        """Append the map, make it durable, then let the header point to it."""
        self._finish_direct()
        summary, file = self._active_summary, self._active
        assert summary is not None
        assert file is not None
        ledgers_map = fmt.encode_ledgers_map(summary.bytes_by_ledger)
        self._write(file, summary.size, [ledgers_map])
        file.sync()
        count = len(summary.bytes_by_ledger)
        offset = summary.size if ledgers_map else 0
        file.write_at(0, fmt.encode_header(offset, count, ledgers_map))
        file.sync()
        if self._directory_dirty:
            self._disk.sync_directory(self._directory)
            self._directory_dirty = False
        file.close()
        self.summaries[summary.log_id] = summary
        self._active = self._active_summary = None

    def _read_summary(self, log_id: int) -> LogSummary:
        """The summary from a valid ledgers map. A damaged header is reported and costs only a scan,
        because entries are found without it.

        Raises: Corruption: the log is shorter than its header.
        """
        path = self._path(log_id)
        file = self._disk.open(path)
        try:
            summary = LogSummary(log_id)
            summary.knowledge = Knowledge.NONE
            summary.size = size = file.size()
            data = file.read_at(0, fmt.HEADER_SIZE)
            if size < fmt.HEADER_SIZE:
                raise Corruption(path, size, fmt.HEADER_SIZE - size, "the entry log is cut short")
            header = fmt.decode_header(data)
            if header is None:
                logger.error("the header of an entry log is damaged", file=path, offset=0)
                return summary
            map_offset, count = header
            if fmt.HEADER_SIZE < map_offset < size:
                ledgers_map = file.read_at(map_offset, size - map_offset)
                found = fmt.decode_ledgers_map(ledgers_map, count)
                if found is not None and sum(found.values()) == map_offset - fmt.HEADER_SIZE:
                    summary.bytes_by_ledger = found
                    summary.size = map_offset
                    is_proved = fmt.is_map_intact(data, ledgers_map)
                    summary.knowledge = Knowledge.PROVED if is_proved else Knowledge.MAP
            return summary
        finally:
            file.close()
