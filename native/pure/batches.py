"""The messages of a batch as columns. Pure.

A batch is a row of messages: four bytes with the size of a SingleMessageMetadata, the metadata, the
payload. Where the next message begins is known only when the metadata of this one is read, so this
is a loop, and nothing that numpy could do.

Only the usual form of the metadata is read (`native.pure.fields`): fields that are known, numbers
below 2**63, a size of the payload, and no key in base64. It is what clients write. For
anything else, damage included, the answer is None, and protobuf decides what it is.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from native.pure.fields import Unusual, read_fields

FIELDS: Final = (
    "metadata",
    "payload",
    "payload_end",
    "key",
    "key_end",
    "event_time_ms",
    "index",
    "flags",
)
"""The fields of a row: numbers of 64 bits in the byte order of the machine. The metadata ends where
the payload begins. Without a key, `key` and `key_end` are where the metadata begins."""
HAS_KEY: Final = 1
IS_NULL: Final = 2
IS_REMOVED: Final = 4
"""By compaction."""
HAS_PROPERTIES: Final = 8

ROW: Final = Struct("=5qQ2q")

_MESSAGE_BYTES_MIN: Final = 6
_PAYLOAD_SIZE_MAX: Final = 2**31 - 1
_PROPERTIES: Final = 1
_KEY: Final = 2
_PAYLOAD_SIZE: Final = 3
_COMPACTED_OUT: Final = 4
_EVENT_TIME: Final = 5
_KEY_IS_BASE64: Final = 6
_NULL_VALUE: Final = 9
_NUMBERS: Final = 0b0111_0111_1000
"""Sequence id and whether the key is null, too, which have no effect here."""
_TEXTS: Final = 0b1000_0110
"""The ordering key, too."""
_U32: Final = Struct(">I")


def batch_rows(content: bytes, count: int) -> tuple[bytes, int] | None:
    """A row for each message of a batch that is neither compressed nor encrypted (any more), and
    all their flags; None if it is not in the usual form, or is no batch of so many messages."""
    if count < 0 or count > len(content) // _MESSAGE_BYTES_MIN:
        return None
    rows: list[bytes] = []
    at = flags = 0
    try:
        for index in range(count):
            if len(content) - at < 4:
                return None
            begin = at + 4
            end = begin + _U32.unpack_from(content, at)[0]
            if end > len(content):
                return None
            size, key, key_end, event_time_ms, own_flags = _read_metadata(content, begin, end)
            at = end + size
            if at > len(content):
                return None
            rows.append(ROW.pack(begin, end, at, key, key_end, event_time_ms, index, own_flags))
            flags |= own_flags
    except Unusual:
        return None
    return b"".join(rows), flags


def _read_metadata(content: bytes, begin: int, end: int) -> tuple[int, int, int, int, int]:
    """Size of the payload, begin and end of the key, event time, flags.

    Raises: Unusual.
    """
    fields = read_fields(content, begin, end, _NUMBERS, _TEXTS)
    values, seen = fields.values, fields.seen
    size = values[_PAYLOAD_SIZE]
    if not seen >> _PAYLOAD_SIZE & 1 or size > _PAYLOAD_SIZE_MAX or values[_KEY_IS_BASE64]:
        raise Unusual
    key = key_end = begin
    flags = HAS_PROPERTIES if seen >> _PROPERTIES & 1 else 0
    if seen >> _KEY & 1:
        key_end = fields.ends[_KEY]
        key = key_end - values[_KEY]
        flags |= HAS_KEY
    if values[_NULL_VALUE]:
        flags |= IS_NULL
    if values[_COMPACTED_OUT]:
        flags |= IS_REMOVED
    return size, key, key_end, values[_EVENT_TIME], flags
