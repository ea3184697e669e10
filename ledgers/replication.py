"""How many bookies keep a new ledger, and which; the rules of replication that follow. Pure.

E bookies (the ensemble) take turns. W of them store each entry (its write set). A answers
acknowledge it. Invariants:

- the last add confirmed only moves in order: an entry counts when A *distinct* bookies of its
  write set have it and every entry before it counts (`ensemble_acks`);
- an entry whose failures leave fewer than A possible answers can never count;
- a recoverer has heard enough bookies when in none of the E write sets A members are missing:
  then no client can collect A answers any more.

Source: BookKeeper's DistributionSchedule and TLA+ model, E >= W >= A >= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ledgers.placement import BookieGroups


@final
@dataclass(frozen=True, slots=True)
class Replication:
    """The numbers E, W and A of a ledger."""

    ensemble_size: int = 1
    write_quorum_size: int = 1
    ack_quorum_size: int = 1
    groups: BookieGroups | None = None
    """The isolation groups of its bookies; None: as the cluster is configured."""


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
