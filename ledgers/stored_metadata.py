"""The record of a ledger as it is stored."""

from __future__ import annotations

from ledgers.errors import LedgerDamaged
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    LedgerMetadata,
    decode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path


def stored_metadata(ledger_id: int, data: bytes) -> LedgerMetadata:
    """The record of a ledger. Raises: LedgerDamaged."""
    try:
        metadata = decode_ledger_metadata(data)
    except InvalidMetadata as error:
        raise _damaged(ledger_id, str(error)) from error
    ensembles, size = metadata.ensembles, metadata.ensemble_size
    if 0 not in ensembles or any(len(each) != size for each in ensembles.values()):
        raise _damaged(ledger_id, f"it does not name {size} bookies for each entry")
    return metadata


def _damaged(ledger_id: int, reason: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"the record of ledger {ledger_id} at {ledger_path(ledger_id)} is damaged: {reason}"
    )
