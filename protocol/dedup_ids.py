"""The numbers by which deduplication knows a stored message: the name of its producer and its
sequence id, read straight from the bytes of its metadata.

A restart has nothing but the metadata, so what is judged on arrival must be in it. Only the usual
form is read here; anything else is parsed, with the same result:
`protocol/tests/test_dedup_ids.py` holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import RemoteProtocolError
from protocol.metadata import peek
from protocol.varints import read_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

FOREIGN: Final = -1
"""The metadata name another producer, or cannot be read."""
_PRODUCER_NAME: Final = 0x0A
_SEQUENCE_ID: Final = 0x10
_HIGHEST_SEQUENCE_ID: Final = 0xC0
_CHECKSUM_HEAD_SIZE: Final = 6


def last_sequence_id_in(data: bytes, producer_name: bytes) -> int:
    """The sequence id in the metadata of an entry, of a batch that of its last message; FOREIGN if
    the metadata are not those of a message of this producer."""
    size: i64 = len(data)
    at: i64 = 4
    if size > 1 and data[0] == 0x0E:
        if data[1] != 0x01:
            return parsed_last_sequence_id(data, producer_name)
        at = 4 + _CHECKSUM_HEAD_SIZE
    if at > size:
        return FOREIGN
    end: i64 = data[at - 4]
    end = end << 8 | data[at - 3]
    end = end << 8 | data[at - 2]
    end = end << 8 | data[at - 1]
    end += at
    if end > size:
        return FOREIGN
    name_start: i64 = at
    name_end: i64 = at
    sequence_id: i64 = 0
    highest: i64 = 0
    while at < end:
        tag: i64 = data[at]
        at += 1
        if tag > 0x7F:
            # Two bytes are enough for every known field.
            if at >= end or data[at] > 0x7F:
                return parsed_last_sequence_id(data, producer_name)
            more: i64 = data[at]
            tag = tag & 0x7F | more << 7
            at += 1
        wire_type = tag & 7
        if tag < 8 or (wire_type != 0 and wire_type != 2):
            return parsed_last_sequence_id(data, producer_name)
        value, at = read_varint(data, at, end)
        if value < 0:
            return parsed_last_sequence_id(data, producer_name)
        if wire_type == 2:
            if value > end - at:
                return FOREIGN
            if tag == _PRODUCER_NAME:
                name_start, name_end = at, at + value
            at += value
        elif tag == _SEQUENCE_ID:
            sequence_id = value
        elif tag == _HIGHEST_SEQUENCE_ID:
            highest = value
    if data[name_start:name_end] != producer_name:
        return FOREIGN
    return max(sequence_id, highest)


def parsed_last_sequence_id(data: bytes, producer_name: bytes) -> int:
    """The same from metadata of any form."""
    try:
        metadata = peek(data)
    except RemoteProtocolError:
        return FOREIGN
    name: object = metadata.producer_name
    named = name.encode() if isinstance(name, str) else name
    if named != producer_name:
        return FOREIGN
    return max(metadata.sequence_id, metadata.highest_sequence_id)
