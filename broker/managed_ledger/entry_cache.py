"""Entries in memory: the tail of every topic, and entries fetched ahead by backlog readers.

One `EntryCache` per broker bounds the bytes of all topics. One `TopicCache` per topic holds its
entries in runs: consecutive entries of one ledger in a list, so that a lookup is an index. The tail
of a ledger is one growing run. Every read-ahead is a run of its own.

Entries leave the cache in the order of arrival, by group: when the group is older than the eviction
time, when the broker-wide bound is exceeded, and (tail only) when every cursor has acked them.
Every entry is also in storage, so eviction only has to adjust the counts.

A cache that has exceeded its bound falls to the watermark. It does so while entries arrive, each
insertion dropping about twice what it adds, because to drop all of it at once would hold up the
event loop.

A hit is an entry read from memory, a miss one read from a bookie. What was read ahead is a miss for
its first reader and a hit for all others.

Invariants: a run has no holes; `size_bytes` of the broker is the sum over all runs; with the bound
at 0 nothing stays longer than one group.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from broker.ground.entry import sized_first_within
from settings.kinds import NO_LIMIT

ENTRY_OVERHEAD_BYTES: Final = 200
"""The cost of an entry beyond its payload. Counted, so that tiny messages are bounded too."""
EVICTED_PER_SLICE: Final = 2_000
"""Entries and groups that are dropped because of their age before others get a turn. Many groups
have no entries any more, because these were acknowledged."""

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from protocol.position import Position


@final
class _Run:
    """Consecutive entries of one ledger. `groups`: (end entry id, bytes) in order of arrival."""

    __slots__ = ("entries", "first", "groups", "is_used", "ledger_id", "read_end")

    def __init__(self, ledger_id: int, first: int, read_end: int) -> None:
        self.is_used = False
        self.read_end = read_end
        """Reading an entry before it is a hit."""
        self.ledger_id = ledger_id
        self.first = first
        self.entries: list[Entry] = []
        self.groups: deque[tuple[int, int]] = deque()

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    def drop_group(self) -> tuple[int, int]:
        """Drop the oldest group. Returns its number of entries and its bytes."""
        end, size_bytes = self.groups.popleft()
        count = end - self.first
        del self.entries[:count]
        self.first = end
        return count, size_bytes


@final
class CacheCounts:
    """Hits, misses and evictions since the start, in entries and bytes of their data."""

    __slots__ = (
        "evictions",
        "hit_bytes",
        "hits",
        "inserted",
        "miss_bytes",
        "misses",
        "removed",
    )

    def __init__(self) -> None:
        self.hits = 0
        self.hit_bytes = 0
        self.misses = 0
        self.miss_bytes = 0
        self.inserted = 0
        self.removed = 0
        """For any reason."""
        self.evictions = 0
        """How many times something was removed because of its age or the bound."""


@final
class EntryCache:
    """The broker-wide byte bound and the order of eviction."""

    __slots__ = (
        "_eviction_time_s",
        "_evicts_above",
        "_order",
        "_size_bytes_low",
        "_size_bytes_max",
        "counts",
        "size_bytes",
    )

    def __init__(self, size_bytes_max: int, eviction_time_s: float, watermark: float = 1.0) -> None:
        """`watermark`: the share of the bound to which a full cache falls."""
        self._size_bytes_max = size_bytes_max
        self._size_bytes_low = int(size_bytes_max * watermark)
        self._evicts_above = size_bytes_max
        """The bound, or the watermark while the cache is falling."""
        self._eviction_time_s = eviction_time_s
        self._order: deque[tuple[float, _Run, int, TopicCache]] = deque()
        self.size_bytes = 0
        self.counts = CacheCounts()

    def insert(
        self, topic: TopicCache, run: _Run, entries: list[Entry], size_bytes: int, now: float
    ) -> None:
        """Append a group to a run."""
        run.entries += entries
        end = run.first + len(run.entries)
        run.groups.append((end, size_bytes))
        self._order.append((now, run, end, topic))
        self.size_bytes += size_bytes
        self.counts.inserted += len(entries)
        if self.size_bytes > self._evicts_above:
            self._evict_after(size_bytes)

    def remove_group(self, run: _Run) -> None:
        """Drop the oldest group of a run."""
        count, size_bytes = run.drop_group()
        self.counts.removed += count
        self.size_bytes -= size_bytes

    def evict_old(self, now: float) -> bool:
        """Drop groups that arrived longer ago than the eviction time, up to the one that completes
        `EVICTED_PER_SLICE`. A read-ahead that was used since then is kept once more.
        Returns whether some are left, for another call with this time."""
        order = self._order
        oldest = now - self._eviction_time_s
        removed_before = self.counts.removed
        groups = 0
        while order and order[0][0] <= oldest:
            if groups + self.counts.removed - removed_before >= EVICTED_PER_SLICE:
                return True
            groups += 1
            _, run, end, topic = order[0]
            if run.is_used:
                run.is_used = False
                order.popleft()
                order.append((now, run, end, topic))
            else:
                self._evict_first()
        self.counts.evictions += self.counts.removed > removed_before
        if self.size_bytes <= self._size_bytes_low:
            self._evicts_above = self._size_bytes_max
        return False

    def _evict_after(self, inserted_bytes: int) -> None:
        target = min(self._size_bytes_max, self.size_bytes - 2 * inserted_bytes)
        target = max(target, self._size_bytes_low)
        while self.size_bytes > target and len(self._order) > 1:
            self._evict_first()
        self.counts.evictions += 1
        is_falling = self.size_bytes > self._size_bytes_low
        self._evicts_above = self._size_bytes_low if is_falling else self._size_bytes_max

    def _evict_first(self) -> None:
        _, run, end, topic = self._order.popleft()
        while run.groups and run.groups[0][0] <= end:
            self.remove_group(run)
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
            run = self._tails[ledger_id] = _Run(ledger_id, first, NO_LIMIT)
        self._cache.insert(self, run, entries, size_bytes, now)

    def insert_ahead(
        self, ledger_id: int, first: int, entries: list[Entry], size_bytes: int, now: float
    ) -> None:
        """Add entries read from a bookie."""
        run = _Run(ledger_id, first, first)
        self._ahead.append(run)
        self._cache.insert(self, run, entries, size_bytes, now)

    def count_misses(self, count: int, size_bytes: int) -> None:
        """Entries were read from a bookie."""
        counts = self._cache.counts
        counts.misses += count
        counts.miss_bytes += size_bytes

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
        found, size_bytes = sized_first_within(run.entries[at : at + count_max], bytes_max)
        end = entry_id + len(found)
        if end <= run.read_end:
            counts = self._cache.counts
            counts.hits += len(found)
            counts.hit_bytes += size_bytes
        else:
            run.read_end = end
        return found

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
                self._cache.remove_group(run)

    def clear(self) -> None:
        """Drop all entries, because the topic is closed or at rest."""
        for run in [*self._tails.values(), *self._ahead]:
            self._drop(run)
        self._tails = {}
        self._ahead = []

    def forget(self, run: _Run) -> None:
        """The cache has dropped all entries of a run."""
        if self._tails.get(run.ledger_id) is run:
            del self._tails[run.ledger_id]
        elif run in self._ahead:
            self._ahead.remove(run)

    def _drop(self, run: _Run) -> None:
        while run.groups:
            self._cache.remove_group(run)
