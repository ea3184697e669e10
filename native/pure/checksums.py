"""CRC-32C. Pure.

Polynomial 0x1EDC6F41, bits reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0, start: int = 0, /) -> int:
    """Checksum of `data` from byte `start` on, after bytes with the checksum `value`. There is
    nothing from a negative byte on."""
    if start:
        data = memoryview(data)[start:] if start > 0 else b""
    return _crc32c(data, value)
