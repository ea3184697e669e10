"""Statistics of a followed ledger, in the form of those of a managed ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.managed_ledger.appender import AppendState
from broker.managed_ledger.statistics import (
    CursorStatistics,
    LedgerStatistics,
    ManagedLedgerStatistics,
)
from protocol.position import position_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.cursor import Cursor
    from broker.managed_ledger.ledger_table import LedgerTable

_RANGES_MAX: Final = 100


def ledger_statistics(
    name: str,
    state: AppendState,
    table: LedgerTable,
    added: tuple[int, int],
    properties: Mapping[str, str],
    cached_bytes: int,
) -> ManagedLedgerStatistics:
    """The ledgers are those of the source. `added`: entries and bytes that came over the link."""
    tail = table.tail if table.rows else None
    last = table.last_confirmed
    return ManagedLedgerStatistics(
        name=name,
        state=state.value,
        ledgers=tuple(
            LedgerStatistics(
                ledger_id=row.ledger_id,
                entries=row.entries,
                size_bytes=row.size_bytes,
                timestamp_ms=row.timestamp_ms,
                is_offloaded=bool(row.offload_context),
            )
            for row in table.rows
        ),
        entries=table.entries,
        size_bytes=table.size_bytes,
        entries_added=added[0],
        size_added_bytes=added[1],
        current_ledger_entries=0 if tail is None else tail.entries,
        current_ledger_size_bytes=0 if tail is None else tail.size_bytes,
        pending_appends=0,
        last_confirmed=last,
        terminated_position=last if state is AppendState.TERMINATED else None,
        properties=dict(properties),
        cached_bytes_broker_wide=cached_bytes,
        last_ledger_created_ms=0,
    )


def cursor_statistics(cursor: Cursor, table: LedgerTable) -> CursorStatistics:
    """The main cursor of a share."""
    ledger_id, last_entry_id = cursor.cursor_ledger
    ranges = ",".join(
        f"({position_text(lower)}..{position_text(upper)}]"
        for lower, upper in cursor.acked_ranges(_RANGES_MAX)
    )
    return CursorStatistics(
        name=cursor.name,
        mark_delete=cursor.mark_delete,
        read_from=table.next_position(cursor.mark_delete),
        backlog_entries=cursor.backlog_entries,
        individually_acked_count=cursor.individually_acked_count,
        acked_ranges_text=f"[{ranges}]",
        cursor_ledger_id=ledger_id,
        cursor_ledger_last_entry_id=last_entry_id,
        is_dirty=cursor.is_dirty,
        durable=cursor.durable,
        properties=dict(cursor.properties),
        position_properties=dict(cursor.position_properties),
    )
