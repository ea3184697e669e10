"""Entries of one ledger that its bookie had no room for, until they are sent again. Pure.

A bookie whose write cache is full refuses adds with TOO_MANY_REQUESTS. That does not affect the
ledger, so the same entries are sent again later, to the same ledger, under the same ids. Newer ones
are held back until then. If all were sent at once, most would be refused again. They are therefore
sent in windows, the lowest ids first, one window in progress at a time. A window without refusals
doubles the next one, up to `WINDOW_MAX`. After a window with a refusal the next one is a single
entry, and waits, twice as long after each such window. So about as many entries are refused as are
taken.
"""

from __future__ import annotations

import heapq
from typing import Final, final

WINDOW_FIRST: Final = 32
WINDOW_MAX: Final = 4096
"""The heads of a window are made in one turn of the event loop: 4 ms without compiled modules."""
DELAY_FIRST_S: Final = 0.02
DELAY_MAX_S: Final = 1.0


@final
class HeldAdds:
    """See the module docstring. Entry ids only: the sender has the entries."""

    __slots__ = ("_delay_s", "_entry_ids", "_was_refused", "_window", "refusals")

    def __init__(self) -> None:
        self._entry_ids: list[int] = []
        self._window = WINDOW_FIRST
        self._delay_s = DELAY_FIRST_S
        self._was_refused = False
        self.refusals = 0
        """Windows with a refusal, one after the other."""

    def __len__(self) -> int:
        return len(self._entry_ids)

    def __bool__(self) -> bool:
        return len(self) > 0

    def hold(self, first_entry_id: int, count: int) -> None:
        """These entries were not sent yet."""
        for entry_id in range(first_entry_id, first_entry_id + count):
            heapq.heappush(self._entry_ids, entry_id)

    def refused(self, first_entry_id: int, count: int) -> None:
        """The bookie did not take these entries."""
        self.hold(first_entry_id, count)
        self._was_refused = True

    def delay_s(self) -> float:
        """All entries sent have been answered. Returns the seconds to wait before the next window;
        0: send it now."""
        if not self._was_refused:
            self._window = min(WINDOW_MAX, 2 * self._window)
            self._delay_s = DELAY_FIRST_S
            self.refusals = 0
            return 0.0
        self._was_refused = False
        self.refusals += 1
        self._window = 1
        delay = self._delay_s
        self._delay_s = min(DELAY_MAX_S, 2 * delay)
        return delay

    def take_window(self) -> list[tuple[int, int]]:
        """The entries to send next, as (first entry id, count), ascending."""
        runs: list[tuple[int, int]] = []
        for _ in range(min(self._window, len(self._entry_ids))):
            entry_id = heapq.heappop(self._entry_ids)
            if runs and runs[-1][0] + runs[-1][1] == entry_id:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((entry_id, 1))
        if not self._entry_ids:
            self._window = WINDOW_FIRST
        return runs
