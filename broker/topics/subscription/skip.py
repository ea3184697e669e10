"""How far a request to skip messages of the backlog moves a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from protocol.position import Position

SLICE_ENTRIES: Final = 2_000
"""Entries examined before other tasks have a turn: about a millisecond."""


async def position_after_unacked(
    cursor: CursorPort, ledger: LedgerPort, count: int, check: Callable[[], None]
) -> Position:
    """The entry at which the backlog has so many entries fewer: those already acked do not count.
    `check` is called whenever other tasks have had a turn.

    Raises: whatever `check` raises.
    """
    start, last = cursor.mark_delete, ledger.last_confirmed
    if not cursor.individually_acked_count:
        return min(ledger.position_after_n(start, count), last)
    position = start
    left = count
    looked_at = 0
    while left > 0 and position < last:
        position = ledger.next_position(position)
        if not cursor.is_acked(position):
            left -= 1
        looked_at += 1
        if looked_at % SLICE_ENTRIES == 0:
            await trio.lowlevel.checkpoint()
            check()
    return min(position, last)
