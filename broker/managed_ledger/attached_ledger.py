"""Deletes the ledgers that are attached to cursors.

The property of a cursor that names its ledger is beside those that clients set. A broker of Pulsar
in the same cluster lets them set this one, too. So the ledger has to say itself that it belongs to
the cursor, before anything is done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.managed_ledger.owner_of_ledger import is_attached
from ledgers.errors import LedgerNotFound

if TYPE_CHECKING:
    from ledgers.client import LedgerClient


async def delete_attached(
    client: LedgerClient, ledger_id: int | None, name: str, cursor_name: str
) -> None:
    """Delete the ledger that a cursor of this managed ledger names, if it is one of its own.

    Raises: LedgerError, MetadataUnavailable.
    """
    if ledger_id is None:
        return
    try:
        metadata = await client.metadata_of(ledger_id)
    except LedgerNotFound:
        return
    if is_attached(metadata.custom_metadata, name, cursor_name):
        await client.delete(ledger_id)
