"""RecordedLogs: which entry logs a ledger directory has, recorded outside of the index.

A log that is gone leaves nothing to look at, and the index is not read through at start. So the
file `entryLogs` of the ledger directory names the logs:

    file = "VELA", int64 newest id, int32 count, count x (int64 first, int64 last), int32 crc32c

All integers are big-endian, a pair is a range of ids, and the checksum covers what precedes. The
newest id is that of the log made last, whether or not it still exists. The file is replaced as a
whole

- after a log has been created, with its name durable, and before an entry is written to it,
- before a log is deleted. A disk without space does not keep a log from being deleted: the record
  then follows the deletion. If the power goes in between, the next start looks for the log in vain
  and finds in the index that nothing refers to it.

The header of a log shows that it was made with a record. If the record is lost, or lacks a log with
entries that was made so, it cannot be relied on, and the index has to be read through instead.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import crc32c
import structlog

from bookie import entry_log_format as fmt
from bookie.disk import read_file, replace_file
from bookie.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bookie.disk import Disk

logger = structlog.get_logger()

FILE_NAME: Final = "entryLogs"
_FREE_BYTES_MIN: Final = 1 << 20
"""With less the record is not written: the sync may find no space, which ends the bookie, and the
log may be deleted to free some."""
_LOGS_MAX: Final = 1 << 20
"""A petabyte in logs of a gigabyte. A record that names more is not one of ours."""
_MAGIC: Final = b"VELA"
_HEAD: Final = struct.Struct(">4sqI")
_RANGE: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


def encode_record(newest_id: int, log_ids: Iterable[int]) -> bytes:
    """The content of the file."""
    ranges: list[list[int]] = []
    for log_id in sorted(log_ids):
        if ranges and ranges[-1][1] == log_id - 1:
            ranges[-1][1] = log_id
        else:
            ranges.append([log_id, log_id])
    head = _HEAD.pack(_MAGIC, newest_id, len(ranges))
    content = head + b"".join(_RANGE.pack(*each) for each in ranges)
    return content + _CRC.pack(crc32c.crc32c(content))


def decode_record(data: bytes) -> tuple[int, set[int]] | None:
    """(newest id, ids); None: these are not bytes that `encode_record` made."""
    content, checksum = data[: -_CRC.size], data[-_CRC.size :]
    if len(content) < _HEAD.size or checksum != _CRC.pack(crc32c.crc32c(content)):
        return None
    magic, newest_id, count = _HEAD.unpack_from(content)
    if magic != _MAGIC or len(content) != _HEAD.size + count * _RANGE.size:
        return None
    log_ids: set[int] = set()
    for first, last in _RANGE.iter_unpack(content[_HEAD.size :]):
        if not 0 <= first <= last <= fmt.LOG_ID_MAX or len(log_ids) + last - first >= _LOGS_MAX:
            return None
        log_ids.update(range(first, last + 1))
    return newest_id, log_ids


@final
@dataclass(slots=True)
class Comparison:
    """The logs of a directory beside those of the record."""

    newest_id: int
    """The highest id that is known to have been given to a log, -1 if there is none."""
    missing: set[int] = field(default_factory=set)
    """Logs that are known to have been there, and are not."""
    doubt: str = ""
    """Why the record cannot be relied on: others may be missing as well. Empty: it can be."""
    is_first: bool = False
    """The directory has no record, and never had one."""


def compare(disk: Disk, directory: str, log_ids: Collection[int]) -> Comparison:
    """Look which logs are missing, where `log_ids` are there. Changes nothing."""
    last_id = last_log_id(disk, directory)
    newest_id = max(log_ids, default=-1)
    found = Comparison(max(last_id, newest_id))
    path = f"{directory}/{FILE_NAME}"
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        if any(_is_recorded(disk, directory, log_id) for log_id in log_ids):
            found.doubt = f"{path}: the record of the entry logs is missing"
        found.is_first = not found.doubt
    else:
        record = decode_record(data)
        if record is None:
            found.doubt = f"{path}: damage at offset 0, {len(data)} bytes: it does not verify"
        else:
            newest_id, recorded = record
            found.newest_id = max(found.newest_id, newest_id)
            found.missing = recorded.difference(log_ids)
            found.doubt = _doubt_of_age(disk, directory, log_ids, newest_id)
    if last_id > newest_id and last_id not in log_ids:
        found.missing.add(last_id)
    return found


def _doubt_of_age(disk: Disk, directory: str, log_ids: Collection[int], newest_id: int) -> str:
    """A log has entries only after it has been recorded, if it was made with a record at all."""
    for log_id in sorted(each for each in log_ids if each > newest_id):
        if _is_recorded(disk, directory, log_id, with_entries=True):
            return f"{directory}/{FILE_NAME}: it is an older copy, without entry log {log_id:x}"
    return ""


def _is_recorded(disk: Disk, directory: str, log_id: int, *, with_entries: bool = False) -> bool:
    """Whether the header of a log says that it was made with a record. `with_entries`: and it has
    been recorded, too: it has more than a header."""
    file = disk.open(f"{directory}/{log_id:x}.log")
    try:
        if with_entries and file.size() <= fmt.HEADER_SIZE:
            return False
        return fmt.is_recorded(file.read_at(0, fmt.HEADER_SIZE))
    finally:
        file.close()


def last_log_id(disk: Disk, directory: str) -> int:
    """The id of the log that was made last in a ledger directory, by its file `lastId`; -1: not
    known."""
    try:
        return int(read_file(disk, directory + "/lastId").strip() or b"-1", 16)
    except (FileNotFoundError, ValueError):
        return -1


@final
class RecordedLogs:
    """The record of one directory. Used by one thread at a time."""

    __slots__ = ("_directory", "_disk", "_is_stored", "_log_ids", "_newest_id")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._log_ids: set[int] = set()
        self._newest_id = -1
        self._is_stored = False

    def begin(self, newest_id: int, log_ids: Iterable[int]) -> None:
        """Record these logs.

        Raises: DiskFailed.
        """
        self._newest_id = newest_id
        self._log_ids = set(log_ids)
        content = encode_record(newest_id, self._log_ids)
        with contextlib.suppress(FileNotFoundError):
            self._is_stored = read_file(self._disk, self._path) == content
        if self._is_stored:
            return
        try:
            self._store()
        except DiskFull as error:
            logger.warning(
                "record of the entry logs not written: disk full. It is written with the next log",
                file=self._path,
                error=str(error),
            )

    def add(self, log_id: int) -> None:
        """Record a log whose name is durable, before an entry is written to it.

        Raises: DiskFull: it is not recorded. DiskFailed.
        """
        newest_before = self._newest_id
        self._log_ids.add(log_id)
        self._newest_id = max(newest_before, log_id)
        try:
            self._store()
        except DiskFull:
            self._log_ids.discard(log_id)
            self._newest_id = newest_before
            raise

    def remove(self, log_id: int) -> None:
        """Before a log is deleted.

        Raises: DiskFull: `catch_up` records it after that. DiskFailed.
        """
        self._log_ids.discard(log_id)
        self._store()

    def catch_up(self) -> None:
        """Record what there was no space for, if there is now.

        Raises: DiskFailed.
        """
        if not self._is_stored and self._newest_id >= 0:
            with contextlib.suppress(DiskFull):
                self._store()

    @property
    def _path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    def _store(self) -> None:
        self._is_stored = False
        free, _total = self._disk.free_and_total_bytes(self._directory)
        if free < _FREE_BYTES_MIN:
            raise DiskFull(f"writing {self._path}: {free} bytes are free; free some space")
        replace_file(self._disk, self._path, encode_record(self._newest_id, self._log_ids))
        self._is_stored = True
