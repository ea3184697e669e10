"""The rules of replication: the write set of an entry, its acknowledgement, sufficient silence.

Pure. E bookies (the ensemble) take turns. W of them store each entry (its write set). A answers
acknowledge it. Invariants:

- the last add confirmed only moves in order: an entry counts when A *distinct* bookies of its
  write set have it and every entry before it counts;
- an entry whose failures leave fewer than A possible answers can never count;
- a recoverer has heard enough bookies when in none of the E write sets A members are missing:
  then no client can collect A answers any more.

Source: BookKeeper's DistributionSchedule and TLA+ model, E >= W >= A >= 1.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def is_covered(
    heard: AbstractSet[int], ensemble_size: int, write_quorum_size: int, ack_quorum_size: int
) -> bool:
    """Whether no write set has A members that were not heard from."""
    for first in range(ensemble_size):
        members = write_set(first, ensemble_size, write_quorum_size)
        missing = sum(1 for index in members if index not in heard)
        if missing >= ack_quorum_size:
            return False
    return True


def absent_after(write_quorum_size: int, ack_quorum_size: int) -> int:
    """How many proofs of absence show that an entry never had A copies."""
    return write_quorum_size - ack_quorum_size + 1


@final
class AckTracker:
    """Which entries sent are acknowledged; one per ledger with more than one bookie."""

    __slots__ = ("_ack_quorum_size", "_failures_max", "_first", "_pending", "last_add_confirmed")

    def __init__(self, write_quorum_size: int, ack_quorum_size: int) -> None:
        self._ack_quorum_size = ack_quorum_size
        self._failures_max = write_quorum_size - ack_quorum_size
        self._first = 0
        self._pending: deque[list[int]] = deque()
        self.last_add_confirmed = -1

    def sent(self) -> None:
        """The next entry has been sent to its write set."""
        self._pending.append([0, 0])

    def on_ok(self, entry_id: int, index: int) -> None:
        """The bookie at `index` has the entry. Repeated answers count once, late ones not at
        all."""
        at = entry_id - self._first
        if at < 0:
            return
        self._pending[at][0] |= 1 << index
        pending = self._pending
        while pending and pending[0][0].bit_count() >= self._ack_quorum_size:
            pending.popleft()
            self.last_add_confirmed = self._first
            self._first += 1

    def on_failure(self, entry_id: int, index: int) -> bool:
        """The bookie at `index` refused. True: the entry can no longer be acknowledged."""
        at = entry_id - self._first
        if at < 0:
            return False
        self._pending[at][1] |= 1 << index
        return self._pending[at][1].bit_count() > self._failures_max
