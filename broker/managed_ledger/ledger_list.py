"""The list of a topic's ledgers: the table in memory, its record in the metadata store, and the
compare-and-set between them that makes one broker the owner.

A change is first written, then made in memory, so that nothing is ever used that a restart would
not know. Whoever changes the list holds `lock` from reading the table to updating it. A conflict
means that another broker has opened the topic: this one has lost it for good. A write whose outcome
was not heard (the store failed in between) is recognised by its content when it is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from broker.managed_ledger.ledger_record import LedgerRecord, encode_ledger_record
from broker.managed_ledger.paths import ledger_info_path
from broker.metadata.store import VersionConflict
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.managed_ledger.ledger_table import LedgerRow, LedgerTable
    from broker.metadata.store import MetadataStore
    from protocol.position import Position


class OwnershipLost(BrokerError):
    """Another broker has taken the topic."""

    def __init__(self, name: str) -> None:
        super().__init__(
            ServerError.ServiceNotReady,
            f"the topic's ledgers ({name}) were taken over by another broker: look it up again",
        )


@final
class LedgerList:
    """See the module essay."""

    __slots__ = (
        "_saving",
        "_store",
        "_version",
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
        self._store = store
        self._version = version
        self.name = name
        self.table = table
        self.properties = dict(record.properties)
        self.terminated_position: Position | None = record.terminated_position
        self.lock = trio.Lock()
        self._saving = False

    @property
    def version(self) -> int:
        """Version of the record in the store."""
        return self._version

    async def check_owner(self) -> None:
        """Raises: OwnershipLost: somebody else has written the list.

        While our own save is under way the store may be one version ahead of us; if that version
        is somebody else's, the save finds out itself.
        """
        stored = await self._store.get(ledger_info_path(self.name))
        if stored is None or stored[1] > self._version + self._saving:
            raise OwnershipLost(self.name)

    async def save(
        self,
        rows: Sequence[LedgerRow],
        *,
        terminated_position: Position | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Write the list as it is going to be; the caller then changes the table.

        Raises: OwnershipLost.
        """
        terminated = terminated_position or self.terminated_position
        kept = self.properties if properties is None else properties
        data = encode_ledger_record(LedgerRecord(rows, terminated, kept))
        path = ledger_info_path(self.name)
        self._saving = True
        try:
            self._version = await self._store.put(path, data, self._version)
        except VersionConflict:
            stored = await self._store.get(path)
            if stored is None or stored != (data, self._version + 1):
                raise OwnershipLost(self.name) from None
            self._version = stored[1]
        finally:
            self._saving = False
        self.terminated_position = terminated
        self.properties = dict(kept)
