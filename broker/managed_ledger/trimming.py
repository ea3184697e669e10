"""Which ledgers of a topic may be deleted.

Pure. A ledger is deleted when every durable cursor is past its last entry and retention no longer
keeps it. Ledgers are deleted from the oldest on, up to the first one that must stay. The ledger
being written always stays. Retention keeps a ledger while it is younger than the time *and* the
topic without it would be smaller than the size; -1 is no limit. So 0 and 0 deletes all consumed
ledgers.

Source: ManagedLedgerImpl.internalTrimLedgers of Pulsar 4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.managed_ledger.config import RetentionPolicy
    from broker.managed_ledger.ledger_table import LedgerRow
    from protocol.position import Position

_MIB = 1024 * 1024
AHEAD_MS_MAX: Final = 24 * 60 * 60 * 1000
AHEAD_SECONDS_MIN: Final = 3600.0
"""How long the wall clock has to say so before a closing time counts as too late. A clock that is
behind after a start is usually set within minutes."""


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
        size_left -= row.size_bytes
        is_over_size = 0 <= retention.size_mb * _MIB <= size_left
        if not (is_expired or is_over_size):
            break
        count += 1
    return count


def is_any_ahead(rows: Sequence[LedgerRow], now_ms: int) -> bool:
    """Whether a ledger was closed more than AHEAD_MS_MAX after now: the clock was ahead then, or is
    behind now."""
    latest_ms = now_ms + AHEAD_MS_MAX
    return any(row.timestamp_ms > latest_ms for row in rows)


def correct_times(rows: Sequence[LedgerRow], now_ms: int) -> None:
    """Ledgers that were closed by a clock that was more than AHEAD_MS_MAX ahead count as closed
    now, instead of being kept until then. The times of others stay: a clock that is set back by an
    hour, and forward again, must not make them older than they are. Call it only after
    `is_any_ahead` has been true for AHEAD_SECONDS_MIN: a clock that is days behind for a moment
    would make all ledgers older than they are, for ever."""
    latest_ms = now_ms + AHEAD_MS_MAX
    for row in rows:
        if row.timestamp_ms > latest_ms:
            row.timestamp_ms = now_ms
