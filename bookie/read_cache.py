"""ReadAheadCache: entries read from the entry logs before they were requested.

They are kept in the runs in which they were read, so that a look-up costs once per run. Bounded by
bytes; the oldest runs are dropped first. Event loop only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Final, final

ENTRY_OVERHEAD_BYTES: Final = 100
"""The memory of an entry besides its body, so that tiny entries are bounded, too."""
NONE: Final[list[bytes]] = []


@final
class ReadAheadCache:
    """Bodies of consecutive entries, by ledger and first entry."""

    __slots__ = ("_firsts", "_runs", "entries", "hits", "misses", "size_bytes", "size_bytes_max")

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self.entries = 0
        self.hits = 0
        """Entries answered from here. It and `misses` are counted by the reader."""
        self.misses = 0
        """Entries answered from the entry logs."""
        self._runs: OrderedDict[tuple[int, int], tuple[list[bytes], int]] = OrderedDict()
        """Bodies and their size, by ledger and first entry, in the order of arrival."""
        self._firsts: dict[int, list[int]] = {}
        """Ascending, by ledger."""

    def find(self, ledger_id: int, entry_id: int) -> tuple[list[bytes], int]:
        """The run that has the entry, and where; an empty run if it is not here."""
        firsts = self._firsts.get(ledger_id)
        if firsts is not None:
            at = bisect_right(firsts, entry_id) - 1
            if at >= 0:
                first = firsts[at]
                bodies = self._runs[ledger_id, first][0]
                if entry_id - first < len(bodies):
                    return bodies, entry_id - first
        return NONE, 0

    def put(self, ledger_id: int, first_entry_id: int, bodies: list[bytes]) -> None:
        """Keep consecutive bodies, at least one, dropping the oldest runs beyond the bound. Takes
        over the list."""
        self.discard(ledger_id, first_entry_id)
        key = (ledger_id, first_entry_id)
        size_bytes = sum(map(len, bodies)) + ENTRY_OVERHEAD_BYTES * len(bodies)
        if size_bytes > self.size_bytes_max:
            return
        self._runs[key] = bodies, size_bytes
        insort(self._firsts.setdefault(ledger_id, []), first_entry_id)
        self.size_bytes += size_bytes
        self.entries += len(bodies)
        while self.size_bytes > self.size_bytes_max:
            self._drop(next(iter(self._runs)))

    def discard(self, ledger_id: int, first_entry_id: int) -> None:
        """Drop the run that begins there, if it is still here."""
        key = (ledger_id, first_entry_id)
        if key in self._runs:
            self._drop(key)

    def discard_ledger(self, ledger_id: int) -> None:
        """Drop all that is here of a ledger."""
        for first in tuple(self._firsts.get(ledger_id, ())):
            self._drop((ledger_id, first))

    def _drop(self, key: tuple[int, int]) -> None:
        bodies, size_bytes = self._runs.pop(key)
        self.size_bytes -= size_bytes
        self.entries -= len(bodies)
        ledger_id, first = key
        firsts = self._firsts[ledger_id]
        del firsts[bisect_left(firsts, first)]
        if not firsts:
            del self._firsts[ledger_id]
