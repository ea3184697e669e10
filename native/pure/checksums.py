"""CRC-32C. Pure.

Polynomial 0x1EDC6F41, bits reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Checksum of `data` after bytes with the checksum `value`."""
    return _crc32c(data, value)
