"""Bitmaps as the 64-bit words of Pulsar's records, and back.

Pure. A word list is little-endian in words and bits: bit `i % 64` of word `i // 64` stands for
entry `i`, as in Java's BitSet.toLongArray, so words are signed. A cursor with a million holes is
written in this form every second, so a bitmap is not walked bit by bit: its portable serialised
form (RoaringFormatSpec) already holds dense parts as bits, which are copied whole.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final

from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Sequence

_COOKIE_WITH_RUNS: Final = 12347
_COOKIE_WITHOUT_RUNS: Final = 12346
_OFFSETS_FROM_CONTAINERS: Final = 4
_ARRAY_VALUES_MAX: Final = 4096
_CONTAINER_BITS: Final = 65536
_CONTAINER_BYTES: Final = _CONTAINER_BITS // 8
_U32: Final = Struct("<I")
_U16_PAIR: Final = Struct("<HH")


def bitmap_words(bitmap: BitMap) -> list[int]:
    """The bitmap as signed 64-bit words, without trailing zero words."""
    if not bitmap:
        return []
    data = bytearray((bitmap.max() // _CONTAINER_BITS + 1) * _CONTAINER_BYTES)
    _fill(data, bitmap.serialize())
    del data[(bitmap.max() // 64 + 1) * 8 :]
    words = array("q", bytes(data))
    if sys.byteorder == "big":
        words.byteswap()
    return words.tolist()


def words_bitmap(words: Sequence[int]) -> BitMap:
    """The bitmap of signed 64-bit words."""
    values: list[int] = []
    for at, word in enumerate(words):
        bits = word & 0xFFFF_FFFF_FFFF_FFFF
        base = at * 64
        while bits:
            lowest = bits & -bits
            values.append(base + lowest.bit_length() - 1)
            bits ^= lowest
    return BitMap(array("I", values))


def bitmap_ranges(bitmap: BitMap) -> list[tuple[int, int]]:
    """The runs of set bits as (first, last)."""
    firsts = bitmap - bitmap.shift(1)
    lasts = bitmap - bitmap.shift(-1)
    return list(zip(firsts, lasts, strict=True))


def range_count(bitmap: BitMap) -> int:
    """How many runs of set bits there are."""
    return len(bitmap) - int(bitmap.intersection_cardinality(bitmap.shift(1)))


def _fill(data: bytearray, serialized: bytes) -> None:
    """Set the bits of a serialised bitmap."""
    cookie: int = _U32.unpack_from(serialized)[0]
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    run_flags = b""
    if has_runs:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        run_flags = serialized[4:at]
    else:
        assert cookie == _COOKIE_WITHOUT_RUNS
        count = _U32.unpack_from(serialized, 4)[0]
        at = 8
    headers = [_U16_PAIR.unpack_from(serialized, at + 4 * index) for index in range(count)]
    at += 4 * count
    if not has_runs or count >= _OFFSETS_FROM_CONTAINERS:
        at += 4 * count
    for index, (key, cardinality) in enumerate(headers):
        base = key * _CONTAINER_BYTES
        if has_runs and run_flags[index // 8] >> index % 8 & 1:
            runs = _u16s(serialized, at + 2, 2 * int.from_bytes(serialized[at : at + 2], "little"))
            at += 2 + 2 * len(runs)
            for start, extra in zip(runs[::2], runs[1::2], strict=True):
                _set_run(data, base * 8 + start, base * 8 + start + extra)
        elif cardinality + 1 > _ARRAY_VALUES_MAX:
            data[base : base + _CONTAINER_BYTES] = serialized[at : at + _CONTAINER_BYTES]
            at += _CONTAINER_BYTES
        else:
            for value in _u16s(serialized, at, cardinality + 1):
                data[base + (value >> 3)] |= 1 << (value & 7)
            at += 2 * (cardinality + 1)


def _u16s(serialized: bytes, at: int, count: int) -> array[int]:
    values = array("H", serialized[at : at + 2 * count])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _set_run(data: bytearray, first: int, last: int) -> None:
    first_byte, last_byte = first >> 3, last >> 3
    if first_byte == last_byte:
        data[first_byte] |= (1 << last % 8 + 1) - (1 << first % 8)
        return
    data[first_byte] |= 0x100 - (1 << first % 8)
    data[first_byte + 1 : last_byte] = b"\xff" * (last_byte - first_byte - 1)
    data[last_byte] |= (1 << last % 8 + 1) - 1
