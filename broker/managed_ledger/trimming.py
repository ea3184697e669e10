"""Which ledgers of a topic may be deleted.

Pure. A ledger is deleted when every durable cursor is past its last entry and retention no longer
keeps it. Ledgers are deleted from the oldest on, up to the first one that must stay. The ledger
being written always stays. Retention keeps a ledger while it is younger than the time *and* the
topic without it would be smaller than the size; -1 is no limit. So 0 and 0 deletes all consumed
ledgers.

Source: ManagedLedgerImpl.internalTrimLedgers of Pulsar 4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.managed_ledger.config import RetentionPolicy
    from broker.managed_ledger.ledger_table import LedgerRow
    from protocol.position import Position

_MIB = 1024 * 1024


def trimmable_count(
    rows: Sequence[LedgerRow],
    slowest: Position | None,
    retention: RetentionPolicy,
    now_ms: int,
) -> int:
    """How many of the oldest ledgers may be deleted. `slowest`: the lowest mark-delete position of
    the durable cursors; None: there are none, so everything counts as consumed."""
    size_left = sum(row.size_bytes for row in rows)
    count = 0
    for row in rows[:-1]:
        if slowest is not None and (row.ledger_id, row.entries - 1) > slowest:
            break
        age_ms = now_ms - row.timestamp_ms
        is_expired = 0 <= retention.time_minutes * 60_000 <= age_ms
        is_over_size = 0 <= retention.size_mb * _MIB <= size_left and retention.size_mb >= 0
        if not (is_expired or is_over_size):
            break
        size_left -= row.size_bytes
        count += 1
    return count
