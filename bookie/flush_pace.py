"""FlushPace: a flush gives way to the journals as long as it has time.

A flush writes half a write cache, and would keep the device busy until the end. Records that the
journals write meanwhile wait for the writes under way, so a flush decides their p99 even if it runs
for only a tenth of the time. A flush therefore writes small pieces, and leaves the device alone
after each.

While clients add more than the device can write twice, to a journal and to an entry log, all of
them wait for the flush. It therefore gives way only while it is far ahead of what is being added:
the other half has to be less than half as full as this one is written. The other half then has room
when this one is done, also for the time that the index takes. A start and a stop count as a full
half: nobody publishes then.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, final

from bookie.read_turns import REST_SECONDS_MAX, JournalWrites

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES: Final = 1 << 20
"""Less than a millisecond of a fast device."""
PIECE_BYTES_IN_A_HURRY: Final = 4 << 20
"""A device that is given the whole half at once lets the records of the journals wait for all of
it: their p99 is then twice as long."""
AHEAD: Final = 2
"""A flush gives way while its written share is this many times the share of the other half."""


def is_ahead(written_bytes: int, size_bytes: int, filled_share: float) -> bool:
    """Whether a flush with so much of its half written has time, with so much of the other half
    full."""
    return AHEAD * filled_share * size_bytes <= written_bytes


@final
class FlushPace:
    """The pace of one flush of one ledger directory. For the thread that flushes."""

    __slots__ = ("_begun_at", "_filled_share", "_rest", "_size_bytes", "_writes", "_written_bytes")

    def __init__(
        self,
        writes: JournalWrites,
        size_bytes: int,
        filled_share: Callable[[], float],
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        """`size_bytes`: of the half. `filled_share`: of the other half, at this time."""
        self._writes = writes
        self._size_bytes = size_bytes
        self._filled_share = filled_share
        self._rest = rest
        self._written_bytes = 0
        self._begun_at = 0.0

    @property
    def piece_bytes(self) -> int:
        """How much is to be made durable next, at least."""
        return PIECE_BYTES if self._is_ahead() else PIECE_BYTES_IN_A_HURRY

    def begin(self) -> None:
        """A piece is going to be written, and synced."""
        if self._is_ahead():
            self._writes.wait_none()
        self._begun_at = time.perf_counter()

    def wrote(self, size_bytes: int) -> None:
        """The piece is durable. Returns when the next one may begin (blocking)."""
        took = time.perf_counter() - self._begun_at
        self._written_bytes += size_bytes
        if self._is_ahead():
            self._rest(min(took, REST_SECONDS_MAX))

    def _is_ahead(self) -> bool:
        return is_ahead(self._written_bytes, self._size_bytes, self._filled_share())


def in_a_hurry() -> FlushPace:
    """A pace without giving way, for entries that a start indexes again, and for compaction, which
    has a rate of its own."""
    return FlushPace(JournalWrites(), 1, lambda: math.inf)
