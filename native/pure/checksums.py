"""CRC-32C. Pure.

Polynomial 0x1EDC6F41, bits reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c as _crc32c

_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31
_TO_THE_EIGHTH: Final = 1 << 23


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Checksum of `data` after bytes with the checksum `value`."""
    return _crc32c(data, value)


def crc32c_combined(first: int, second: int, second_bytes: int) -> int:
    """Checksum of two pieces in a row from the checksums of both, without their bytes.

    The time is that of about 30 steps for each bit of `second_bytes`: for less than some kilobytes
    a pass over the bytes is faster.

    Raises: ValueError: `second_bytes` is negative.
    """
    if second_bytes < 0:
        raise ValueError("a piece has no negative size")
    factor, power = _ONE, _TO_THE_EIGHTH
    while second_bytes:
        if second_bytes & 1:
            factor = _product(power, factor)
        power = _product(power, power)
        second_bytes >>= 1
    return _product(factor, first) ^ second


def _product(left: int, right: int) -> int:
    """Product of two polynomials modulo that of CRC-32C. The highest bit is the constant term."""
    product, mask = 0, _ONE
    while mask:
        if left & mask:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
        mask >>= 1
    return product
