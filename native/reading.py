"""Digests of entries that were read, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import crc32c_payloads
except ImportError:
    from native.pure.reading import crc32c_payloads

__all__ = ["crc32c_payloads"]
