"""Heads of entries to be written, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import crc32c_bodies
except ImportError:
    from native.pure.writing import crc32c_bodies

__all__ = ["crc32c_bodies"]
