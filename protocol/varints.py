"""Varints, for what is read straight from its bytes (the plain readers of this room).

Numbers are read up to 63 bits. More do not fit into an i64, with which compiled code computes
without objects; such a number is rare, and left to protobuf. The readers check all bounds, and
never raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

_BITS_READ: Final = 63
_SIZE_MAX: Final = 10


def read_varint(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The number at `at`, which lies within `data[:end]`, and where it ends. Both are negative if
    it has no end there, or more than 63 bits."""
    value: i64 = 0
    shift: i64 = 0
    while at < end and shift < _BITS_READ:
        byte: i64 = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, -1


def after_varint(data: bytes, at: i64, end: i64) -> i64:
    """Where the varint at `at` ends, whatever its value; after `end` if it has no end there, or
    more than ten bytes."""
    last: i64 = min(end, at + _SIZE_MAX)
    while at < last:
        at += 1
        if data[at - 1] < 0x80:
            return at
    return end + 1
