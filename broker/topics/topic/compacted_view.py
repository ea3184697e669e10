"""The entries that a reader of a compacted topic gets: those that compaction kept, then the others.

A subscription takes it for the ledger (`LedgerPort`). Positions are those of the topic. Up to the
horizon there are only the entries that were kept, whether the topic still has the others or not.

A later compaction may come between two reads. The reader then goes on in the entries that the later
one kept: it gets the last message of each key that it has not got, as if there had been no
compaction before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, final

from broker.ground.entry import first_within
from broker.topics.topic.log_view import LogView
from protocol.position import EARLIEST

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position


@final
class CompactedLog(LogView):
    """See the module docstring. All kept entries are in memory."""

    def __init__(self, log: LedgerPort) -> None:
        super().__init__(log)
        self._positions: list[Position] = []
        self.kept: list[Entry] = []
        """The entries that compaction kept, in order. Never changed."""
        self.horizon: Position = EARLIEST
        """Up to here the topic is compacted."""

    def use(self, kept: list[Entry], horizon: Position) -> None:
        """The topic is compacted up to there."""
        self.kept, self.horizon = kept, horizon
        self._positions = [entry.position for entry in kept]

    @property
    def kept_count(self) -> int:
        """How many entries were kept."""
        return len(self.kept)

    # --- LogView ------------------------------------------------------------------------

    @property
    def first_position(self) -> Position:
        """See LedgerPort."""
        return self.next_position(EARLIEST)

    def next_position(self, position: Position) -> Position:
        """See LedgerPort."""
        if position < self.horizon:
            at = bisect_right(self._positions, position)
            if at < len(self._positions):
                return self._positions[at]
            position = self.horizon
        return self._log.next_position(position)

    def previous_position(self, position: Position) -> Position:
        """See LedgerPort."""
        if position > self.horizon:
            before = self._log.previous_position(position)
            if before > self.horizon and before[1] >= 0:
                return before
        at = bisect_left(self._positions, position)
        if at:
            return self._positions[at - 1]
        ledger_id, entry_id = self.first_position
        return (ledger_id, entry_id - 1)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """See LedgerPort."""
        positions = self._positions
        kept = bisect_right(positions, up_to) - bisect_right(positions, after)
        return max(0, kept) + self._log.entries_between(max(after, self.horizon), up_to)

    def read_nowait(self, position: Position, count_max: int, bytes_max: int) -> list[Entry] | None:
        """See LedgerPort."""
        found = self._kept_from(position, count_max, bytes_max)
        return found or self._log.read_nowait(self._after(position), count_max, bytes_max)

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """See LedgerPort."""
        found = self._kept_from(position, count_max, bytes_max)
        return found or await self._log.read(self._after(position), count_max, bytes_max)

    def _after(self, position: Position) -> Position:
        ledger_id, entry_id = self.horizon
        return max(position, (ledger_id, entry_id + 1))

    def _kept_from(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        at = bisect_left(self._positions, position)
        return first_within(self.kept[at : at + count_max], bytes_max)
