"""The entry log file, byte for byte. Pure: no files, no clock.

A log is named `<hex id>.log` and is BookKeeper's version 1, big-endian:

    file   = header (1024 bytes), record*, map*
    header = "BKLO", int32 1, int64 offset of the ledgers map (0: not sealed), int32 ledgers,
             [ "VELA", int32 crc32c, [ "LIST" ] ], zeros
    record = int32 length, entry: int64 ledger id, int64 entry id, rest
    map    = int32 length, int64 -1, int64 -2, int32 count, count x (int64 ledger id, int64 bytes)

The location of an entry is `log id << 32 | offset of the entry` (after its length), so 0 is never a
location. The map is appended when a log is sealed, at most 10000 ledgers per map record. It is
durable before the header refers to it. The checksum, in bytes that BookKeeper leaves zero, covers
the header before it and the whole map. A map without it (by BookKeeper, or an earlier version) may
show garbage collection which logs to examine, but never which to delete: for that the log is
scanned. "LIST": the log was made in a directory that records its logs (`recorded_logs`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEADER_SIZE: Final = 1024
VERSION: Final = 1
LOG_ID_MAX: Final = 0x7FFFFFFF

_MAGIC: Final = b"BKLO"
_MAP_LEDGER: Final = -1
_MAP_ENTRY: Final = -2
_MAP_LEDGERS_MAX: Final = 10_000

_OWN_MAGIC: Final = b"VELA"
_RECORDED: Final = b"LIST"

_HEADER = struct.Struct(">4siqi")
_OWN_HEADER = struct.Struct(">4sI")
_IDS = struct.Struct(">qq")
_LENGTH = struct.Struct(">i")
_RECORD_HEAD = struct.Struct(">iqq")
_MAP_HEAD = struct.Struct(">iqqi")
_MAP_ITEM = struct.Struct(">qq")


def encode_header(map_offset: int = 0, ledgers_count: int = 0, ledgers_map: bytes = b"") -> bytes:
    """The first 1024 bytes; zeros for a log that is not sealed."""
    head = _HEADER.pack(_MAGIC, VERSION, map_offset, ledgers_count)
    own = _OWN_HEADER.pack(_OWN_MAGIC, crc32c.crc32c(ledgers_map, crc32c.crc32c(head)))
    return (head + own + _RECORDED).ljust(HEADER_SIZE, b"\0")


def is_recorded(header: bytes) -> bool:
    """Whether the log was made in a directory that records its logs."""
    at = _HEADER.size + _OWN_HEADER.size
    return header[at : at + len(_RECORDED)] == _RECORDED and decode_header(header) is not None


def is_map_intact(header: bytes, ledgers_map: bytes) -> bool:
    """Whether the header has a correct checksum of itself and this map."""
    magic, checksum = _OWN_HEADER.unpack_from(header, _HEADER.size)
    own = crc32c.crc32c(ledgers_map, crc32c.crc32c(header[: _HEADER.size]))
    return bool(magic == _OWN_MAGIC and checksum == own)


def decode_header(data: bytes) -> tuple[int, int] | None:
    """(offset of the ledgers map, number of ledgers); None if this is no entry log."""
    if len(data) < HEADER_SIZE:
        return None
    magic, _version, map_offset, ledgers_count = _HEADER.unpack_from(data)
    return (map_offset, ledgers_count) if magic == _MAGIC else None


def encode_ledgers_map(bytes_by_ledger: Mapping[int, int]) -> bytes:
    """The map records of a sealed log."""
    items = list(bytes_by_ledger.items())
    parts = []
    for first in range(0, len(items), _MAP_LEDGERS_MAX):
        chunk = items[first : first + _MAP_LEDGERS_MAX]
        size = _MAP_HEAD.size - 4 + len(chunk) * _MAP_ITEM.size
        parts.append(_MAP_HEAD.pack(size, _MAP_LEDGER, _MAP_ENTRY, len(chunk)))
        parts.extend(_MAP_ITEM.pack(*item) for item in chunk)
    return b"".join(parts)


def decode_ledgers_map(data: bytes, ledgers_count: int) -> dict[int, int] | None:
    """Decode the map from the bytes after its offset. None unless every byte is valid and exactly
    `ledgers_count` ledgers are in it."""
    result: dict[int, int] = {}
    offset = 0
    while offset < len(data):
        if len(data) - offset < _MAP_HEAD.size:
            return None
        size, ledger_id, entry_id, count = _MAP_HEAD.unpack_from(data, offset)
        end = offset + 4 + size
        if (ledger_id, entry_id) != (_MAP_LEDGER, _MAP_ENTRY) or end > len(data):
            return None
        if not 0 < count <= _MAP_LEDGERS_MAX or size != _MAP_HEAD.size - 4 + count * 16:
            return None
        for ledger_id, size_bytes in _MAP_ITEM.iter_unpack(data[offset + _MAP_HEAD.size : end]):
            if ledger_id < 0 or size_bytes <= 0 or ledger_id in result:
                return None
            result[ledger_id] = size_bytes
        offset = end
    return result if len(result) == ledgers_count else None


def is_ledgers_map(record: bytes) -> bool:
    """Whether a whole record is one that `encode_ledgers_map` makes."""
    ledgers_count = (len(record) - _MAP_HEAD.size) // _MAP_ITEM.size
    return decode_ledgers_map(record, ledgers_count) is not None


def location_of(log_id: int, offset: int) -> int:
    """The location value of the entry whose first byte (not its length) is at `offset`."""
    return log_id << 32 | offset


def split_location(location: int) -> tuple[int, int]:
    """(log id, offset of the entry)."""
    return location >> 32, location & 0xFFFFFFFF


def entry_at(data: bytes, position: int, ledger_id: int, entry_id: int) -> int | None:
    """Length of the record at `position` if it is that entry; None if it is anything else."""
    if len(data) - position < 20:
        return None
    length, ledger, entry = _RECORD_HEAD.unpack_from(data, position)
    if ledger != ledger_id or entry != entry_id or length < 16:
        return None
    return int(length)


def walk_records(data: bytes, position: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """(position, length, ledger id, entry id) of the records that are complete in `data`. Stops at
    the first bytes that cannot be a record. Ledgers map records are included (ledger id -1)."""
    size = len(data)
    while size - position >= 20:
        length, ledger_id, entry_id = _RECORD_HEAD.unpack_from(data, position)
        if length < 16 or position + 4 + length > size:
            return
        yield position, length, ledger_id, entry_id
        position += 4 + length


def is_map_record(ledger_id: int, entry_id: int) -> bool:
    """Whether these ids mark a part of the ledgers map."""
    return ledger_id == _MAP_LEDGER and entry_id == _MAP_ENTRY
