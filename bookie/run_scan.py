"""RunScan: finds the end of a run of entries in an entry log that is read piece by piece.

A flush writes the entries of each ledger one after the other, so a ledger has a run in the log for
each flush. Its length is not known before it is read, and what is read after its end is of no use
to the reader: with 50 topics of 100 KB messages, half of what was read from the disk was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from mypy_extensions import i64

HEAD_SIZE: Final = 20
"""Length, ledger and entry of a record."""
LENGTH_MIN: Final = 16


@final
class RunScan:
    """The scan of one read, which begins at the record of the first entry."""

    __slots__ = ("_begun", "_entry_id", "_ledger_id", "_left", "_next_at")

    def __init__(self, ledger_id: int, first_entry_id: int, count_max: int) -> None:
        self._ledger_id = ledger_id
        self._entry_id = first_entry_id
        self._left = count_max
        self._next_at = 0
        """Where the record of the next entry begins, from the begin of the next piece."""
        self._begun = b""
        """The first bytes of its head, if they were in an earlier piece."""

    def ends_with(self, piece: bytes) -> bool:
        """Whether all that belongs to the run has come with this piece, the next one of the log:
        `count_max` entries, or all before the record of another entry or ledger."""
        at: i64 = self._next_at
        size: i64 = len(piece)
        ledger_id: i64 = self._ledger_id
        entry_id: i64 = self._entry_id
        left: i64 = self._left
        while left > 0 and at < size:
            if at >= 0 and at + HEAD_SIZE <= size:
                length = length_of_record(piece, at, ledger_id, entry_id)
            else:
                head = self._begun + piece[max(at, 0) : at + HEAD_SIZE]
                if len(head) < HEAD_SIZE:
                    self._begun = head
                    break
                self._begun = b""
                length = length_of_record(head, 0, ledger_id, entry_id)
            if length < LENGTH_MIN:
                return True
            at += 4 + length
            entry_id += 1
            left -= 1
        self._next_at = at - size
        self._entry_id = entry_id
        self._left = left
        return left <= 0 and at <= size


def length_of_record(data: bytes, at: i64, ledger_id: i64, entry_id: i64) -> i64:
    """The length that the record at `at` states, whose first 20 bytes are there; -1 if it is none,
    or that of another entry (`entry_log_format.entry_at`)."""
    if _number(data, at + 4) != ledger_id or _number(data, at + 12) != entry_id:
        return -1
    length: i64 = 0
    end = at + 4
    while at < end:
        length = length << 8 | data[at]
        at += 1
    return length if length < 1 << 31 else -1


def _number(data: bytes, at: i64) -> i64:
    """The eight bytes at `at` as an id; -1 if they are negative."""
    if data[at] > 0x7F:
        return -1
    value: i64 = 0
    end = at + 8
    while at < end:
        value = value << 8 | data[at]
        at += 1
    return value
