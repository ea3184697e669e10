"""Reads that wait until more of a ledger is confirmed.

One task checks all of them ten times per second, by values that need no look-up in storage. A read
looks for its entry only when these have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import LedgerProgress

INTERVAL_SECONDS: Final = 0.1


@final
class _Waiting:
    __slots__ = ("changed", "ledger_id", "progress")

    def __init__(self, ledger_id: int, progress: LedgerProgress) -> None:
        self.ledger_id = ledger_id
        self.progress = progress
        self.changed = trio.Event()


@final
class LongPolls:
    """The long polls of all connections. `run` in a nursery."""

    def __init__(self, progress_of: Callable[[int], LedgerProgress], count_max: int) -> None:
        self._progress_of = progress_of
        self._count_max = count_max
        self._waiting: set[_Waiting] = set()
        self._wanted = trio.Event()

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return len(self._waiting) < self._count_max

    async def run(self) -> None:
        """Wake those whose ledger has changed, until cancelled."""
        while True:
            await self._wanted.wait()
            while self._waiting:
                await trio.sleep(INTERVAL_SECONDS)
                for each in self._waiting:
                    if self._progress_of(each.ledger_id) != each.progress:
                        each.changed.set()
            self._wanted = trio.Event()

    async def change(self, ledger_id: int, progress: LedgerProgress) -> LedgerProgress:
        """Wait until the ledger is further than that. Returns how far it is."""
        waiting = _Waiting(ledger_id, progress)
        self._waiting.add(waiting)
        self._wanted.set()
        try:
            await waiting.changed.wait()
        finally:
            self._waiting.discard(waiting)
        return self._progress_of(ledger_id)
