"""The messages of a batch as columns, from the extension where it was built."""

from __future__ import annotations

from native.pure.batches import (
    FIELDS,
    HAS_KEY,
    HAS_PROPERTIES,
    IS_NULL,
    IS_REMOVED,
    ROW,
)

try:
    from native._extension import batch_rows
except ImportError:
    from native.pure.batches import batch_rows

__all__ = [
    "FIELDS",
    "HAS_KEY",
    "HAS_PROPERTIES",
    "IS_NULL",
    "IS_REMOVED",
    "ROW",
    "batch_rows",
]
