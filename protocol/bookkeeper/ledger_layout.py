"""Where the entries of a ledger lie: enough of its metadata to read it, and nothing else.

A layout is a plain value that can be pickled and sent to another process, which then needs no
metadata store. It holds no password: `Digest` needs one only for HMAC digests.

An entry e of a segment with E bookies is stored by the W bookies at (e + i) mod E, 0 <= i < W. With
E = W every bookie of the segment has every entry, so that runs of entries can be asked of one; else
(striping) a bookie has runs of W entries at most.

Source: BookKeeper's RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, final

from protocol.bookkeeper.digests import Digest, DigestType

if TYPE_CHECKING:
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata


def write_set(entry_id: int, ensemble_size: int, write_quorum_size: int) -> tuple[int, ...]:
    """Indices in the ensemble of the bookies that store an entry."""
    return tuple((entry_id + step) % ensemble_size for step in range(write_quorum_size))


@final
@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """The bookies of the entries of one ledger."""

    ledger_id: int
    write_quorum_size: int
    digest_type: DigestType
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    """(first entry id, bookie ids) of each segment, ascending. A bookie id is `host:port`."""
    last_entry_id: int | None
    """The last entry of a closed ledger, -1 when it has none. None: the ledger is not closed, and
    only the owner of the topic knows how far it may be read."""
    length: int = 0
    """Payload bytes of a closed ledger, 0 of an open one."""

    def __post_init__(self) -> None:
        firsts = [first for first, _ in self.ensembles]
        if not firsts or firsts != sorted(set(firsts)):
            raise ValueError(f"ledger {self.ledger_id}: segments {firsts} are not in order")
        for first, bookie_ids in self.ensembles:
            if not 1 <= self.write_quorum_size <= len(bookie_ids):
                raise ValueError(
                    f"ledger {self.ledger_id}: a write quorum of {self.write_quorum_size} in the "
                    f"{len(bookie_ids)} bookies of the segment at entry {first}"
                )

    @classmethod
    def of(cls, ledger_id: int, metadata: LedgerMetadata) -> Self:
        """From a ledger's metadata.

        Raises: ValueError: nothing could be read by it.
        """
        return cls(
            ledger_id,
            metadata.write_quorum_size,
            metadata.digest_type,
            tuple(metadata.ensembles.items()),
            metadata.last_entry_id if metadata.is_closed else None,
            metadata.length,
        )

    @property
    def bookie_ids(self) -> frozenset[str]:
        """Every bookie that has, or had, entries of the ledger."""
        return frozenset(bookie for _, bookies in self.ensembles for bookie in bookies)

    @property
    def mean_entry_size_bytes(self) -> int:
        """Payload bytes per entry of a closed ledger; 0: not known."""
        return self.length // (self.last_entry_id + 1) if self.last_entry_id else 0

    def digest(self, password: bytes = b"") -> Digest:
        """Checks the entries; a password matters only to HMAC."""
        return Digest(self.digest_type, password)

    def bookies_of(self, entry_id: int) -> tuple[str, ...]:
        """The bookies that store an entry, in the order in which BookKeeper asks them.

        Raises: KeyError: no segment starts at or before the entry.
        """
        bookies = self.ensembles[self._segment_at(entry_id)][1]
        return tuple(
            bookies[at] for at in write_set(entry_id, len(bookies), self.write_quorum_size)
        )

    def run_at(self, entry_id: int, last: int) -> tuple[int, tuple[str, ...]]:
        """(last entry id of the run, its bookies): the longest run from `entry_id` to at most
        `last` whose entries are all on the same bookies.

        Raises: KeyError: no segment starts at or before the entry.
        """
        at = self._segment_at(entry_id)
        bookies = self.ensembles[at][1]
        if len(bookies) > self.write_quorum_size:
            return entry_id, self.bookies_of(entry_id)
        if at + 1 < len(self.ensembles):
            last = min(last, self.ensembles[at + 1][0] - 1)
        # All of them have it: start at one that depends on the ledger, which spreads the reads of
        # many ledgers and lets one bookie read ahead in each.
        start = self.ledger_id % len(bookies)
        return last, bookies[start:] + bookies[:start]

    def _segment_at(self, entry_id: int) -> int:
        at = bisect_right(self.ensembles, entry_id, key=lambda segment: segment[0]) - 1
        if at < 0:
            raise KeyError(entry_id)
        return at
