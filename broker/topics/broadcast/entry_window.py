"""Entries ready to be sent: read once, encoded once, kept while consumers are likely to need them.

All consumers of the subscription share the window. It holds the newest entries because the
consumers in step are being served from it, and entries of laggards because one read returns
several. It is bounded by bytes, also together with the windows of other broadcasts
(`WindowMemory`), and drops the oldest addition first. Other entries are requested from the ledger,
which answers from its tail cache at once or reports that a read is needed. Then `wanted` records
the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.consumer import SharedEntry
from protocol.metadata import strip_broker_entry_metadata

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.broadcast.ordinals import Ordinals
    from broker.topics.broadcast.window_memory import WindowMemory
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position

WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
ENTRY_OVERHEAD_BYTES: Final = 512


@final
class ReadyEntry(SharedEntry):
    """One entry, with what the doors have encoded of it."""

    __slots__ = ("data", "entry", "full_data", "messages", "size_bytes")

    def __init__(self, entry: Entry, partition: int) -> None:
        super().__init__(entry.position, partition)
        self.entry = entry
        self.messages = entry.messages()
        self.full_data = entry.data
        """With the broker entry metadata, for clients that asked for it."""
        self.data = strip_broker_entry_metadata(entry.data)
        self.size_bytes = ENTRY_OVERHEAD_BYTES + len(self.full_data)
        """In memory."""
        if self.data is not self.full_data:
            self.size_bytes += len(self.data)


@final
class EntryWindow:
    """See the module docstring."""

    __slots__ = (
        "_bytes_max",
        "_closed",
        "_count_max",
        "_entries",
        "_ledger",
        "_memory",
        "_ordinals",
        "_partition",
        "_read_bytes_max",
        "missing",
        "ordinal_of",
        "size_bytes",
        "wanted",
    )

    def __init__(
        self,
        ledger: LedgerPort,
        ordinals: Ordinals,
        partition: int,
        read_count_max: int,
        read_bytes_max: int,
        memory: WindowMemory,
        bytes_max: int = WINDOW_BYTES_MAX,
    ) -> None:
        self._ledger = ledger
        self._ordinals = ordinals
        self._partition = partition
        self._count_max = read_count_max
        self._read_bytes_max = read_bytes_max
        self._memory = memory
        self._bytes_max = bytes_max
        self._closed = False
        self._entries: dict[int, ReadyEntry] = {}
        self.ordinal_of: dict[Position, int] = {}
        """The number of every entry in the window, for acknowledgements."""
        self.size_bytes = 0
        self.wanted: dict[int, None] = {}
        """Ordinals that must be read, in order of request."""
        self.missing: set[int] = set()
        """Ordinals that storage no longer has. Delivery skips them."""

    def get(self, ordinal: int) -> ReadyEntry | None:
        """The entry, if it is in memory; else it is recorded as wanted."""
        ready = self._entries.get(ordinal)
        if ready is not None:
            return ready
        position = self._ordinals.position(ordinal)
        entries = self._ledger.read_nowait(position, 1, 1)
        if entries is None:
            self.wanted[ordinal] = None
            return None
        return self._add_read(ordinal, position, entries)

    def _add_read(
        self, ordinal: int, position: Position, entries: list[Entry]
    ) -> ReadyEntry | None:
        for offset, entry in enumerate(entries):
            if offset and self._ordinals.position(ordinal + offset) != entry.position:
                break
            if not offset and entry.position != position:
                self.missing.add(ordinal)
                return None
            if ordinal + offset not in self._entries:
                self._add(ordinal + offset, ReadyEntry(entry, self._partition), since=ordinal)
        return self._entries.get(ordinal)

    def _add(self, ordinal: int, ready: ReadyEntry, *, since: int) -> None:
        """Entries from `since` on came with the same read.

        The one that was asked for stays. Those after it are kept while there is room.
        """
        if self._closed:
            return
        entries = self._entries
        limit = self._limit_bytes()
        while entries and self.size_bytes + ready.size_bytes > limit:
            oldest = next(iter(entries))
            if oldest == since:
                return
            self._drop(oldest)
        entries[ordinal] = ready
        self.ordinal_of[ready.position] = ordinal
        self.size_bytes += ready.size_bytes
        self._memory.taken(self, ready.size_bytes)

    def _limit_bytes(self) -> int:
        return min(self._bytes_max, self._memory.share_bytes(self))

    @property
    def count(self) -> int:
        """Entries in memory."""
        return len(self._entries)

    def drop_oldest(self) -> None:
        """Drop the oldest addition."""
        self._drop(next(iter(self._entries)))

    def drop_up_to(self, ordinal: int) -> None:
        """All consumers have acknowledged up to here."""
        entries = self._entries
        while entries:
            first = next(iter(entries))
            if first > ordinal:
                return
            self._drop(first)

    def _drop(self, ordinal: int) -> None:
        ready = self._entries.pop(ordinal)
        del self.ordinal_of[ready.position]
        self.size_bytes -= ready.size_bytes
        self._memory.released(self, ready.size_bytes)

    async def read_next(self) -> int:
        """Read the entry wanted longest, and some of those after it.

        Raises: BrokerError: storage cannot give it now. It stays wanted.
        """
        ordinal = next(iter(self.wanted))
        position = self._ordinals.position(ordinal)
        size_bytes_max = max(1, min(self._read_bytes_max, self._limit_bytes() // 4))
        entries = await self._ledger.read(position, self._count_max, size_bytes_max)
        self.wanted.pop(ordinal, None)
        if entries:
            self._add_read(ordinal, position, entries)
        else:
            self.missing.add(ordinal)
        for got in [other for other in self.wanted if other in self._entries]:
            del self.wanted[got]
        return ordinal

    def release(self) -> None:
        """Drop all entries: no consumer is there to need them."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        self._entries.clear()
        self.ordinal_of.clear()
        self._memory.released(self, size_bytes)

    def close(self) -> None:
        """Release everything for good. A read that is under way adds nothing more."""
        self._closed = True
        self.release()
        self.wanted.clear()
        self.missing.clear()
