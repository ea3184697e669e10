"""The messages of a batch as columns. Pure.

A batch is a row of messages: four bytes with the size of a SingleMessageMetadata, the metadata, the
payload. Where the next message begins is known only when the metadata of this one is read, so this
is a loop, and nothing that numpy could do.

Only the usual form of the metadata is read: fields that are known, with tags of one byte and
numbers below 2**63, a size of the payload, and no key in base64. It is what clients write. For
anything else, damage included, the answer is None, and protobuf decides what it is.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

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
"""Of a row: numbers of 64 bits in the byte order of the machine. The metadata ends where the
payload begins. Without a key, `key` and `key_end` are where the metadata begins."""
HAS_KEY: Final = 1
IS_NULL: Final = 2
IS_REMOVED: Final = 4
"""By compaction."""
HAS_PROPERTIES: Final = 8

ROW: Final = Struct("=5qQ2q")

_MESSAGE_BYTES_MIN: Final = 6
_PAYLOAD_SIZE_MAX: Final = 2**31 - 1
_PROPERTIES: Final = 0x0A
_KEY: Final = 0x12
_PAYLOAD_SIZE: Final = 0x18
_COMPACTED_OUT: Final = 0x20
_EVENT_TIME: Final = 0x28
_KEY_IS_BASE64: Final = 0x30
_NULL_VALUE: Final = 0x48
_WITHOUT_EFFECT: Final = frozenset({0x3A, 0x40, 0x50})
"""Ordering key, sequence id, whether the key is null."""
_FLAGS: Final = {_COMPACTED_OUT: IS_REMOVED, _NULL_VALUE: IS_NULL}
_U32: Final = Struct(">I")


class _Unusual(Exception):
    """The metadata is not in its usual form."""


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
    except _Unusual:
        return None
    return b"".join(rows), flags


def _read_metadata(content: bytes, begin: int, end: int) -> tuple[int, int, int, int, int]:
    """Size of the payload, begin and end of the key, event time, flags.

    Raises: _Unusual.
    """
    size = -1
    key = key_end = at = begin
    event_time_ms = flags = 0
    while at < end:
        tag = content[at]
        value, at = _varint(content, at + 1, end)
        if tag & 7 == 2 and value > end - at:
            raise _Unusual
        if tag in _FLAGS:
            flags = flags | _FLAGS[tag] if value else flags & ~_FLAGS[tag]
        elif tag == _PAYLOAD_SIZE:
            size = value
        elif tag == _EVENT_TIME:
            event_time_ms = value
        elif tag == _KEY:
            key, key_end = at, at + value
            flags |= HAS_KEY
        elif tag == _PROPERTIES:
            flags |= HAS_PROPERTIES
        elif tag not in _WITHOUT_EFFECT and (tag != _KEY_IS_BASE64 or value):
            raise _Unusual
        if tag & 7 == 2:
            at += value
    if not 0 <= size <= _PAYLOAD_SIZE_MAX:
        raise _Unusual
    return size, key, key_end, event_time_ms, flags


def _varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends.

    Raises: _Unusual: it passes the end, or has more than 63 bits.
    """
    value = shift = 0
    while at < end and shift < 63:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Unusual
