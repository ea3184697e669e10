"""The cache of entries: its bound and watermark, and what it counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from broker.configuration.config_file import load_config
from broker.ground.entry import Entry
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.entry_cache import EVICTED_PER_SLICE, EntryCache, TopicCache
from broker.managed_ledger.tests.world import World, append_and_wait, open_ledger
from protocol.position import LATEST
from settings.kinds import NO_LIMIT

SIZE = 100


def fill(topic, first, count, ledger_id=1, now=0.0):
    """So many entries, each a group by itself."""
    for entry_id in range(first, first + count):
        entry = Entry(bytes(SIZE), 1, (ledger_id, entry_id))
        topic.append_tail(ledger_id, entry_id, [entry], SIZE, now)


def ahead(topic, first, count, ledger_id=1):
    entries = [Entry(bytes(SIZE), 1, (ledger_id, each)) for each in range(first, first + count)]
    topic.insert_ahead(ledger_id, first, entries, SIZE * count, 0.0)


def peaks(watermark, inserted):
    """Bytes in a cache of 20 entries after each of so many insertions."""
    cache = EntryCache(20 * SIZE, 1.0, watermark)
    topic = TopicCache(cache)
    sizes = []
    for entry_id in range(inserted):
        fill(topic, entry_id, 1)
        sizes.append(cache.size_bytes // SIZE)
    return sizes


def test_a_full_cache_falls_to_the_watermark_and_grows_again():
    sizes = peaks(0.5, 200)
    assert max(sizes) == 20
    full = sizes.index(20)
    assert min(sizes[full:]) == 10
    assert sizes[full:].count(20) > 1
    assert sizes[full:].count(10) > 1


def test_a_watermark_of_1_evicts_what_exceeds_the_bound_only():
    assert peaks(1.0, 60)[20:] == [20] * 40


def test_a_falling_cache_drops_little_at_once():
    """The event loop is not held up by the size of the cache."""
    sizes = peaks(0.1, 200)
    drops = [before - after for before, after in pairwise(sizes)]
    assert max(drops) <= 2


def test_a_cache_of_0_keeps_one_group():
    cache = EntryCache(0, 1.0, 0.9)
    fill(TopicCache(cache), 0, 5)
    assert cache.size_bytes == SIZE


def test_a_cache_that_was_emptied_otherwise_may_be_filled_to_its_bound():
    cache = EntryCache(20 * SIZE, 1.0, 0.5)
    topic = TopicCache(cache)
    fill(topic, 0, 22)
    topic.drop_acked((1, 21))
    cache.evict_old(now=0.0)
    fill(topic, 22, 20)
    assert cache.size_bytes == 20 * SIZE


def test_reads_of_the_tail_are_hits():
    cache = EntryCache(1 << 20, 1.0)
    topic = TopicCache(cache)
    fill(topic, 0, 10)
    assert len(topic.get(1, 2, 5, 1 << 20)) == 5
    assert topic.get(1, 10, 5, 1 << 20) is None
    counts = cache.counts
    assert (counts.hits, counts.hit_bytes) == (5, 5 * SIZE)
    assert (counts.misses, counts.inserted) == (0, 10)


def test_what_was_read_ahead_is_a_hit_for_the_second_reader_only():
    cache = EntryCache(1 << 20, 1.0)
    topic = TopicCache(cache)
    ahead(topic, 0, 10)
    topic.count_misses(10, 10 * SIZE)
    counts = cache.counts
    for entry_id in (0, 5):
        topic.get(1, entry_id, 5, 1 << 20)
    assert (counts.hits, counts.misses) == (0, 10)
    for entry_id in (0, 5):
        topic.get(1, entry_id, 5, 1 << 20)
    assert (counts.hits, counts.hit_bytes, counts.misses) == (10, 10 * SIZE, 10)


def test_what_leaves_the_cache_is_counted():
    cache = EntryCache(20 * SIZE, 1.0)
    topic = TopicCache(cache)
    fill(topic, 0, 22)
    assert (cache.counts.removed, cache.counts.evictions) == (2, 2)
    topic.drop_acked((1, 3))
    assert (cache.counts.removed, cache.counts.evictions) == (4, 2)
    cache.evict_old(now=2.0)
    cache.evict_old(now=3.0)
    assert (cache.counts.removed, cache.counts.evictions) == (22, 3)
    assert cache.size_bytes == 0


@pytest.mark.parametrize(
    ("line", "interval_s"),
    [
        ("", 0.1),
        ("managedLedgerCacheEvictionIntervalMs=10", 0.01),
        ("managedLedgerCacheEvictionIntervalMs=2000000000", 1_000.0),
        ("managedLedgerCacheEvictionFrequency=50", 0.02),
        ("managedLedgerCacheEvictionFrequency=0 managedLedgerCacheEvictionIntervalMs=30", 0.03),
        ("managedLedgerCacheEvictionFrequency=4 managedLedgerCacheEvictionIntervalMs=10", 0.25),
        ("managedLedgerCacheEvictionFrequency=100000", 0.001),
    ],
)
def test_the_interval_of_evictions(tmp_path, line, interval_s):
    path = tmp_path / "broker.conf"
    path.write_text("\n".join(line.split()), encoding="utf-8")
    config = ManagedLedgerConfig.from_broker_config(load_config([path], {}).config)
    assert config.cache_eviction_interval_s == pytest.approx(interval_s)


@pytest.mark.parametrize("group", [1, 100])
@pytest.mark.parametrize("are_acked", [False, True])
def test_old_entries_are_dropped_in_slices(group, are_acked):
    """Those of a busy second were dropped in one turn, or the groups that they had been in."""
    cache = EntryCache(NO_LIMIT, 1.0)
    topic = TopicCache(cache)
    count = 3 * EVICTED_PER_SLICE
    for first in range(0, count, group):
        entries = [Entry(bytes(SIZE), 1, (1, each)) for each in range(first, first + group)]
        topic.append_tail(1, first, entries, SIZE * group, 0.0)
    if are_acked:
        topic.drop_acked((1, count - 1))
    assert cache.counts.removed == (count if are_acked else 0)
    slices = [cache.counts.removed]
    while cache.evict_old(2.0):
        slices.append(cache.counts.removed)
    slices.append(cache.counts.removed)
    assert max(after - before for before, after in pairwise(slices)) <= EVICTED_PER_SLICE + group
    assert slices[-1] == count
    assert (cache.size_bytes, len(cache._order)) == (0, 0)
    groups = count // group
    work = groups if are_acked else groups + count
    assert len(slices) - 1 >= work // (EVICTED_PER_SLICE + group)
    assert cache.counts.evictions == (0 if are_acked else 1)


class Removed(trio.abc.Instrument):
    """How many entries had been removed at the end of each turn."""

    def __init__(self, cache):
        self._cache = cache
        self.seen = [0]

    def before_io_wait(self, timeout):
        self.seen.append(self._cache.counts.removed)


async def test_others_are_served_between_slices_of_old_entries(autojump_clock):
    world = World(cache_eviction_time_s=0.05, cache_eviction_interval_s=0.01)
    async with world.broker() as factory:
        fill(TopicCache(factory.cache), 0, 4 * EVICTED_PER_SLICE, now=trio.current_time())
        removed = Removed(factory.cache)
        trio.lowlevel.add_instrument(removed)
        await trio.sleep(5)
        trio.lowlevel.remove_instrument(removed)
    assert removed.seen[-1] == 4 * EVICTED_PER_SLICE
    assert max(after - before for before, after in pairwise(removed.seen)) <= EVICTED_PER_SLICE


@pytest.mark.parametrize("interval_s", [0.01, 0.4])
async def test_entries_leave_within_an_interval_after_their_time(interval_s, autojump_clock):
    world = World(cache_eviction_time_s=0.05, cache_eviction_interval_s=interval_s)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        for _ in range(3):
            await append_and_wait(ledger, b"one")
            assert factory.cache.size_bytes
            appended = trio.current_time()
            await trio.sleep_until(appended + 0.049)
            assert factory.cache.size_bytes
            await trio.sleep_until(appended + 0.051 + interval_s)
            assert not factory.cache.size_bytes
