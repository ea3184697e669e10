"""Snapshots of a managed ledger for statistics and `internalStats`: plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.ledger_table import LedgerRow
    from protocol.position import Position


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CursorStatistics:
    """One cursor. `cursor_ledger_id` is -1 while its position is in the metadata store."""

    name: str
    mark_delete: Position
    read_from: Position
    backlog_entries: int
    individually_acked_count: int
    acked_ranges_text: str
    cursor_ledger_id: int
    cursor_ledger_last_entry_id: int
    is_dirty: bool
    durable: bool
    properties: Mapping[str, str]
    position_properties: Mapping[str, int]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerStatistics:
    """One topic. The counters start when the topic is opened."""

    name: str
    state: str
    ledgers: tuple[LedgerRow, ...]
    """Not to be changed. The row of the newest ledger has the entries confirmed so far."""
    entries: int
    size_bytes: int
    entries_added: int
    size_added_bytes: int
    current_ledger_entries: int
    current_ledger_size_bytes: int
    pending_appends: int
    last_confirmed: Position
    terminated_position: Position | None
    properties: Mapping[str, str]
    cached_bytes_broker_wide: int
    last_ledger_created_ms: int
