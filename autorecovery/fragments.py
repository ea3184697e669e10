"""Finds what has to be repaired in a ledger, from its fragments and the state of their copies.
Pure.

A fragment is a run of entries with one ensemble. It is settled when its end is decided: another
segment follows, or the ledger is closed. The bookie at place i of E stores the entries e with
(i - e) mod E < W. A copy is what one bookie of the ensemble stores of a fragment. It may be empty:
of a ledger without entries, or where E > W and the fragment is short. Then there is nothing to
copy, but the ensemble still names the bookie, and has to name another one
(apache/bookkeeper#3239).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from protocol.bookkeeper.ledger_metadata import LedgerMetadata


class CopyState(Enum):
    """The known state of one copy."""

    PRESENT = "present"
    LOST = "lost"
    """The bookie is not registered."""
    ABSENT = "absent"
    """The bookie has proved that it lacks an entry that it should have: a disk was replaced."""
    DAMAGED = "damaged"
    """The bookie answers, and cannot give an entry, or gives a damaged one."""
    UNKNOWN = "unknown"
    """The bookie is registered and did not answer."""


BAD = frozenset({CopyState.LOST, CopyState.ABSENT, CopyState.DAMAGED})
_FILLABLE = BAD - {CopyState.LOST}


@final
@dataclass(frozen=True, slots=True)
class Fragment:
    """See the module docstring."""

    first: int
    last: int | None
    """None: the fragment is not settled."""
    ensemble: tuple[str, ...]
    write_quorum_size: int

    def stores(self, place: int, entry_id: int) -> bool:
        """Whether the bookie at this place of the ensemble stores the entry."""
        return (place - entry_id) % len(self.ensemble) < self.write_quorum_size

    def has(self, place: int, entry_id: int) -> bool:
        """Whether the copy at this place of a settled fragment consists of this entry, too."""
        return (
            self.last is not None
            and self.first <= entry_id <= self.last
            and self.stores(place, entry_id)
        )

    def runs_at(self, place: int) -> Iterator[tuple[int, int]]:
        """(first, last) of the runs of entries that the copy at this place of a settled fragment
        consists of, ascending."""
        size, quorum = len(self.ensemble), self.write_quorum_size
        if self.last is None or self.last < self.first:
            return
        if size == quorum:
            yield self.first, self.last
            return
        # Runs of W entries, each of which ends with an entry e = place (mod E).
        end = self.first + (place - self.first) % size
        while end - quorum + 1 <= self.last:
            run_first = max(self.first, end - quorum + 1)
            yield run_first, min(self.last, end)
            end += size

    def boundary_at(self, place: int) -> tuple[int, ...]:
        """The first and the last entry of the copy at this place; () if it is empty."""
        size = len(self.ensemble)
        if self.last is None or self.last < self.first:
            return ()
        stored = [
            entry_id
            for entry_id in range(self.first, min(self.last, self.first + size - 1) + 1)
            if self.stores(place, entry_id)
        ]
        if not stored:
            return ()
        last = next(
            entry_id
            for entry_id in range(self.last, self.first - 1, -1)
            if self.stores(place, entry_id)
        )
        return (stored[0],) if stored[0] == last else (stored[0], last)

    def sources_of(self, entry_id: int, place: int) -> tuple[str, ...]:
        """The other bookies that store the entry, the next neighbour first. The bookie at `place`
        comes last: it may be there although it is not registered."""
        size = len(self.ensemble)
        others = [
            self.ensemble[(entry_id + step) % size]
            for step in range(self.write_quorum_size)
            if (entry_id + step) % size != place
        ]
        return (*others, self.ensemble[place])


def fragments_of(metadata: LedgerMetadata) -> tuple[Fragment, ...]:
    """All fragments, ascending."""
    firsts = list(metadata.ensembles)
    end = metadata.last_entry_id if metadata.is_closed else None
    lasts = [*(first - 1 for first in firsts[1:]), end]
    return tuple(
        Fragment(first, last, ensemble, metadata.write_quorum_size)
        for (first, ensemble), last in zip(metadata.ensembles.items(), lasts, strict=True)
    )


def bookies_of(metadata: LedgerMetadata) -> frozenset[str]:
    """All bookies that the ledger's metadata names."""
    return frozenset(each for ensemble in metadata.ensembles.values() for each in ensemble)


Copies = dict[tuple[int, int], CopyState]
"""By (first entry of the fragment, place in its ensemble)."""


@final
@dataclass(frozen=True, slots=True)
class Repair:
    """The copies of one settled fragment that have to be made again."""

    fragment: Fragment
    move: tuple[int, ...]
    """Places that get another bookie."""
    fill: tuple[int, ...]
    """Places whose bookie gets the entries again that it lost, or has damaged. It takes entries, so
    its place can stay: the ensemble may be all bookies there are (apache/bookkeeper#3905)."""


class Rest(Enum):
    """The work that remains on a ledger when its repairs are done."""

    NOTHING = "nothing"
    """All copies are there."""
    ASK_AGAIN = "ask again"
    """A bookie did not answer."""
    WRITER = "writer"
    """Copies of the fragment that is written now are lost. Its writer will replace the bookie, or
    is gone."""


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """The decision on one ledger."""

    repairs: tuple[Repair, ...]
    rest: Rest


def findings(
    metadata: LedgerMetadata,
    copies: Mapping[tuple[int, int], CopyState],
    writable: AbstractSet[str],
    filled: AbstractSet[tuple[int, int]] = frozenset(),
) -> Findings:
    """The repairs of a ledger. `writable`: bookies that take entries. `filled`: copies (as in
    Copies) that were filled already: what they lack now, their bookie cannot keep, and another one
    gets them."""
    repairs: list[Repair] = []
    rest = Rest.NOTHING
    for fragment in fragments_of(metadata):
        states = [
            copies.get((fragment.first, place), CopyState.UNKNOWN)
            for place in range(len(fragment.ensemble))
        ]
        if fragment.last is None:
            if CopyState.LOST in states:
                rest = Rest.WRITER
            continue
        if rest is Rest.NOTHING and CopyState.UNKNOWN in states:
            rest = Rest.ASK_AGAIN
        bad = [place for place, state in enumerate(states) if state in BAD]
        fill = tuple(
            place
            for place in bad
            if states[place] in _FILLABLE
            and fragment.ensemble[place] in writable
            and (fragment.first, place) not in filled
        )
        move = tuple(place for place in bad if place not in fill)
        if bad:
            repairs.append(Repair(fragment, move, fill))
    return Findings(tuple(repairs), rest)
