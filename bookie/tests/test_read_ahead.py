"""What is read ahead of a request: how much, for whom, and within which bounds."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from bookie.read_cache import ENTRY_OVERHEAD_BYTES, ReadAheadCache
from bookie.tests.conftest import KEY, RecordingSink, entry, whole

COUNT = 200
PAYLOAD = bytes(1_000)
RUN_BYTES = 10 * len(whole(1, 0, PAYLOAD)) + 500
"""Of a request that ten entries fit into."""


@asynccontextmanager
async def flushed(machine, **changes):
    """A bookie with two ledgers of COUNT entries in its log, none of them in memory."""
    async with machine.running(**changes) as bookie:
        sink = RecordingSink()
        for entry_id in range(COUNT):
            for ledger_id in (1, 2):
                body = entry(ledger_id, entry_id, PAYLOAD)
                bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(2 * COUNT)
        await bookie.checkpoint()
        yield bookie


async def runs(bookie, ledger_id=1, size_bytes_max=RUN_BYTES, count_max=5_000):
    """The lengths of all runs of a ledger, read one after the other, and their bodies checked."""
    found = []
    lengths = []
    while len(found) < COUNT:
        run = await bookie.read_batch(ledger_id, len(found), count_max, size_bytes_max)
        lengths.append(len(run))
        found += run
    assert found == [whole(ledger_id, entry_id, PAYLOAD) for entry_id in range(COUNT)]
    return lengths


async def test_a_backlog_is_read_by_runs_of_which_every_second_one_is_in_memory(machine):
    async with flushed(machine, dbStorage_readAheadCacheBatchSize=20) as bookie:
        # The first run does not continue another one: what it read ahead is cut by the batch size.
        assert await runs(bookie) == [10] * 20
        statistics = bookie.statistics()
        assert statistics.entry_log_reads <= 11
        assert statistics.read_cache_hits >= 90
        assert statistics.read_cache_hits + statistics.read_cache_misses == COUNT
        assert statistics.read_cache_entries <= 10, "what was answered by runs is dropped"


@pytest.mark.parametrize(
    "off", [{"dbStorage_readAheadCacheMaxSizeMb": 0}, {"dbStorage_readAheadCacheBatchSize": 0}]
)
async def test_without_a_cache_or_a_batch_nothing_is_read_ahead(machine, off):
    async with flushed(machine, **off) as bookie:
        assert await runs(bookie) == [10] * 20
        for entry_id in range(10):
            assert await bookie.read_entry(2, entry_id) == whole(2, entry_id, PAYLOAD)
        statistics = bookie.statistics()
        assert statistics.entry_log_reads == 30
        assert (statistics.read_cache_hits, statistics.read_cache_bytes) == (0, 0)


async def test_runs_that_do_not_fit_into_a_batch_are_not_read_ahead(machine):
    """Otherwise a short run would follow each long one."""
    async with flushed(machine, dbStorage_readAheadCacheBatchSize=5) as bookie:
        assert await runs(bookie) == [10] * 20
        assert bookie.statistics().entry_log_reads == 20


@pytest.mark.parametrize(("batch", "reads"), [(10, 20), (50, 4), (1, 200)])
async def test_single_reads_find_a_batch_in_memory(machine, batch, reads):
    async with flushed(machine, dbStorage_readAheadCacheBatchSize=batch) as bookie:
        for entry_id in range(COUNT):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, PAYLOAD)
        statistics = bookie.statistics()
        assert statistics.entry_log_reads == reads
        assert statistics.read_cache_misses == reads
        assert statistics.read_cache_hits == COUNT - reads


async def test_readers_at_several_places_each_have_their_own_read_ahead(machine):
    async with flushed(machine, dbStorage_readAheadCacheBatchSize=20) as bookie:
        at = {(1, 0): 0, (1, 100): 100, (2, 0): 0}
        for _ in range(10):
            for reader, first in at.items():
                run = await bookie.read_batch(reader[0], first, 5_000, RUN_BYTES)
                assert len(run) == 10
                at[reader] += len(run)
        assert bookie.statistics().entry_log_reads <= 18


async def test_what_was_read_from_the_write_cache_is_counted(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        for entry_id in range(COUNT):
            bookie.add_entry(1, entry_id, entry(1, entry_id, PAYLOAD), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(COUNT)
        await runs(bookie)
        statistics = bookie.statistics()
        assert statistics.write_cache_hits == COUNT
        assert (statistics.read_cache_hits, statistics.read_cache_misses) == (0, 0)


def test_the_cache_is_bounded_and_drops_the_oldest_runs():
    each = 100 + ENTRY_OVERHEAD_BYTES
    cache = ReadAheadCache(10 * each)
    for ledger_id in (1, 2, 3):
        cache.put(ledger_id, 5, [bytes(100)] * 4)
    assert cache.find(1, 5) == ([], 0)
    assert cache.find(2, 6) == ([bytes(100)] * 4, 1)
    assert cache.find(3, 9) == ([], 0)
    assert (cache.size_bytes, cache.entries) == (8 * each, 8)
    cache.put(4, 0, [bytes(100)] * 11)
    assert (cache.size_bytes, cache.entries) == (8 * each, 8)


def test_a_run_takes_the_place_of_one_with_the_same_beginning():
    cache = ReadAheadCache(1 << 20)
    cache.put(1, 5, [b"a"])
    cache.put(1, 5, [b"a", b"b"])
    cache.put(1, 2, [b"c"])
    assert cache.find(1, 6) == ([b"a", b"b"], 1)
    assert cache.find(1, 2) == ([b"c"], 0)
    assert cache.find(1, 4) == ([], 0)
    assert cache.entries == 3


async def test_two_readers_may_take_the_same_long_run_at_the_same_time(machine):
    """A reader lets others run within a run of more than 1,000 entries, and one of them may have
    taken it out of memory then."""
    count = 1_600
    async with machine.running(dbStorage_readAheadCacheBatchSize=2_000) as bookie:
        sink = RecordingSink()
        for entry_id in range(count):
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(count)
        await bookie.checkpoint()
        assert await bookie.read_batch(1, 0, 1, RUN_BYTES) == [whole(1, 0)]
        assert bookie.statistics().read_cache_entries == count - 1
        found = []

        async def read():
            found.append(await bookie.read_batch(1, 1, count, 1 << 20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(read)
        assert found == [[whole(1, entry_id) for entry_id in range(1, count)]] * 2
        assert bookie.statistics().read_cache_entries == 0
