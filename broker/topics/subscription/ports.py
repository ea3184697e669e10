"""The part of the managed ledger that a subscription uses. Its tests supply a fake.

`broker.managed_ledger` implements it and documents the contracts of the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.entry import Entry
    from ledgers.client import LedgerClient
    from protocol.position import Position


class CursorPort(Protocol):
    """The acknowledgement state of one subscription."""

    @property
    def name(self) -> str:
        """The subscription's name."""

    @property
    def durable(self) -> bool:
        """Whether it is stored."""

    @property
    def mark_delete(self) -> Position:
        """Everything up to and including it is acknowledged."""

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged, up to the tail."""

    @property
    def individually_acked_count(self) -> int:
        """Acknowledged entries after the mark-delete position."""

    @property
    def acked_range_count(self) -> int:
        """How many ranges of acknowledged entries there are after the mark-delete position."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties kept with the cursor."""

    @property
    def is_replicated(self) -> bool:
        """Whether other clusters are to know its position."""

    def set_replicated(self, is_wanted: bool) -> None:
        """Whether other clusters are to know its position from now on."""

    def ack_individual(self, position: Position) -> None:
        """Acknowledge one entry; old and unknown ones are ignored."""

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """`ack_individual` of entries of one ledger, in any order."""

    def ack_cumulative(self, position: Position) -> None:
        """Acknowledge everything up to and including the entry."""

    def ack_batch_index(self, position: Position, remaining: int) -> bool:
        """Acknowledge part of an entry: bits of `remaining` are left. True: all are acked now."""

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""

    def batch_remaining(self, position: Position) -> int | None:
        """Bits of the messages left of a partly acknowledged entry."""

    async def reset(self, position: Position) -> None:
        """Make `position` the mark-delete position and drop all individual acks, durably."""

    async def flush(self) -> None:
        """Store changes."""


class LedgerPort(Protocol):
    """The log of one topic, or a view of it. The view decides which entries no client gets
    (`Entry.is_withheld`): those that none can use, and those that it gives as withheld."""

    @property
    def client(self) -> LedgerClient | None:
        """For what a subscription keeps in ledgers of its own; None: it keeps nothing."""

    @property
    def last_confirmed(self) -> Position:
        """The newest entry that can be read."""

    @property
    def first_position(self) -> Position:
        """The oldest entry still held, or where the first one will be."""

    @property
    def terminated(self) -> bool:
        """No more entries will be added."""

    @property
    def cursors(self) -> Mapping[str, CursorPort]:
        """Open cursors by name."""

    def next_position(self, position: Position) -> Position:
        """The first valid position after it."""

    def previous_position(self, position: Position) -> Position:
        """The last valid position before it."""

    def position_after_n(self, position: Position, n: int) -> Position:
        """The position `n` entries after it."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Entries p with after < p <= up_to."""

    def read_nowait(self, position: Position, count_max: int, bytes_max: int) -> list[Entry] | None:
        """Entries from the first one at or after it, from memory; None: they must be `read`."""

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """As `read_nowait`, from storage if necessary. [] when there is none yet."""

    async def find_by_publish_time(self, publish_time_ms: int) -> Position:
        """The newest entry published before the time."""

    async def find_expired(self, before_ms: int) -> Position:
        """The newest entry that is older than the time, by its publish time or by the time at which
        its ledger was closed."""

    async def open_cursor(
        self, name: str, initial: Position, properties: Mapping[str, str], durable: bool = True
    ) -> CursorPort:
        """Find the cursor, or create it with `initial` as its mark-delete position."""


def has_acked(cursor: CursorPort, position: Position) -> bool:
    """Whether entries from the position on may be acknowledged, so that each has to be checked.
    Reading is after the mark-delete position when acks of a former connection join it."""
    return cursor.individually_acked_count > 0 or position <= cursor.mark_delete
