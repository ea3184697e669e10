"""Readers of the ledgers of the source, which another broker writes.

They read without recovery: nothing is fenced, and the caller reads up to confirmed entries only.
The record of a closed ledger does not change any more. That of the open one does when its writer
replaces a bookie, so it is read again for each run of entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ledgers.client import LedgerClient
    from ledgers.ledger_reader import LedgerReader

READERS_MAX: Final = 16


@final
class SourceReaders:
    """See the module docstring."""

    __slots__ = ("_client", "_closed")

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._closed: dict[int, LedgerReader] = {}

    async def reader_of(self, ledger_id: int) -> LedgerReader:
        """Raises: LedgerError."""
        reader = self._closed.get(ledger_id)
        if reader is None:
            reader = await self._client.reader(ledger_id)
            if reader.metadata.is_closed:
                while len(self._closed) >= READERS_MAX:
                    del self._closed[next(iter(self._closed))]
                self._closed[ledger_id] = reader
        return reader
