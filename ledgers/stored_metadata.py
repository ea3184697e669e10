"""The record of a ledger as it is stored. A damaged record is an error of this ledger: nothing is
deleted, and nothing is guessed, until the node has been restored. Pure."""

from __future__ import annotations

from ledgers.errors import LedgerDamaged
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    LedgerMetadata,
    decode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path


def stored_metadata(ledger_id: int, data: bytes) -> LedgerMetadata:
    """The content of the node. Raises: LedgerDamaged."""
    try:
        return decode_ledger_metadata(data)
    except InvalidMetadata as error:
        raise LedgerDamaged(
            f"the record of ledger {ledger_id} at {ledger_path(ledger_id)} is damaged: {error}; "
            "restore this node of the metadata store"
        ) from error
