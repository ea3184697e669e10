"""CRC-32C, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import crc32c
except ImportError:
    from native.pure.checksums import crc32c

__all__ = ["crc32c"]
