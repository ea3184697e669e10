"""EntryRuns: the entries of one ledger in a half of the write cache. Pure.

A ledger is nearly always written in ascending order, so its entries are one list of bodies, and the
runs of consecutive ids in it are known by their first ids. Adding a run copies its references, and
looking up an entry is arithmetic. An entry that comes after one with a higher id (a recovery, an
entry that is sent again) is kept apart, in `_late`. It is newer than one with the same id in the
runs, so it is looked up first.

The event loop adds and reads. When the half is flushed nothing is added any more, and the storage's
thread reads as well.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bookie.api import EntryBody

FREED_AT_ONCE: Final = 256
"""Entries: 0.1 ms."""


@final
class EntryRuns:
    """See the module docstring. As a container it has the entry ids."""

    __slots__ = ("_bodies", "_end", "_firsts", "_late", "_starts", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        """The bytes of all bodies that were added."""
        self._bodies: list[EntryBody] = []
        """The bodies of all runs, ascending by entry id."""
        self._firsts: list[int] = []
        """First entry id of each run."""
        self._starts: list[int] = []
        """Where each run begins in `_bodies`."""
        self._end = -1
        """After the last entry id of the runs; below zero: there are none."""
        self._late: dict[int, EntryBody] = {}

    def add(self, entry_id: int, body: EntryBody) -> None:
        """Keep an entry; it replaces one with the same id. `entry_id` is not below zero."""
        if entry_id != self._end:
            if entry_id < self._end:
                self._late[entry_id] = body
                return
            self._firsts.append(entry_id)
            self._starts.append(len(self._bodies))
        self._bodies.append(body)
        self._end = entry_id + 1

    def add_run(self, first_entry_id: int, bodies: list[EntryBody]) -> None:
        """As `add` for each of these consecutive entries. Does not keep the list."""
        if first_entry_id != self._end:
            if first_entry_id < self._end:
                for entry_id, body in enumerate(bodies, first_entry_id):
                    self.add(entry_id, body)
                return
            self._firsts.append(first_entry_id)
            self._starts.append(len(self._bodies))
        self._bodies.extend(bodies)
        self._end = first_entry_id + len(bodies)

    def get(self, entry_id: int) -> EntryBody | None:
        """The entry; None: it is not here."""
        late = self._late
        if late:
            body = late.get(entry_id)
            if body is not None:
                return body
        if entry_id >= self._end:
            return None
        firsts, starts = self._firsts, self._starts
        run = len(firsts) - 1
        end = len(self._bodies)
        if entry_id < firsts[run]:
            run = bisect_right(firsts, entry_id) - 1
            if run < 0:
                return None
            end = starts[run + 1]
        at = starts[run] + entry_id - firsts[run]
        return self._bodies[at] if at < end else None

    def runs(self) -> Iterator[tuple[int, list[EntryBody], int, int]]:
        """(first entry id, list, start, end): consecutive entries in `list[start:end]`, which is
        not to be changed. Ascending, and each entry once."""
        late_ids = sorted(self._late)
        next_late = 0
        for run, first_entry_id in enumerate(self._firsts):
            at = self._starts[run]
            end = self._starts[run + 1] if run + 1 < len(self._starts) else len(self._bodies)
            entry_id = first_entry_id
            end_id = entry_id + end - at
            while next_late < len(late_ids) and late_ids[next_late] < end_id:
                late_id = late_ids[next_late]
                next_late += 1
                if late_id > entry_id:
                    count = late_id - entry_id
                    yield entry_id, self._bodies, at, at + count
                    at += count
                    entry_id = late_id
                yield late_id, [self._late[late_id]], 0, 1
                if late_id == entry_id:  # what it replaces
                    at += 1
                    entry_id += 1
            if at < end:
                yield entry_id, self._bodies, at, end

    def __len__(self) -> int:
        """Entries, counting one twice that was sent again."""
        return len(self._bodies) + len(self._late)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[int]:
        """The entry ids, in no order; one that was sent again may come twice."""
        ids: list[int] = list(self._late)
        for run, first in enumerate(self._firsts):
            end = self._starts[run + 1] if run + 1 < len(self._starts) else len(self._bodies)
            ids.extend(range(first, first + end - self._starts[run]))
        return iter(ids)

    def free_some(self) -> bool:
        """Release a part of what is no longer used. False: nothing is left."""
        if self._bodies:
            del self._bodies[-FREED_AT_ONCE:]
        elif self._firsts:
            del self._firsts[-FREED_AT_ONCE:]
            del self._starts[-FREED_AT_ONCE:]
        elif self._late:
            self._late.popitem()
        else:
            return False
        return True
