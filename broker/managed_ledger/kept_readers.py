"""Readers of the ledgers of a topic that were read last.

They read without recovery: nothing is fenced, and the caller reads up to confirmed entries only. A
reader finds out by itself which bookies have the entries now (`LedgerReader`), so it can be kept,
also while another broker writes the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ledgers.client import LedgerClient
    from ledgers.ledger_reader import LedgerReader

READERS_MAX: Final = 16


@final
class KeptReaders:
    """See the module docstring."""

    __slots__ = ("_client", "_readers")

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._readers: dict[int, LedgerReader] = {}

    async def reader_of(self, ledger_id: int) -> LedgerReader:
        """Raises: LedgerError."""
        reader = self._readers.get(ledger_id)
        if reader is None:
            reader = await self._client.reader(ledger_id)
            while len(self._readers) >= READERS_MAX:
                del self._readers[next(iter(self._readers))]
            self._readers[ledger_id] = reader
        return reader

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._readers.pop(ledger_id, None)
