"""CRC-32C. Pure.

Polynomial 0x1EDC6F41, bits reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from crc32c import crc32c as _crc32c

_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31
_ONE_BYTE: Final = 1 << 23
_SIZES_KEPT: Final = 64


def crc32c(data: bytes | bytearray | memoryview, value: int = 0, start: int = 0, /) -> int:
    """Checksum of `data` from byte `start` on, after bytes with the checksum `value`. There is
    nothing from a negative byte on."""
    if start:
        data = memoryview(data)[start:] if start > 0 else b""
    return _crc32c(data, value)


def crc32c_joined(first: int, second: int, second_size: int) -> int:
    """Checksum of bytes with the checksum `first` and `second_size` bytes with `second` after
    them."""
    return _product(_over(second_size), first) ^ second


@lru_cache(_SIZES_KEPT)
def _over(size: int) -> int:
    """x to the power of the bits of so many bytes, modulo the polynomial."""
    factor, power = _ONE, _ONE_BYTE
    while size:
        if size & 1:
            factor = _product(power, factor)
        power = _product(power, power)
        size >>= 1
    return factor


def _product(left: int, right: int) -> int:
    """The product of two polynomials whose highest bit is that of x to the power of 0."""
    result = 0
    mask = _ONE
    while mask:
        if left & mask:
            result ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
        mask >>= 1
    return result
