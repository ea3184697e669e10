"""Entries in memory: the tail of every topic, and entries fetched ahead by backlog readers.

One `EntryCache` per broker bounds the bytes of all topics. One `TopicCache` per topic holds its
entries in runs: consecutive entries of one ledger in a list, so that a lookup is an index. The tail
of a ledger is one growing run. Every read-ahead is a run of its own.

Entries leave the cache in the order of arrival, by group: when the group is older than the eviction
time, when the broker-wide bound is exceeded, and (tail only) when every cursor has acked them.
Every entry is also in storage, so eviction only has to adjust the byte count.

Invariants: a run has no holes; `size_bytes` of the broker is the sum over all runs; with the bound
at 0 nothing stays longer than one group.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from broker.entry import first_within

ENTRY_OVERHEAD_BYTES: Final = 200
"""The cost of an entry beyond its payload. Counted, so that tiny messages are bounded too."""

if TYPE_CHECKING:
    from broker.entry import Entry
    from protocol.position import Position


@final
class _Run:
    """Consecutive entries of one ledger. `groups`: (end entry id, bytes) in order of arrival."""

    __slots__ = ("entries", "first", "groups", "is_used", "ledger_id")

    def __init__(self, ledger_id: int, first: int) -> None:
        self.is_used = False
        self.ledger_id = ledger_id
        self.first = first
        self.entries: list[Entry] = []
        self.groups: deque[tuple[int, int]] = deque()

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    def drop_group(self) -> int:
        """Drop the oldest group. Returns its bytes."""
        end, size_bytes = self.groups.popleft()
        del self.entries[: end - self.first]
        self.first = end
        return size_bytes


@final
class EntryCache:
    """The broker-wide byte bound and the order of eviction."""

    __slots__ = ("_eviction_time_s", "_order", "_size_bytes_max", "size_bytes")

    def __init__(self, size_bytes_max: int, eviction_time_s: float) -> None:
        self._size_bytes_max = size_bytes_max
        self._eviction_time_s = eviction_time_s
        self._order: deque[tuple[float, _Run, int, TopicCache]] = deque()
        self.size_bytes = 0

    def insert(
        self, topic: TopicCache, run: _Run, entries: list[Entry], size_bytes: int, now: float
    ) -> None:
        """Append a group to a run."""
        run.entries += entries
        end = run.first + len(run.entries)
        run.groups.append((end, size_bytes))
        self._order.append((now, run, end, topic))
        self.size_bytes += size_bytes
        if self.size_bytes > self._size_bytes_max:
            self._evict_to_bound()

    def evict_old(self, now: float) -> None:
        """Drop groups that arrived longer ago than the eviction time. A read-ahead that was used
        since then is kept once more."""
        order = self._order
        oldest = now - self._eviction_time_s
        while order and order[0][0] <= oldest:
            _, run, end, topic = order[0]
            if run.is_used:
                run.is_used = False
                order.popleft()
                order.append((now, run, end, topic))
            else:
                self._evict_first()

    def _evict_to_bound(self) -> None:
        while self.size_bytes > self._size_bytes_max and len(self._order) > 1:
            self._evict_first()

    def _evict_first(self) -> None:
        _, run, end, topic = self._order.popleft()
        while run.groups and run.groups[0][0] <= end:
            self.size_bytes -= run.drop_group()
        if not run.entries:
            topic.forget(run)


@final
class TopicCache:
    """The runs of one topic."""

    __slots__ = ("_ahead", "_cache", "_tails")

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._tails: dict[int, _Run] = {}
        self._ahead: list[_Run] = []

    def append_tail(
        self, ledger_id: int, first: int, entries: list[Entry], size_bytes: int, now: float
    ) -> None:
        """Add entries that have just become durable."""
        run = self._tails.get(ledger_id)
        if run is None or run.first + len(run.entries) != first:
            if run is not None:
                self._drop(run)
            run = self._tails[ledger_id] = _Run(ledger_id, first)
        self._cache.insert(self, run, entries, size_bytes, now)

    def insert_ahead(
        self, ledger_id: int, first: int, entries: list[Entry], size_bytes: int, now: float
    ) -> None:
        """Add entries read from a bookie."""
        run = _Run(ledger_id, first)
        self._ahead.append(run)
        self._cache.insert(self, run, entries, size_bytes, now)

    def get(
        self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int
    ) -> list[Entry] | None:
        """Consecutive cached entries from `entry_id` on; None: this entry is not cached."""
        run = self._tails.get(ledger_id)
        if run is None or not run.first <= entry_id < run.first + len(run.entries):
            for run in self._ahead:
                if run.ledger_id == ledger_id and run.first <= entry_id < run.end:
                    break
            else:
                return None
        at = entry_id - run.first
        return first_within(run.entries[at : at + count_max], bytes_max)

    def ahead_run(self, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
        """First and end of the read-ahead that contains the entry; None if it is in the tail."""
        run = self._tails.get(ledger_id)
        if run is not None and run.first <= entry_id < run.end:
            return None
        for run in self._ahead:
            if run.ledger_id == ledger_id and run.first <= entry_id < run.end:
                run.is_used = True
                return run.first, run.end
        return None

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is cached."""
        run = self._tails.get(ledger_id)
        if run is not None and run.first <= entry_id < run.end:
            return True
        return any(
            run.ledger_id == ledger_id and run.first <= entry_id < run.end for run in self._ahead
        )

    def drop_acked(self, mark_delete: Position) -> None:
        """Drop groups of the tail that every cursor has acknowledged."""
        if not self._tails:
            return
        ledger_id, entry_id = mark_delete
        for run in [run for run in self._tails.values() if run.ledger_id <= ledger_id]:
            while run.groups and (run.ledger_id < ledger_id or run.groups[0][0] <= entry_id + 1):
                self._cache.size_bytes -= run.drop_group()

    def clear(self) -> None:
        """Drop all entries, because the topic is closed."""
        for run in [*self._tails.values(), *self._ahead]:
            self._drop(run)
        self._tails.clear()
        self._ahead.clear()

    def forget(self, run: _Run) -> None:
        """The cache has dropped all entries of a run."""
        if self._tails.get(run.ledger_id) is run:
            del self._tails[run.ledger_id]
        elif run in self._ahead:
            self._ahead.remove(run)

    def _drop(self, run: _Run) -> None:
        while run.groups:
            self._cache.size_bytes -= run.drop_group()
