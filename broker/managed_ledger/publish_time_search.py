"""Finds a position by publish time: the newest entry published before a moment.

Binary search over the entries of the topic by ordinal, one small read per step. Like Pulsar's, it
assumes that publish times ascend. Where the clocks of producers disagree, it finds one of the
places where the times cross the moment. Entries that carry broker metadata are judged by the
broker's time in it, as in Pulsar. An entry whose metadata cannot be parsed counts as published
before.

Messages of several producers are often stored a few places away from the order of their publish
times. So a seek also looks at the entries before that place, LOOK_BACK_ENTRIES at a time, as long
as one of them was published at the moment or later. Clocks that disagree for good would lead it
back through the whole topic, so it goes back LOOK_BACK_ENTRIES_MAX at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.ground.entry import Entry
    from broker.managed_ledger.ledger_table import LedgerTable
    from protocol.position import Position

    Read = Callable[[Position, int, int], Awaitable[list[Entry]]]
    """(position, entries at most, about so many bytes at most): at least one entry."""

LOOK_BACK_ENTRIES: Final = 16
LOOK_BACK_ENTRIES_MAX: Final = 128
_LOOK_BACK_BYTES: Final = 1024 * 1024


async def newest_before(
    table: LedgerTable, read: Read, publish_time_ms: int, after: Position | None = None
) -> Position:
    """The position to mark-delete so that reading continues with the first entry published at or
    after the time. If that is the first entry, the position before it. `after`: the entries up to
    this position are not looked at, and count as published before."""
    first = table.first_position
    before_first = (first[0], first[1] - 1)
    start = max(before_first, after or before_first)
    low = table.ordinal(start)
    high = table.ordinal(table.last_confirmed)
    # Invariant: the entries up to ordinal `low` are before the time, those after `high` are not.
    while low < high:
        middle = (low + high) // 2
        entries = await read(table.position_of(middle), 1, 1)
        if entries and _is_before(entries[0], publish_time_ms):
            low = middle + 1
        else:
            high = middle
    if low <= table.ordinal(start):
        return start
    return table.position_of(low - 1)


async def seek_position(table: LedgerTable, read: Read, publish_time_ms: int) -> Position:
    """As `newest_before`, and no entry among the LOOK_BACK_ENTRIES before it is skipped that was
    published at the time or later."""
    found = await newest_before(table, read, publish_time_ms)
    first = table.first_position
    before_first = (first[0], first[1] - 1)
    first_ordinal = table.ordinal(before_first)
    lowest = max(first_ordinal, table.ordinal(found) - LOOK_BACK_ENTRIES_MAX)
    while (end := table.ordinal(found)) > lowest:
        at = max(lowest, end - LOOK_BACK_ENTRIES)
        earlier: int | None = None
        while at < end and earlier is None:
            entries = await read(table.position_of(at), end - at, _LOOK_BACK_BYTES)
            for number, entry in enumerate(entries[: end - at]):
                if not _is_before(entry, publish_time_ms):
                    earlier = at + number
                    break
            at += max(1, len(entries))
        if earlier is None:
            return found
        found = before_first if earlier <= first_ordinal else table.position_of(earlier - 1)
    return found


def _is_before(entry: Entry, publish_time_ms: int) -> bool:
    try:
        return entry.metadata.publish_time < publish_time_ms
    except (DecodeError, ProtocolError):
        return True
