"""Records of entry logs and their rows in the index, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import log_records
except ImportError:
    from native.pure.records import log_records

__all__ = ["log_records"]
