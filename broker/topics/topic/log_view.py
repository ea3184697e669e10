"""The log of a topic as one of its parts presents it.

A subscription takes a view for the ledger. Positions are those of the topic in every view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.entry import Entry
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from ledgers.client import LedgerClient
    from protocol.position import Position


class LogView:
    """All of the log below it, which may be a view, too. A view overrides what it shows
    differently. See LedgerPort for each call."""

    def __init__(self, log: LedgerPort) -> None:
        self._log = log

    def seen(self, entries: list[Entry]) -> list[Entry]:
        """The entries that readers get for these, in order and as many. In place of an entry that
        no reader gets: `withheld(entry)`. Called once for each read."""
        return entries

    @property
    def client(self) -> LedgerClient | None:
        """See LedgerPort, as for the following."""
        return self._log.client

    @property
    def last_confirmed(self) -> Position:
        """See LedgerPort."""
        return self._log.last_confirmed

    @property
    def first_position(self) -> Position:
        """See LedgerPort."""
        return self._log.first_position

    @property
    def terminated(self) -> bool:
        """See LedgerPort."""
        return self._log.terminated

    @property
    def cursors(self) -> Mapping[str, CursorPort]:
        """See LedgerPort."""
        return self._log.cursors

    def next_position(self, position: Position) -> Position:
        """See LedgerPort."""
        return self._log.next_position(position)

    def previous_position(self, position: Position) -> Position:
        """See LedgerPort."""
        return self._log.previous_position(position)

    def position_after_n(self, position: Position, n: int) -> Position:
        """See LedgerPort."""
        return self._log.position_after_n(position, n)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """See LedgerPort."""
        return self._log.entries_between(after, up_to)

    def read_nowait(self, position: Position, count_max: int, bytes_max: int) -> list[Entry] | None:
        """See LedgerPort."""
        entries = self._log.read_nowait(position, count_max, bytes_max)
        return entries if entries is None else self.seen(entries)

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """See LedgerPort."""
        return self.seen(await self._log.read(position, count_max, bytes_max))

    async def find_by_publish_time(self, publish_time_ms: int) -> Position:
        """See LedgerPort."""
        return await self._log.find_by_publish_time(publish_time_ms)

    async def find_expired(self, before_ms: int) -> Position:
        """See LedgerPort."""
        return await self._log.find_expired(before_ms)

    async def open_cursor(
        self, name: str, initial: Position, properties: Mapping[str, str], durable: bool = True
    ) -> CursorPort:
        """See LedgerPort."""
        return await self._log.open_cursor(name, initial, properties, durable)
