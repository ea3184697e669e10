"""The start of a subscription: the mark-delete position for the start that the client requested.

The client names the entry to be read first (a start message id, a seek target). The cursor needs
the one before it. Positions before the oldest entry mean the oldest. Positions after the newest
mean the next one to be published; `(ledger, last entry + 1)` is therefore valid before it exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.position import EARLIEST

if TYPE_CHECKING:
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position


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
