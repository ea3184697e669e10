"""`.../{topic}/ledgerLayouts`, Vela's own: the ledgers and bookies of a topic's entries. Pure.

    {"lastConfirmedEntry": {"ledgerId": 8, "entryId": 41}, "bookiesReachable": true,
     "ledgers": [{"ledgerId": 8, "state": "OPEN", "entries": 42, "size": 4711, "timestamp": 0,
                  "isOffloaded": false, "lastEntryId": 41, "ensembleSize": 1, "writeQuorumSize": 1,
                  "ackQuorumSize": 1, "digestType": "CRC32C",
                  "ensembles": [{"firstEntryId": 0, "bookies": ["127.0.0.1:3181"]}]}]}

`size` is in bytes, `timestamp` is the time in milliseconds when the ledger was closed (0: it is
not). `lastEntryId` is the last entry that may be read, -1 when there is none; of an open ledger it
is the last entry confirmed at this moment. `bookiesReachable` is false when bookies do not serve
reads (`bookiePort`); their names are then no addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.ledger_table import LedgerRow
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

Json = dict[str, Any]


def topic_layouts(
    statistics: ManagedLedgerStatistics,
    metadata: Mapping[int, LedgerMetadata],
    addresses: Mapping[str, str],
) -> Json:
    """The answer. Ledgers without metadata, which are being deleted, are omitted."""
    ledger_id, entry_id = statistics.last_confirmed
    rows = [row for row in statistics.ledgers if row.ledger_id in metadata]
    named = {
        bookie
        for row in rows
        for bookies in metadata[row.ledger_id].ensembles.values()
        for bookie in bookies
    }
    return {
        "lastConfirmedEntry": {"ledgerId": ledger_id, "entryId": entry_id},
        "bookiesReachable": bool(named) and named <= addresses.keys(),
        "ledgers": [_ledger(row, metadata[row.ledger_id], addresses) for row in rows],
    }


def _ledger(row: LedgerRow, metadata: LedgerMetadata, addresses: Mapping[str, str]) -> Json:
    return {
        "ledgerId": row.ledger_id,
        "state": metadata.state.name,
        "entries": row.entries,
        "size": row.size_bytes,
        "timestamp": row.timestamp_ms if metadata.is_closed else 0,
        "isOffloaded": row.is_offloaded,
        "lastEntryId": metadata.last_entry_id if metadata.is_closed else row.entries - 1,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "digestType": metadata.digest_type.name,
        "ensembles": [
            {
                "firstEntryId": first,
                "bookies": [addresses.get(bookie, bookie) for bookie in bookies],
            }
            for first, bookies in metadata.ensembles.items()
        ],
    }
