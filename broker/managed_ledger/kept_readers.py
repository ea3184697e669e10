"""The readers of the ledgers of a topic: where each ledger is read, and those that were read last.

They read without recovery: nothing is fenced, and the caller reads up to confirmed entries only. A
reader finds out by itself which bookies have the entries now (`LedgerReader`), so it can be kept,
also while another broker writes the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from broker.managed_ledger.ledger_table import LedgerRow
    from ledgers.client import LedgerClient
    from ledgers.entry_reader import EntryReader

READERS_MAX: Final = 16


class LedgerReaders(Protocol):
    """Opens ledgers of topics to be read."""

    async def reader_of(self, row: LedgerRow) -> EntryReader:
        """A reader of a ledger that a topic lists, by its row in the list. Raises: LedgerError."""


@final
class BookieReaders:
    """Reads every ledger from bookies."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client

    async def reader_of(self, row: LedgerRow) -> EntryReader:
        """See LedgerReaders."""
        return await self._client.reader(row.ledger_id)


@final
class KeptReaders:
    """The readers of one topic, of the ledgers read last."""

    __slots__ = ("_readers", "_source")

    def __init__(self, source: LedgerReaders) -> None:
        self._source = source
        self._readers: dict[int, EntryReader] = {}

    async def reader_of(self, row: LedgerRow) -> EntryReader:
        """See LedgerReaders."""
        reader = self._readers.get(row.ledger_id)
        if reader is None:
            reader = await self._source.reader_of(row)
            while len(self._readers) >= READERS_MAX:
                del self._readers[next(iter(self._readers))]
            self._readers[row.ledger_id] = reader
        return reader

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._readers.pop(ledger_id, None)
