"""Numbers the entries of a topic densely: position <-> ordinal.

Pure, based on the arithmetic of the ledger. Ordinal n is the n-th entry from the oldest one held
when the subscription was opened; ordinal 0 stands for "nothing yet". A ledger can count the entries
between two positions only as long as it holds them. The anchor of the count therefore moves along
with the main cursor, which is never ahead of trimming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position


@final
class Ordinals:
    """See the module docstring."""

    __slots__ = ("_anchor", "_anchor_ordinal", "_ledger", "_tail", "_tail_ordinal")

    def __init__(self, ledger: LedgerPort) -> None:
        self._ledger = ledger
        self._anchor = ledger.previous_position(ledger.first_position)
        self._anchor_ordinal = 0
        self._tail = self._anchor
        self._tail_ordinal = 0

    def of(self, position: Position) -> int:
        """The number of the entry; of a position without one, of the last entry before it."""
        anchor = self._anchor
        if position >= anchor:
            return self._anchor_ordinal + self._ledger.entries_between(anchor, position)
        return max(0, self._anchor_ordinal - self._ledger.entries_between(position, anchor))

    def exact(self, position: Position) -> int | None:
        """The number of the entry at the position; None if there is none."""
        if position > self._ledger.last_confirmed or position[1] < 0:
            return None
        ordinal = self.of(position)
        return ordinal if self.position(ordinal) == position else None

    def position(self, ordinal: int) -> Position:
        """The entry with this number. Before the oldest one held: its predecessor with entry -1.
        After the newest one: the newest one."""
        return self._ledger.position_after_n(self._anchor, ordinal - self._anchor_ordinal)

    @property
    def tail(self) -> int:
        """The number of the newest entry that can be read."""
        last = self._ledger.last_confirmed
        if last is not self._tail:
            if last != self._tail:
                self._tail_ordinal = self.of(last)
            self._tail = last
        return self._tail_ordinal

    @property
    def first(self) -> int:
        """The number of the oldest entry held (or of the first future one)."""
        ledger = self._ledger
        return self.of(ledger.previous_position(ledger.first_position)) + 1

    def move_anchor(self, position: Position, ordinal: int) -> None:
        """Count from here on. The ledger still holds, or has just released, the entries before."""
        self._anchor = position
        self._anchor_ordinal = ordinal
