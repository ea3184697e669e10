"""The main cursor of a subscription of a shadow topic: the slowest position of a share.

The share's own cursor stays with the shadow, like that of any topic. Moving forward needs nothing
but an occasional report. Before it moves back the owner of the source is moved back, because it
would otherwise delete what is to be delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.cursor import Cursor
    from broker.topics.follow.link import Link
    from broker.topics.follow.share import Share
    from protocol.position import Position


@final
class ShareCursor:
    """A `CursorPort`. `cursor` is the one that is stored."""

    __slots__ = ("_link", "cursor", "share")

    def __init__(self, cursor: Cursor, share: Share, link: Link) -> None:
        self.cursor = cursor
        self.share = share
        self._link = link

    async def reset(self, position: Position) -> None:
        """See CursorPort. Raises: BrokerError: the owner or storage cannot be reached; then nothing
        has changed here."""
        report = self.share.report
        owner_first = report.begin_move(position)
        try:
            if owner_first:
                await self._link.move_back(self.share, position)
            await self.cursor.reset(position)
        finally:
            report.end_move()

    # --- as the stored one --------------------------------------------------------------

    @property
    def name(self) -> str:
        """See CursorPort."""
        return self.cursor.name

    @property
    def durable(self) -> bool:
        """See CursorPort."""
        return self.cursor.durable

    @property
    def is_replicated(self) -> bool:
        """See CursorPort."""
        return self.cursor.is_replicated

    def set_replicated(self, is_wanted: bool) -> None:
        """See CursorPort."""
        self.cursor.set_replicated(is_wanted)

    async def flush(self) -> None:
        """See CursorPort."""
        await self.cursor.flush()

    @property
    def mark_delete(self) -> Position:
        """See CursorPort."""
        return self.cursor.mark_delete

    @property
    def backlog_entries(self) -> int:
        """See CursorPort."""
        return self.cursor.backlog_entries

    @property
    def individually_acked_count(self) -> int:
        """See CursorPort."""
        return self.cursor.individually_acked_count

    @property
    def acked_range_count(self) -> int:
        """See CursorPort."""
        return self.cursor.acked_range_count

    @property
    def properties(self) -> Mapping[str, str]:
        """See CursorPort."""
        return self.cursor.properties

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """See `Cursor.set_properties`."""
        await self.cursor.set_properties(properties)

    def ack_individual(self, position: Position) -> None:
        """See CursorPort."""
        self.cursor.ack_individual(position)

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """See CursorPort."""
        self.cursor.ack_entries(ledger_id, entry_ids)

    def ack_cumulative(self, position: Position) -> None:
        """See CursorPort."""
        self.cursor.ack_cumulative(position)

    def ack_batch_index(self, position: Position, remaining: int) -> bool:
        """See CursorPort."""
        return self.cursor.ack_batch_index(position, remaining)

    def is_acked(self, position: Position) -> bool:
        """See CursorPort."""
        return self.cursor.is_acked(position)

    def batch_remaining(self, position: Position) -> int | None:
        """See CursorPort."""
        return self.cursor.batch_remaining(position)
