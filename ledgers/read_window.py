"""How many entries of a striped ledger are read at once. Pure.

They are requested one by one, at the same time, so their bytes must be known before they are on
their way. Every entry states the payload bytes of its ledger up to its own end. So a read requests
a few entries ahead together with the first one (`edges`), and each of these tells the bytes of all
before it. The entries up to the furthest one that is within the size are requested next.

Invariants: a read requests at most `EDGES_MAX` + 1 entries of unknown size, and at most
`ENTRIES_AHEAD_MAX` entries after the first one.
"""

from __future__ import annotations

from typing import Final, final

ENTRIES_AHEAD_MAX: Final = 64
EDGES_MAX: Final = 3


@final
class ReadWindow:
    """What the reads of one ledger have learned about the size of its entries."""

    __slots__ = ("_entry_bytes",)

    def __init__(self, entry_bytes: int) -> None:
        """`entry_bytes`: the mean size of an entry as far as it is known, or 0."""
        self._entry_bytes = max(1, entry_bytes)

    def edges(self, size_bytes_max: int, entries_max: int) -> list[int]:
        """Distances from the first entry, in order. The last one is where the size will probably be
        used up; the others count if it is used up before."""
        ahead = min(ENTRIES_AHEAD_MAX, entries_max, size_bytes_max // self._entry_bytes - 1)
        return sorted({each for each in (ahead // 8, ahead // 2, ahead) if each > 0})

    def measured(self, entries: int, size_bytes: int) -> None:
        """So many entries have that size. After large ones the window grows step by step."""
        self._entry_bytes = max(1, -(-size_bytes // entries), self._entry_bytes // 8)
