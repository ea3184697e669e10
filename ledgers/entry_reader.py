"""EntryReader: what reads the entries of one ledger, wherever they are.

`LedgerReader` reads them from bookies. A read gives a run of entries, so its cost is that of a call
for each run and not for each entry.
"""

from __future__ import annotations

from typing import Protocol


class EntryReader(Protocol):
    """See the module docstring. It may be kept while entries move."""

    async def read(self, first: int, last: int, size_bytes_max: int = 1 << 20) -> list[bytes]:
        """Payloads of consecutive entries from `first` on, at most up to `last`: at least one, as
        they were added, and within the size if there are several.

        Raises: EntryAbsent: `first` does not exist, which is proved. EntryUnknown: it cannot be
            read now. Any other LedgerError.
        """
