"""Whether an entry may have one of the fields for which Shared and Key_Shared treat it apart.

These are `deliver_at_time` (field 19 of MessageMetadata, with the tag 98 01) and `chunk_id` (field
29, e8 01). An entry whose metadata does not contain one of these pairs of bytes cannot have the
field, so nearly all entries need no parsing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import RemoteProtocolError
from protocol.metadata import metadata_range

if TYPE_CHECKING:
    from mypy_extensions import i64

DELIVER_AT_TAG: Final = b"\x98\x01"
CHUNK_ID_TAG: Final = b"\xe8\x01"
_DELIVER_AT: Final = 0x98
_CHUNK_ID: Final = 0xE8
_SECOND: Final = 0x01
"""The second byte of both."""
_CHECKSUM_HEAD_SIZE: Final = 6


def may_be_unusual(data: bytes) -> bool:
    """Whether one of the tags may be in the metadata of an entry. Asked for every message of Shared
    and Key_Shared, so usual metadata is looked through here byte by byte, which compiled code does
    without objects."""
    size: i64 = len(data)
    at: i64 = 0
    if size > 1 and data[0] == 0x0E:
        if data[1] != 0x01:
            return _has_either(data)
        at = _CHECKSUM_HEAD_SIZE
    if at + 4 > size or data[at] != 0 or data[at + 1] != 0 or data[at + 2] != 0:
        return _has_either(data)
    last: i64 = at + 3 + data[at + 3]
    if last >= size:
        return False  # which cannot be read
    at += 5
    while at <= last:
        if data[at] == _SECOND and data[at - 1] in (_DELIVER_AT, _CHUNK_ID):
            return True
        at += 1
    return False


def _has_either(data: bytes) -> bool:
    return may_have(data, DELIVER_AT_TAG) or may_have(data, CHUNK_ID_TAG)


def may_have(data: bytes, tag: bytes) -> bool:
    """Whether the tag is in the metadata of an entry, perhaps as something else."""
    try:
        start, end = metadata_range(data)
    except RemoteProtocolError:
        return False
    return data.find(tag, start, end) >= 0
