"""Finds a position by publish time: the newest entry published before a moment.

Binary search over the entries of the topic by ordinal, one small read per step. Like Pulsar's, it
assumes that publish times ascend. Where the clocks of producers disagree, it finds one of the
places where the times cross the moment. Entries that carry broker metadata are judged by the
broker's time in it, as in Pulsar. An entry whose metadata cannot be parsed counts as published
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.ground.entry import Entry
    from broker.managed_ledger.ledger_table import LedgerTable
    from protocol.position import Position


async def newest_before(
    table: LedgerTable,
    read_one: Callable[[Position], Awaitable[list[Entry]]],
    publish_time_ms: int,
) -> Position:
    """The position to mark-delete so that reading continues with the first entry published at or
    after the time. If that is the first entry, the position before it."""
    first = table.first_position
    before_first = (first[0], first[1] - 1)
    low = table.ordinal(before_first)
    high = table.ordinal(table.last_confirmed)
    # Invariant: the entries up to ordinal `low` are before the time, those after `high` are not.
    while low < high:
        middle = (low + high) // 2
        entries = await read_one(table.position_of(middle))
        if entries and _is_before(entries[0], publish_time_ms):
            low = middle + 1
        else:
            high = middle
    if low <= table.ordinal(before_first):
        return before_first
    return table.position_of(low - 1)


def _is_before(entry: Entry, publish_time_ms: int) -> bool:
    try:
        return entry.metadata.publish_time < publish_time_ms
    except (DecodeError, ProtocolError):
        return True
