"""Sinks and queues for adds: ordered refusals, waits for durability, adds waiting for room."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from bookie.api import AddSink, EntryBody

WaitingAdd = tuple[float, int, int, "EntryBody", bytes, int, "AddSink"]
"""(deadline, ledger id, entry id, body, master key, flags, sink)."""


@final
class NoTurn:
    """For a bookie whose owner has no turns."""

    __slots__ = ("in_turn",)

    def __init__(self) -> None:
        self.in_turn = False

    def begin_turn(self) -> None:
        """Nothing to prepare."""

    def end_turn(self) -> None:
        """Nothing to do together."""


@final
class NullSink:
    """For records for which no caller waits."""

    __slots__ = ()

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """No action: no caller waits."""

    def on_replies_end(self) -> None:
        """No action: no caller waits."""


@final
class RefusedSink:
    """Passes through the journal queue with an empty body, so that a refusal is answered after the
    adds before it."""

    __slots__ = ("_sink", "_status")

    def __init__(self, sink: AddSink, status: int) -> None:
        self._sink = sink
        self._status = status

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Answer with the refusal."""
        self._sink.on_add_replies(self._status, ledger_id, first_entry_id, count)

    def on_replies_end(self) -> None:
        """Pass the call on."""
        self._sink.on_replies_end()


@final
class DurableSink:
    """Lets a coroutine wait until its record is durable."""

    __slots__ = ("_done", "status")

    def __init__(self) -> None:
        self._done = trio.Event()
        self.status = 0

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Durable, or failed."""
        self.status = status
        self._done.set()

    def on_replies_end(self) -> None:
        """Nothing to flush."""

    async def wait(self) -> int:
        """The status."""
        await self._done.wait()
        return self.status


@final
class WaitingAdds:
    """Adds that wait for room in one write cache, in order, bounded in number and time."""

    __slots__ = ("_by_ledger", "_count_max", "_queue", "_seconds_max")

    def __init__(self, count_max: int, seconds_max: float) -> None:
        self._queue: deque[WaitingAdd] = deque()
        self._by_ledger: Counter[int] = Counter()
        self._count_max = count_max
        self._seconds_max = seconds_max

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return len(self) > 0

    def has(self, ledger_id: int) -> bool:
        """Whether adds of this ledger wait: later ones must wait, too."""
        return ledger_id in self._by_ledger

    def put(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
        now: float,
    ) -> bool:
        """Queue an add. False if too many wait already."""
        if len(self._queue) >= self._count_max:
            return False
        deadline = now + self._seconds_max
        self._queue.append((deadline, ledger_id, entry_id, body, master_key, flags, sink))
        self._by_ledger[ledger_id] += 1
        return True

    def expired(self, now: float) -> list[WaitingAdd]:
        """Remove and return those whose deadline has passed."""
        result = []
        while self._queue and self._queue[0][0] <= now:
            result.append(self.take())
        return result

    def take(self) -> WaitingAdd:
        """Remove and return the first."""
        add = self._queue.popleft()
        self._by_ledger[add[1]] -= 1
        if not self._by_ledger[add[1]]:
            del self._by_ledger[add[1]]
        return add
