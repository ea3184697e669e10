"""How many entries of a ledger are requested at once, each on its own. Pure.

Striped ledgers are read in this way, and so is every ledger that is recovered from several bookies.
The entries' bytes must be known before they are on their way. Every entry states the payload bytes
of its ledger up to its own end. So a read requests a few entries ahead together with the first one
(`edges`), and each of these states the bytes of all before it. The entries up to the furthest one
that is within the size are requested next.

Invariants: a read requests at most `EDGES_MAX` + 1 entries of unknown size, and at most
`ENTRIES_AHEAD_MAX` entries after the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRIES_AHEAD_MAX: Final = 64
EDGES_MAX: Final = 3


@final
@dataclass(frozen=True, slots=True)
class ReadRun:
    """Entries that were read, without a gap."""

    last: int
    """The id of the last one."""
    entries: int
    size_bytes: int
    ledger_bytes: int
    """Payload bytes of the ledger up to the end of the last one, as it states."""


@final
class ReadWindow:
    """The size of a ledger's entries, as far as its reads have shown it."""

    __slots__ = ("_entry_bytes",)

    def __init__(self, entry_bytes: int) -> None:
        """`entry_bytes`: the mean size of an entry as far as it is known, or 0."""
        self._entry_bytes = max(1, entry_bytes)

    def edges(self, size_bytes_max: int, entries_max: int) -> list[int]:
        """Distances from the first entry, in order. The last one is where the size will probably be
        used up; the others count if it is used up before."""
        ahead = min(ENTRIES_AHEAD_MAX, entries_max, size_bytes_max // self._entry_bytes - 1)
        return sorted({each for each in (ahead // 8, ahead // 2, ahead) if each > 0})

    def end(self, begin: ReadRun, edges: Iterable[ReadRun], size_bytes_max: int) -> int:
        """The last entry that is within the size together with `begin`, as far as the edges show,
        which are in order and after `begin`; that of `begin` if none is."""
        end = begin.last
        entries, size_bytes = begin.entries, begin.size_bytes
        for edge in edges:
            entries = edge.last - begin.last
            size_bytes = max(edge.ledger_bytes - begin.ledger_bytes, edge.size_bytes)
            if size_bytes <= size_bytes_max - begin.size_bytes:
                end = edge.last
        # After large ones the window grows step by step.
        self._entry_bytes = max(1, -(-size_bytes // entries), self._entry_bytes // 8)
        return end
