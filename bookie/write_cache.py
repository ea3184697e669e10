"""WriteCache: the entries of one ledger directory that are not yet in its entry logs. Pure.

Two halves: adds go into the active one. The other is being flushed and stays readable until its
entries are indexed. The entries are attributes of their ledger's handle (`entries`, `flushing`),
kept as runs (`entry_runs`): a flush gets them ledger by ledger, in ascending order.

The last eighth of a half is kept for ledgers that have brought little since the last flush. So a
ledger that is written as fast as the disk allows, and faster than a flush, lets only itself wait.

`limit_bytes` is the bound of a half, or CLOSED while adds must take the slow path (read-only, adds
waiting, failed): the hot path compares one number. Event loop only, except that the storage thread
reads the flushing half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from bookie.entry_runs import EntryRuns
from bookie.ledger_state import encode_ledger_data

if TYPE_CHECKING:
    from bookie.api import EntryBody
    from bookie.ledger_state import LedgerState

CLOSED: Final = -1
RESERVED_SHARE: Final = 8
"""One in this many bytes of a half is reserved."""
LITTLE_SHARE: Final = 128
"""And a ledger with less than one in so many may use it."""


@final
class FlushHalf:
    """The entries and rows that one flush has to make durable."""

    __slots__ = ("handles", "rows", "size_bytes")

    def __init__(
        self, handles: list[LedgerState], rows: dict[int, bytes | None], size_bytes: int
    ) -> None:
        self.handles = handles
        self.rows = rows
        """Rows of the ledgers index; None removes."""
        self.size_bytes = size_bytes


@final
class WriteCache:
    """Both halves and the ledger rows that changed."""

    __slots__ = (
        "_dirty",
        "_half_bytes_max",
        "_little_bytes_max",
        "_reserve_bytes_max",
        "_touched",
        "flushing",
        "limit_bytes",
        "size_bytes",
    )

    def __init__(self, half_bytes_max: int) -> None:
        self._reserve_bytes_max = half_bytes_max
        self._little_bytes_max = half_bytes_max // LITTLE_SHARE
        self._half_bytes_max = half_bytes_max = half_bytes_max - half_bytes_max // RESERVED_SHARE
        self._touched: list[LedgerState] = []
        self._dirty: dict[int, LedgerState] = {}
        self.size_bytes = 0
        """Bytes of the active half."""
        self.limit_bytes = half_bytes_max
        self.flushing: FlushHalf | None = None

    def put(self, handle: LedgerState, entry_id: int, body: EntryBody) -> None:
        """Keep an entry, whatever the limit is."""
        entries = handle.entries
        if entries is None:
            entries = self._touch(handle)
        entries.add(entry_id, body)
        if entry_id > handle.entry_id_max:
            handle.entry_id_max = entry_id
        size_bytes = len(body[0]) + len(body[1])
        entries.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def put_run(
        self,
        handle: LedgerState,
        first_entry_id: int,
        bodies: list[EntryBody],
        size_bytes: int,
    ) -> None:
        """Keep consecutive entries of `size_bytes` together, whatever the limit is. The list stays
        the caller's."""
        entries = handle.entries
        if entries is None:
            entries = self._touch(handle)
        entries.add_run(first_entry_id, bodies)
        handle.entry_id_max = max(handle.entry_id_max, first_entry_id + len(bodies) - 1)
        entries.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def _touch(self, handle: LedgerState) -> EntryRuns:
        """The handle has no entries in the active half yet."""
        entries = handle.entries = EntryRuns()
        self._touched.append(handle)
        return entries

    def row_changed(self, handle: LedgerState) -> None:
        """The handle's row has to be written with the next flush."""
        self._dirty[handle.ledger_id] = handle

    def filled_share(self) -> float:
        """The filled share of the active half. From any thread."""
        return self.size_bytes / max(1, self._half_bytes_max)

    def has_room(self) -> bool:
        """The active half is below its bound."""
        return self.size_bytes < self._half_bytes_max

    def has_room_reserved_for(self, handle: LedgerState, size_bytes: int) -> bool:
        """The ledger has brought little, and what is reserved for such ones has room."""
        brought_bytes = 0 if handle.entries is None else handle.entries.size_bytes
        return (
            brought_bytes + size_bytes <= self._little_bytes_max
            and self.size_bytes + size_bytes <= self._reserve_bytes_max
        )

    def open(self) -> None:
        """Let adds take the fast path."""
        self.limit_bytes = self._half_bytes_max

    def close(self) -> None:
        """Let adds take the slow path."""
        self.limit_bytes = CLOSED

    def swap(self) -> FlushHalf:
        """Make the active half the flushing one. The flushing half must be done."""
        assert self.flushing is None
        handles, self._touched = self._touched, []
        for handle in handles:
            handle.flushing = handle.entries
            handle.entries = None
        rows: dict[int, bytes | None] = {}
        for ledger_id, handle in self._dirty.items():
            gone = handle.deleted and not (handle.fenced and not handle.exists)
            rows[ledger_id] = None if gone else encode_ledger_data(handle)
        self._dirty = {}
        self.flushing = FlushHalf(handles, rows, self.size_bytes)
        self.size_bytes = 0
        return self.flushing

    def flushed(self) -> list[EntryRuns]:
        """Everything in the flushing half is durable and indexed: drop it. Returns what is no
        longer used: freeing it takes as long as the longest turn of the event loop may."""
        assert self.flushing is not None
        dropped = []
        for handle in self.flushing.handles:
            if handle.flushing is not None:
                dropped.append(handle.flushing)
            handle.flushing = None
        self.flushing = None
        return dropped

    def forget(self, handle: LedgerState, row: bytes | None) -> EntryRuns | None:
        """Drop a deleted ledger's entries from the active half (its bytes stay counted until the
        next swap). Returns what is no longer used, as `flushed` does.

        `row` is what the ledgers index keeps of it. A flush that was refused for lack of space may
        be tried again after the deletion, and must not write the row of before."""
        half = self.flushing
        if half is not None and handle.ledger_id in half.rows:
            half.rows[handle.ledger_id] = row
        dropped = handle.entries
        if dropped is not None:
            handle.entries = EntryRuns()
        return dropped
