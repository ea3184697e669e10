"""Heads of entries to be written, and their records, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import crc32c_bodies, put_records
except ImportError:
    from native.pure.writing import crc32c_bodies, put_records

__all__ = ["crc32c_bodies", "put_records"]
