"""RocksDB's MANIFEST and batches of its write-ahead log, as far as the check needs them. Pure.

A MANIFEST is a log (`log_format`) of version edits; an edit is a run of fields, each a varint tag
and its value. Replayed from the start they give the table files that make up the database, the
first write-ahead log that is still needed, and the newest sequence number known to the tables.

A batch of a write-ahead log begins with uint64 sequence and uint32 count, little-endian. The next
batch has the sequence `sequence + count`, also across files, so a missing log is detected.

Format: field numbers of RocksDB's `db/version_edit.h`; the wiki's "MANIFEST" page.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

_COMPARATOR: Final = 1
_LOG_NUMBER: Final = 2
_NEXT_FILE_NUMBER: Final = 3
_LAST_SEQUENCE: Final = 4
_COMPACT_CURSOR: Final = 5
_DELETED_FILE: Final = 6
_PREVIOUS_LOG_NUMBER: Final = 9
_MIN_LOG_NUMBER: Final = 10
_NEW_FILE: Final = 7
_NEW_FILE_2: Final = 100
_NEW_FILE_3: Final = 102
_NEW_FILE_4: Final = 103
_NEW_FILES: Final = frozenset({_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4})
_COLUMN_FAMILY: Final = 200
_MAX_COLUMN_FAMILY: Final = 203
_IN_ATOMIC_GROUP: Final = 300
_SKIPPABLE: Final = 1 << 13
"""Fields with this bit carry their length, so that an older reader can skip them."""
_END_OF_FILE_FIELDS: Final = 1
_NUMBERS: Final = frozenset({_PREVIOUS_LOG_NUMBER, _MAX_COLUMN_FAMILY, _IN_ATOMIC_GROUP})
_BATCH: Final = Struct("<QI")


class UnreadableRecord(Exception):
    """A record that verifies but makes no sense where it is."""


@final
class Manifest:
    """The state that results from the edits."""

    __slots__ = ("is_begun", "last_sequence", "log_number", "tables")

    def __init__(self) -> None:
        self.tables: dict[int, int] = {}
        """Size in bytes of each table file (`<6 digits>.sst`), by its number."""
        self.is_begun = False
        """Whether any edit was applied."""
        self.log_number = 0
        """Write-ahead logs before this one are not needed any more."""
        self.last_sequence = 0

    def apply(self, edit: bytes) -> None:
        """Add one edit.

        Raises: UnreadableRecord.
        """
        self.is_begun = True
        fields = _Fields(edit)
        try:
            while not fields.at_end():
                self._field(fields.number(), fields)
        except IndexError:
            raise UnreadableRecord("a version edit is cut short") from None

    def _field(self, tag: int, fields: _Fields) -> None:
        if tag in (_LOG_NUMBER, _MIN_LOG_NUMBER):
            self.log_number = max(self.log_number, fields.number())
        elif tag == _LAST_SEQUENCE:
            self.last_sequence = max(self.last_sequence, fields.number())
        elif tag == _NEXT_FILE_NUMBER or tag in _NUMBERS:
            fields.number()
        elif tag == _DELETED_FILE:
            fields.number()
            self.tables.pop(fields.number(), None)
        elif tag in _NEW_FILES:
            fields.number()
            table, size = self._new_file(tag, fields)
            self.tables[table] = size
        elif tag == _COMPACT_CURSOR:
            fields.number()
            fields.skip()
        elif tag == _COMPARATOR or tag & _SKIPPABLE:
            fields.skip()
        elif tag == _COLUMN_FAMILY:
            if fields.number():
                raise UnreadableRecord("the database has more than one column family")
        else:
            raise UnreadableRecord(f"a version edit has the unknown field {tag}")

    def _new_file(self, tag: int, fields: _Fields) -> tuple[int, int]:
        table = fields.number()
        if tag == _NEW_FILE_3:
            fields.number()
        size = fields.number()
        fields.skip()
        fields.skip()
        if tag != _NEW_FILE:
            fields.number()
            fields.number()
        if tag == _NEW_FILE_4:
            while fields.number() != _END_OF_FILE_FIELDS:
                fields.skip()
        return table, size


@final
class _Fields:
    """Consecutive varints and byte strings."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip(self) -> None:
        """A byte string with its length before it."""
        size = self.number()
        self._position += size
        if self._position > len(self._data):
            raise IndexError


@final
class BatchOrder:
    """Follows the sequence numbers of batches over one write-ahead log after the other."""

    __slots__ = ("_expected",)

    def __init__(self, expected: int) -> None:
        """`expected`: the first batch must begin here or before."""
        self._expected = expected

    def follow(self, record: bytes) -> None:
        """The next record.

        Raises: UnreadableRecord: it is not a batch, or batches before it are missing.
        """
        if len(record) < _BATCH.size:
            raise UnreadableRecord(f"a record of {len(record)} bytes is not a batch")
        sequence, count = _BATCH.unpack_from(record)
        if sequence > self._expected:
            raise UnreadableRecord(
                f"a batch has sequence {sequence} instead of {self._expected}: the write-ahead log "
                "before it is missing or was cut short"
            )
        self._expected = sequence + count
