"""The acks of a cursor: a mark-delete position, and individual acks after it.

Pure. Everything up to and including the mark-delete position is acked. Entries acked out of order
are bits of one bitmap per ledger. Partly acked entries keep the bit set of messages that are
*left*. When the entry right after the mark-delete position is acked, the
position moves through it and everything contiguous, across ledger ends.

Invariants: no bitmap holds a bit at or below the mark-delete position, nor one of an entry that
does not exist; the entry after the mark-delete position is never individually acked; an entry that
is acked has no batch state; `individually_acked_count` is the number of bits.

Acks at or below the mark-delete position, of entries that do not exist (yet), or a second time are
no-ops: clients resend acks, and a cursor may have been reset meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Final, final

from pyroaring import BitMap

from broker.managed_ledger.bit_words import bitmap_ranges, range_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.managed_ledger.ledger_table import LedgerTable
    from protocol.position import Position

AckedRange = tuple["Position", "Position"]
"""(lower, upper]: the lower end is excluded and has entry -1 when the range starts at entry 0."""

BATCH_WORDS_MAX: Final = 400_000
"""Words of the bit sets of partly acked entries, 3 MB. Clients choose how many each entry has, and
the number of its messages is not known here. What would pass it is not acked."""
_BITMAP_ENTRY_MAX = 2**32 - 2
"""The largest entry id that a bitmap accepts."""


@final
class AckState:
    """See the module docstring. Every change returns whether anything changed."""

    __slots__ = (
        "_acked",
        "_batch_order",
        "_batches",
        "_table",
        "acked_count",
        "batch_words",
        "mark_delete",
    )

    def __init__(self, table: LedgerTable, mark_delete: Position) -> None:
        self._table = table
        self.mark_delete = mark_delete
        self.acked_count = 0
        self._acked: dict[int, BitMap] = {}
        self._batches: dict[Position, int] = {}
        self._batch_order: list[Position] = []
        self.batch_words = 0
        """The 64-bit words that the partly acknowledged entries take."""

    # --- questions ----------------------------------------------------------------------

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        bitmap = self._acked.get(position[0])
        if bitmap is None or not 0 <= position[1] <= _BITMAP_ENTRY_MAX:
            return False  # a client may name any number
        return position[1] in bitmap

    def batch_remaining(self, position: Position) -> int | None:
        """The messages left of a partly acknowledged entry; None: all or none are acked."""
        return self._batches.get(position)

    def backlog_entries(self) -> int:
        """How many entries are not acknowledged."""
        table = self._table
        return table.entries_between(self.mark_delete, table.last_confirmed) - self.acked_count

    @property
    def batch_count(self) -> int:
        """How many entries are partly acknowledged."""
        return len(self._batches)

    def acked_bitmaps(self) -> Mapping[int, BitMap]:
        """Individually acked entries per ledger. Callers must not change it."""
        return self._acked

    def batches(self) -> list[tuple[Position, int]]:
        """Partly acked entries in order, with the messages left of each."""
        return [(position, self._batches[position]) for position in self._batch_order]

    def acked_ranges(self, count_max: int | None = None) -> list[AckedRange]:
        """The individually acked entries as ranges in order, at most the first `count_max`."""
        ranges: list[AckedRange] = []
        for ledger_id in sorted(self._acked):
            for first, last in bitmap_ranges(self._acked[ledger_id]):
                if count_max is not None and len(ranges) >= count_max:
                    return ranges
                ranges.append(((ledger_id, first - 1), (ledger_id, last)))
        return ranges

    def range_count(self) -> int:
        """How many ranges `acked_ranges` has."""
        return sum(range_count(bitmap) for bitmap in self._acked.values())

    # --- acknowledgements ---------------------------------------------------------------

    def ack_individual(self, position: Position) -> bool:
        """One whole entry."""
        mark = self.mark_delete
        if position <= mark or not self._table.is_valid(position):
            return False
        if self._batches:
            self._forget_batch(position)
        ledger_id, entry_id = position
        if (ledger_id == mark[0] and entry_id == mark[1] + 1) or (
            ledger_id != mark[0] and position == self._table.next_position(mark)
        ):
            self.mark_delete = position
            if self._acked:
                self._absorb()
            return True
        bitmap = self._acked.get(ledger_id)
        if bitmap is None:
            bitmap = self._acked[ledger_id] = BitMap()
        elif entry_id in bitmap:
            return False
        bitmap.add(entry_id)
        self.acked_count += 1
        return True

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> bool:
        """Whole entries of one ledger, in any order. Those that follow each other are one step."""
        row = self._table.row_of(ledger_id)
        if row is None:
            return False
        entries = row.entries
        changed = False
        count = len(entry_ids)
        at = 0
        while at < count:
            first = entry_ids[at]
            end = first + 1
            at += 1
            while at < count and entry_ids[at] == end:
                end += 1
                at += 1
            if self._ack_range(ledger_id, max(first, 0), min(end, entries)):
                changed = True
        return changed

    def _ack_range(self, ledger_id: int, first: int, end: int) -> bool:
        """The entries from `first` up to `end`, which is excluded. They exist."""
        mark_ledger_id, mark_entry_id = mark = self.mark_delete
        if ledger_id == mark_ledger_id:
            first = max(first, mark_entry_id + 1)
        if ledger_id < mark_ledger_id or first >= end:
            return False
        if self._batches:
            for entry_id in range(first, end):
                self._forget_batch((ledger_id, entry_id))
        if (ledger_id == mark_ledger_id and first == mark_entry_id + 1) or (
            ledger_id != mark_ledger_id and (ledger_id, first) == self._table.next_position(mark)
        ):
            self.mark_delete = position = (ledger_id, end - 1)
            if self._acked:
                self._forget_up_to(position)
                self._absorb()
            return True
        bitmap = self._acked.get(ledger_id)
        if bitmap is None:
            bitmap = self._acked[ledger_id] = BitMap()
        before = len(bitmap)
        if end - first == 1:
            bitmap.add(first)
        else:
            bitmap.add_range(first, end)
        added = len(bitmap) - before
        self.acked_count += added
        return added > 0

    def ack_cumulative(self, position: Position) -> bool:
        """Everything up to and including the entry."""
        if position <= self.mark_delete or position > self._table.last_confirmed:
            return False
        self.mark_delete = position
        self._forget_up_to(position)
        if self._acked:
            self._absorb()
        return True

    def ack_batch(self, position: Position, remaining: int) -> bool:
        """Acknowledge the messages of an entry that are not in `remaining`. Returns whether the
        state changed. The entry is acked as a whole when no message is left. Nothing changes where
        all partly acked entries would take more than `BATCH_WORDS_MAX`: it is delivered again."""
        if self.is_acked(position) or not self._table.is_valid(position):
            return False
        known = self._batches.get(position)
        left = remaining if known is None else known & remaining
        if left == 0:
            return self.ack_individual(position)
        words = _words(left)
        if known is None:
            if self.batch_words + words > BATCH_WORDS_MAX:
                return False
            insort(self._batch_order, position)
        else:
            words -= _words(known)
        self.batch_words += words
        self._batches[position] = left
        return left != known

    def reset(self, mark_delete: Position) -> None:
        """Set the state to: everything up to here is acked, and nothing after it."""
        self.mark_delete = mark_delete
        self.acked_count = 0
        self._acked.clear()
        self._batches.clear()
        self._batch_order.clear()
        self.batch_words = 0

    # --- recovery -----------------------------------------------------------------------

    def restore(
        self,
        bitmaps: Iterable[tuple[int, BitMap]],
        batches: Iterable[tuple[Position, int]],
    ) -> None:
        """Add stored acks after the mark-delete position, without entries that no longer exist.
        The bitmaps are owned by this object from now on."""
        mark = self.mark_delete
        for ledger_id, bitmap in bitmaps:
            row = self._table.row_of(ledger_id)
            if row is None or ledger_id < mark[0]:
                continue
            if bitmap and bitmap.max() >= row.entries:
                bitmap.remove_range(row.entries, bitmap.max() + 1)
            if ledger_id == mark[0] and mark[1] >= 0:
                bitmap.remove_range(0, mark[1] + 1)
            known = self._acked.get(ledger_id)
            if known is not None:
                bitmap |= known
            if bitmap:
                self._acked[ledger_id] = bitmap
        self.acked_count = sum(len(bitmap) for bitmap in self._acked.values())
        self._absorb()
        for position, remaining in batches:
            self.ack_batch(position, remaining)

    # --- how the mark-delete position moves ---------------------------------------------

    def _absorb(self) -> None:
        """Move through all entries acked contiguously after the mark-delete position."""
        acked = self._acked
        mark = self.mark_delete
        while acked:
            ledger_id, entry_id = self._table.next_position(mark)
            bitmap = acked.get(ledger_id)
            if bitmap is None or entry_id not in bitmap:
                break
            last = _last_of_run(bitmap, entry_id)
            self.acked_count -= last - entry_id + 1
            if last == bitmap.max():
                del acked[ledger_id]
            else:
                bitmap.remove_range(entry_id, last + 1)
            mark = (ledger_id, last)
        self.mark_delete = mark

    def _forget_up_to(self, position: Position) -> None:
        """Drop individual acks at or below a position."""
        ledger_id, entry_id = position
        entry_id = min(entry_id, _BITMAP_ENTRY_MAX)  # a client may name any number
        if self._acked:
            for other_id in [other_id for other_id in self._acked if other_id < ledger_id]:
                self.acked_count -= len(self._acked.pop(other_id))
            bitmap = self._acked.get(ledger_id)
            if bitmap is not None and entry_id >= 0:
                self.acked_count -= bitmap.rank(entry_id)
                if bitmap.max() <= entry_id:
                    del self._acked[ledger_id]
                else:
                    bitmap.remove_range(0, entry_id + 1)
        order = self._batch_order
        if order:
            count = bisect_right(order, position)
            for old in order[:count]:
                self.batch_words -= _words(self._batches.pop(old))
            del order[:count]

    def _forget_batch(self, position: Position) -> None:
        remaining = self._batches.pop(position, None)
        if remaining is not None:
            self.batch_words -= _words(remaining)
            del self._batch_order[bisect_left(self._batch_order, position)]


def _words(remaining: int) -> int:
    return (remaining.bit_length() + 63) // 64


def _last_of_run(bitmap: BitMap, first: int) -> int:
    """The last bit of the run of set bits that begins at `first`."""
    last = first
    step = 1
    while bitmap.contains_range(last + 1, last + step + 1):
        last += step
        step *= 2
    while step > 1:
        step //= 2
        if bitmap.contains_range(last + 1, last + step + 1):
            last += step
    return last
