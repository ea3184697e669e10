"""The end of a topic, as its readers see it: its newest entry, and the newest one for clients.

The last entry may be a marker, or one that no client can read. A few of them at most follow each
other in practice, so the first group that is read, back from the end, is small. A producer can
publish very many of them. So the groups grow, a topic has one search at a time, and what a search
has passed over is not looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import trio

from broker.ground.slices import SharedReadings
from protocol.errors import BrokerError, ServerError
from runtime.locks import RareLock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.ground.entry import Entry
    from broker.topics.subscription.ports import LedgerPort
    from protocol.position import Position

GROUP_ENTRIES: Final = 8
"""In the group that is read first. Each further one, before it in the topic, has twice as many."""
GROUP_ENTRIES_MAX: Final = 4096
READ_BYTES_MAX: Final = 1024 * 1024


def newest_position(ledger: LedgerPort) -> Position:
    """The position of the newest entry; (-1, -1) when there is none, or none is left."""
    ledger_id, entry_id = ledger.last_confirmed
    newest = ledger.previous_position((ledger_id, entry_id + 1))
    return newest if newest[1] >= 0 and newest >= ledger.first_position else (-1, -1)


@final
class NewestOfTopic:
    """See the module docstring. Invariant: `_passed` is None, or the first and the last of entries
    without a message between them."""

    __slots__ = ("_ledger", "_passed", "_readings", "_turn")

    def __init__(self, ledger: LedgerPort) -> None:
        self._ledger = ledger
        self._turn = RareLock()
        self._passed: tuple[Position, Position] | None = None
        self._readings: SharedReadings[Position, Entry | None] = SharedReadings()

    def position(self) -> Position:
        """See the function."""
        return newest_position(self._ledger)

    def entry(self) -> Coroutine[Any, Any, Entry | None]:
        """The entry that is the newest one at the time of the call. If it is trimmed meanwhile: the
        entry that is newest then.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return self._read(self.position())

    async def _read(self, position: Position) -> Entry | None:
        while position[1] >= 0:
            entries = await self._ledger.read(position, 1, 1)
            if entries and entries[0].position == position:
                return entries[0]
            missed, position = position, self.position()
            if position == missed:
                raise BrokerError(
                    ServerError.PersistenceError,
                    f"the newest entry {position} cannot be read; retry",
                )
        return None

    def message(self) -> Coroutine[Any, Any, Entry | None]:
        """The newest entry that is for clients, at the time of the call. Requests share a reading:
        a client can send thousands of them at a time, and the entry may have megabytes.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return self._readings.get(self.position(), self._read_message)

    async def _read_message(self, position: Position) -> Entry | None:
        newest = await self._read(position)
        if newest is None or not newest.is_withheld:
            return newest
        return await self._before(newest.position)

    async def _before(self, position: Position) -> Entry | None:
        """The newest entry before this one, which is for no client, that is for clients; None if
        there is none.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        async with self._turn:
            known = self._passed
            first, last = position, position
            size = GROUP_ENTRIES
            message = None
            try:
                while message is None:
                    ledger_id, entry_id = before = self._ledger.previous_position(first)
                    if entry_id < 0 or before < self._ledger.first_position:
                        break
                    if known is not None and known[0] <= before <= known[1]:
                        first, last = known[0], max(last, known[1])
                        continue
                    begin = max(0, entry_id + 1 - size)
                    size = min(2 * size, GROUP_ENTRIES_MAX)
                    message = await _last_of(self._ledger, ledger_id, begin, entry_id)
                    if message is None:
                        first = (ledger_id, begin)
            finally:
                self._passed = (first, last)
            return message


async def _last_of(ledger: LedgerPort, ledger_id: int, first: int, last: int) -> Entry | None:
    """The last of these entries that is for clients."""
    message = None
    while first <= last:
        entries = await ledger.read((ledger_id, first), last + 1 - first, READ_BYTES_MAX)
        if not entries:
            break  # they have been trimmed meanwhile
        for entry in entries:
            if entry.position > (ledger_id, last):
                return message
            if not entry.is_withheld:
                message = entry
        first = entries[-1].position[1] + 1
        await trio.lowlevel.checkpoint()  # All of them may be in memory.
    return message
