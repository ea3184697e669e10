"""The list of a topic's ledgers: the table in memory, its record in the metadata store, and the
compare-and-set between them that makes one broker the owner.

A change is first written and then made in memory, so that a restart knows every ledger that is in
use. Only entries and sizes of the ledger being written grow in memory alone; recovery determines
them. A change holds `lock` from reading the table to updating it, except while the topic is being
opened, when no other task can use it. A conflict means that another broker has opened the topic:
this one has lost it for good (`OwnedRecord`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.managed_ledger.ledger_record import LedgerRecord, encode_ledger_record
from broker.managed_ledger.paths import ledger_info_path
from metadata.owned_record import OwnedRecord
from metadata.store import VersionConflict
from protocol.errors import BrokerError, ServerError
from runtime.locks import RareLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable
    from metadata.store import MetadataStore
    from protocol.position import Position


NO_PROPERTIES: Final[dict[str, str]] = {}
"""Shared in place of an empty dictionary for each topic and cursor. Never changed: a change of
properties replaces the dictionary."""


class OwnershipLost(BrokerError):
    """Another broker has taken the topic."""

    def __init__(self, name: str) -> None:
        super().__init__(
            ServerError.ServiceNotReady,
            f"the topic's ledgers ({name}) were taken over by another broker: look it up again",
        )


@final
class LedgerList:
    """See the module docstring."""

    __slots__ = (
        "_record",
        "lock",
        "name",
        "properties",
        "table",
        "terminated_position",
    )

    def __init__(
        self,
        store: MetadataStore,
        name: str,
        table: LedgerTable,
        record: LedgerRecord,
        version: int,
    ) -> None:
        self._record = OwnedRecord(store, ledger_info_path(name), version)
        self.name = name
        self.table = table
        self.properties: dict[str, str] = dict(record.properties) or NO_PROPERTIES
        self.terminated_position: Position | None = record.terminated_position
        self.lock = RareLock()

    @property
    def version(self) -> int:
        """Version of the record in the store."""
        return self._record.version

    async def check_owner(self) -> None:
        """Raises: OwnershipLost: another broker has written the list."""
        if not await self._record.is_ours():
            raise OwnershipLost(self.name)

    async def save(
        self,
        rows: Sequence[LedgerRow],
        *,
        terminated_position: Position | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Write the future list. The caller then changes the table.

        Raises: OwnershipLost. MetadataUnavailable: the write may have succeeded or not. The table
            stays as it is, and the next save finds out.
        """
        terminated = terminated_position or self.terminated_position
        kept = self.properties if properties is None else properties
        data = encode_ledger_record(LedgerRecord(rows, terminated, kept))
        try:
            await self._record.write(data)
        except VersionConflict:
            raise OwnershipLost(self.name) from None
        self.terminated_position = terminated
        self.properties = dict(kept) or NO_PROPERTIES
