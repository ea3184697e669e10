"""Where a subscription starts, and where a seek or a skip moves it: its mark-delete position.

The client names the entry to be read first (a start message id, a seek target). The cursor needs
the one before it. Positions before the oldest entry mean the oldest. Positions after the newest
mean the next one to be published; `(ledger, last entry + 1)` is therefore valid before it exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from protocol.position import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from protocol.position import Position

SLICE_ENTRIES: Final = 2_000
"""Entries examined before other tasks have a turn: about a millisecond."""


def seek_mark_delete(ledger: LedgerPort, position: Position) -> Position:
    """The mark-delete position that makes `position` the next one delivered."""
    first, last = ledger.first_position, ledger.last_confirmed
    if position > last:
        return last
    if position <= first or position[0] == EARLIEST[0]:
        return ledger.previous_position(first)
    return ledger.previous_position(position)


def initial_mark_delete(
    ledger: LedgerPort, *, earliest: bool, start: Position | None, durable: bool
) -> Position:
    """For a new cursor. Only a non-durable one uses the start message id, which then decides alone.
    The client handles its batch index, since the whole entry is delivered."""
    if not durable and start is not None:
        return seek_mark_delete(ledger, start)
    return seek_mark_delete(ledger, EARLIEST) if earliest else ledger.last_confirmed


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
