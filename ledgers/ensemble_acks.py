"""Which entries of a ledger are acknowledged, from runs of answers per place of its ensemble. Pure.

An entry counts when A distinct places of its write set have it, and the last add confirmed is the
last entry up to which all count. Nothing is kept per entry: a place answers in order nearly always,
so the lowest entry of its share that it has not acknowledged is enough. Only answers that came
early, after a refusal before them, are kept one by one.

Invariant: `missing[i]` is an entry of the share of place i, or the first place in it after all that
were acknowledged. It falls only with `reset`, when another bookie takes the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


@final
class EnsembleAcks:
    """See the module docstring. Entries start at 0; answers are for entries that were sent."""

    __slots__ = ("_ack", "_early", "_ensemble", "_has_early", "_windows", "_write", "missing")

    def __init__(self, ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
        self._ensemble = ensemble_size
        self._write = write_quorum_size
        self._ack = ack_quorum_size
        self._windows = [
            write_set(entry_id, ensemble_size, write_quorum_size)
            for entry_id in range(ensemble_size)
        ]
        self.missing = [self.in_share(index, 0) for index in range(ensemble_size)]
        """By place: the lowest entry of its share that it has not acknowledged."""
        self._early: list[set[int]] = [set() for _ in range(ensemble_size)]
        self._has_early = False

    def in_share(self, index: int, entry_id: int) -> int:
        """The first entry from `entry_id` on that place `index` stores."""
        distance = (index - entry_id) % self._ensemble
        return entry_id if distance < self._write else entry_id + distance - self._write + 1

    def runs_of(self, index: int, first: int, end: int) -> list[tuple[int, int]]:
        """(first entry id, count) of the entries from `first` to `end` - 1 that a place stores."""
        if self._write == self._ensemble:
            return [(first, end - first)] if first < end else []
        runs: list[tuple[int, int]] = []
        entry_id = self.in_share(index, first)
        while entry_id < end:
            # The share is W entries, then a gap of E - W.
            stop = min(end, entry_id + (index - entry_id) % self._ensemble + 1)
            runs.append((entry_id, stop - entry_id))
            entry_id = self.in_share(index, stop)
        return runs

    def on_ok(self, index: int, first: int, count: int) -> None:
        """The place has these entries."""
        missing = self.missing[index]
        end = first + count
        if first > missing:
            self._early[index].update(range(first, end))
            self._has_early = True
        elif end > missing:
            self.missing[index] = self.in_share(index, end)
            if self._has_early:
                self._absorb_early(index)

    def _absorb_early(self, index: int) -> None:
        early = self._early[index]
        missing = self.missing[index]
        while missing in early:
            early.discard(missing)
            missing = self.in_share(index, missing + 1)
        self.missing[index] = missing
        self._has_early = any(self._early)

    def reset(self, index: int, entry_id: int) -> None:
        """Another bookie has the place, from this entry on, and has none of them yet."""
        self.missing[index] = self.in_share(index, entry_id)
        self._early[index] = set()

    def confirmed(self, end: int) -> int:
        """The last entry up to which all are acknowledged; `end` - 1 was sent last."""
        missing, ack = self.missing, self._ack
        if self._write == self._ensemble:
            first_open = sorted(missing)[self._ensemble - ack]
        else:
            first_open = end
            for residue, window in enumerate(self._windows):
                bound = sorted([missing[index] for index in window])[self._write - ack]
                first_open = min(first_open, bound + (residue - bound) % self._ensemble)
        if self._has_early:
            while first_open < end and self._count(first_open) >= ack:
                first_open += 1
        return min(first_open, end) - 1

    def _count(self, entry_id: int) -> int:
        return sum(
            self.missing[index] > entry_id or entry_id in self._early[index]
            for index in self._windows[entry_id % self._ensemble]
        )

    def may_go_on(self, failed: AbstractSet[int]) -> bool:
        """Whether every entry can still be acknowledged without these places."""
        return all(
            sum(index not in failed for index in window) >= self._ack for window in self._windows
        )
