"""Entries of ledgers, from the extension where it was built: digests of those that are read, heads
and digests of those that are written, and their records in journals and entry logs."""

from __future__ import annotations

try:
    from native._extension import (
        crc32c,
        crc32c_bodies,
        crc32c_payloads,
        log_records,
        put_records,
    )
except ImportError:
    from native.pure.checksums import crc32c
    from native.pure.reading import crc32c_payloads
    from native.pure.records import log_records
    from native.pure.writing import crc32c_bodies, put_records

__all__ = ["crc32c", "crc32c_bodies", "crc32c_payloads", "log_records", "put_records"]
