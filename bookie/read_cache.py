"""ReadAheadCache: entries read from the entry logs before they were requested.

Bounded by bytes; the oldest are dropped first. Event loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import final


@final
class ReadAheadCache:
    """Whole entry bodies by (ledger id, entry id)."""

    __slots__ = ("_entries", "hits", "misses", "size_bytes", "size_bytes_max")

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._entries

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The body if it is here."""
        body = self._entries.get((ledger_id, entry_id))
        if body is None:
            self.misses += 1
        else:
            self.hits += 1
        return body

    def put(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Keep a body, dropping the oldest ones beyond the bound."""
        key = (ledger_id, entry_id)
        old = self._entries.pop(key, None)
        if old is not None:
            self.size_bytes -= len(old)
        self._entries[key] = body
        self.size_bytes += len(body)
        while self.size_bytes > self.size_bytes_max:
            _key, dropped = self._entries.popitem(last=False)
            self.size_bytes -= len(dropped)
