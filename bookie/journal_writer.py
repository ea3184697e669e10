"""JournalWriter: the files of one journal directory, written by one thread.

It appends groups (format: `journal_format`), each with one write and one fdatasync, starts a new
file when one is full, and removes files that a checkpoint has passed. It never appends to a file of
an earlier run. A failed write or sync is final, because its effect is unknown.

A group is put together where it can be written from: its records are copied once, and summed while
they are in the processor's cache (`native.entries`).

Space is reserved ahead. If there is none, nothing was written yet: the writer is as it was, and has
no file if that was the one to be made. The rest of the disk is not used up by smaller reservations,
because the metadata and the indexes need it.

While groups are small the space is also filled with zeros ahead, one piece per several groups. A
file system records whether reserved space was written yet, so the sync of a first write also has to
commit the journal of the file system; the sync of an overwrite does not. Large groups are rare and
bear that cost themselves, and so does a small one between large ones, which would overwrite the
zeros at once. Reserved space reads as zeros anyway, and zeros are only written after
the last group, so a reader sees no difference.

The size of a file shows later that it was not cut. Each group records the size that was durable
before it, and a file is shortened only after a last group that records the shortening.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie import journal_format
from bookie.direct_io import STAGING_BYTES, aligned_memory
from bookie.errors import DiskFull, JournalFull
from bookie.newest_journal import JournalName, NewestJournal
from native.entries import put_records

if TYPE_CHECKING:
    from bookie.api import EntryBody
    from bookie.config import BookieConfig
    from bookie.disk import Disk, DiskFile, Submissions

logger = structlog.get_logger()

_MB: Final = 1 << 20
SUFFIX: Final = ".txn"

ZEROED_AHEAD_BYTES: Final = 256 << 10
"""Bytes filled with zeros at once. Twice as many per fdatasync would raise publish latency."""
SMALL_GROUP_BYTES: Final = 64 << 10
"""Groups smaller than this go to space already filled with zeros."""

_ZEROS: Final = bytes(ZEROED_AHEAD_BYTES)
_BESIDE_RECORDS_BYTES: Final = journal_format.GROUP_EXTRA_BYTES + ZEROED_AHEAD_BYTES
"""The bytes that a group may bring, and the fill up to its alignment."""
_BUFFER_KEPT_BYTES: Final = 16 << 20
"""A larger buffer, for a record of unusual size, is given up with the next group."""

LogMark = tuple[int, int]
"""(journal id, offset): everything before it is durable."""
_NO_MARK: Final[LogMark] = (-1, 0)


def journal_ids(disk: Disk, directory: str) -> list[int]:
    """Ids of the journal files in a directory, ascending."""
    ids = []
    for name in disk.list_names(directory):
        stem, dot, suffix = name.partition(".")
        if dot + suffix == SUFFIX:
            try:
                ids.append(int(stem, 16))
            except ValueError:
                continue
    return sorted(ids)


def journal_path(directory: str, journal_id: int) -> str:
    """Path of one journal file."""
    return f"{directory}/{journal_id:x}{SUFFIX}"


@final
class JournalWriter:
    """The writer of a directory's journal files."""

    __slots__ = (
        "_alignment",
        "_buffer",
        "_claimed_mb",
        "_directory",
        "_disk",
        "_file",
        "_journal_id",
        "_newest",
        "_part",
        "_position",
        "_preallocate_size",
        "_preallocated",
        "_previous",
        "_reserved_mb",
        "_salt",
        "_salt_checksum",
        "_sequence",
        "_size_max",
        "_submitted",
        "_sync",
        "_was_small",
        "_zeroed",
        "mark",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: BookieConfig,
        journal_id: int,
        newest: NewestJournal,
    ) -> None:
        self._disk = disk
        self._newest = newest
        self._directory = directory
        self._journal_id = journal_id
        self._alignment = config.journalAlignmentSize
        self._size_max = config.journalMaxSizeMB * _MB
        self._preallocate_size = config.journalPreAllocSizeMB * _MB
        self._sync = config.journalSyncData
        self._position = 0
        self._preallocated = 0
        self._zeroed = 0
        """The reserved space was written up to here; never less than `_position`."""
        self._sequence = 0
        self._submitted = 0
        """The size of the group that is under way."""
        self._was_small = True
        """The last group."""
        self._reserved_mb = 0
        """The size of the file."""
        self._claimed_mb = 0
        """The part of it that was synced."""
        self.mark: LogMark = _NO_MARK
        """Names a file that exists."""
        self._buffer = memoryview(b"")
        """Where groups are put together. What is submitted stays in it until it is durable."""
        self._part = self._buffer
        """The memory that was submitted last: groups of one size use the same piece of memory,
        whose address has to be found once."""
        self._previous: tuple[int, int] | None = None
        """Salt and end of the file before, if this run wrote it."""
        self._file: DiskFile | None = None
        try:
            self._opened()
        except JournalFull as error:
            logger.warning(
                "no space for a journal: read-only until there is space",
                directory=directory,
                error=str(error),
            )

    @property
    def syncs(self) -> bool:
        """Whether groups are synced."""
        return self._sync

    @property
    def has_file(self) -> bool:
        """False: there was no space for it."""
        return self._file is not None

    def reserve(self) -> None:
        """Find out, after JournalFull, whether there is space now, and take it.

        Raises: JournalFull: there is none. DiskFailed: the journal must not be used any more.
        """
        file = self._opened()
        wanted = self._position + self._preallocate_size
        if wanted > self._preallocated:
            self._preallocate(file, wanted)

    def write_group(self, bodies: list[EntryBody], size_bytes_max: int) -> int:
        """Append a record for each of these bodies that is not empty (`size_bytes_max` with their
        lengths, at most), and sync. Returns the bytes written. `mark` moves only after the sync.

        Raises: JournalFull: nothing was written, see `reserve`. DiskFull, DiskFailed: the journal
            must not be used any more.
        """
        if self._file is not None and self._position >= self._size_max:
            self._roll()
        file = self._opened()
        size = self._put_group(bodies, size_bytes_max)
        position = self._position
        end = position + size
        if end > self._preallocated and self._preallocate_size:
            self._preallocate(file, end + max(self._preallocate_size, size))
        if self._sync:
            written = size + self._put_zeros(size)
            self._was_small = size < SMALL_GROUP_BYTES
            file.write_parts_synced_at(position, [self._buffer[:written]])
            self._zeroed = max(self._zeroed, position + written)
            self._claimed_mb = self._reserved_mb
        else:
            file.write_parts_at(position, [self._buffer[:size]])
        self._moved(end)
        return size

    def takes_submitted(self, to: Submissions, size_bytes_max: int) -> bool:
        """Whether `submit_group` can be tried with records of so many bytes: to be asked before
        they are put together. On some file systems the answer is always no."""
        file, position = self._file, self._position
        room = self._alignment + journal_format.GROUP_EXTRA_BYTES
        return (
            file is not None
            and self._sync
            and position < self._size_max
            and position + size_bytes_max + room <= self._preallocated
            and to.takes(file, position, self._alignment)
        )

    def submit_group(self, to: Submissions, bodies: list[EntryBody], size_bytes_max: int) -> bool:
        """Begin what `write_group` does with a small group; `group_is_durable` follows. Only after
        `takes_submitted`. False: this group needs `write_group`, and nothing was changed."""
        file = self._file
        assert file is not None
        size = self._put_group(bodies, size_bytes_max)
        written = size + self._put_zeros(size)
        if len(self._part) != written:
            self._part = self._buffer[:written]
        if not to.submit(file, self._position, [self._part], written):
            return False
        self._zeroed = max(self._zeroed, self._position + written)
        self._submitted = size
        return True

    def group_is_durable(self) -> int:
        """The group of `submit_group` is. Returns its bytes."""
        size = self._submitted
        self._was_small = size < SMALL_GROUP_BYTES
        self._claimed_mb = self._reserved_mb
        self._moved(self._position + size)
        return size

    def remove_before(self, mark: LogMark, backups: int) -> int:
        """Remove files older than the mark's, except the newest `backups` of them."""
        old = [i for i in journal_ids(self._disk, self._directory) if i < mark[0]]
        doomed = old[: len(old) - backups] if backups else old
        for journal_id in doomed:
            self._disk.remove(journal_path(self._directory, journal_id))
        return len(doomed)

    def close(self) -> None:
        """Release the reserved space, sync and close."""
        file = self._file
        if file is None:
            return
        if not self._claimed_mb:
            file.truncate(self._position)
        elif self._position + self._alignment <= self._preallocated:
            size = self._put_group([], 0, journal_format.FLAG_LAST)
            file.write_parts_at(self._position, [self._buffer[:size]])
            file.sync()
            self._position += size
            file.truncate(self._position)
        file.sync()
        file.close()

    def _moved(self, end: int) -> None:
        """A group was written."""
        self._position = end
        self._zeroed = max(self._zeroed, end)
        self._sequence += 1
        self.mark = (self._journal_id, end)

    def _put_group(self, bodies: list[EntryBody], size_bytes_max: int, flags: int = 0) -> int:
        """Put a group at the current position together in the buffer. Returns its size."""
        if self._sync:
            flags |= journal_format.FLAG_PREVIOUS_SYNCED
        flags |= self._claimed_mb << journal_format.RESERVED_SHIFT
        wanted = size_bytes_max + self._alignment + _BESIDE_RECORDS_BYTES
        if not wanted <= len(self._buffer) <= max(wanted, _BUFFER_KEPT_BYTES):
            self._buffer = aligned_memory(max(wanted, STAGING_BYTES))
            self._part = self._buffer[:0]
        size, checksum = put_records(bodies, self._buffer, 0, self._salt_checksum)
        return journal_format.put_group_end(
            self._buffer,
            size,
            self._position,
            self._sequence,
            self._alignment,
            flags,
            checksum,
        )

    def _put_zeros(self, size: int) -> int:
        """Put zeros after the group in the buffer, if it is one that brings some. Returns how many
        bytes."""
        end = self._position + size
        if end <= self._zeroed or not self._was_small or size >= SMALL_GROUP_BYTES:
            return 0
        zeros = max(0, min(ZEROED_AHEAD_BYTES, self._preallocated - end))
        self._buffer[size : size + zeros] = _ZEROS[:zeros]
        return zeros

    def _roll(self) -> None:
        # Everything before the new file must be durable before the new file can exist: recovery
        # tolerates a torn tail in the newest file only.
        self.close()
        self._file = None
        self._previous = (self._salt, self._position)
        self._journal_id += 1

    def _preallocate(self, file: DiskFile, end: int) -> None:
        try:
            file.preallocate(self._preallocated, end - self._preallocated)
        except DiskFull as error:
            raise JournalFull(str(error)) from error
        self._preallocated = end
        self._reserved_mb = self._size_mb(file)

    def _opened(self) -> DiskFile:
        """The file, which is made if there is none."""
        if self._file is not None:
            return self._file
        path = journal_path(self._directory, self._journal_id)
        self._salt = int.from_bytes(os.urandom(8), "big")
        self._salt_checksum = journal_format.group_checksum(b"", self._salt)
        first = -(-journal_format.HEADER_SIZE // self._alignment) * self._alignment
        # BookKeeper reads records from byte 512 on, so the first group starts there; its padding
        # reaches the alignment.
        self._preallocated = max(first, self._preallocate_size)
        try:
            file = self._disk.create(path)
        except DiskFull as error:
            raise JournalFull(str(error)) from error
        try:
            header = journal_format.encode_header(self._alignment, self._salt, self._previous)
            file.write_at(0, header)
            if self._preallocate_size:
                file.preallocate(0, self._preallocated)
        except DiskFull as error:
            file.close()
            self._disk.remove(path)
            raise JournalFull(str(error)) from error
        file.sync()
        self._disk.sync_directory(self._directory)
        self._file = file
        self._reserved_mb = self._claimed_mb = self._size_mb(file)
        self._newest.store(JournalName(self._journal_id, self._salt, self._claimed_mb))
        self._position = self._zeroed = journal_format.HEADER_SIZE
        self._sequence = 0
        self.mark = (self._journal_id, self._position)
        return file

    def _size_mb(self, file: DiskFile) -> int:
        """The size of the file. Not every file system reserves space."""
        return min(file.size() // _MB, journal_format.RESERVED_MB_MAX)
