"""GroupHold: how long a journal holds a small group back, so that more records join it.

Only with `journalAdaptiveGroupWrites=false`. A group is padded to a block of the disk, so fewer
groups mean far fewer bytes at low rates. A group is held until its first record has waited for
`journalMaxGroupWaitMSec`. It is not held if it is full, if a caller waits for one of its records
alone (`is_urgent`), or at the end. The event loop wakes the thread for these only, and not for each
batch.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, final

from bookie.journal_turns import is_urgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.journal_turns import Batch, JournalTurns

_LOOKS: Final = 4
"""How many times the thread is woken while as much comes as belongs into a group."""


@final
class GroupHold:
    """See the module docstring."""

    __slots__ = ("_ends", "_group_bytes_max", "_untold_bytes", "_urgent", "_wait_s")

    def __init__(self, wait_s: float, group_bytes_max: int) -> None:
        self._wait_s = wait_s
        self._group_bytes_max = group_bytes_max
        self._ends = threading.Event()
        self._untold_bytes = 0
        """Handed over since the thread was last woken. Event loop only."""
        self._urgent = False
        """Something that waits must not be held. Journal thread only."""

    def handed(self, batch: Batch, size_bytes: int) -> None:
        """The event loop has handed over a batch."""
        self._untold_bytes += size_bytes
        if _LOOKS * self._untold_bytes >= self._group_bytes_max or is_urgent(batch):
            self.end()

    def end(self) -> None:
        """The thread has to look at what was handed over. Event loop."""
        self._untold_bytes = 0
        self._ends.set()

    def took(self, batch: Batch) -> None:
        """The thread has a batch."""
        self._urgent = self._urgent or is_urgent(batch)

    def wait(self, turns: JournalTurns, take: Callable[[], bool]) -> None:
        """Until the next group is to be written. `take` takes what was handed over, and tells
        whether a group may be held at all. Journal thread."""
        while True:
            self._ends.clear()  # before `take`: what comes later sets it again
            if not take() or self._urgent or not turns.may_grow(self._group_bytes_max):
                break
            left_s = turns.handed_at + self._wait_s - time.perf_counter()
            if left_s <= 0:
                break
            self._ends.wait(left_s)
        self._urgent = False
