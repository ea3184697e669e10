"""The ledgers of one topic in order, and all arithmetic on positions that follows from them.

Pure. A topic is a list of ledgers with growing ids. Every ledger but the last is closed and has a
known number of entries. The table finds the next and the previous position and counts the entries
between two positions, in O(log ledgers). Every entry has an ordinal (its number since
the table was made), and a position stands for "all entries up to here".

Invariants: ids grow strictly; entry ids of a ledger are 0..entries-1 without holes; the ordinal of
an entry never changes, even when ledgers before it are trimmed. Positions without an entry (of a
trimmed ledger, entry -1, beyond the end of a ledger) are legal arguments everywhere and are ordered
like any other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.position import Position


@final
class LedgerRow:
    """One ledger. `timestamp_ms` is when it was closed, 0 while it is open."""

    __slots__ = ("entries", "ledger_id", "offload_context", "size_bytes", "timestamp_ms")

    def __init__(
        self,
        ledger_id: int,
        entries: int = 0,
        size_bytes: int = 0,
        timestamp_ms: int = 0,
        offload_context: bytes = b"",
    ) -> None:
        self.ledger_id = ledger_id
        self.entries = entries
        self.size_bytes = size_bytes
        self.timestamp_ms = timestamp_ms
        self.offload_context = offload_context

    @property
    def is_offloaded(self) -> bool:
        """Whether its entries are in long-term storage."""
        return bool(self.offload_context)

    def copy(self) -> LedgerRow:
        """A copy that does not change with this row."""
        return LedgerRow(
            self.ledger_id, self.entries, self.size_bytes, self.timestamp_ms, self.offload_context
        )


@final
class LedgerTable:
    """See the module docstring. There is always at least one ledger once the topic is open."""

    __slots__ = ("_ids", "_rows", "_starts", "last_confirmed")

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        self._rows: list[LedgerRow] = []
        self._ids: list[int] = []
        self._starts: list[int] = []
        self.last_confirmed: Position = (-1, -1)
        for row in rows:
            self._add(row)

    # --- content ------------------------------------------------------------------------

    @property
    def rows(self) -> list[LedgerRow]:
        """The ledgers in order; the last one is being written."""
        return self._rows

    def snapshot(self) -> tuple[LedgerRow, ...]:
        """The rows as they are now. Those of closed ledgers do not change, and a topic may have ten
        thousand: only the last one is a copy."""
        rows = self._rows
        return (*rows[:-1], rows[-1].copy()) if rows else ()

    @property
    def tail(self) -> LedgerRow:
        """The newest ledger."""
        return self._rows[-1]

    @property
    def entries(self) -> int:
        """How many entries are held."""
        return self._end() - self._starts[0] if self._rows else 0

    @property
    def size_bytes(self) -> int:
        """How many payload bytes are held."""
        return sum(row.size_bytes for row in self._rows)

    def open_ledger(self, ledger_id: int) -> None:
        """A new, empty ledger becomes the tail."""
        self._add(LedgerRow(ledger_id))

    def grow(self, entries: int, size_bytes: int) -> None:
        """Set the confirmed entries and bytes of the tail ledger."""
        row = self._rows[-1]
        row.entries = entries
        row.size_bytes = size_bytes
        self.last_confirmed = (row.ledger_id, entries - 1)

    def drop_front(self, count: int) -> list[LedgerRow]:
        """Trim the oldest `count` ledgers; the tail is never among them."""
        assert count < len(self._rows)
        dropped = self._rows[:count]
        del self._rows[:count], self._ids[:count], self._starts[:count]
        return dropped

    def drop_empty_tail(self) -> LedgerRow:
        """Remove the tail, which has no entries."""
        row = self._rows.pop()
        assert row.entries == 0
        self._ids.pop()
        self._starts.pop()
        return row

    def row_of(self, ledger_id: int) -> LedgerRow | None:
        """The ledger with this id, if it is still held."""
        ids = self._ids
        if not ids:
            return None
        if ids[-1] == ledger_id:  # almost always
            return self._rows[-1]
        at = bisect_left(ids, ledger_id)
        return self._rows[at] if at < len(ids) and ids[at] == ledger_id else None

    def bytes_after(self, position: Position) -> int:
        """Payload bytes after a position. Within a ledger entries count with their mean size."""
        ledger_id, entry_id = position
        at = bisect_right(self._ids, ledger_id)
        total = sum(row.size_bytes for row in self._rows[at:])
        row = self.row_of(ledger_id)
        if row is None or not row.entries:
            return total
        left = min(row.entries, max(0, row.entries - entry_id - 1))
        return total + row.size_bytes * left // row.entries

    def position_with_bytes_after(self, size_bytes: int) -> Position:
        """The first position after which there are no more than so many bytes, counted as in
        `bytes_after`."""
        left_bytes = size_bytes
        for row in reversed(self._rows):
            if row.size_bytes > left_bytes:
                left = ((left_bytes + 1) * row.entries - 1) // row.size_bytes
                return (row.ledger_id, row.entries - left - 1)
            left_bytes -= row.size_bytes
        first = self.first_position
        return (first[0], first[1] - 1)

    # --- positions ----------------------------------------------------------------------

    def is_valid(self, position: Position) -> bool:
        """Whether there is an entry at the position."""
        row = self.row_of(position[0])
        return row is not None and 0 <= position[1] < row.entries

    def ordinal(self, position: Position) -> int:
        """How many entries there have been up to and including the position."""
        ledger_id, entry_id = position
        ids = self._ids
        at = len(ids) - 1
        if not ids:
            return 0
        if ledger_id != ids[at]:
            at = bisect_right(ids, ledger_id) - 1
            if at < 0:
                return self._starts[0]
        entries = self._rows[at].entries
        if ledger_id == ids[at] and entry_id < entries:
            return self._starts[at] + (entry_id + 1 if entry_id >= 0 else 0)
        return self._starts[at] + entries

    def position_of(self, ordinal: int) -> Position:
        """The entry before which there were exactly `ordinal` entries; it must be held."""
        at = bisect_right(self._starts, ordinal) - 1
        return (self._ids[at], ordinal - self._starts[at])

    @property
    def first_position(self) -> Position:
        """The oldest entry held, or where the next one will be."""
        return self.next_position((-1, -1))

    def next_position(self, position: Position) -> Position:
        """The first entry after the position; after the last entry, the place of the next one."""
        row = self.row_of(position[0])
        entry_id = max(position[1], -1) + 1
        if row is not None and entry_id < row.entries:
            return (position[0], entry_id)
        ordinal = self.ordinal(position)
        if ordinal < self._end():
            return self.position_of(ordinal)
        tail = self._rows[-1]
        return (tail.ledger_id, tail.entries)

    def at_or_after(self, position: Position) -> Position:
        """The position itself if it has an entry, else the first entry after it."""
        row = self.row_of(position[0])
        if row is not None and 0 <= position[1] < row.entries:
            return position
        return self.next_position((position[0], position[1] - 1))

    def previous_position(self, position: Position) -> Position:
        """The last entry before the position; before the first one, entry -1 of its ledger."""
        ordinal = self.ordinal((position[0], position[1] - 1))
        if ordinal <= self._starts[0]:
            return (self.first_position[0], -1)
        return self.position_of(ordinal - 1)

    def position_after_n(self, position: Position, n: int) -> Position:
        """The entry `n` entries after the position (before it, if negative), within the entries
        held; 0 is the position itself."""
        if n == 0:
            return position
        ordinal = self.ordinal(position) + n
        if ordinal <= self._starts[0]:
            return (self.first_position[0], -1)
        if ordinal >= self._end():
            return self.last_confirmed
        return self.position_of(ordinal - 1)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """How many entries p there are with after < p <= up_to."""
        count = self.ordinal(up_to) - self.ordinal(after)
        return max(0, count)

    def _end(self) -> int:
        return self._starts[-1] + self._rows[-1].entries

    def _add(self, row: LedgerRow) -> None:
        assert not self._ids or row.ledger_id > self._ids[-1]
        self._starts.append(self._end() if self._rows else 0)
        self._rows.append(row)
        self._ids.append(row.ledger_id)
        if row.entries > 0 or self.last_confirmed[0] < 0:
            self.last_confirmed = (row.ledger_id, row.entries - 1)
