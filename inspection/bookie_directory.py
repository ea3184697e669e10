"""The ledger directory of a stopped bookie: its index, and entries by it.

Entries that are in the journal only are not in the index yet: they come there with the next flush,
or at the next start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from bookie.entry_log_format import split_location
from bookie.errors import Corruption
from bookie.index import pack_location_key, unpack_location_key, unpack_u64
from bookie.index_rocksdb import LEDGERS, LOCATIONS
from bookie.ledger_state import decode_ledger_data
from inspection.files import EntryLogFile, NotReadable, OpenFile
from protocol.bookkeeper.digests import Digest, DigestMismatch, DigestType, entry_metadata
from rocks.errors import DatabaseError
from rocks.read_only import ReadOnlyDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEDGER_KEY_BYTES: Final = 8
_LOCATION_KEY_BYTES: Final = 16


def payload_of(body: bytes) -> bytes:
    """The payload after the head of an entry. The kind of its digest is found by trying those
    without a key; else it counts as that of an HMAC, 20 bytes.

    Raises: DigestMismatch: the body is too short for any.
    """
    ledger_id, entry_id = entry_metadata(body)[:2]
    for kind in (DigestType.CRC32C, DigestType.CRC32):
        try:
            return bytes(Digest(kind).verify(body, ledger_id, entry_id))
        except DigestMismatch:
            continue
    return body[Digest(DigestType.HMAC).head_size_bytes :]


@final
@dataclass(slots=True)
class LedgerRow:
    """The row of a ledger in a bookie (a LedgerData)."""

    ledger_id: int
    exists: bool = True
    fenced: bool = False
    limbo: bool = False
    master_key: bytes = b""
    explicit_lac: bytes = b""


@final
class BookieDirectory:
    """See the module docstring."""

    def __init__(self, directory: Path) -> None:
        """`directory`: as in ledgerDirectories, or its `current`. Raises: NotReadable."""
        self._current = directory if (directory / LOCATIONS).is_dir() else directory / "current"
        self._log: tuple[int, OpenFile, EntryLogFile] | None = None
        try:
            self._locations = ReadOnlyDatabase(self._current / LOCATIONS)
        except DatabaseError as error:
            raise NotReadable(str(error)) from error

    def ledgers(self, only: int | None) -> Iterator[LedgerRow]:
        """Ascending. Raises: NotReadable."""
        path = self._current / LEDGERS
        try:
            database = ReadOnlyDatabase(path)
            try:
                for key, value in database.items():
                    ledger_id = int.from_bytes(key, "big", signed=True)
                    if len(key) != _LEDGER_KEY_BYTES or only not in (None, ledger_id):
                        continue
                    if ledger_id < 0:
                        continue  # flags, and the directory's owner
                    row = LedgerRow(ledger_id)
                    try:
                        decode_ledger_data(value, row)
                    except ValueError as error:
                        raise NotReadable(
                            f"{path}: the row of ledger {ledger_id}: {error}"
                        ) from error
                    yield row
            finally:
                database.close()
        except DatabaseError as error:
            raise NotReadable(str(error)) from error

    def locations(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """(entry id, log id, offset of the entry) of a ledger, ascending. Raises: NotReadable."""
        try:
            for key, value in self._locations.items(pack_location_key(ledger_id, first)):
                if len(key) != _LOCATION_KEY_BYTES:
                    continue
                found, entry_id = unpack_location_key(key)
                if found != ledger_id or entry_id > last:
                    return
                yield entry_id, *split_location(unpack_u64(value)[0])
        except DatabaseError as error:
            raise NotReadable(str(error)) from error

    def entries(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """(entry id, body) by the index. Raises: NotReadable, Corruption."""
        for entry_id, log_id, offset in self.locations(ledger_id, first, last):
            file, log = self._opened(log_id)
            body = log.entry_at(offset)
            if entry_metadata(body)[:2] != (ledger_id, entry_id):
                raise Corruption(
                    str(file.path), offset, len(body), f"not entry {ledger_id}:{entry_id}"
                )
            yield entry_id, body

    def _opened(self, log_id: int) -> tuple[OpenFile, EntryLogFile]:
        if self._log is None or self._log[0] != log_id:
            if self._log is not None:
                self._log[1].close()
                self._log = None
            file = OpenFile(self._current / f"{log_id:x}.log")
            self._log = log_id, file, EntryLogFile(file)
        return self._log[1], self._log[2]

    def close(self) -> None:
        """Once."""
        self._locations.close()
        if self._log is not None:
            self._log[1].close()
