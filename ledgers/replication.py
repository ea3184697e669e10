"""How many bookies keep a new ledger, and which. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from ledgers.placement import BookieGroups


@final
@dataclass(frozen=True, slots=True)
class Replication:
    """E bookies in the ring; each entry on W of them; acknowledged when A have it. E >= W >= A."""

    ensemble_size: int = 1
    write_quorum_size: int = 1
    ack_quorum_size: int = 1
    groups: BookieGroups | None = None
    """Which bookies; None: as the cluster is configured."""
