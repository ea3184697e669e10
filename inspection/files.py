"""Reads journals and entry logs record by record, without their bookie.

Memory is bounded by one journal group, or by one entry. Damage ends the reading with an error that
names the file and the offset, after the records before it have been returned.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from bookie import entry_log_format, journal_format
from bookie.api import ENTRY_SIZE_BYTES_MAX
from bookie.errors import Corruption
from protocol.bookkeeper.digests import has_valid_crc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RECORD_HEAD: Final = Struct(">iqq")
_WINDOW_BYTES: Final = 1 << 20
JOURNAL_KINDS: Final = {
    journal_format.ENTRY_MASTER_KEY: "master-key",
    journal_format.ENTRY_FENCE: "fence",
    journal_format.ENTRY_FORCE: "force",
    journal_format.ENTRY_EXPLICIT_LAC: "explicit-lac",
}


class NotReadable(Exception):
    """A file or directory cannot be read. The text says which and why."""


@final
@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file."""

    offset: int
    """The offset of the record's length in the file."""
    ledger_id: int
    entry_id: int
    body: bytes
    """With its head, as it was added."""

    @property
    def has_valid_crc(self) -> bool:
        """Whether a checksum without a key matches; False says nothing about other digests."""
        return has_valid_crc(self.body)


@final
class OpenFile:
    """A file to read at any place."""

    def __init__(self, path: Path) -> None:
        """Raises: NotReadable."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise NotReadable(f"{path}: {error.strerror}") from error

    def read_at(self, offset: int, size: int) -> bytes:
        """Fewer bytes at the end of the file. Raises: NotReadable."""
        try:
            return os.pread(self._descriptor, max(0, size), offset)
        except OSError as error:
            raise NotReadable(f"{self.path} at {offset}: {error.strerror}") from error

    def close(self) -> None:
        """Safe to call once."""
        os.close(self._descriptor)


@final
class JournalFile:
    """One journal. After `records` has ended, `tail` says what follows them."""

    def __init__(self, file: OpenFile) -> None:
        """Raises: Corruption, NotReadable."""
        self._file = file
        path = str(file.path)
        self.header = journal_format.decode_header(
            file.read_at(0, journal_format.HEADER_SIZE), path
        )
        self.tail = ""

    def records(self) -> Iterator[Record]:
        """In the order of the file. Raises: Corruption, NotReadable."""
        header, file = self.header, self._file
        if header is None:
            self.tail = "nothing was written to it"
            return
        scan = journal_format.JournalScan(
            str(file.path), file.read_at, file.size, header, header.size
        )
        start = scan.end_offset
        for group in scan.groups():
            # A file of BookKeeper's gives records one by one, and moves on afterwards.
            at = scan.end_offset if header.salt is None else start
            for body in group:
                yield Record(at, *journal_format.decode_ids(body), body)
                at += 4 + len(body)
            start = scan.end_offset
        if scan.end is journal_format.ScanEnd.TORN:
            self.tail = f"torn at offset {scan.end_offset}: {scan.detail}"


@final
class EntryLogFile:
    """One entry log."""

    def __init__(self, file: OpenFile) -> None:
        """Raises: Corruption, NotReadable."""
        self._file = file
        header = entry_log_format.decode_header(file.read_at(0, entry_log_format.HEADER_SIZE))
        if header is None:
            raise Corruption(str(file.path), 0, file.size, "it is no entry log")
        self.map_offset, self.map_ledgers = header

    def ledgers_map(self) -> dict[int, int]:
        """Bytes by ledger of a sealed log, as its map says; empty: it is not sealed.

        Raises: Corruption, NotReadable.
        """
        file = self._file
        if not self.map_offset:
            return {}
        self._check_map_offset()
        data = file.read_at(self.map_offset, file.size - self.map_offset)
        found = entry_log_format.decode_ledgers_map(data, self.map_ledgers)
        if found is None:
            raise Corruption(
                str(file.path), self.map_offset, len(data), "its map of ledgers is damaged"
            )
        return found

    def records(self) -> Iterator[Record]:
        """The entries in the order of the file; the map is left out.

        Raises: Corruption, NotReadable.
        """
        file = self._file
        self._check_map_offset()
        end = self.map_offset or file.size
        at = entry_log_format.HEADER_SIZE
        window, base = b"", at
        while at < end:
            if at - base + _RECORD_HEAD.size > len(window):
                window, base = file.read_at(at, _WINDOW_BYTES), at
            head = window[at - base : at - base + _RECORD_HEAD.size]
            if len(head) < _RECORD_HEAD.size or not any(head[:4]):
                if self._has_rest(at, end):
                    raise self._damaged(at, end - at, "bytes that are no record")
                return
            length, ledger_id, entry_id = _RECORD_HEAD.unpack(head)
            if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or at + 4 + length > end:
                raise self._damaged(at, end - at, f"a record of {length} bytes")
            if at - base + 4 + length > len(window):
                window, base = file.read_at(at, max(_WINDOW_BYTES, 4 + length)), at
            if not entry_log_format.is_map_record(ledger_id, entry_id):
                body = window[at - base + 4 : at - base + 4 + length]
                yield Record(at, ledger_id, entry_id, body)
            at += 4 + length

    def entry_at(self, offset: int) -> bytes:
        """The body of the record whose entry begins at `offset`.

        Raises: Corruption, NotReadable.
        """
        head = self._file.read_at(offset - 4, 4)
        length = int.from_bytes(head, "big", signed=True) if len(head) == 4 else 0
        if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or offset + length > self._file.size:
            raise self._damaged(offset - 4, 4, f"a record of {length} bytes")
        return self._file.read_at(offset, length)

    def _check_map_offset(self) -> None:
        if self.map_offset and not (
            entry_log_format.HEADER_SIZE <= self.map_offset < self._file.size
        ):
            detail = f"the header names a map of ledgers at {self.map_offset}"
            raise self._damaged(0, entry_log_format.HEADER_SIZE, detail)

    def _has_rest(self, at: int, end: int) -> bool:
        """Whether there are bytes other than zeros from `at` on."""
        while at < end:
            data = self._file.read_at(at, _WINDOW_BYTES)
            if not data:
                return False
            if any(data):
                return True
            at += len(data)
        return False

    def _damaged(self, offset: int, size: int, detail: str) -> Corruption:
        return Corruption(str(self._file.path), offset, size, detail)
