"""The sticky key of an entry, read straight from the bytes of its metadata.

Key_Shared asks for it for every message. Parsing the metadata and asking for four fields costs
several times as much. Only the usual form is read here; anything else is left to
`protocol.metadata.sticky_key`, with the same result: `protocol/tests/test_sticky_keys.py` holds the
two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.varints import read_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

_PRODUCER_NAME: Final = 0x0A
_SEQUENCE_ID: Final = 0x10
_PARTITION_KEY: Final = 0x32
_KEY_IS_BASE64: Final = 0x88
_ORDERING_KEY: Final = 0x92
_CHECKSUM_HEAD_SIZE: Final = 6


def _metadata_start(data: bytes) -> i64:
    """Where the metadata begins, whose size is before it; 0: the entry has another form."""
    size: i64 = len(data)
    start: i64 = 4
    if size > 1 and data[0] == 0x0E:
        start = 4 + _CHECKSUM_HEAD_SIZE if data[1] == 0x01 else size + 1
    return start if start <= size else 0


def sticky_key_in(data: bytes) -> bytes | None:
    """As `protocol.metadata.sticky_key` of the metadata of an entry; None: it has to be parsed."""
    at = _metadata_start(data)
    end: i64 = len(data)
    if at < 4:
        return None
    size: i64 = data[at - 4]
    size = size << 8 | data[at - 3]
    size = size << 8 | data[at - 2]
    size = size << 8 | data[at - 1]
    if size > end - at:
        return None
    end = at + size
    producer_start: i64 = -1
    producer_end: i64 = -1
    key_start: i64 = -1
    key_end: i64 = -1
    ordering_start: i64 = -1
    ordering_end: i64 = -1
    sequence_id: i64 = -1
    while at < end:
        tag: i64 = data[at]
        at += 1
        if tag > 0x7F:
            # Two bytes are enough for every known field.
            if at >= end or data[at] > 0x7F:
                return None
            more: i64 = data[at]
            tag = tag & 0x7F | more << 7
            at += 1
        wire_type = tag & 7
        if tag < 8 or (wire_type != 0 and wire_type != 2):
            return None
        value, at = read_varint(data, at, end)
        if value < 0:
            return None
        if wire_type == 2:
            if value > end - at:
                return None
            if tag == _PRODUCER_NAME:
                producer_start, producer_end = at, at + value
            elif tag == _PARTITION_KEY:
                key_start, key_end = at, at + value
            elif tag == _ORDERING_KEY:
                ordering_start, ordering_end = at, at + value
            at += value
        elif tag == _SEQUENCE_ID:
            sequence_id = value
        elif tag == _KEY_IS_BASE64 and value != 0:
            return None
    if ordering_start >= 0:
        return data[ordering_start:ordering_end]
    start, stop = (key_start, key_end) if key_start >= 0 else (producer_start, producer_end)
    if start < 0 or (key_start < 0 and sequence_id < 0):
        return None
    text = data[start:stop]
    if not text.isascii():
        return None  # it may be no text
    return text if key_start >= 0 else b"%b-%d" % (text, sequence_id)
