"""The ledgers of the source, as a follower knows them.

Pure. There are two sources of information. The record of the source lists its ledgers, with the
number of entries of the closed ones. The owner of the source reports which entries are confirmed,
also in the ledger that is being written. Either may be ahead of the other: a ledger is listed
before its first entry, and its last entries may be confirmed before the record says that it is
closed.

Invariants: the newest entry only moves forward; an entry up to it is confirmed, so that it can be
read without recovery; entries keep their numbers (`LedgerTable`) whatever happens to the record. A
contradiction casts doubt on stored data, and is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.managed_ledger.ledger_table import LedgerTable
from protocol.position import position_text

if TYPE_CHECKING:
    from broker.managed_ledger.ledger_record import LedgerRecord
    from broker.managed_ledger.ledger_table import LedgerRow
    from protocol.position import Position


class SourceInDoubt(Exception):
    """The record of the source contradicts itself, what is known of it, or its owner. The text says
    in what."""


@final
class SourceTable:
    """See the module docstring."""

    __slots__ = ("is_terminated", "table")

    def __init__(self) -> None:
        self.table = LedgerTable(())
        """The table for the arithmetic of all others. Only this object changes it."""
        self.is_terminated = False

    def apply(self, record: LedgerRecord) -> bool:
        """The record of the source is this now. Returns whether there are new entries.

        Raises: SourceInDoubt.
        """
        rows = list(record.rows)
        if not rows:
            raise SourceInDoubt("the source lists no ledgers")
        before = self.table.last_confirmed
        if self.table.rows:
            self._close_tail(rows)
        newest = self.table.tail.ledger_id if self.table.rows else -1
        for row in rows:
            if row.ledger_id > newest:
                self._add(row, is_last=row is rows[-1])
        self._drop_trimmed(rows[0].ledger_id)
        self.is_terminated = record.terminated_position is not None
        return self.table.last_confirmed > before

    def _close_tail(self, rows: list[LedgerRow]) -> None:
        """The newest ledger known here may be closed in the record."""
        tail = self.table.tail
        for row in rows:
            if row.ledger_id == tail.ledger_id and _has_end(row, is_last=row is rows[-1]):
                if row.entries < tail.entries:
                    raise SourceInDoubt(
                        f"ledger {row.ledger_id} of the source is closed with {row.entries} "
                        f"entries, and {tail.entries} of it were confirmed"
                    )
                if row.entries > tail.entries:
                    self.table.grow(row.entries, row.size_bytes)

    def _add(self, row: LedgerRow, *, is_last: bool) -> None:
        has_end = _has_end(row, is_last=is_last)
        self.table.open_ledger(row.ledger_id)
        if has_end and row.entries:
            self.table.grow(row.entries, row.size_bytes)

    def _drop_trimmed(self, first_id: int) -> None:
        count = sum(1 for row in self.table.rows if row.ledger_id < first_id)
        if count:
            self.table.drop_front(count)

    def lists(self, ledger_id: int) -> bool:
        """Whether the ledger is known, or older than those that are."""
        rows = self.table.rows
        return bool(rows) and ledger_id <= rows[-1].ledger_id

    def confirm(self, position: Position, size_bytes: int) -> bool:
        """The entry, and with it all before it, is confirmed. `size_bytes`: of the entries that are
        new by this, as far as they are known. Returns whether there are any.

        Raises: SourceInDoubt: its ledger is not listed, or has ended before it.
        """
        table = self.table
        if position <= table.last_confirmed or position[1] < 0:
            return False
        tail = table.tail
        if position[0] != tail.ledger_id or self.is_terminated:
            raise SourceInDoubt(
                f"entry {position_text(position)} of the source is confirmed, and its list of "
                f"ledgers ends with {position_text((tail.ledger_id, tail.entries - 1))}"
            )
        table.grow(position[1] + 1, tail.size_bytes + size_bytes)
        return True


def _has_end(row: LedgerRow, *, is_last: bool) -> bool:
    """Whether the record says how many entries the ledger has. Raises: SourceInDoubt."""
    if not (row.timestamp_ms or is_last):
        raise SourceInDoubt(
            f"ledger {row.ledger_id} of the source has a successor, and no known end"
        )
    return bool(row.timestamp_ms)
